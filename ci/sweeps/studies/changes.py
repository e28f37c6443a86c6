"""Before and after: the two points of every declared change (benchmarks.studies.types.Change) as one row.

Of the two rows the one that was tried carries both: the other may be the default, which several changes share.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.points import Batch, Knobs, Point
from benchmarks.studies.types import Change, Quantity, Study, StudyPart
from ci.sweeps.pruning import PointCompiler


@dataclasses.dataclass(frozen=True)
class ChangedSide:
    """A row as one side of a change.  place: from 0 in the frame.  half: half of its ratio's logarithmic interval."""

    place: int
    knobs: Knobs
    config: Knobs
    seconds: float
    ratio: float
    half: float
    code: Mapping[str, float]

    def fits(self, knobs: Knobs) -> bool:
        """Whether its launch has these knobs, and is else the default."""
        return knobs.items() <= self.config.items() and set(self.knobs) <= set(knobs)

    def leaves_out(self, knobs: Knobs) -> bool:
        """Whether it is the default, of which nothing says its values of these knobs: a call's own defaults."""
        return not self.knobs and not set(knobs) & set(self.config)


@dataclasses.dataclass(frozen=True)
class ChangedPair:
    """A change in one case, without it and with it."""

    change: str
    off: ChangedSide
    on: ChangedSide

    @property
    def bearer(self) -> int:
        """Place of the row that carries it."""
        return (self.on if self.on.knobs else self.off).place

    @property
    def ratio(self) -> float:
        """After / before, each a ratio to the same anchor."""
        return self.on.ratio / self.off.ratio


def pairs(frame: pd.DataFrame, declared: Sequence[Change]) -> list[ChangedPair]:
    """Every change in every case where both points have a time."""
    names = ["machine", "regime", "operator", "case", "backend"]
    launches: dict[tuple[str, ...], list[ChangedSide]] = {}
    sides = zip(
        frame[names].astype(str).itertuples(index=False, name=None), frame["status"], _sides(frame), strict=True
    )
    for key, status, side in sides:
        if status == "ok":
            launches.setdefault(key, []).append(side)
    return [pair for key, own in launches.items() for pair in _of_case(own, declared, *key[2:])]


def _sides(frame: pd.DataFrame) -> Iterator[ChangedSide]:
    codes: Iterable[Mapping[str, float]] = frame["code"] if "code" in frame else [{}] * len(frame)
    values = ("knobs", "config", "seconds", "ratio", "is_anchor", "low", "high")
    rows = zip(*(frame[name] for name in values), codes, strict=True)
    for place, (knobs, config, seconds, ratio, anchor, low, high, numbers) in enumerate(rows):
        half = 0.0 if anchor else math.log(high / low) / 2 if low > 0 else math.nan
        yield ChangedSide(place, knobs, config, float(seconds), float(ratio), half, numbers)


def _of_case(
    rows: Sequence[ChangedSide], declared: Sequence[Change], operator: str, case: str, backend: str
) -> Iterator[ChangedPair]:
    for change in declared:
        if (change.operator, change.backend) == (operator, backend) and _takes_part(change, case):
            off, on = _side(rows, change.off), _side(rows, change.on)
            if off and on and off is not on:
                yield ChangedPair(change.name, off, on)


def _takes_part(change: Change, case: str) -> bool:
    return any(fnmatch.fnmatchcase(case, pattern) for pattern in change.cases)


def _side(rows: Sequence[ChangedSide], knobs: Knobs) -> ChangedSide | None:
    """The row of a change's knobs; of several that which changes least of the default.

    A point that is the default is not measured again, and a default need not be named in a row's configuration.
    """
    found = [row for row in rows if row.fits(knobs)] or [row for row in rows if row.leaves_out(knobs)]
    return min(found, key=lambda row: len(row.knobs), default=None)


def _half(pair: ChangedPair) -> float:
    """Of two ratios to an anchor, each with its interval: the logarithmic half widths add up in squares."""
    return math.hypot(pair.on.half, pair.off.half)


@dataclasses.dataclass(frozen=True)
class OfPair(Quantity):
    """A column of the rows that carry a change; of: from the pair."""

    of: Callable[[ChangedPair], float]


def _code(name: str, label: str, decimals: int = 0) -> dict[str, OfPair]:
    """A number of the machine code (code.METRICS) on both sides of a change."""
    return {
        f"{name}_before": OfPair(f"{label} before", "1", decimals, lambda pair: pair.off.code.get(name, math.nan)),
        f"{name}_after": OfPair(f"{label} after", "1", decimals, lambda pair: pair.on.code.get(name, math.nan)),
    }


NUMBERS: dict[str, OfPair] = {
    "before": OfPair("before", "µs", 2, lambda pair: pair.off.seconds * 1e6),
    "after": OfPair("after", "µs", 2, lambda pair: pair.on.seconds * 1e6),
    "change_ratio": OfPair("after / before", "1", 4, lambda pair: pair.ratio),
    "ratio_low": OfPair("lower end", "1", 4, lambda pair: pair.ratio * math.exp(-_half(pair))),
    "ratio_high": OfPair("upper end", "1", 4, lambda pair: pair.ratio * math.exp(_half(pair))),
    **_code("registers", "registers"),
    **_code("spills", "spills"),
    **_code("instructions", "instructions"),
    **_code("store_bytes", "bytes per store", 1),
}

COLUMNS: dict[str, Quantity] = {"change": Quantity("change", "", 0), **NUMBERS}
"""change: name of the one that a row carries, "" for none; the numbers are NaN there."""


def columns(frame: pd.DataFrame, declared: Sequence[Change]) -> dict[str, pd.Series]:
    """All of COLUMNS, for a study's changes."""
    carried = {pair.bearer: pair for pair in pairs(frame, declared)}
    rows = [carried.get(place) for place in range(len(frame))]
    found = {"change": pd.Series([pair.change if pair else "" for pair in rows], index=frame.index, dtype=object)}
    for name, one in NUMBERS.items():
        values = [one.of(pair) if pair else math.nan for pair in rows]
        found[name] = pd.Series(values, index=frame.index, dtype=float)
    return found


# ---- the code alone --------------------------------------------------------------------------------------------------


def of_code(found: Sequence[PointCode], declared: Sequence[Change]) -> pd.DataFrame:
    """Numbers of the code before and after each change, by architecture, case and change: what needs no GPU."""
    launches: dict[tuple[str, str, str, str], list[PointCode]] = {}
    for one in found:
        launches.setdefault((one.operator, one.case, one.backend, one.arch), []).append(one)
    rows = [
        row
        for change in declared
        for (operator, case, backend, arch), own in launches.items()
        if (operator, backend) == (change.operator, change.backend) and _takes_part(change, case)
        for row in _code_rows(change, case, arch, own)
    ]
    return pd.DataFrame(rows)


def _code_rows(change: Change, case: str, arch: str, own: Sequence[PointCode]) -> Iterator[dict[str, object]]:
    """One row if both points are there.  A point that is the default has no knobs: it is what is left of a change."""
    off, on = _code_of(own, change.off), _code_of(own, change.on)
    if off is None or on is None or off is on:
        return
    sides = {"before": off, "after": on}
    numbers = {f"{n}_{side}": one.numbers.get(n, math.nan) for n in METRICS for side, one in sides.items()}
    place = {"change": change.name, "operator": change.operator, "case": case, "arch": arch}
    yield {**place, **numbers, "why": off.why or on.why}


def _code_of(own: Sequence[PointCode], knobs: Knobs) -> PointCode | None:
    """The point that has these knobs, as far as they differ from the default; of several that which has most."""
    fitting = [one for one in own if one.knobs.items() <= knobs.items()]
    return max(fitting, key=lambda one: len(one.knobs), default=None)


# The machine code of a study's points: compiled ahead for the architecture that measured, and for those of AMD.
#
# `code.json` beside a study's table keeps it, so that a study is rendered again without compiling.


FILE = "code.json"

COMPILED = ("gfx942", "gfx950")
"""Architectures that every study is compiled for, beside the one that measures."""

METRICS: Mapping[str, tuple[str, ...]] = {
    "registers": ("vgpr", "registers"),
    "spills": ("vgpr_spills", "scratch_bytes"),
    "instructions": ("instructions",),
    "store_bytes": ("bytes_per_store",),
}
"""Numbers of a table of before and after, and their names in benchmarks/isa/metrics.py, AMD's first.

spills: registers on AMD, bytes of local memory per thread on NVIDIA.  store_bytes: of a lane, in the mean.
"""


@dataclasses.dataclass(frozen=True)
class PointCode:
    """The code of a point on an architecture.  why: what was said where it did not compile, "" where it did."""

    operator: str
    case: str
    backend: str
    arch: str
    knobs: Knobs
    numbers: Mapping[str, float]
    why: str = ""

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Operator, case, label and architecture."""
        return self.operator, self.case, Point(self.case, self.backend, self.knobs).label, self.arch


PointsOf = Callable[[StudyPart, str, int | None], Mapping[str, Sequence[Point]]]
"""The points of a part by case, for an architecture and a number of CUs."""


def compiled(study: Study, points: PointsOf, arch: str, units: int | None, compiler: PointCompiler) -> list[PointCode]:
    """Every point and plain arm of a study that is ours, for the architecture that measures and those of COMPILED."""
    devices = {**dict.fromkeys(COMPILED), **({arch: units} if arch != "cpu" else {})}
    found: list[PointCode] = []
    for part, (each, count) in itertools.product(study.parts, devices.items()):
        asked = points(part, each, count)
        batches = tuple(Batch(case, part.anchor, tuple(own)) for case, own in asked.items() if own)
        if batches:
            told = compiler.told(part.operator, batches, each, count, f"compiling {part.operator} for {each}")
            found += _read(told["points"], part.operator, each)
    return found


def _read(told: Sequence[Knobs], operator: str, arch: str) -> Iterator[PointCode]:
    """What was compiled; a backend without anything to compile is left out."""
    for one in told:
        if one["status"] != "undeclared":
            metrics = one.get("metrics") or {}
            found = {
                name: next((metrics[key] for key in keys if key in metrics), None) for name, keys in METRICS.items()
            }
            numbers = {name: float(value) for name, value in found.items() if value is not None}
            why = "" if one["status"] == "ok" else f"{one['status']}: {one.get('why', '')}"
            yield PointCode(operator, one["case"], one["backend"], arch, one.get("knobs") or {}, numbers, why)


def beside(file: Path) -> Path:
    """Where the code of the points of a trial file is kept until it is in a study's folder."""
    return file.with_name(f"{file.name.split('.')[0]}.{FILE}")


def text_of(found: Iterable[PointCode]) -> str:
    """The text of `code.json`."""
    return json.dumps([dataclasses.asdict(one) for one in found], indent=1) + "\n"


def read(folder: Path) -> list[PointCode]:
    """What a folder keeps; nothing without a file."""
    path = folder / FILE
    return [PointCode(**one) for one in json.loads(path.read_text())] if path.exists() else []


def attached(frame: pd.DataFrame, found: Sequence[PointCode]) -> pd.DataFrame:
    """The frame with a column `code`: by row the numbers of its point on its machine's architecture, {} for none."""
    by = {one.place: one.numbers for one in found}
    rows = zip(*(frame[name] for name in ("operator", "case", "backend", "arch", "knobs")), strict=True)
    places = [(op, case, Point(case, backend, knobs).label, arch) for op, case, backend, arch, knobs in rows]
    numbers = [by.get(place, {}) for place in places]
    return frame.assign(code=pd.Series(numbers, index=frame.index, dtype=object))
