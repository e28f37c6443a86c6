"""Trials of a file as outcomes of a search: which positions they compared, by how much they differ, what failed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.trial_file import Status
from ci.bisect.axes import Axis
from ci.bisect.search import BisectError, TrialOutcome
from ci.git.repository import LocalCheckout
from ci.harness import INTERRUPTED, USAGE, MeasureError, MeasurePlan, again, measure
from ci.judging.live import Interrupted, is_asked
from ci.judging.states import OUTCOMES
from ci.stats.interval import shifts
from ci.stats.types import FloatArray
from ci.trials.comparisons import Comparison, comparisons
from ci.trials.file import Followed
from ci.trials.trial import Trial

Position = Callable[[Trial, str], int | None]
"""(trial, role) -> the position that this checkout of the trial is, None for none."""

FEWEST_ROUNDS = 2
"""Rounds that a shift needs at least (`ci.stats.interval`)."""


def outcomes_of(
    trials: Iterable[Trial], position: Position, asked: Callable[[Comparison], bool] = lambda comparison: True
) -> list[TrialOutcome]:
    """One outcome for each trial of two positions, over all that was measured in it and is asked for."""
    groups: dict[tuple[str, int], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.session, trial.number), []).append(trial)
    made = (_outcome(group, position, asked) for group in groups.values())
    return [one for one in made if one is not None]


def _outcome(group: Sequence[Trial], position: Position, asked: Callable[[Comparison], bool]) -> TrialOutcome | None:
    """Base and head of a group as positions; None for a trial of something else."""
    base, head = (position(group[0], role) for role in ("base", "head"))
    if base is None or head is None or base == head:
        return None
    found = list(filter(asked, comparisons(group)))
    failed = _failed(found, group, base, head)
    rounds = [one for comparison in found for one in comparison.trials if len(one.base) >= FEWEST_ROUNDS]
    shift = _mean_shift([(one.base, one.head) for one in rounds], base < head) if rounds and not failed else None
    if not failed and shift is None:
        failed = {max(base, head): "the trial has no times of both sides"}
    labels = {place: text for place, role in ((base, "base"), (head, "head")) if (text := _label(group, found, role))}
    seconds = sum(trial.duration_s for trial in group)
    return TrialOutcome(min(base, head), max(base, head), shift, failed, labels, seconds)


def _mean_shift(pairs: Sequence[tuple[FloatArray, FloatArray]], rising: bool) -> float:
    """The mean of log(time at the higher position / time at the lower one); pairs: seconds of base and head."""
    mean = float(np.mean([shifts(base[None], head[None]).shift[0] for base, head in pairs]))
    return mean if rising else -mean


def _failed(found: Sequence[Comparison], group: Sequence[Trial], base: int, head: int) -> dict[int, str]:
    """Why a position cannot be measured, by position."""
    if not found:
        there = {role for trial in group for _, role, _, _ in trial.arms()}
        lacking = {place: role for place, role in ((base, "base"), (head, "head")) if role not in there}
        return {place: _lacks(group, role) for place, role in lacking.items()} or {max(base, head): _untimed(group)}
    for one in found:
        for place, status, why in ((base, one.base_status, one.base_why), (head, one.head_status, one.head_why)):
            if status is not Status.OK:
                return {place: f"{one.case} {OUTCOMES[status]}{f': {why}' if why else ''}"}
        definitions = (one.base_definition, one.head_definition)
        if None not in definitions and definitions[0] != definitions[1]:
            return {max(base, head): f"{one.case} has another benchmark definition there: the times are of other work"}
        if one.problems:
            return {max(base, head): one.problems[0]}
    return {}


def _untimed(group: Sequence[Trial]) -> str:
    """Why a trial in which both sides have cases compares none."""
    arms = ((trial.operator, case, backend, arm) for trial in group for case, _, backend, arm in trial.arms())
    said = [f"{name}/{backend}/{case} is {arm.status}: {arm.why}" for name, case, backend, arm in arms if arm.why]
    return said[0] if said else "the trial compares nothing"


def _lacks(group: Sequence[Trial], role: str) -> str:
    broken = [one for trial in group for one in trial.checkouts[role].broken]
    return broken[0].reason if broken else "it has no case that was asked for"


def _label(group: Sequence[Trial], found: Sequence[Comparison], role: str) -> str:
    """Digest of the code that a side launched, with its knobs and versions; "" if some of it is not known."""
    backends = {one.backend for one in found}
    parts: list[object] = []
    for trial in group:
        checkout = trial.checkouts[role]
        for name, own, backend, arm in trial.arms():
            if own == role and backend in backends:
                code = arm.code_hash or checkout.kernel_digest
                if code is None:
                    return ""
                parts.append([trial.operator, name, backend, code, sorted(arm.knobs.items())])
        versions = {name: value for name, value in checkout.environment.versions.items() if name != "executable"}
        parts.append([sorted(versions.items()), sorted(checkout.environment.variables.items())])
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16] if backends else ""


# Trials of two places, measured now: one start of the measuring program each, into one file that is the memory.


Measuring = Callable[[Sequence[LocalCheckout], MeasurePlan, Path, Console], int]


@dataclasses.dataclass
class LiveTrials:
    """Measures places of an axis into the file `out`, one trial at a time."""

    axis: Axis
    plan: MeasurePlan
    out: Path
    console: Console
    measuring: Measuring = measure

    def __post_init__(self) -> None:
        self._file, self._broke_off = Followed(self.out), False

    def before(self) -> list[TrialOutcome]:
        """What the file holds already.  BisectError if it holds trials of something else."""
        trials = self._file.read().trials
        found = self._outcomes(trials)
        if trials and not found:
            said = f"{self.out} has trials of other {self.axis.what}s than these {len(self.axis.places)}"
            raise BisectError(f"{said}; give another file with --out")
        return found

    def __call__(self, low: int, high: int) -> TrialOutcome:
        """One more trial.  A place whose trial leaves no result failed; twice in a row, the machine did: MeasureError.

        Raises Interrupted on Ctrl-C.
        """
        known = len(self._file.read().trials)
        with self.axis.sides(low, high, self.plan) as (checkouts, plan):
            one = dataclasses.replace(plan, trials=1, first_trial=known)
            code = self.measuring(checkouts, one, self.out, self.console)
        if code == INTERRUPTED:
            raise Interrupted(f"interrupted; the finished trials are in {self.out}; `{again()}` goes on")
        found = self._outcomes(self._file.read().trials[known:])
        if code == USAGE and not found:
            if self._broke_off or (low, high) == (0, len(self.axis.places) - 1):
                kept = f"; finished trials are in {self.out}" if known else ""
                raise MeasureError(f"measuring broke off; the reason is printed above{kept}")
            self._broke_off = True
        else:
            self._broke_off = False
        return found[-1] if found else TrialOutcome(low, high, failed={high: "measuring it leaves no result"})

    def _outcomes(self, trials: Iterable[Trial]) -> list[TrialOutcome]:
        """Of the cases of the plan alone: a program prints all that it has."""
        return outcomes_of(trials, self.axis.position, lambda one: is_asked(one, self.plan))
