"""Trials of a file as outcomes of a search: which positions they compared, by how much they differ, what failed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from benchmarks.trial_file import Status
from ci.bisect.types import TrialOutcome
from ci.stats.paired import shifts
from ci.trials.compared import Comparison
from ci.trials.comparisons import comparisons
from ci.trials.trial import Trial

Position = Callable[[Trial, str], int | None]
"""(trial, role) -> the position that this checkout of the trial is, None for none."""

FEWEST_ROUNDS = 2
"""Rounds that a shift needs at least (`ci.stats.paired`)."""


def outcomes_of(trials: Iterable[Trial], position: Position) -> list[TrialOutcome]:
    """One outcome for each trial of two positions, over all operators that were measured in it."""
    groups: dict[tuple[str, int], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.session, trial.number), []).append(trial)
    made = (_outcome(group, position) for group in groups.values())
    return [one for one in made if one is not None]


def _outcome(group: Sequence[Trial], position: Position) -> TrialOutcome | None:
    """Base and head of a group as positions; None for a trial of something else."""
    base, head = (position(group[0], role) for role in ("base", "head"))
    if base is None or head is None or base == head:
        return None
    found = comparisons(group)
    failed = _failed(found, group, base, head)
    values = [] if failed else _shifts(found)
    sign = 1.0 if base < head else -1.0
    shift = sign * float(np.mean(values)) if values else None
    if not failed and shift is None:
        failed = {max(base, head): "the trial has no times of both sides"}
    labels = {place: text for place, role in ((base, "base"), (head, "head")) if (text := _label(group, found, role))}
    seconds = sum(trial.duration_s for trial in group)
    return TrialOutcome(min(base, head), max(base, head), shift, failed, labels, seconds)


def _shifts(found: Sequence[Comparison]) -> list[float]:
    """log(head / base) of every backend and case."""
    rounds = [one for comparison in found for one in comparison.trials if len(one.base) >= FEWEST_ROUNDS]
    return [float(shifts(one.base[None], one.head[None]).shift[0]) for one in rounds]


def _failed(found: Sequence[Comparison], group: Sequence[Trial], base: int, head: int) -> dict[int, str]:
    """Why a position cannot be measured, by position."""
    if not found:
        lacking = {base: "base", head: "head"}
        return {place: _lacks(group, role) for place, role in lacking.items() if not _has_any(group, role)} or {
            max(base, head): _untimed(group)
        }
    for one in found:
        for place, status, why in ((base, one.base_status, one.base_why), (head, one.head_status, one.head_why)):
            if status is not Status.OK:
                return {place: f"{one.case} is {status}{f': {why}' if why else ''}"}
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


def _has_any(group: Sequence[Trial], role: str) -> bool:
    return any(trial.cases and any(case.of_role(role) for case in trial.cases.values()) for trial in group)


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
