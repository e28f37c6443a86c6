"""From the trials of one commit in one environment to one number per operator, backend and case."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from benchmarks.trial_file import FAILED, Status
from ci.stats.types import FloatArray
from ci.trials.trial import Arm, BrokenModule, Checkout, Declaration, Environment, Machine, Trial

Key = tuple[str, str, str]
"""Operator, backend, case."""

CI_LEVEL = 0.99
"""asv's columns are called ci_99."""

NARROWEST = 1e-3
"""Least relative half-width of an interval.  asv weighs a point by 1 / width, without bound, and then misses steps
beside a point that happens to repeat exactly.  0.1 % is how well a paired ratio repeats (A/A on an H200, 2026-11)."""

BADNESS = (*FAILED, Status.OK, Status.UNSUPPORTED, Status.SKIPPED)
"""Which status speaks for a session: failures first, then ok, then what was not tried."""


class PairedRatio(NamedTuple):
    """Baseline time / our time, above 1 ours is faster, with its 99 % interval.  name: the fastest baseline."""

    name: str
    ratio: float
    low: float
    high: float


class PooledTimes(NamedTuple):
    """The times of one backend in one case over all trials of a place; seconds.

    seconds: median over all samples.  low, high: 99 % interval.  q25, q75: quartiles over all samples.
    samples, trials: how many.  paired: against the fastest baseline, None where none ran beside it.
    """

    seconds: float
    low: float
    high: float
    q25: float
    q75: float
    samples: int
    trials: int
    paired: PairedRatio | None = None


@dataclasses.dataclass(frozen=True, order=True)
class Place:
    """Where a number belongs: machine, commit (40 hex digits) and environment name."""

    machine: str
    commit: str
    env: str

    @property
    def stem(self) -> str:
        """What asv calls the result file, without its suffix."""
        return f"{self.commit[:8]}-{self.env}"

    def role_in(self, trial: Trial) -> str | None:
        """Which checkout of a trial is this commit in this environment; head before others, None if there is none."""
        roles = sorted(trial.checkouts, key=lambda role: (role != "head", role))
        return next((role for role in roles if self.is_of(trial.checkouts[role])), None)

    def is_of(self, checkout: Checkout) -> bool:
        """Whether a checkout is recorded here."""
        return checkout.recordable == self.commit and checkout.environment.name == self.env


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """One (operator, backend, case) at a place.  trials: seconds, one array per trial; empty unless status is ok.

    definition, case_definition: digests of the benchmark definition of the operator and of the case, "" if not known.
    code: digest of what it ran in its newest trial, with its knobs: machine code, or files where there is none (on a
    CPU); "" if not known.  beside: for each of `trials`, the seconds of the baselines that were timed in the
    same rounds by the same processes, by name.
    """

    kernel: str
    backend: str
    case: str
    status: Status
    why: str
    trials: tuple[FloatArray, ...]
    method: str
    definition: str
    case_definition: str
    code: str = ""
    beside: tuple[Mapping[str, FloatArray], ...] = ()

    @property
    def seconds(self) -> float:
        """Median over the samples of all trials, NaN without any."""
        return _median(np.concatenate(self.trials)) if self.trials else float("nan")

    @property
    def key(self) -> Key:
        """Which cell it is."""
        return self.kernel, self.backend, self.case


@dataclasses.dataclass(frozen=True, eq=False)
class PooledTrials:
    """All that was measured at a place.  The newest trial decides where they disagree about an operator's declaration.

    declarations: by operator.  started_ms, duration_s: by operator, of its newest trial and of all.
    bases: by operator, the commit that was base of the newest trial of which this one was head.
    """

    place: Place
    cells: Mapping[Key, Cell]
    declarations: Mapping[str, Declaration]
    started_ms: Mapping[str, int]
    duration_s: Mapping[str, float]
    bases: Mapping[str, str]
    machine: Machine
    environment: Environment
    date_ms: int
    broken: Sequence[BrokenModule]


class _Result(NamedTuple):
    """One arm of one case: the session it was measured in, how its samples were taken, and the baselines beside it."""

    session: str
    method: str
    arm: Arm
    beside: Mapping[str, FloatArray]
    files: str

    @property
    def code(self) -> str:
        """See `Cell.code`."""
        knobs = "".join(f" {name}={value}" for name, value in sorted(self.arm.knobs.items()))
        known = self.arm.code_hash or self.files
        return f"{known}{knobs}" if known else ""


def pool(trials: Iterable[Trial], place: Place) -> PooledTrials:
    """Pool the trials that belong to a place; ValueError if none does."""
    ordered = sorted((trial for trial in trials if trial.machine.name == place.machine), key=lambda trial: trial.order)
    here = [(trial, trial.checkouts[role]) for trial in ordered if (role := place.role_in(trial))]
    if not here:
        raise ValueError(f"no trial of {place}")
    newest, checkout = here[-1]
    declarations = {trial.operator: c.declaration for trial, c in here if c.declaration}
    started = {trial.operator: trial.started_ms for trial, _ in here}
    durations = {name: sum(trial.duration_s for trial, _ in here if trial.operator == name) for name in declarations}
    bases = {
        trial.operator: trial.checkouts["base"].commit or ""
        for trial, own in here
        if trial.paired and own is trial.checkouts["head"]
    }
    cells = _cells([trial for trial, _ in here], place, declarations)
    date_ms = checkout.date_ms or max(started.values())
    return PooledTrials(
        place,
        cells,
        declarations,
        started,
        durations,
        bases,
        newest.machine,
        checkout.environment,
        date_ms,
        checkout.broken,
    )


def interval(trials: Sequence[FloatArray]) -> tuple[float, float]:
    """99 % interval of the median time, seconds.

    Over trials where there are two or more: Student's t on the logarithms of their medians, because a process start is
    the unit that varies.  One trial has only its samples: the order statistics whose coverage is at least 99 %
    (binomial, as asv does), least and greatest where it has fewer than 8.  Never narrower than NARROWEST.
    """
    return _around(np.sort(np.concatenate(trials)), trials)


def _around(samples: FloatArray, trials: Sequence[FloatArray]) -> tuple[float, float]:
    """The interval of :func:`interval`.  samples: of all trials, sorted."""
    median = _middle(samples)
    if len(trials) >= 2:
        logs = np.log([_median(trial) for trial in trials])
        mean = float(np.add.reduce(logs)) / len(logs)
        away = logs - mean
        reach = _student(len(logs) - 1) * math.sqrt(np.add.reduce(away * away) / (len(logs) - 1)) / math.sqrt(len(logs))
        low, high = np.exp(mean - reach), np.exp(mean + reach)
    else:
        below, above = _order_statistics(len(samples))
        low, high = samples[below], samples[above]
    return min(float(low), median * (1 - NARROWEST)), max(float(high), median * (1 + NARROWEST))


# Of so few values, numpy's median, quantiles and standard deviation take ten times as long as what they come to.


def _median(values: Sequence[float] | FloatArray) -> float:
    return _middle(np.sort(values))


def _middle(ordered: FloatArray) -> float:
    """Median of sorted values."""
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else float(ordered[half - 1] + ordered[half]) / 2


def _quantile(ordered: FloatArray, share: float) -> float:
    """Of sorted values, to the last digit as np.quantile: linear between neighbours, from the nearer of them."""
    below, part = divmod((len(ordered) - 1) * share, 1)
    low = float(ordered[int(below)])
    high = float(ordered[min(int(below) + 1, len(ordered) - 1)])
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


@functools.cache
def _student(degrees: int) -> float:
    return float(special.stdtrit(degrees, 0.5 + CI_LEVEL / 2))


@functools.cache
def _order_statistics(count: int) -> tuple[int, int]:
    """Indices of the sorted samples that enclose the median with at least CI_LEVEL."""
    tail = special.bdtr(np.arange(count), count, 0.5)  # P(at most k samples lie below the median)
    below = max(int(np.searchsorted(tail, (1 - CI_LEVEL) / 2, side="right")) - 1, 0)
    return below, count - 1 - below


def _cells(trials: Sequence[Trial], place: Place, declarations: Mapping[str, Declaration]) -> dict[Key, Cell]:
    seen: dict[Key, list[_Result]] = {}
    for trial in trials:
        role = place.role_in(trial) or ""
        declared = trial.checkouts[role].declaration
        for name, case in trial.cases.items():
            if declared and _same_definition(declared, declarations[trial.operator], name):
                arms = case.of_role(role)
                for backend, arm in arms.items():
                    files = trial.checkouts[role].kernel_digest or ""
                    result = _Result(trial.session, case.method, arm, _beside(backend, arms, declared), files)
                    seen.setdefault((trial.operator, backend, name), []).append(result)
    return {key: _cell(key, results, declarations[key[0]]) for key, results in sorted(seen.items())}


def _same_definition(one: Declaration, other: Declaration, case: str) -> bool:
    """Whether two declarations measure a case alike; numbers of different benchmark definitions are never pooled."""
    return one.definition == other.definition and _case_definition(one, case) == _case_definition(other, case)


def _case_definition(declared: Declaration, case: str) -> str | None:
    return declared.cases[case].definition if case in declared.cases else None


def _beside(backend: str, arms: Mapping[str, Arm], declared: Declaration) -> dict[str, FloatArray]:
    """Seconds of the baselines in the rounds of an arm; none for a baseline itself."""
    if backend in declared.baselines or not arms[backend].ok:
        return {}
    found = {name: arms[name].seconds for name in declared.baselines if name in arms}
    return {name: seconds for name, seconds in found.items() if len(seconds) == len(arms[backend].seconds)}


def _cell(key: Key, results: Sequence[_Result], declared: Declaration) -> Cell:
    """One cell of its results, oldest first.  The newest session decides the status, the worst of its trials counts."""
    last = results[-1]
    speaking = min((r.arm for r in results if r.session == last.session), key=lambda arm: BADNESS.index(arm.status))
    timed = [r for r in results if r.arm.ok] if speaking.ok else []
    definitions = declared.definition, _case_definition(declared, key[2]) or ""
    code = next(filter(None, (r.code for r in reversed(results))), "")
    about = speaking.status, speaking.why
    seconds, beside = tuple(r.arm.seconds for r in timed), tuple(r.beside for r in timed)
    return Cell(*key, *about, seconds, last.method, *definitions, code, beside)


# The time of a vendor's baseline / our time, from rounds that both ran in: what clocks do to a trial cancels.
#
# The estimate is the median over trials of the median over rounds of the log ratio; the interval over trials is that of
# :func:`ci.records.pooling.interval`, which takes the ratios of a trial as it takes its seconds.


def times_of(cell: Cell) -> PooledTimes | None:
    """What the samples of a cell come to, None where it has no times."""
    if not cell.trials:
        return None
    samples = np.sort(np.concatenate(cell.trials))
    q25, q75 = _quantile(samples, 0.25), _quantile(samples, 0.75)
    low, high = _around(samples, cell.trials)
    paired = beside_fastest(cell)
    return PooledTimes(_middle(samples), low, high, q25, q75, len(samples), len(cell.trials), paired)


def beside_fastest(cell: Cell) -> PairedRatio | None:
    """The ratio to the baseline of the least median time in the trials of a cell; None if none ran beside it."""
    beside = {name: _rounds(cell, name) for name in dict.fromkeys(name for those in cell.beside for name in those)}
    if not beside:
        return None

    def seconds(one: str) -> float:
        return _median(np.concatenate([those[one] for those in cell.beside if one in those]))

    name = min(beside, key=lambda one: (seconds(one), one)) if len(beside) > 1 else next(iter(beside))
    ratios = beside[name]
    ratio = float(np.exp(_median([_median(np.log(trial)) for trial in ratios])))
    low, high = interval(ratios)
    return PairedRatio(name, ratio, min(low, ratio), max(high, ratio))


def _rounds(cell: Cell, baseline: str) -> Sequence[FloatArray]:
    """Ratios round by round, shape (rounds,), of every trial that has the baseline."""
    pairs = zip(cell.trials, cell.beside, strict=True)
    return [those[baseline] / seconds for seconds, those in pairs if baseline in those]
