"""Before and after: the two points of every declared change (ci.studies.types.Change) as one row, and their code."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.points import Batch, Knobs, Point
from benchmarks.shapes import built
from ci.studies.frame import timed
from ci.studies.types import Change, Study, StudyPart
from ci.sweeps.pruning import PointCompiler

Row = Mapping[str, Any]

METRICS = {
    "registers": ("vgpr", "registers"),
    "spills": ("vgpr_spills", "scratch_bytes"),
    "instructions": ("instructions",),
    "store_bytes": ("bytes_per_store",),
}
"""Numbers of a table of before and after, and their names in benchmarks/isa/metrics.py, AMD's first.

spills: registers on AMD, bytes of local memory per thread on NVIDIA.  store_bytes: per lane, in the mean.
"""

SIDES = ("before", "after")
NUMBERS = ("before", "after", "change_ratio", "ratio_low", "ratio_high")


def before_and_after(rows: pd.DataFrame, declared: Sequence[Change]) -> pd.DataFrame:
    """A row for each change, case and machine that has both points with a time: that of the point that was tried, with

    `change`, its name; `before`, `after`, µs; `change_ratio`, `ratio_low`, `ratio_high`, after / before with its
    interval; and each of METRICS on both SIDES where the rows have `code`.
    """
    pairs = []
    launch = ["machine", "regime", "operator", "case", "backend"]
    for (_, _, operator, case, backend), own in timed(rows).groupby(launch, sort=False, observed=True):
        points: list[Row] = own.to_dict("records")  # type: ignore[assignment]
        for change in declared:
            if (change.operator, change.backend) == (operator, backend) and change.tried.at(str(case)):
                off, on = (_row_with(points, knobs) for knobs in (change.off, change.on))
                if off and on and off is not on:
                    tried = on if on["knobs"] else off
                    pairs.append({**tried, "change": change.name, **_numbers(off, on)})
    return pd.DataFrame(pairs, columns=None if pairs else [*rows, *NUMBERS, "change"])


def _row_with(points: Sequence[Row], knobs: Knobs) -> Row | None:
    """The row of a change's knobs: its launch has them, and is else the default; of several, that which changes least.

    A point that is the default is not measured again.  A default of which nothing says its values of these knobs, a
    call's own, is the side that was not measured.
    """
    named = [row for row in points if knobs.items() <= row["config"].items() and set(row["knobs"]) <= set(knobs)]
    unnamed = [row for row in points if not row["knobs"] and not set(knobs) & set(row["config"])]
    return min(named or unnamed, key=lambda row: len(row["knobs"]), default=None)


def _numbers(off: Row, on: Row) -> dict[str, float]:
    """Each side is a ratio to the same anchor, with its interval: the logarithmic half widths add up in squares."""
    ratio, half = on["ratio"] / off["ratio"], math.hypot(_half_width(on), _half_width(off))
    times = {"before": off["seconds"] * 1e6, "after": on["seconds"] * 1e6, "change_ratio": ratio}
    ends = {"ratio_low": ratio * math.exp(-half), "ratio_high": ratio * math.exp(half)}
    return {**times, **ends, **_code_numbers(off.get("code", {}), on.get("code", {}))}


def _half_width(row: Row) -> float:
    if row["is_anchor"]:
        return 0.0
    return math.log(row["high"] / row["low"]) / 2 if row["low"] > 0 else math.nan


def _code_numbers(off: Mapping[str, float], on: Mapping[str, float]) -> dict[str, float]:
    return {
        f"{metric}_{side}": numbers.get(metric, math.nan)
        for metric in METRICS
        for side, numbers in zip(SIDES, (off, on), strict=True)
    }


# ---- the code alone --------------------------------------------------------------------------------------------------


def code_before_and_after(codes: Sequence[PointCode], declared: Sequence[Change]) -> pd.DataFrame:
    """Numbers of the code before and after each change, by architecture, case and change: what needs no GPU."""
    launches: dict[tuple[str, str, str, str], list[PointCode]] = {}
    for point in codes:
        launches.setdefault((point.operator, point.case, point.backend, point.arch), []).append(point)
    rows = []
    for change in declared:
        for (operator, case, backend, arch), own in launches.items():
            if (operator, backend) == (change.operator, change.backend) and change.tried.at(case):
                off, on = (_code_with(own, knobs) for knobs in (change.off, change.on))
                if off and on and off is not on:
                    place = {"change": change.name, "operator": operator, "case": case, "arch": arch}
                    rows.append({**place, **_code_numbers(off.numbers, on.numbers), "why": off.why or on.why})
    return pd.DataFrame(rows)


def _code_with(points: Sequence[PointCode], knobs: Knobs) -> PointCode | None:
    """The point that has these knobs, as far as they differ from the default; of several that which has most.

    A point that is the default has no knobs: it is what is left of a change.
    """
    fitting = [point for point in points if point.knobs.items() <= knobs.items()]
    return max(fitting, key=lambda point: len(point.knobs), default=None)


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
    codes: list[PointCode] = []
    for part, (target, count) in itertools.product(study.parts, devices.items()):
        batches = tuple(
            Batch(case, part.anchor, tuple(own)) for case, own in points(part, target, count).items() if own
        )
        if batches:
            answer = compiler.compile_points(
                part.operator, batches, target, count, f"compiling {part.operator} for {target}"
            )
            codes += _codes(answer["points"], part.operator, target)
    return codes


def _codes(answers: Sequence[Knobs], operator: str, arch: str) -> Iterator[PointCode]:
    """What was compiled; a backend without anything to compile is left out."""
    for point in answers:
        if point["status"] != "undeclared":
            metrics = point.get("metrics") or {}
            values = {metric: [metrics[key] for key in keys if key in metrics] for metric, keys in METRICS.items()}
            numbers = {metric: float(value[0]) for metric, value in values.items() if value and value[0] is not None}
            why = "" if point["status"] == "ok" else f"{point['status']}: {point.get('why', '')}"
            yield PointCode(operator, point["case"], point["backend"], arch, point.get("knobs") or {}, numbers, why)


def code_file(file: Path) -> Path:
    """Where the code of the points of a trial file is kept until it is in a study's folder."""
    return file.with_name(f"{file.name.split('.')[0]}.{FILE}")


def as_text(codes: Iterable[PointCode]) -> str:
    """The text of `code.json`."""
    return json.dumps([dataclasses.asdict(code) for code in codes], indent=1) + "\n"


def read(folder: Path) -> list[PointCode]:
    """What a folder keeps; nothing without a file."""
    path = folder / FILE
    return [built(PointCode, code) for code in json.loads(path.read_text())] if path.exists() else []


def with_code(rows: pd.DataFrame, codes: Sequence[PointCode]) -> pd.DataFrame:
    """The rows with a column `code`: the numbers of each point on its machine's architecture, {} for none."""
    numbers = {code.place: code.numbers for code in codes}
    points = zip(*(rows[name] for name in ("operator", "case", "backend", "arch", "knobs")), strict=True)
    places = [(op, case, Point(case, backend, knobs).label, arch) for op, case, backend, arch, knobs in points]
    return rows.assign(code=pd.Series([numbers.get(place, {}) for place in places], index=rows.index, dtype=object))
