"""The figures of a study: what to draw and its rows, written for the program that draws (`dashboards.figures.studies`).

Judging and showing are apart: `ci` writes SPEC (JSON) and DATA (CSV) and starts a process.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from benchmarks.studies.types import Drawn, Study
from ci.harness import MeasureError, follow, options, program
from ci.records import derived
from ci.sweeps.studies.columns import described, with_columns
from ci.sweeps.studies.reshape import RESHAPES, reshaped
from ci.sweeps.studies.rows import chosen
from ci.tables import alongside
from ci.whole_files import replace

Told = Mapping[str, Any]
"""A spec, or a part of it, as JSON values."""

AXES = ("x", "y", "value")
"""Keys of a spec that name a quantity; a column of ours there gets its label and its unit."""

NAMES = ("group", "by", "label", "ceiling", "color", "low", "high", "change", "before", "after")
"""Keys that name a column."""

COMPARED = {"curve": (), "panels": (), "bars": (), "scaling": (), "cus": ("busbw",), "roofline": ("tflops",)}
"""Kinds in which published numbers stand, with the quantity that each shows if its declaration names none."""

NEEDED = {
    "roofline": ("flops", "hbm_bytes", "link_bytes", "seconds", "dtype", "case"),
    "sweep": ("point", "ratio", "low", "high", "status"),
    "before_after": ("change", "case", "before", "after", "ratio_low", "ratio_high"),
    "regime": ("case", "regime"),
    "cus": ("cus", "busbw"),
    "scaling": ("world",),
}
"""Columns that a kind takes whether its spec names them or not."""


@dataclasses.dataclass(frozen=True)
class Foot:
    """What stands below every figure: where and when its numbers come from."""

    machine: str
    versions: str
    commit: str
    date: str
    regime: str

    def as_json(self) -> dict[str, str]:
        """As the spec has it; what is not known is left out."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value}


def columns_of(drawn: Drawn) -> list[str]:
    """Every column of the measured rows that a figure takes."""
    made = RESHAPES[drawn.reshape].makes
    wanted = dict.fromkeys([*NEEDED.get(drawn.kind, ()), *_named(drawn.spec), *drawn.rows.where])
    return [name for name in wanted if name not in made]


def _named(spec: Told) -> Iterator[str]:
    for key, value in spec.items():
        if key == "panels":
            for panel in value:
                yield from _named(panel)
        elif key == "also":
            yield from (_column(one) for one in value)
        elif key == "code":
            for one in value:
                yield from (str(one["before"]), str(one["after"]))
        elif key == "where":
            yield from value
        elif key in (*AXES, *NAMES) and value:
            yield _column(value)


def _column(said: str | Told) -> str:
    return said if isinstance(said, str) else str(said["column"])


def data(frame: pd.DataFrame, drawn: Drawn) -> pd.DataFrame:
    """The rows of a figure with its columns."""
    names = columns_of(drawn)
    return reshaped(chosen(with_columns(frame, names), drawn.rows), drawn, names)


def with_values(drawn: Drawn, rows: pd.DataFrame) -> Drawn:
    """The figure without panels whose quantity no row has, such as the share of peak on a device without one."""
    if "panels" not in drawn.spec:
        return drawn
    kept = [panel for panel in drawn.spec["panels"] if _known(rows, panel.get("y", drawn.spec.get("y")))]
    return dataclasses.replace(drawn, spec={**drawn.spec, "panels": kept})


def _known(rows: pd.DataFrame, said: str | Told | None) -> bool:
    return said is None or bool(pd.to_numeric(rows[_column(said)], errors="coerce").notna().any())


def spec(drawn: Drawn, rows: pd.DataFrame, foot: Foot, published: Sequence[Told] = ()) -> Told:
    """The SPEC of a figure: its declaration, with units, ceilings of the device and the foot."""
    told = {"kind": drawn.kind, "title": drawn.title, **_with_units(drawn.spec), "foot": foot.as_json()}
    if drawn.kind == "roofline":
        told["ceilings"] = ceilings(rows)
    return {**told, "published": list(published)} if published else told


def _with_units(said: Told) -> Told:
    return {key: _with_unit(key, value) for key, value in said.items()}


def _with_unit(key: str, value: Any) -> Any:
    if key == "panels":
        return [_with_units(panel) for panel in value]
    if key == "also":
        return [_with_unit("y", one) for one in value]
    if key not in AXES or not value:
        return value
    found = described(_column(value))
    ours = {"column": _column(value), "label": found.label, "unit": found.unit} if found and found.unit else {}
    return {**ours, **value} if isinstance(value, Mapping) else ours or value


def ceilings(frame: pd.DataFrame) -> Told:
    """Peaks of the device that rows were measured on, per rank: TFLOPS by dtype, GB/s of HBM and of the links.

    Raises MeasureError for a device that kernels/hardware.py does not know: without ceilings there is no roofline.
    """
    hardware = derived.hardware_of(frame.iloc[0]) if len(frame) else None
    if hardware is None:
        raise MeasureError("the device of these rows is not in kernels/hardware.py: DEVICES, so it has no ceilings")
    world = int(frame["world"].max())
    link = hardware.link_to(world - 1) / 1e9 if world > 1 else None
    peaks = {dtype: hardware.peak(dtype) / 1e12 for dtype in sorted(set(frame["dtype"].astype(str)))}
    return {"peak_tflops": peaks, "hbm_gbs": hardware.hbm_bandwidth / 1e9, "link_gbs": link}


def published(drawn: Drawn, measured: pd.DataFrame) -> list[Any]:
    """Points that others have published for the shapes of a figure; none for a kind that compares ours with ours."""
    if drawn.kind not in COMPARED:
        return []
    said = [drawn.spec, *drawn.spec.get("panels", ())]
    ys = [_column(one["y"]) for one in said if one.get("y")] or COMPARED[drawn.kind]
    return alongside.points(measured, ys, _column(drawn.spec.get("x") or ""))


def draw(study: Study, frame: pd.DataFrame, foot: Foot, folder: Path, console: Console) -> tuple[list[str], list[str]]:
    """Write and draw every figure that has rows into a folder; (names drawn, a sentence for each that failed)."""
    drawn, missing = list[str](), list[str]()
    for one in study.figures:
        rows = data(frame, one)
        if rows.empty:
            continue
        try:
            measured = chosen(with_columns(frame, one.rows.where), one.rows)
            _draw(one, measured, rows, foot, folder, console)
            drawn.append(one.name)
        except MeasureError as error:
            missing.append(f"figure {one.name}: {error}")
    return drawn, missing


def _draw(one: Drawn, measured: pd.DataFrame, rows: pd.DataFrame, foot: Foot, folder: Path, console: Console) -> None:
    told, table = folder / f"{one.name}.json", folder / f"{one.name}.csv"
    replace(told, json.dumps(spec(with_values(one, rows), measured, foot, published(one, measured)), indent=1) + "\n")
    replace(table, rows.to_csv(index=False, float_format="%.9g", lineterminator="\n"))
    argv = program("dashboards.figures.studies", str(told.resolve()))
    argv += options(data=table.resolve(), out=(folder / one.name).resolve())
    ended = follow(argv, console, f"drawing {one.name}", echo=False, stdout=False)
    if ended.code:
        raise MeasureError(ended.last if ended.said else f"nothing was drawn ({ended.how})")
