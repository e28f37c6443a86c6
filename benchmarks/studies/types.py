"""What a study is: points of operators, measured against an anchor, with the figures and the table they end in.

A study is a `Study` in a module of this folder; nothing else is edited to add one.  It is data: no measurement, no
figure and no rule is written out by hand, and a column of its own is a function of a row.  Standard library only, so
that `ci` reads the same declarations.

Columns, which figures and tables name, are: knobs; dimensions of the case (M, N, K, ...); `case`, `operator`,
`backend`, `point`, `dtype`, `world`; what ci/sweeps/studies/columns.py derives for all studies (`us`, `tflops`, ...);
and what a study adds of its own (Column).
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

Value = bool | int | float | str
"""The value of a knob, as JSON holds it."""

PICKS = ("all", "best", "plain", "tried")
"""Rows of a case and backend: all, the fastest point, the arm in its default configuration, points other than that."""

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
    arms: backends and baselines beside it, in their default configuration; what a machine lacks is named and left out.
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
class Compared:
    """The maths of a table whose columns are backends (ci/tables): ratios to `baseline`, means, wins, groups, regret.

    keys: columns that say which row it is.  value, score: what is compared, and which of two is better.
    by: groupings.  regret: a column that was chosen, and those it was chosen from (() is all the others).
    """

    keys: tuple[str, ...]
    baseline: str
    value: str = "us"
    score: str = "lower"
    by: tuple[tuple[str, ...], ...] = ()
    regret: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    tie_percent: float = 0.0
    rows: Rows = dataclasses.field(default_factory=lambda: Rows(pick="plain"))


@dataclasses.dataclass(frozen=True)
class Rows:
    """Which of the measured rows a figure or a table shows.  where: allowed values by column; pick: see PICKS."""

    where: Mapping[str, Sequence[Value]] = dataclasses.field(default_factory=dict)
    pick: str = "all"


Row = Mapping[str, Any]
"""A measured point by column: `case`, `backend`, `dims`, `config`, `knobs`, `world`, `flops`, `seconds`, ..."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What a column says.  unit: "1" for a pure number, "" for a text.  decimals: in a table."""

    label: str
    unit: str
    decimals: int

    @property
    def heading(self) -> str:
        """What stands over a column of a table."""
        return self.label if self.unit in ("", "1") else f"{self.label}, {self.unit}"


@dataclasses.dataclass(frozen=True)
class Beside:
    """The row that another is compared with, on the same machine, under the same regime, of the same operator.

    key: what a row is to others, None if nothing is compared with it.  wanted: the key that a row looks for.
    """

    key: Callable[[Row], Hashable]
    wanted: Callable[[Row], Hashable]


@dataclasses.dataclass(frozen=True)
class Column(Quantity):
    """A column of a study's own.

    of: its value, from a row; with `beside`, from a row and the seconds of the fastest row that it is compared with,
    NaN where there is none.
    """

    of: Callable[..., Any]
    beside: Beside | None = None


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A figure.  spec: the keys of its kind beyond title and foot (dashboards/figures/studies says which).

    reshape: how its rows are made of the measured ones that `rows` leaves (ci/sweeps/studies/figures.py), "" as they
    are.
    """

    name: str
    kind: str
    title: str
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rows: Rows = Rows()
    reshape: str = ""


@dataclasses.dataclass(frozen=True)
class Listed:
    """The table: a row for each different combination of `keys`; spread: a column whose values become columns."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    spread: str = ""
    rows: Rows = Rows()


@dataclasses.dataclass(frozen=True)
class Study:
    """A declared experiment.

    question: what a reader wants to know.  source: where the experiment comes from.
    halving: poor points are dropped early; otherwise every point has all rounds in every trial.
    whole_call: also the time of a call from the host's side, from before it is enqueued until it is complete.
    code: also metrics of the machine code of every point.  changes: pairs of points, before and after.  columns: its
    own, by name.  compared: the maths of backends side by side.  guidance: names of rules in
    ci/sweeps/studies/guidance.
    """

    name: str
    title: str
    question: str
    source: str
    parts: tuple[StudyPart, ...]
    table: Listed
    figures: tuple[Drawn, ...]
    guidance: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    columns: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    compared: Compared | None = None
    regime: str = "spaced"
    trials: int = 3
    rounds: int = 20
    halving: bool = False
    whole_call: bool = False
    code: bool = False

    def __post_init__(self) -> None:
        """Raise StudyError for what no machine can follow."""
        if not self.parts or not self.figures:
            raise StudyError(f"study {self.name!r} has no {'figure' if self.parts else 'part'}; declare at least one")
        if self.regime not in REGIMES:
            raise StudyError(f"study {self.name!r}: regime {self.regime!r} is not one of {', '.join(REGIMES)}")
        for rows in (self.table.rows, *(figure.rows for figure in self.figures)):
            if rows.pick not in PICKS:
                raise StudyError(f"study {self.name!r}: pick {rows.pick!r} is not one of {', '.join(PICKS)}")
        names = [figure.name for figure in self.figures]
        if len(set(names)) < len(names):
            raise StudyError(f"study {self.name!r} has two figures of one name among {', '.join(names)}")

    @property
    def ranks(self) -> tuple[int, ...]:
        """All world sizes that it has cases for."""
        return tuple(sorted({world for part in self.parts for world in part.ranks}))

    @property
    def operators(self) -> tuple[str, ...]:
        """Its operators, in the order of the parts."""
        return tuple(dict.fromkeys(part.operator for part in self.parts))
