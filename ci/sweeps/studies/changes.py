"""Before and after: the two points of every declared change (benchmarks.studies.types.Change) as one row.

Of the two rows the one that was tried carries both: the other may be the default, which several changes share.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.points import Batch, Knobs, Point
from benchmarks.shapes import built
from benchmarks.studies.types import Change, Quantity, Row, Study, StudyPart
from ci.sweeps.pruning import PointCompiler


@dataclasses.dataclass(frozen=True)
class CodeMetric(Quantity):
    """A number of the machine code.  names: in benchmarks/isa/metrics.py, AMD's first."""

    names: tuple[str, ...]


METRICS = {
    "registers": CodeMetric("registers", "1", 0, ("vgpr", "registers")),
    "spills": CodeMetric("spills", "1", 0, ("vgpr_spills", "scratch_bytes")),
    "instructions": CodeMetric("instructions", "1", 0, ("instructions",)),
    "store_bytes": CodeMetric("bytes per store", "1", 1, ("bytes_per_store",)),
}
"""Numbers of a table of before and after.

spills: registers on AMD, bytes of local memory per thread on NVIDIA.  store_bytes: of a lane, in the mean.
"""

SIDES = ("before", "after")

COLUMNS: dict[str, Quantity] = {
    "change": Quantity("change", "", 0),
    "before": Quantity("before", "µs", 2),
    "after": Quantity("after", "µs", 2),
    "change_ratio": Quantity("after / before", "1", 4),
    "ratio_low": Quantity("lower end", "1", 4),
    "ratio_high": Quantity("upper end", "1", 4),
    **{
        f"{name}_{side}": Quantity(f"{metric.label} {side}", metric.unit, metric.decimals)
        for name, metric in METRICS.items()
        for side in SIDES
    },
}
"""change: name of the one that a row carries, "" for none; the numbers are NaN there."""


def columns(frame: pd.DataFrame, declared: Sequence[Change]) -> pd.DataFrame:
    """All of COLUMNS, for a study's changes."""
    launches: dict[tuple[str, ...], list[tuple[int, Row]]] = {}
    for place, row in enumerate(frame.to_dict("records")):
        if row["status"] == "ok":
            key = tuple(str(row[name]) for name in ("machine", "regime", "operator", "case", "backend"))
            launches.setdefault(key, []).append((place, row))  # type: ignore[arg-type]
    carried: dict[int, Row] = {}
    for (_, _, operator, case, backend), rows in launches.items():
        for change in declared:
            if (change.operator, change.backend) == (operator, backend) and change.tried.at(case):
                off, on = (_side(rows, knobs) for knobs in (change.off, change.on))
                if off and on and off is not on:
                    bearer, _ = on if on[1]["knobs"] else off
                    carried[bearer] = {"change": change.name, **_numbers(off[1], on[1])}
    made = pd.DataFrame([carried.get(place, {}) for place in range(len(frame))], frame.index, list(COLUMNS))
    names = made.pop("change").astype(object).fillna("")
    return made.astype(float).assign(change=names)


def _side(rows: Sequence[tuple[int, Row]], knobs: Knobs) -> tuple[int, Row] | None:
    """The row of a change's knobs: its launch has them, and is else the default; of several, that which changes least.

    A point that is the default is not measured again.  A default of which nothing says its values of these knobs, a
    call's own, is the side that was not measured.
    """
    found = [one for one in rows if knobs.items() <= one[1]["config"].items() and set(one[1]["knobs"]) <= set(knobs)]
    unnamed = [one for one in rows if not one[1]["knobs"] and not set(knobs) & set(one[1]["config"])]
    return min(found or unnamed, key=lambda one: len(one[1]["knobs"]), default=None)


def _numbers(off: Row, on: Row) -> dict[str, float]:
    """Each side is a ratio to the same anchor, with its interval: the logarithmic half widths add up in squares."""
    ratio, half = on["ratio"] / off["ratio"], math.hypot(_half(on), _half(off))
    times = {"before": off["seconds"] * 1e6, "after": on["seconds"] * 1e6, "change_ratio": ratio}
    ends = {"ratio_low": ratio * math.exp(-half), "ratio_high": ratio * math.exp(half)}
    return {**times, **ends, **_of_code(off.get("code", {}), on.get("code", {}))}


def _half(row: Row) -> float:
    if row["is_anchor"]:
        return 0.0
    return math.log(row["high"] / row["low"]) / 2 if row["low"] > 0 else math.nan


def _of_code(off: Mapping[str, float], on: Mapping[str, float]) -> dict[str, float]:
    return {f"{n}_{side}": one.get(n, math.nan) for n in METRICS for side, one in zip(SIDES, (off, on), strict=True)}


# ---- the code alone --------------------------------------------------------------------------------------------------


def of_code(found: Sequence[PointCode], declared: Sequence[Change]) -> pd.DataFrame:
    """Numbers of the code before and after each change, by architecture, case and change: what needs no GPU."""
    launches: dict[tuple[str, str, str, str], list[PointCode]] = {}
    for one in found:
        launches.setdefault((one.operator, one.case, one.backend, one.arch), []).append(one)
    rows = []
    for change in declared:
        for (operator, case, backend, arch), own in launches.items():
            if (operator, backend) == (change.operator, change.backend) and change.tried.at(case):
                off, on = (_code_of(own, knobs) for knobs in (change.off, change.on))
                if off and on and off is not on:
                    place = {"change": change.name, "operator": operator, "case": case, "arch": arch}
                    rows.append({**place, **_of_code(off.numbers, on.numbers), "why": off.why or on.why})
    return pd.DataFrame(rows)


def _code_of(own: Sequence[PointCode], knobs: Knobs) -> PointCode | None:
    """The point that has these knobs, as far as they differ from the default; of several that which has most.

    A point that is the default has no knobs: it is what is left of a change.
    """
    fitting = [one for one in own if one.knobs.items() <= knobs.items()]
    return max(fitting, key=lambda one: len(one.knobs), default=None)


# The machine code of a study's points: compiled ahead for the architecture that measured, and for those of AMD.
#
# `code.json` beside a study's table keeps it, so that a study is rendered again without compiling.


FILE = "code.json"

COMPILED = ("gfx942", "gfx950")
"""Architectures that every study is compiled for, beside the one that measures."""


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
    for point in told:
        if point["status"] != "undeclared":
            metrics = point.get("metrics") or {}
            found = {
                name: next((metrics[key] for key in one.names if key in metrics), None) for name, one in METRICS.items()
            }
            numbers = {name: float(value) for name, value in found.items() if value is not None}
            why = "" if point["status"] == "ok" else f"{point['status']}: {point.get('why', '')}"
            yield PointCode(operator, point["case"], point["backend"], arch, point.get("knobs") or {}, numbers, why)


def beside(file: Path) -> Path:
    """Where the code of the points of a trial file is kept until it is in a study's folder."""
    return file.with_name(f"{file.name.split('.')[0]}.{FILE}")


def text_of(found: Iterable[PointCode]) -> str:
    """The text of `code.json`."""
    return json.dumps([dataclasses.asdict(one) for one in found], indent=1) + "\n"


def read(folder: Path) -> list[PointCode]:
    """What a folder keeps; nothing without a file."""
    path = folder / FILE
    return [built(PointCode, one) for one in json.loads(path.read_text())] if path.exists() else []


def attached(frame: pd.DataFrame, found: Sequence[PointCode]) -> pd.DataFrame:
    """The frame with a column `code`: by row the numbers of its point on its machine's architecture, {} for none."""
    by = {one.place: one.numbers for one in found}
    rows = zip(*(frame[name] for name in ("operator", "case", "backend", "arch", "knobs")), strict=True)
    places = [(op, case, Point(case, backend, knobs).label, arch) for op, case, backend, arch, knobs in rows]
    numbers = [by.get(place, {}) for place in places]
    return frame.assign(code=pd.Series(numbers, index=frame.index, dtype=object))
