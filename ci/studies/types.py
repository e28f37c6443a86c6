"""What a study is: points of operators, measured against an anchor, with the table and the figures they end in.

A study is a `Study` in a module of `ci/studies/declared`; nothing else is edited to add one.  Its parts are data, from
which points are planned, compiled and measured; its table, figures and findings are functions of the measured rows
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


class StudyError(ValueError):
    """A study that cannot be followed; the text names the study, the value and what is allowed."""


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
    """

    operator: str
    cases: tuple[str, ...]
    anchor: str = "triton"
    arms: tuple[str, ...] = ()
    tried: tuple[Tried, ...] = ()
    ranks: tuple[int, ...] = (1,)

    def has(self, case: str, world: int) -> bool:
        """Whether a case belongs to it."""
        return world in self.ranks and any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)


@dataclasses.dataclass(frozen=True)
class Study:
    """A declared experiment.

    question: what a reader wants to know.  source: where the experiment comes from.
    table: the table, from the measured rows.  figures: names and figures of the measured rows; a figure without rows is
    not made.  findings: rules and means as sentences.
    halving: poor points are dropped early; otherwise every point has all rounds in every trial.
    whole_call: also the time of a call from the host's side, from before it is enqueued until it is complete.
    """

    name: str
    title: str
    question: str
    source: str
    parts: tuple[StudyPart, ...]
    table: Callable[[pd.DataFrame], pd.DataFrame]
    figures: Callable[[pd.DataFrame], Iterable[Figures]]
    findings: Callable[[pd.DataFrame], Iterable[str]] = lambda rows: ()
    trials: int = 3
    rounds: int = 20
    halving: bool = False
    whole_call: bool = False

    @property
    def operators(self) -> tuple[str, ...]:
        """Its operators, in the order of the parts."""
        return tuple(dict.fromkeys(part.operator for part in self.parts))
