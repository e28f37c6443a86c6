"""From the trials of one commit in one environment to one number per operator, backend and case."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from benchmarks.trial_file import FAILED, Status
from ci.stats import FloatArray
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
        return float(_median(np.concatenate(self.trials))) if self.trials else float("nan")

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

    @functools.cached_property
    def times(self) -> Mapping[Key, PooledTimes]:
        """Of the cells that have times."""
        return pooled_times(self.cells)


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


def interval(trials: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """99 % interval of the median time, seconds.  trials: shape (..., rounds) each.

    Over trials where there are two or more: Student's t on the logarithms of their medians, because a process start is
    the unit that varies.  One trial has only its samples: the order statistics whose coverage is at least 99 %
    (binomial, as asv does), least and greatest where it has fewer than 8.  Never narrower than NARROWEST.
    """
    return _around(_pooled(trials), trials)


def _around(samples: FloatArray, trials: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """The interval of :func:`interval`.  samples: of all trials, sorted."""
    median, count = _middle(samples), len(trials)
    if count >= 2:
        logs = np.log(np.stack([_median(trial) for trial in trials], -1))
        mean = np.add.reduce(logs, -1) / count
        away = logs - mean[..., None]
        variance = np.add.reduce(away * away, -1) / (count - 1)
        reach = _student(count - 1) * np.sqrt(variance) / math.sqrt(count)
        low, high = np.exp(mean - reach), np.exp(mean + reach)
    else:
        below, above = _order_statistics(samples.shape[-1])
        low, high = samples[..., below], samples[..., above]
    return np.minimum(low, median * (1 - NARROWEST)), np.maximum(high, median * (1 + NARROWEST))


# Of so few values, numpy's median, quantiles and standard deviation take ten times as long as what they come to.


def _pooled(trials: Sequence[FloatArray]) -> FloatArray:
    """The samples of all trials, sorted; shapes (..., rounds)."""
    return np.sort(np.concatenate(trials, -1), -1)


def _median(values: FloatArray) -> FloatArray:
    return _middle(np.sort(values, -1))


def _middle(ordered: FloatArray) -> FloatArray:
    """Median of sorted values, shape (..., values)."""
    half, odd = divmod(ordered.shape[-1], 2)
    middle: FloatArray = ordered[..., half] if odd else (ordered[..., half - 1] + ordered[..., half]) / 2
    return middle


def _quantile(ordered: FloatArray, share: float) -> FloatArray:
    """Of sorted values, to the last digit as np.quantile: linear between neighbours, from the nearer of them."""
    last = ordered.shape[-1] - 1
    below, part = divmod(last * share, 1)
    low, high = ordered[..., int(below)], ordered[..., min(int(below) + 1, last)]
    between: FloatArray = low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)
    return between


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


def pooled_times(cells: Mapping[Key, Cell]) -> dict[Key, PooledTimes]:
    """What the samples of every cell come to that has times."""
    timed = {key: cell for key, cell in cells.items() if cell.trials}
    pairs = {key: (cell, name) for key, cell in timed.items() if (name := _fastest_baseline(cell))}
    ratios = _of_stacks(_paired_ratio, [_paired_rounds(cell, name) for cell, name in pairs.values()])
    paired = {key: PairedRatio(name, *row) for (key, (_, name)), row in zip(pairs.items(), ratios, strict=True)}
    times = dict[Key, PooledTimes]()
    rows = _of_stacks(_times, [cell.trials for cell in timed.values()])
    for (key, cell), (seconds, low, high, q25, q75) in zip(timed.items(), rows, strict=True):
        samples = sum(map(len, cell.trials))
        times[key] = PooledTimes(seconds, low, high, q25, q75, samples, len(cell.trials), paired.get(key))
    return times


Stacks = Sequence[FloatArray]
"""Arrays of shape (cells, rounds): those of one trial of cells whose trials have the same numbers of rounds."""


def _of_stacks(
    summary: Callable[[Stacks], Sequence[FloatArray]], arrays: Sequence[Sequence[FloatArray]]
) -> list[list[float]]:
    """A summary of the arrays of each cell; those of one shape together: a call of numpy costs more than its work."""
    of_shape: dict[tuple[int, ...], list[int]] = {}
    for n, own in enumerate(arrays):
        of_shape.setdefault(tuple(map(len, own)), []).append(n)
    values: list[list[float]] = [[] for _ in arrays]
    for members in of_shape.values():
        stacks = [np.stack(trial) for trial in zip(*(arrays[n] for n in members), strict=True)]
        for n, row in zip(members, np.stack(summary(stacks), -1).tolist(), strict=True):
            values[n] = row
    return values


def _times(trials: Stacks) -> tuple[FloatArray, ...]:
    """The first fields of PooledTimes."""
    samples = _pooled(trials)
    return (_middle(samples), *_around(samples, trials), _quantile(samples, 0.25), _quantile(samples, 0.75))


def _paired_ratio(rounds: Stacks) -> tuple[FloatArray, ...]:
    """Ratio, low and high of PairedRatio.  rounds: of our trials, then the baseline's of the same."""
    half = len(rounds) // 2
    ratios = [theirs / ours for ours, theirs in zip(rounds[:half], rounds[half:], strict=True)]
    ratio = np.exp(_median(np.stack([_median(np.log(trial)) for trial in ratios], -1)))
    low, high = interval(ratios)
    return ratio, np.minimum(low, ratio), np.maximum(high, ratio)


def _fastest_baseline(cell: Cell) -> str:
    """The baseline of the least median time in the trials of a cell; "" if none ran in its rounds."""
    names = {name for those in cell.beside for name in those}
    if len(names) < 2:
        return next(iter(names), "")
    samples = {name: [those[name] for those in cell.beside if name in those] for name in names}
    return min(names, key=lambda name: (float(_median(np.concatenate(samples[name]))), name))


def _paired_rounds(cell: Cell, baseline: str) -> list[FloatArray]:
    """Seconds of the trials that have the baseline, and the baseline's in the same rounds."""
    pairs = [(ours, those[baseline]) for ours, those in zip(cell.trials, cell.beside, strict=True) if baseline in those]
    return [*(ours for ours, _ in pairs), *(theirs for _, theirs in pairs)]
