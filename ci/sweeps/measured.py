"""What the lines of a sweep say of its points: one row for each, where they were measured, and how sure a ratio is.

Every point is a ratio to the anchor that was timed in turn with it; its interval is over trials (`ci.stats`), or where
a point has a single trial, of the spread that the rounds of the trial imply.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri

from benchmarks.points import split
from benchmarks.trial_file import WORST_FIRST, Status
from ci.judging import policy
from ci.stats import FloatArray, PairedRounds
from ci.stats.interval import Scale, effects, samples, summaries
from ci.trials.file import read as read_file
from ci.trials.trial import Arm, Declaration, Environment, Json, Machine, Trial


class SweepError(Exception):
    """A sweep cannot be read, planned or measured; the text says why and what to do."""


COLUMNS = (
    *("operator", "case", "backend", "point", "is_anchor", "anchor", "regime", "knobs", "config", "status", "why"),
    *("seconds", "ratio", "low", "high", "log_ratio", "sd", "trials", "rounds", "rung", "equal_to", "code_hash"),
)
"""point: id, "" for a backend as it is.  knobs: what the point overrides; config: all knobs of the launch (dicts).
seconds: median over trials of trial medians.  ratio, low, high: time / time of the anchor and its interval; log_ratio
and sd: the same as `ci.sweeps.measured` has it.  rung: the highest it was measured in.  equal_to: the point (or
backend) that was timed in its place, "" for none.  Times are NaN unless status is "ok"."""


TIMES = ("log_ratio", "sd", "ratio", "low", "high")
"""Columns of a point's ratio to its anchor; NaN where it has none."""


@dataclasses.dataclass(frozen=True)
class Origin:
    """What the lines of one sweep have in common.  commit: the hash it may be recorded as, None for local changes."""

    machine: str
    env: str
    commit: str | None
    dirty: bool

    def __str__(self) -> str:
        commit = (self.commit or "no commit")[:8] + (" with local changes" if self.dirty else "")
        return f"{self.machine}, {self.env}, {commit}"


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """A sweep.  frame: see COLUMNS, points in the order of the files.  declarations: by operator.

    gpu_s: seconds that its processes had GPUs (or, on a CPU, the machine).  problems: lines that are not used.
    """

    frame: pd.DataFrame
    origin: Origin
    machine: Machine
    environment: Environment
    declarations: Mapping[str, Declaration]
    date_ms: int | None = None
    started_at: str = ""
    gpu_s: float = 0.0
    trials: tuple[Trial, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def versions(self) -> str:
        """ "torch 2.11.0, Triton 3.6.0, driver 580.159.04"."""
        installed = self.environment.versions
        named = [
            ("torch", installed.get("torch")),
            ("Triton", installed.get("triton")),
            ("driver", self.machine.driver),
        ]
        return ", ".join(f"{name} {str(version).split('+')[0]}" for name, version in named if version)

    @property
    def day(self) -> datetime.date:
        """When it began, UTC."""
        return datetime.datetime.fromisoformat(self.started_at).astimezone(datetime.UTC).date()


def read(paths: Iterable[Path]) -> Measured:
    """The one sweep of some trial files.  Raises SweepError if there is none, or lines of several machines."""
    files = list(paths)
    sweeps = read_all(files)
    named = ", ".join(map(str, files))
    if not sweeps:
        raise SweepError(f"{named}: no line of a sweep; `ridgeline sweep --help` says how to measure one")
    if len(sweeps) > 1:
        origins = "; ".join(str(sweep.origin) for sweep in sweeps)
        raise SweepError(
            f"{named}: lines of {len(sweeps)} origins ({origins}); give the files of one of them at a time"
        )
    return sweeps[0]


def read_all(paths: Iterable[Path]) -> list[Measured]:
    """The sweeps of some trial files, by machine, environment and commit."""
    trials, problems = list[Trial](), list[str]()
    for path in paths:
        file = read_file(path)
        trials += file.trials
        problems += [str(problem) for problem in file.problems()]
    return gathered(trials, problems)


def gathered(trials: Iterable[Trial], problems: Sequence[str] = ()) -> list[Measured]:
    """The sweeps that trials are of; those of no sweep are left out."""
    by_origin: dict[Origin, dict[str, Trial]] = {}
    for trial in trials:
        if trial.sweep:
            by_origin.setdefault(origin_of(trial), {}).setdefault(trial.id, trial)
    return [_measured(origin, list(own.values()), problems) for origin, own in by_origin.items()]


def origin_of(trial: Trial) -> Origin:
    """Where a line of a sweep belongs."""
    head = trial.checkouts["head"]
    return Origin(trial.machine.name, head.environment.name, head.recordable or head.commit, not head.recordable)


def _measured(origin: Origin, trials: Sequence[Trial], problems: Sequence[str]) -> Measured:
    newest = max(trials, key=lambda trial: trial.order)
    declared = {trial.operator: declaration for trial in trials if (declaration := trial.declaration())}
    return Measured(
        _frame(tuple(trials), newest.machine.kind).copy(deep=False),
        origin,
        newest.machine,
        newest.checkouts["head"].environment,
        declared,
        newest.checkouts["head"].date_ms,
        min(trial.started_at for trial in trials),
        sum(trial.duration_s * _ranks(trial) for trial in trials),
        tuple(trials),
        tuple(problems),
    )


def _ranks(trial: Trial) -> int:
    declared = trial.declaration()
    worlds = [declared.cases[case].world for case in trial.cases if declared and case in declared.cases]
    return max(worlds, default=1)


# ---- rows ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Observation:
    """A point in one line.  anchored: the anchor's samples of the same rounds, None if it had none."""

    trial: Trial
    arm: Arm
    anchored: FloatArray | None

    @property
    def pair(self) -> tuple[FloatArray, FloatArray] | None:
        """(anchor's seconds, its own), round by round; None where either has no time, or there are under 2 rounds."""
        if self.anchored is None or not self.arm.ok or len(self.arm.seconds) < 2:
            return None
        return (self.anchored, self.arm.seconds) if len(self.anchored) == len(self.arm.seconds) else None


Key = tuple[str, str, str, str, str]
"""(operator, case, backend, point, regime)."""


def observations(trials: Iterable[Trial]) -> dict[Key, list[Observation]]:
    """Every point with what was seen of it, in the order of the lines."""
    seen: dict[Key, list[Observation]] = {}
    for trial in trials:
        batch = trial.sweep
        assert batch is not None, "a line of a sweep"
        for case, result in trial.cases.items():
            anchor = result.arms.get(("head", batch.anchor))
            anchored = anchor.seconds if anchor and anchor.ok else None
            for label, arm in result.of_role("head").items():
                key = (trial.operator, case, *split(label), batch.regime)
                seen.setdefault(key, []).append(Observation(trial, arm, anchored))
    return seen


@functools.lru_cache(maxsize=16)
def _frame(trials: tuple[Trial, ...], kind: str) -> pd.DataFrame:
    """Of the same trials once: pages show a sweep, and the history has its knobs."""
    seen = observations(trials)
    timed = {key: seen.get(_timed_as(key, own), own) for key, own in seen.items()}
    ratios = _ratios({key: own for key, own in timed.items() if own is seen[key]}, kind)
    rows = [_row(key, own, timed[key], ratios.get(_timed_as(key, own))) for key, own in seen.items()]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _timed_as(key: Key, seen: Sequence[Observation]) -> Key:
    """The point whose times a point has: its own, or those of the one that runs the same code."""
    other = seen[-1].arm.same_as
    return (key[0], key[1], *split(other), key[4]) if other else key


def _row(
    key: Key, seen: Sequence[Observation], timed: Sequence[Observation], ratio: Mapping[str, float] | None
) -> Json:
    """seen: of the point; timed: of the one whose times it has, which may be another."""
    operator, case, backend, point, regime = key
    status = worst(observation.arm.status for observation in timed)
    last = next((observation for observation in reversed(seen) if observation.arm.status is status), seen[-1])
    good = [observation for observation in timed if observation.arm.ok] if status is Status.OK else []
    batch = last.trial.sweep
    assert batch is not None
    knobs = dict(batch.points[point].knobs) if point in batch.points else {}
    return {
        "operator": operator,
        "case": case,
        "backend": backend,
        "point": point,
        "regime": regime,
        "is_anchor": _its_anchor(key, seen),
        "anchor": batch.anchor,
        "status": str(status),
        "why": last.arm.why,
        "knobs": knobs,
        "config": {**last.arm.knobs, **knobs},
        "seconds": statistics.median(observation.arm.median for observation in good) if good else math.nan,
        **(ratio if ratio and good else dict.fromkeys(TIMES, math.nan)),
        "trials": len({(observation.trial.session, observation.trial.number) for observation in good}),
        "rounds": sum(observation.arm.rounds for observation in good),
        "rung": max(observation.trial.sweep.rung for observation in timed if observation.trial.sweep),
        "equal_to": seen[-1].arm.same_as,
        "code_hash": last.arm.code_hash or "",
    }


def worst(statuses: Iterable[Status]) -> Status:
    """The worst of several, "ok" where all are."""
    there = set(statuses)
    return next((status for status in WORST_FIRST if status in there), Status.OK)


# ---- ratios -------------------------------------------------------------------------------------------------------


def _ratios(seen: Mapping[Key, Sequence[Observation]], kind: str) -> dict[Key, dict[str, float]]:
    """TIMES by point, case by case: cases are judged together where they have several trials."""
    paired = {
        key: own
        for key, ratios_of in seen.items()
        if (own := [observation for observation in ratios_of if observation.pair])
    }
    ratios_of: dict[Key, dict[str, float]] = {}
    for operator in dict.fromkeys(key[0] for key in paired):
        settings = policy.load().settings(operator, kind)
        mine = {key: own for key, own in paired.items() if key[0] == operator}
        ratios_of |= _modelled(mine, settings)
        several = {key: own for key, own in mine.items() if _trials(own) > 1 and not _its_anchor(key, own)}
        for key, ratios in _over_trials(several, settings).items():
            ratios_of[key] |= ratios
    return ratios_of


def _trials(seen: Sequence[Observation]) -> int:
    return len({(observation.trial.session, observation.trial.number) for observation in seen})


def _modelled(seen: Mapping[Key, Sequence[Observation]], settings: policy.Settings) -> dict[Key, dict[str, float]]:
    """By the spread that rounds imply (`ci.sweeps.measured`)."""
    reach = float(ndtri(0.5 + settings.confidence / 2))
    ratios: dict[Key, dict[str, float]] = {}
    for case in dict.fromkeys((key[1], key[4]) for key in seen):
        keys = [key for key in seen if (key[1], key[4]) == case]
        means, sds = estimates(shifts_of([seen[key] for key in keys]), settings.trial_noise)
        for key, mean, sd in zip(keys, map(float, means), map(float, sds), strict=True):
            mean, sd = (0.0, 0.0) if _its_anchor(key, seen[key]) else (mean, sd)
            ends = (mean, mean - reach * sd, mean + reach * sd)
            ratios[key] = dict(zip(TIMES, (mean, sd, *map(math.exp, ends)), strict=True))
    return ratios


def shifts_of(points: Sequence[Sequence[Observation]]) -> list[list[TrialShift]]:
    """Of every point, the shift of each of its observations (at least one with a pair)."""
    pairs = [[observation.pair for observation in seen if observation.pair] for seen in points]
    flat = iter(trial_shifts([pair for own in pairs for pair in own]))
    return [[next(flat) for _ in own] for own in pairs]


def _its_anchor(key: Key, seen: Sequence[Observation]) -> bool:
    batch = seen[-1].trial.sweep
    return not key[3] and batch is not None and key[2] == batch.anchor


def _over_trials(seen: Mapping[Key, Sequence[Observation]], settings: policy.Settings) -> dict[Key, dict[str, float]]:
    """Ratio and interval by how much the trials of a point differ (`ci.stats.interval`)."""
    made = samples(
        [
            [PairedRounds(n, *observation.pair) for n, observation in enumerate(own) if observation.pair]
            for own in seen.values()
        ]
    )
    sampled = {
        key: observation
        for key, observation in zip(seen, made, strict=True)
        if observation is not None and observation.trials > 1
    }
    scale = Scale(settings.trial_noise, settings.arm_bias, settings.confidence)
    effects_of = effects([*sampled.values()], [scale] * len(sampled)) if sampled else []
    return {
        key: dict(zip(TIMES[2:], observation.ratios, strict=True))
        for key, observation in zip(sampled, effects_of, strict=True)
    }


# What the trials of many points say of their ratios to the anchor: a mean and its standard deviation each.
#
# The model of the log-ratio of a point in one trial, as in `ci.stats.interval` but with one spread between trials,
# since most points of a sweep have a single trial and cannot tell it themselves:
#
#     shift_t ~ Normal(effect, v_t + tau^2),   tau = max(least, TRIAL_SHARE * spread of one round)
#
# v_t: what the rounds imply (`ci.stats.interval`), half its own and half the median of the points beside it, because
# eight rounds know their own variance to some 40 % only.


TRIAL_SHARE = 0.2
"""Spread between trials / spread of the paired log-ratios of a trial: 0.05 to 0.3 in A/A trials of five kernels on two
H200 (recorded 2026-11-20; sd of 39 trials of 40 rounds, less what the rounds imply)."""

ROUND_VARIANCE = 1.2
"""rounds * v_t / variance of one paired log-ratio: 1.0 to 1.3 in the same trials."""

FEWEST_ROUNDS = 8
"""With 4 rounds two slow samples spoil a trial: sd 1.6 % where 8 rounds have 0.8 % (the same trials, GEMM of 42 us)."""


class TrialShift(NamedTuple):
    """One trial of one point.  shift: log(time / anchor's time).  variance: of it, as its rounds imply it."""

    shift: float
    variance: float
    rounds: int


def trial_shifts(pairs: list[tuple[FloatArray, FloatArray]]) -> list[TrialShift]:
    """(anchor's seconds, point's seconds), shape (rounds,) each, as shifts; at least 2 rounds each."""
    rows = zip(pairs, summaries(pairs), strict=True)
    return [TrialShift(float(shift), float(variance), len(anchor)) for (anchor, _), (shift, variance, *_) in rows]


def estimates(points: list[list[TrialShift]], least: float) -> tuple[FloatArray, FloatArray]:
    """Log-ratios of points to the anchor and their standard deviations, shape (points,) each, from their trials.

    Each point has at least one trial; points given together are of one case.  least: the smallest spread between
    trials, as a share of the time (policy: trial_noise).
    """
    if not points:
        return np.empty(0), np.empty(0)
    typical = float(np.median([one.variance * one.rounds for trials in points for one in trials]))
    mean, sd = np.array([_estimate(trials, typical, least) for trials in points]).T
    return mean, sd


def _estimate(trials: list[TrialShift], typical: float, least: float) -> tuple[float, float]:
    """(mean, sd) of one point.  typical: variance of a trial of one round among the points of its case."""
    shift = np.array([one.shift for one in trials])
    per_round = np.array([(one.variance * one.rounds + typical) / 2 for one in trials])
    tau = np.maximum(least, TRIAL_SHARE * np.sqrt(per_round / ROUND_VARIANCE))
    precision = 1 / (per_round / np.array([one.rounds for one in trials]) + tau**2)
    return float((precision * shift).sum() / precision.sum()), float(1 / np.sqrt(precision.sum()))


# Which points of a sweep go on to the next rung, so that the best one is among them with a stated chance.
#
# With n points whose log-ratios are known as m_i +- s_i, let
#
#     U = min_j (m_j + a s_j),   a = normal quantile of 1 - miss / (2 n):   no m_j is further below its truth than a s_j
#     keep i  if  m_i - b s_i <= U + indifference,   b = normal quantile of 1 - miss / 2
#
# Whatever the truth is, the best point w fails this only if its own m_w is more than b s_w too high (chance miss / 2)
# or some m_j is more than a s_j too low (chance miss / 2 for all n together, by Bonferroni): for every other j, m_j + a
# s_j >= truth_j >= truth_w >= m_w - b s_w. So the best point is lost with a chance of at most `miss` per rung, and so
# is any one point that is within the indifference of the best. How many are kept is up to the noise: nothing is dropped
# because of a fixed share.


MISS = 0.05
"""Chance of missing the winner over all rungs, unless asked otherwise."""

INDIFFERENCE = 0.01
"""Points whose times differ by less than this share are equally good (issue 14: the winner within 1 % of the best)."""


def survivors(
    mean: FloatArray, sd: FloatArray, miss: float, indifference: float = INDIFFERENCE
) -> npt.NDArray[np.bool_]:
    """Which points go on, shape (points,).  mean, sd: of the log-ratios.  miss: chance that is spent on this rung."""
    if not len(mean):
        return np.zeros(0, dtype=np.bool_)
    reach, joint = ndtri(1 - miss / 2), ndtri(1 - miss / (2 * len(mean)))
    bound = float(np.min(mean + joint * sd)) + np.log1p(indifference)
    return np.asarray(mean - reach * sd <= bound)
