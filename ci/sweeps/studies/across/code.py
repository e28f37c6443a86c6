"""The machine code of a study's points: compiled ahead for the architecture that measured, and for those of AMD.

`code.json` beside a study's table keeps it, so that a study is rendered again without compiling.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.points import Batch, Knobs, Point
from benchmarks.studies.types import Study, StudyPart
from ci.sweeps.pruning import PointCompiler

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
