"""What a study is: points of operators, measured against an anchor, with the table and the figures they end in.

A study is a `Study` in a module of `ci/studies/declared`; nothing else is edited to add one.  Its parts are data, from
which points are planned, compiled and measured; its table, figures and rules are functions of the measured rows
(`ci/studies/frame.py` has their columns), in pandas and matplotlib.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.points import Knobs as Knobs

Value = bool | int | float | str
"""The value of a knob, as JSON holds it."""

Figures = tuple[str, Figure | None]
"""Name and figure; None where no row has a value to draw."""

REGIMES = ("spaced", "sustained")
"""How arms alternate; as in the protocol of a trial."""


class StudyError(ValueError):
    """A declaration that cannot be followed; the text names the study, the value and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Tried:
    """Points of one backend: what is laid over its config().

    knobs: values by name; every combination of them is a point (each: one knob at a time instead).
    points, candidates: knob sets written out, or the backend's own; every combination is laid over each of them.
    arches: architectures that have these knobs, by prefix ("gfx"); () is all.
    cases: patterns, of the part's cases only these; () is all.
    """

    backend: str = "triton"
    knobs: Mapping[str, Sequence[Value]] = dataclasses.field(default_factory=dict)
    points: tuple[Mapping[str, Value], ...] = ()
    candidates: bool = False
    each: bool = False
    arches: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()

    def on(self, arch: str) -> bool:
        """Whether an architecture has these knobs."""
        return not self.arches or arch.startswith(self.arches)

    def at(self, case: str) -> bool:
        """Whether a case takes part."""
        return not self.cases or any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)


@dataclasses.dataclass(frozen=True)
class StudyPart:
    """Points of one operator.

    cases: patterns of case names, of any tier.  ranks: the world sizes of them that are wanted.
    anchor: the backend whose default configuration every batch holds; ratios refer to it.
    arms: other backends and baselines, in their default configuration; what a machine lacks is named and left out.
    check: nothing is timed; every arm is compared with the reference.
    """

    operator: str
    cases: tuple[str, ...]
    anchor: str = "triton"
    arms: tuple[str, ...] = ()
    tried: tuple[Tried, ...] = ()
    ranks: tuple[int, ...] = (1,)
    check: bool = False

    def has(self, case: str, world: int) -> bool:
        """Whether a case belongs to it."""
        return world in self.ranks and any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)


@dataclasses.dataclass(frozen=True)
class Change:
    """One thing that is changed in a backend: the point `off` against the point `on`, each over config().

    cases: patterns, of the part's cases only these.  arches: as of Tried.
    """

    name: str
    operator: str
    off: Mapping[str, Value]
    on: Mapping[str, Value]
    cases: tuple[str, ...]
    backend: str = "triton"
    arches: tuple[str, ...] = ()

    @property
    def tried(self) -> Tried:
        """Both as points."""
        return Tried(self.backend, points=(self.off, self.on), arches=self.arches, cases=self.cases)


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a study says in words.  loses: time over that of the best point - 1, in the mean of its cases; NaN if not
    known.  sentence: the rule with what it loses."""

    rule: str
    loses: float
    sentence: str


@dataclasses.dataclass(frozen=True)
class Study:
    """A declared experiment.

    question: what a reader wants to know.  source: where the experiment comes from.
    table: the table, from the measured rows.  figures: names and figures of the measured rows; a figure without rows is
    not made.  findings: rules and means in words.  changes: pairs of points, before and after.
    regime: see REGIMES.  halving: poor points are dropped early; otherwise every point has all rounds in every trial.
    whole_call: also the time of a call from the host's side, from before it is enqueued until it is complete.
    code: also metrics of the machine code of every point.
    """

    name: str
    title: str
    question: str
    source: str
    parts: tuple[StudyPart, ...]
    table: Callable[[pd.DataFrame], pd.DataFrame]
    figures: Callable[[pd.DataFrame], Iterable[Figures]]
    findings: Callable[[pd.DataFrame], Iterable[Finding]] = lambda rows: ()
    changes: tuple[Change, ...] = ()
    regime: str = "spaced"
    trials: int = 3
    rounds: int = 20
    halving: bool = False
    whole_call: bool = False
    code: bool = False

    def __post_init__(self) -> None:
        """Raise StudyError for what no machine can follow."""
        if not self.parts:
            raise StudyError(f"study {self.name!r} has no part; declare at least one")
        if self.regime not in REGIMES:
            raise StudyError(f"study {self.name!r}: regime {self.regime!r} is not one of {', '.join(REGIMES)}")

    @property
    def ranks(self) -> tuple[int, ...]:
        """All world sizes that it has cases for."""
        return tuple(sorted({world for part in self.parts for world in part.ranks}))

    @property
    def operators(self) -> tuple[str, ...]:
        """Its operators, in the order of the parts."""
        return tuple(dict.fromkeys(part.operator for part in self.parts))
