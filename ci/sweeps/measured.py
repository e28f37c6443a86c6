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
from typing import Any, NamedTuple

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
from ci.trials.trial import Arm, Declaration, Environment, Machine, SweepBatch, Trial


class SweepError(Exception):
    """A sweep cannot be read, planned or measured; the text says why and what to do."""


KEY = ("operator", "case", "backend", "point", "regime")
RATIO = ("ratio", "low", "high")
OF_CODE = ("status", "seconds", *RATIO, "trials", "rounds", "rung")
"""What a point has of the one that was timed in its place."""
COLUMNS = (*KEY, "is_anchor", "anchor", "knobs", "config", "why", *OF_CODE, "whole_s", "equal_to")
"""point: id, "" for a backend as it is.  knobs: what the point overrides; config: all knobs of the launch (dicts).
seconds: median over trials of trial medians; whole_s: median of calls seen from the host.  ratio, low, high: time /
time of the anchor and its interval.  rung: the highest it was measured in.  equal_to: the point (or backend) that was
timed in its place, "" for none.  Times are NaN unless status is "ok"."""


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

    gpu_s: seconds that its processes had GPUs (or, on a CPU, the machine).
    """

    frame: pd.DataFrame
    origin: Origin
    machine: Machine
    environment: Environment
    declarations: Mapping[str, Declaration]
    started_at: str = ""
    gpu_s: float = 0.0

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
    files = list(map(read_file, paths))
    named = ", ".join(str(file.path) for file in files)
    measured = one_sweep((trial for file in files for trial in file.trials), named)
    if measured is None:
        raise SweepError(f"{named}: no line of a sweep; `ridgeline sweep --help` says how to measure one")
    return measured


def one_sweep(trials: Iterable[Trial], where: str) -> Measured | None:
    """The sweep that trials are of, None for none; SweepError for several.  where: the files, for people."""
    sweeps = gathered(trials)
    if len(sweeps) > 1:
        origins = "; ".join(str(sweep.origin) for sweep in sweeps)
        raise SweepError(
            f"{where}: lines of {len(sweeps)} origins ({origins}), whose ratios are not mixed; give the files of one "
            "of them at a time, or measure into another --out"
        )
    return sweeps[0] if sweeps else None


def gathered(trials: Iterable[Trial]) -> list[Measured]:
    """The sweeps that trials are of, by machine, environment and commit; trials of no sweep are left out."""
    by_origin: dict[Origin, dict[str, Trial]] = {}
    for trial in trials:
        if trial.sweep:
            by_origin.setdefault(origin_of(trial), {}).setdefault(trial.id, trial)
    return [_measured(origin, list(own.values())) for origin, own in by_origin.items()]


def origin_of(trial: Trial) -> Origin:
    """Where a line of a sweep belongs."""
    head = trial.checkouts["head"]
    return Origin(trial.machine.name, head.environment.name, head.recordable or head.commit, not head.recordable)


def _measured(origin: Origin, trials: Sequence[Trial]) -> Measured:
    newest = max(trials, key=lambda trial: trial.order)
    declared = {trial.operator: declaration for trial in trials if (declaration := trial.declaration())}
    return Measured(
        _frame(tuple(trials), newest.machine.kind).copy(deep=False),
        origin,
        newest.machine,
        newest.checkouts["head"].environment,
        declared,
        min(trial.started_at for trial in trials),
        sum(trial.duration_s * _ranks(trial) for trial in trials),
    )


def _ranks(trial: Trial) -> int:
    declared = trial.declaration()
    worlds = [declared.cases[case].world for case in trial.cases if declared and case in declared.cases]
    return max(worlds, default=1)


# ---- rows ---------------------------------------------------------------------------------------------------------


Pair = tuple[FloatArray, FloatArray]
"""Seconds of the anchor and of a point, round by round."""


class Observation(NamedTuple):
    """A point in one line.  pair: None where either has no time, or there are under 2 rounds."""

    trial: Trial
    batch: SweepBatch
    arm: Arm
    pair: Pair | None


Key = tuple[str, str, str, str, str]
"""The values of KEY."""


def observations(trials: Iterable[Trial]) -> dict[Key, list[Observation]]:
    """Every point with what was seen of it, in the order of the lines."""
    seen: dict[Key, list[Observation]] = {}
    for trial in trials:
        batch = trial.sweep
        assert batch is not None, "a line of a sweep"
        for case, result in trial.cases.items():
            anchor = result.arms.get(("head", batch.anchor))
            for label, arm in result.of_role("head").items():
                paired = anchor and anchor.ok and arm.ok and 2 <= len(anchor.seconds) == len(arm.seconds)
                pair = (anchor.seconds, arm.seconds) if anchor and paired else None
                key = (trial.operator, case, *split(label), batch.regime)
                seen.setdefault(key, []).append(Observation(trial, batch, arm, pair))
    return seen


@functools.lru_cache(maxsize=16)
def _frame(trials: tuple[Trial, ...], kind: str) -> pd.DataFrame:
    """Of the same trials once: pages show a sweep, and the history has its knobs."""
    seen = observations(trials)
    rows = {key: _row(key, own) for key, own in seen.items()}
    for key, ratio in _ratios({key: own for key, own in seen.items() if not rows[key]["equal_to"]}, kind).items():
        if rows[key]["status"] == "ok":
            rows[key].update(zip(RATIO, ratio, strict=True))
    for key, row in rows.items():
        if row["equal_to"] and (timed := rows.get((*key[:2], *split(row["equal_to"]), key[4]))):
            row.update((name, timed[name]) for name in OF_CODE)
    return pd.DataFrame(list(rows.values()), columns=list(COLUMNS))


def _row(key: Key, seen: Sequence[Observation]) -> dict[str, Any]:
    """All but the ratio."""
    status = min((one.arm.status for one in seen), key=WORST_FIRST.index)
    last = next(one for one in reversed(seen) if one.arm.status is status)
    good = [one for one in seen if one.arm.ok] if status is Status.OK else []
    point, batch = key[3], last.batch
    knobs = dict(batch.points[point].knobs) if point in batch.points else {}
    calls = [seconds for one in good for seconds in one.arm.whole_s]
    return {
        **dict(zip(KEY, key, strict=True)),
        "is_anchor": _is_anchor(key, seen),
        "anchor": batch.anchor,
        "knobs": knobs,
        "config": {**last.arm.knobs, **knobs},
        "status": str(status),
        "why": last.arm.why,
        "seconds": statistics.median(one.arm.median for one in good) if good else math.nan,
        "trials": _trials(good),
        "rounds": sum(one.arm.rounds for one in good),
        "rung": max(one.batch.rung for one in seen),
        "whole_s": statistics.median(calls) if calls else math.nan,
        "equal_to": seen[-1].arm.same_as,
    }


def _trials(seen: Sequence[Observation]) -> int:
    return len({(one.trial.session, one.trial.number) for one in seen})


def _is_anchor(key: Key, seen: Sequence[Observation]) -> bool:
    return not key[3] and key[2] == seen[-1].batch.anchor


# ---- ratios -------------------------------------------------------------------------------------------------------


Ratio = tuple[float, float, float]


def _ratios(seen: Mapping[Key, Sequence[Observation]], kind: str) -> dict[Key, Ratio]:
    """RATIO by point, case by case.  Points of several trials are judged together, by how much these differ."""
    pairs = {key: own for key, those in seen.items() if (own := [one.pair for one in those if one.pair])}
    ratios: dict[Key, Ratio] = {}
    for operator in dict.fromkeys(key[0] for key in pairs):
        settings = policy.load().settings(operator, kind)
        mine = [key for key in pairs if key[0] == operator]
        for case in dict.fromkeys((key[1], key[4]) for key in mine):
            keys = [key for key in mine if (key[1], key[4]) == case]
            mean, sd = estimates([pairs[key] for key in keys], settings.trial_noise)
            reach = ndtri(0.5 + settings.confidence / 2) * sd
            ends = zip(*(map(math.exp, logs) for logs in (mean, mean - reach, mean + reach)), strict=True)
            ratios |= zip(keys, ends, strict=True)
        of_points = {key: [one for one in seen[key] if one.pair] for key in mine if not _is_anchor(key, seen[key])}
        several = [key for key, own in of_points.items() if _trials(own) > 1]
        trials = samples([[PairedRounds(n, *pair) for n, pair in enumerate(pairs[key])] for key in several])
        scale = Scale(settings.trial_noise, settings.arm_bias, settings.confidence)
        of_trials = effects([sample for sample in trials if sample], [scale] * len(several))
        ratios |= {key: effect.ratios for key, effect in zip(several, of_trials, strict=True)}
    return ratios | {key: (1.0, 1.0, 1.0) for key in ratios if _is_anchor(key, seen[key])}


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


def estimates(points: Sequence[Sequence[Pair]], least: float) -> tuple[FloatArray, FloatArray]:
    """Log-ratios of points to the anchor and their standard deviations, shape (points,) each, from their trials.

    Each point has at least one trial; points given together are of one case.  least: the smallest spread between
    trials, as a share of the time (policy: trial_noise).
    """
    pairs = [pair for trials in points for pair in trials]
    shift, variance = np.array([row[:2] for row in summaries(pairs)]).T
    rounds = np.array([len(anchor) for anchor, _ in pairs])
    per_round = (variance * rounds + np.median(variance * rounds)) / 2
    tau = np.maximum(least, TRIAL_SHARE * np.sqrt(per_round / ROUND_VARIANCE))
    precision = 1 / (per_round / rounds + tau**2)
    point = np.repeat(np.arange(len(points)), list(map(len, points)))
    total = np.bincount(point, precision)
    return np.bincount(point, precision * shift) / total, 1 / np.sqrt(total)


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
    reach, joint = ndtri(1 - miss / 2), ndtri(1 - miss / (2 * len(mean)))
    bound = float(np.min(mean + joint * sd)) + np.log1p(indifference)
    return np.asarray(mean - reach * sd <= bound)
