"""What a search goes along: commits, knobs, or Python environments.  Each says how two of its places are measured."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ci.bisect.search import BisectError, Labels, RowPlace
from ci.git.command import succeeds
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import MeasurePlan
from ci.report.words import plain
from ci.trials.trial import Trial

Sides = tuple[tuple[LocalCheckout, LocalCheckout], MeasurePlan]
"""Base and head of a trial, and its plan."""

FEWEST = 2
"""Places of a row."""


class Axis(Protocol):
    """A row of places.  what: what one of its changes is called; known: of each place the label of its code."""

    @property
    def what(self) -> str: ...
    @property
    def places(self) -> Sequence[RowPlace]: ...
    @property
    def known(self) -> Sequence[str | None]:
        return [None] * len(self.places)

    def sides(self, low: int, high: int, plan: MeasurePlan) -> AbstractContextManager[Sides]: ...
    def position(self, trial: Trial, role: str) -> int | None: ...


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
        return [RowPlace(one.hash, one.short, plain(one.subject, 100)) for one in self.commits]

    @contextlib.contextmanager
    def sides(self, low: int, high: int, plan: MeasurePlan) -> Iterator[Sides]:
        """Both commits in worktrees, which go again if they were not there before, unless it `keeps` them."""
        base, head = self.commits[low], self.commits[high]
        if self.keeps:
            yield (self.repository.checkout(base.hash, "base"), self.repository.checkout(head.hash, "head")), plan
            return
        with self.repository.borrowed(base) as one, self.repository.borrowed(head) as other:
            yield (LocalCheckout("base", one, base), LocalCheckout("head", other, head)), plan

    def position(self, trial: Trial, role: str) -> int | None:
        """By the commit that the trial names."""
        commit = trial.checkouts[role].commit if role in trial.checkouts else None
        return next((n for n, one in enumerate(self.commits) if one.hash == commit), None)


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
        swapped = succeeds(repository.root, "merge-base", "--is-ancestor", last.hash, first.hash)
        hint = f"name the older one first: {bad} {good}" if swapped else "name one that is"
        raise BisectError(f"GOOD ({first.short}) is no ancestor of BAD ({last.short}); {hint}")
    commits = [first, *repository.commits(first.hash, last.hash)]
    return CommitAxis(repository, commits, labels(commits), keeps=keeps)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A knob and its two values."""

    name: str
    good: str
    bad: str


@dataclasses.dataclass(frozen=True)
class KnobAxis(Axis):
    """Knobs that are changed one after the other, in the order given: at place k the first k have their bad value."""

    checkout: LocalCheckout
    settings: Sequence[Setting]
    what: str = "knob"

    @property
    def places(self) -> Sequence[RowPlace]:
        rows = [RowPlace("", "all good", ", ".join(f"{one.name}={one.good}" for one in self.settings))]
        return rows + [RowPlace(f"{s.name}={s.bad}", f"{s.name}={s.bad}", f"was {s.good}") for s in self.settings]

    def values(self, place: int) -> dict[str, str]:
        """Every knob's value at a place."""
        return {one.name: one.bad if n < place else one.good for n, one in enumerate(self.settings)}

    @contextlib.contextmanager
    def sides(self, low: int, high: int, plan: MeasurePlan) -> Iterator[Sides]:
        """The same files on both sides."""
        roles = (("base", low), ("head", high))
        knobs = [f"{role}.{name}={value}" for role, place in roles for name, value in self.values(place).items()]
        pair = tuple(dataclasses.replace(self.checkout, role=role) for role, _ in roles)
        yield (pair[0], pair[1]), dataclasses.replace(plan, knobs=(*plan.knobs, *knobs))

    def position(self, trial: Trial, role: str) -> int | None:
        """By the knobs that its arms were launched with."""
        launched = [arm.knobs for _, own, _, arm in trial.arms() if own == role]
        for place in range(len(self.settings) + 1):
            wanted = self.values(place)
            if any(all(str(knobs.get(name)) == value for name, value in wanted.items()) for knobs in launched):
                return place
        return None


@dataclasses.dataclass(frozen=True)
class PythonAxis(Axis):
    """Python environments in the order given, such as one for each version of Triton."""

    checkout: LocalCheckout
    pythons: Sequence[str]
    own: str
    what: str = "environment"

    @property
    def places(self) -> Sequence[RowPlace]:
        return [RowPlace(one, one) for one in self.pythons]

    @contextlib.contextmanager
    def sides(self, low: int, high: int, plan: MeasurePlan) -> Iterator[Sides]:
        """The same files on both sides, each in its Python."""
        pythons = {"base": self.pythons[low], "head": self.pythons[high]}
        base, head = (dataclasses.replace(self.checkout, role=role) for role in pythons)
        yield (base, head), dataclasses.replace(plan, pythons=pythons)

    def position(self, trial: Trial, role: str) -> int | None:
        """By the path of the Python that the trial names; none is named for the one that started it."""
        named = trial.checkouts[role].environment.versions.get("executable") if role in trial.checkouts else None
        path = str(named or self.own)
        return self.pythons.index(path) if path in self.pythons else None


def settings_of(texts: Sequence[str]) -> list[Setting]:
    """Knobs from NAME=GOOD,BAD.  Raises BisectError."""
    found = []
    for text in texts:
        name, equals, values = text.partition("=")
        good, comma, bad = values.partition(",")
        if not (equals and comma and good and bad and name.isidentifier()) or "," in bad or good == bad:
            raise BisectError(f"{text!r}: NAME=GOOD,BAD with two different values is expected, such as num_warps=4,8")
        found.append(Setting(name, good, bad))
    if len({one.name for one in found}) < len(found):
        raise BisectError("a knob is named twice; each has one good value and one bad value")
    return found
