"""What a search goes along: commits, knobs, or Python environments; how two of its places are measured, and what the
trials of both come to."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.trial_file import Status
from ci.bisect.search import BisectError, Labels, RowPlace, TrialOutcome
from ci.git.command import succeeds
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import INTERRUPTED, USAGE, MeasureError, MeasurePlan, again, measure
from ci.judging.judge import verdict_without_times
from ci.judging.live import Interrupted, is_asked
from ci.judging.types import OUTCOMES
from ci.report.words import plain
from ci.stats.interval import shifts
from ci.trials.comparisons import Comparison, comparisons
from ci.trials.file import Followed
from ci.trials.trial import Trial

Sides = tuple[tuple[LocalCheckout, LocalCheckout], MeasurePlan]
"""Base and head of a trial, and its plan."""

FEWEST = 2
"""Places of a row."""


@dataclasses.dataclass(frozen=True)
class CommitAxis:
    """Commits of a repository, the good one first.  known: equal where the files of the kernels are equal.

    keeps: their checkouts stay, because something is built in them.
    """

    repository: Repository
    commits: Sequence[Commit]
    known: Sequence[str | None]
    what: str = "commit"
    keeps: bool = False

    @property
    def places(self) -> Sequence[RowPlace]:
        return [RowPlace(commit.hash, commit.short, plain(commit.subject, 100)) for commit in self.commits]

    @contextlib.contextmanager
    def sides(self, low: int, high: int, plan: MeasurePlan) -> Iterator[Sides]:
        """Both commits in worktrees, which go again if they were not there before, unless it `keeps` them."""
        base, head = self.commits[low], self.commits[high]
        if self.keeps:
            yield (self.repository.checkout(base.hash, "base"), self.repository.checkout(head.hash, "head")), plan
            return
        with self.repository.borrowed(base) as of_base, self.repository.borrowed(head) as of_head:
            yield (LocalCheckout("base", of_base, base), LocalCheckout("head", of_head, head)), plan

    def position(self, trial: Trial, role: str) -> int | None:
        """By the commit that the trial names."""
        measured = trial.checkouts[role].commit if role in trial.checkouts else None
        return next((n for n, commit in enumerate(self.commits) if commit.hash == measured), None)


def commit_axis(
    repository: Repository, good: str, bad: str, labels: Callable[[Sequence[Commit]], Labels], *, keeps: bool = False
) -> CommitAxis:
    """The commits after `good` up to `bad` along first parents, behind `good`.  Raises BisectError or GitError.

    labels: of commits, equal where their code is.
    """
    first, last = repository.resolve(good), repository.resolve(bad)
    if first.hash == last.hash:
        raise BisectError(f"GOOD and BAD are both {first.short}; name two different commits")
    if not succeeds(repository.root, "merge-base", "--is-ancestor", first.hash, last.hash):
        raise BisectError(f"GOOD ({first.short}) is not an ancestor of BAD ({last.short}); name the older commit first")
    commits = [first, *repository.commits(first.hash, last.hash)]
    return CommitAxis(repository, commits, labels(commits), keeps=keeps)


@dataclasses.dataclass(frozen=True)
class SettingAxis:
    """The same files in several settings.  knobs: of each place, by name; pythons: of each place, "" for `own`."""

    checkout: LocalCheckout
    what: str
    places: Sequence[RowPlace]
    knobs: Sequence[Mapping[str, str]]
    pythons: Sequence[str]
    own: str = ""

    @property
    def known(self) -> Sequence[str | None]:
        """Nothing, before it was measured."""
        return [None] * len(self.places)

    @contextlib.contextmanager
    def sides(self, low: int, high: int, plan: MeasurePlan) -> Iterator[Sides]:
        """The same files on both sides."""
        roles = {"base": low, "head": high}
        knobs = [f"{role}.{name}={value}" for role, at in roles.items() for name, value in self.knobs[at].items()]
        pythons = {role: self.pythons[at] for role, at in roles.items() if self.pythons[at]}
        base, head = (dataclasses.replace(self.checkout, role=role) for role in roles)
        yield (base, head), dataclasses.replace(plan, knobs=(*plan.knobs, *knobs), pythons={**plan.pythons, **pythons})

    def position(self, trial: Trial, role: str) -> int | None:
        """By the knobs that its arms were launched with, and the Python that the trial names if it is not `own`."""
        if role not in trial.checkouts:
            return None
        python = str(trial.checkouts[role].environment.versions.get("executable") or self.own)
        launched = [
            {name: str(value) for name, value in arm.knobs.items()} for _, r, _, arm in trial.arms() if r == role
        ]
        for place, (knobs, wanted) in enumerate(zip(self.knobs, self.pythons, strict=True)):
            if wanted in ("", python) and any(knobs.items() <= arm.items() for arm in launched):
                return place
        return None


Axis = CommitAxis | SettingAxis
"""A row of places.  what: what one of its changes is called; known: of each place the label of its code, None where it
is not known; sides: two places as base and head; position: the place that a side of a trial is."""


def python_axis(checkout: LocalCheckout, pythons: Sequence[str], own: str) -> SettingAxis:
    """Python environments in the order given, such as one for each version of Triton.  own: that runs us."""
    places = [RowPlace(python, python) for python in pythons]
    return SettingAxis(checkout, "environment", places, [{}] * len(pythons), pythons, own)


KNOB = re.compile(r"([^\W\d]\w*)=([^,]+),([^,]+)")


def knob_axis(checkout: LocalCheckout, texts: Sequence[str]) -> SettingAxis:
    """Knobs, each NAME=GOOD,BAD, that are changed one after the other: at place k the first k have their bad value.

    Raises BisectError.
    """
    steps = [match.groups() for text in texts if (match := KNOB.fullmatch(text)) and match[2] != match[3]]
    if len(steps) < len(texts) or len({name for name, _, _ in steps}) < len(texts):
        raise BisectError(
            f"{' '.join(texts)!r}: NAME=GOOD,BAD with two different values is expected, once for each knob, such as "
            "num_warps=4,8"
        )
    knobs = [
        {name: bad if number < place else good for number, (name, good, bad) in enumerate(steps)}
        for place in range(len(steps) + 1)
    ]
    all_good = RowPlace("", "all good", ", ".join(f"{name}={good}" for name, good, _ in steps))
    changed = [RowPlace(f"{name}={bad}", f"{name}={bad}", f"was {good}") for name, good, bad in steps]
    return SettingAxis(checkout, "knob", [all_good, *changed], knobs, [""] * len(knobs))


# Trials as outcomes of a search: which positions they compared, by how much they differ, what failed.


Position = Callable[[Trial, str], int | None]
"""(trial, role) -> the position that this checkout of the trial is, None for none."""

FEWEST_ROUNDS = 2
"""Rounds that a shift needs at least (`ci.stats.interval`)."""


def outcomes_of(
    trials: Iterable[Trial], position: Position, chosen: Callable[[Comparison], bool] = lambda comparison: True
) -> list[TrialOutcome]:
    """One outcome for each trial of two positions, over all that was measured in it and is asked for."""
    groups: dict[tuple[str, int], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.session, trial.number), []).append(trial)
    outcomes = (_outcome(group, position, chosen) for group in groups.values())
    return [outcome for outcome in outcomes if outcome is not None]


def _outcome(group: Sequence[Trial], position: Position, chosen: Callable[[Comparison], bool]) -> TrialOutcome | None:
    """Base and head of a group as positions; None for a trial of something else."""
    base, head = (position(group[0], role) for role in ("base", "head"))
    if base is None or head is None or base == head:
        return None
    compared = list(filter(chosen, comparisons(group)))
    failed = _failed(compared, group, base, head)
    pairs = [(t.base, t.head) for comparison in compared for t in comparison.trials if len(t.base) >= FEWEST_ROUNDS]
    if not failed and not pairs:
        failed = {max(base, head): "the trial has no times of both sides"}
    logs = [shifts(of_base[None], of_head[None]).shift[0] for of_base, of_head in pairs if not failed]
    shift = float(np.mean(logs)) * (1 if base < head else -1) if logs else None
    backends = {comparison.backend for comparison in compared}
    labels = {place: _label(group, role, backends) for place, role in ((base, "base"), (head, "head"))}
    seconds = sum(trial.duration_s for trial in group)
    return TrialOutcome(min(base, head), max(base, head), shift, failed, labels, seconds)


def _failed(compared: Sequence[Comparison], group: Sequence[Trial], base: int, head: int) -> dict[int, str]:
    """Why a position cannot be measured, by position."""
    if not compared:
        arms = [(role, arm) for trial in group for _, role, _, arm in trial.arms()]
        lacking = {place: role for place, role in ((base, "base"), (head, "head")) if role not in dict(arms)}
        reasons = (arm.why for _, arm in arms if arm.why)
        return {place: _lacks(group, role) for place, role in lacking.items()} or {
            max(base, head): next(reasons, "the trial compares nothing")
        }
    for c in compared:
        for place, status, why in ((base, c.base_status, c.base_why), (head, c.head_status, c.head_why)):
            if status is not Status.OK:
                return {place: f"{c.case} {OUTCOMES[status]}{f': {why}' if why else ''}"}
        if not (c.same_code and not c.trials) and (unfit := verdict_without_times(c, {})):
            return {max(base, head): f"{c.case}: {unfit.evidence[0]}"}
    return {}


def _lacks(group: Sequence[Trial], role: str) -> str:
    broken = (module.reason for trial in group for module in trial.checkouts[role].broken)
    return next(broken, "it has no case that was asked for")


def _label(group: Sequence[Trial], role: str, backends: Container[str]) -> str:
    """What a side launched, code objects with their knobs, and in which environment; "" if some of it is not known."""
    of_side = ((case, backend, arm) for trial in group for case, own, backend, arm in trial.arms() if own == role)
    arms = [(case, backend, arm) for case, backend, arm in of_side if backend in backends]
    if not arms or not all(arm.code_hash for _, _, arm in arms):
        return ""
    environments = [trial.checkouts[role].environment for trial in group]
    settings = [sorted(({**one.versions, **one.variables, "executable": ""}).items()) for one in environments]
    return repr(
        [*settings, *((case, backend, arm.code_hash, sorted(arm.knobs.items())) for case, backend, arm in arms)]
    )


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
        outcomes = self._outcomes(trials)
        if trials and not outcomes:
            others = f"{self.out} has trials of other {self.axis.what}s than these {len(self.axis.places)}"
            raise BisectError(f"{others}; give another file with --out")
        return outcomes

    def __call__(self, low: int, high: int) -> TrialOutcome:
        """One more trial.  A place whose trial leaves no result failed; twice in a row, the machine did: MeasureError.

        Raises Interrupted on Ctrl-C.
        """
        known = len(self._file.read().trials)
        with self.axis.sides(low, high, self.plan) as (checkouts, plan):
            one_trial = dataclasses.replace(plan, trials=1, first_trial=known)
            code = self.measuring(checkouts, one_trial, self.out, self.console)
        if code == INTERRUPTED:
            raise Interrupted(f"interrupted; the finished trials are in {self.out}; `{again()}` goes on")
        outcomes = self._outcomes(self._file.read().trials[known:])
        if code == USAGE and not outcomes:
            if self._broke_off or (low, high) == (0, len(self.axis.places) - 1):
                finished = f"; finished trials are in {self.out}" if known else ""
                raise MeasureError(f"measuring broke off; the reason is printed above{finished}")
            self._broke_off = True
        else:
            self._broke_off = False
        return outcomes[-1] if outcomes else TrialOutcome(low, high, failed={high: "measuring it leaves no result"})

    def _outcomes(self, trials: Iterable[Trial]) -> list[TrialOutcome]:
        """Of the cases of the plan alone: a program prints all that it has."""
        return outcomes_of(trials, self.axis.position, lambda one: is_asked(one, self.plan))
