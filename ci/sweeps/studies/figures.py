"""The figures of a study: what to draw and its rows, written for the program that draws (`dashboards.figures.studies`).

Judging and showing are apart: `ci` writes SPEC (JSON) and DATA (CSV) and starts a process.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from rich.console import Console

from benchmarks.studies import studies
from benchmarks.studies.types import Compared, Drawn, Study
from ci.harness import MeasureError, follow, options, program
from ci.records import derived
from ci.sweeps.studies.columns import chosen, described, with_columns
from ci.tables import published
from ci.tables.compare import AgainstBaseline, Direction, TableComparison, compare
from ci.tables.published import PublishedLine
from ci.trials.trial import Json
from ci.whole_files import replace

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
    "cus": ("cus", "busbw"),
    "scaling": ("world",),
}
"""Columns that a kind takes whether its spec names them or not."""


@dataclasses.dataclass(frozen=True)
class Foot:
    """What stands below every figure: where and when its numbers come from; what is not known is left out."""

    machine: str
    versions: str
    commit: str
    date: str
    regime: str


def columns_of(drawn: Drawn) -> list[str]:
    """Every column of the measured rows that a figure takes."""
    _, made = RESHAPES[drawn.reshape]
    wanted = dict.fromkeys([*NEEDED.get(drawn.kind, ()), *_named(drawn.spec), *drawn.rows.where])
    return [name for name in wanted if name not in made]


def _named(spec: Json) -> Iterator[str]:
    for key, value in spec.items():
        if key == "panels":
            for panel in value:
                yield from _named(panel)
        elif key == "code":
            for one in value:
                yield from (str(one["before"]), str(one["after"]))
        elif key == "where":
            yield from value
        elif key in (*AXES, *NAMES) and value:
            yield _column(value)


def _column(said: str | Json) -> str:
    return said if isinstance(said, str) else str(said["column"])


def measured_for(frame: pd.DataFrame, drawn: Drawn) -> pd.DataFrame:
    """The measured rows of a figure, with all columns that it takes."""
    return chosen(with_columns(frame, columns_of(drawn)), drawn.rows)


def data(measured: pd.DataFrame, drawn: Drawn) -> pd.DataFrame:
    """The rows of a figure with its columns: as they were measured, or as it reshapes them."""
    reshape, _ = RESHAPES[drawn.reshape]
    rows = reshape(measured, drawn) if reshape and len(measured) else measured[columns_of(drawn)]
    return rows.reset_index(drop=True)


def with_values(drawn: Drawn, rows: pd.DataFrame) -> Drawn:
    """The figure without panels whose quantity no row has, such as the share of peak on a device without one."""
    if "panels" not in drawn.spec:
        return drawn
    kept = [panel for panel in drawn.spec["panels"] if _known(rows, panel.get("y", drawn.spec.get("y")))]
    return dataclasses.replace(drawn, spec={**drawn.spec, "panels": kept})


def _known(rows: pd.DataFrame, said: str | Json | None) -> bool:
    return said is None or bool(pd.to_numeric(rows[_column(said)], errors="coerce").notna().any())


def spec(drawn: Drawn, rows: pd.DataFrame, foot: Foot, published: Sequence[Json] = ()) -> Json:
    """The SPEC of a figure: its declaration, with units, ceilings of the device and the foot."""
    told = {"kind": drawn.kind, "title": drawn.title, **_with_units(drawn.spec)}
    told |= {"foot": {key: value for key, value in dataclasses.asdict(foot).items() if value}}
    if drawn.kind == "roofline":
        told["ceilings"] = ceilings(rows)
    return {**told, "published": list(published)} if published else told


def _with_units(said: Json) -> Json:
    return {key: _with_unit(key, value) for key, value in said.items()}


def _with_unit(key: str, value: Any) -> Any:
    if key == "panels":
        return [_with_units(panel) for panel in value]
    if key not in AXES or not value:
        return value
    found = described(_column(value))
    ours = {"column": _column(value), "label": found.label, "unit": found.unit} if found and found.unit else {}
    return {**ours, **value} if isinstance(value, Mapping) else ours or value


def ceilings(frame: pd.DataFrame) -> Json:
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


def beside_published(drawn: Drawn, measured: pd.DataFrame) -> list[Any]:
    """Points that others have published for the shapes of a figure; none for a kind that compares ours with ours."""
    if drawn.kind not in COMPARED:
        return []
    said = [drawn.spec, *drawn.spec.get("panels", ())]
    ys = [_column(one["y"]) for one in said if one.get("y")] or COMPARED[drawn.kind]
    return points(measured, ys, _column(drawn.spec.get("x") or ""))


def draw(study: Study, frame: pd.DataFrame, foot: Foot, folder: Path, console: Console) -> tuple[list[str], list[str]]:
    """Write and draw every figure that has rows into a folder; (names drawn, a sentence for each that failed)."""
    drawn, missing = list[str](), list[str]()
    for one in study.figures:
        measured = measured_for(frame, one)
        rows = data(measured, one)
        if rows.empty:
            continue
        try:
            told = spec(with_values(one, rows), measured, foot, beside_published(one, measured))
            _draw(folder / one.name, told, rows, console)
            drawn.append(one.name)
        except MeasureError as error:
            missing.append(f"figure {one.name}: {error}")
    return drawn, missing


def _draw(place: Path, told: Json, rows: pd.DataFrame, console: Console) -> None:
    table = place.with_suffix(".csv")
    replace(place.with_suffix(".json"), json.dumps(told, indent=1) + "\n")
    replace(table, rows.to_csv(index=False, float_format="%.9g", lineterminator="\n"))
    argv = program("dashboards.figures.studies", str(place.with_suffix(".json").resolve()))
    argv += options(data=table.resolve(), out=place.resolve())
    ended = follow(argv, console, f"drawing {place.name}", echo=False, stdout=False)
    if ended.code:
        raise MeasureError(ended.last if ended.said else f"nothing was drawn ({ended.how})")


# Backends side by side: the maths of a table (`ci.tables`) over the rows of a study.


ALL = "all"


def wide(frame: pd.DataFrame, wanted: Compared) -> pd.DataFrame:
    """A row for each combination of the keys, a column for each backend; of several values of one place the best."""
    names = [*wanted.keys, wanted.value]
    rows = chosen(with_columns(frame, [*names, *wanted.rows.where]), wanted.rows).dropna(subset=[wanted.value])
    best: Literal["max", "min"] = "max" if wanted.score == "higher" else "min"
    table = rows.assign(**{wanted.value: rows[wanted.value].astype(float)}).pivot_table(
        index=list(wanted.keys), columns=rows["backend"].astype(str), values=wanted.value, aggfunc=best, observed=True
    )
    table.columns.name = None
    return table.reset_index()


def compared(frame: pd.DataFrame, wanted: Compared) -> TableComparison | None:
    """The comparison; None where the baseline has no row."""
    table = wide(frame, wanted)
    columns = [str(name) for name in table.columns if name not in wanted.keys]
    if wanted.baseline not in columns:
        return None
    score: Direction = "higher" if wanted.score == "higher" else "lower"
    return compare(
        table,
        wanted.keys,
        columns,
        wanted.baseline,
        score=score,
        by=wanted.by,
        regret=_regret(wanted, columns),
        tie_percent=wanted.tie_percent,
    )


def _regret(wanted: Compared, columns: Sequence[str]) -> dict[str, list[str]]:
    """What was chosen and what it was chosen from, as far as it was measured."""
    found = {name: [one for one in given if one in columns] for name, given in wanted.regret.items() if name in columns}
    return {name: given for name, given in found.items() if given}


def sentences(study: Study, frame: pd.DataFrame) -> list[str]:
    """Means, wins and regret of every backend in words: of all rows, then of each group."""
    found = compared(frame, study.compared) if study.compared else None
    return list(_sentences(found)) if found else []


def _sentences(found: TableComparison) -> Iterator[str]:
    for title, columns in _groups(found):
        for name, one in columns.items():
            if name != found.baseline and one.rows:
                yield f"{title}: {name} {_against(one, found.baseline)}"
    for regret in found.regrets:
        best = ", ".join(f"{name} {count}" for name, count in regret.picks.items() if count)
        one = regret.against
        yield (
            f"{regret.column} against the best of its candidates ({best}): {one.geometric_mean:.3f} in the geometric "
            f"mean of {one.rows} rows, {one.below} below 0.95, worst {one.worst:.3f}"
        )


def _against(one: AgainstBaseline, baseline: str) -> str:
    ties = f" and {one.ties} {'tie' if one.ties == 1 else 'ties'}" if one.ties else ""
    return (
        f"{one.geometric_mean:.3f} of {baseline} (geometric mean; ratio of means {one.ratio_of_means:.3f}, mean of "
        f"ratios {one.mean_of_ratios:.3f}), wins {one.wins}{ties} of {one.rows}, {one.worst:.3f} to {one.best:.3f}"
    )


def _groups(found: TableComparison) -> Iterator[tuple[str, Mapping[str, AgainstBaseline]]]:
    for group in found.groups:
        yield ", ".join(map(str, group.key.values())) or ALL, group.columns


def means(frame: pd.DataFrame, wanted: Compared) -> pd.DataFrame:
    """Geometric means for a figure: a row for each group and backend, `rows_of`, `backend` and `mean_ratio`."""
    found = compared(frame, wanted)
    rows = [
        {"rows_of": title, "backend": name, "mean_ratio": one.geometric_mean}
        for title, columns in (_groups(found) if found else ())
        for name, one in columns.items()
        if one.rows and found and name != found.baseline
    ]
    return pd.DataFrame(rows, columns=["rows_of", "backend", "mean_ratio"])


# Rows of a figure that are made of several measured rows.


def marginals(frame: pd.DataFrame, drawn: Drawn) -> pd.DataFrame:
    """What each value of each knob can reach: the best of all points that have it, against the best of the case.

    The knobs are the `x` of the panels.  A row for each value and group: `axis`, its name; the knob itself; `loss`, the
    geometric mean over the cases of best time with this value / best time.  A case without that value does not count.
    """
    group = str(drawn.spec["group"])
    axes = [_column(panel["x"]) for panel in drawn.spec["panels"]]
    found = [_of_knob(frame, knob, group) for knob in axes]
    return pd.concat(found, ignore_index=True) if found else frame.iloc[:0]


def _of_knob(frame: pd.DataFrame, knob: str, group: str) -> pd.DataFrame:
    best = frame.groupby("case", sort=False)["seconds"].min()
    reached = frame.groupby(["case", group, knob], sort=False, observed=True)["seconds"].min().reset_index()
    reached["loss"] = np.log(reached["seconds"] / reached["case"].map(best))
    means = reached.groupby([group, knob], sort=True, observed=True)["loss"].mean().reset_index()
    return means.assign(loss=np.exp(means["loss"]), axis=knob)


def geometric_means(frame: pd.DataFrame, drawn: Drawn) -> pd.DataFrame:
    """The geometric means of the study's comparison: a row for each group of cases and backend."""
    wanted = next((one.compared for one in studies().values() if drawn in one.figures and one.compared), None)
    return means(frame, wanted) if wanted else frame.iloc[:0]


RESHAPES: dict[str, tuple[Callable[[pd.DataFrame, Drawn], pd.DataFrame] | None, tuple[str, ...]]] = {
    "": (None, ()),
    "marginals": (marginals, ("axis", "loss")),
    "comparison": (geometric_means, ("rows_of", "mean_ratio")),
}
"""Every reshaping that a figure may name: from its measured rows, with all columns that it names, to those that are
drawn; and the columns that are not there before."""


# Which published numbers stand in a figure: those of the shape of its rows.
#
# A line over a quantity is of a shape, whatever the device: it says which on its label.  A level (a peak that some
# favourable shape reaches) says something of its own device only, so it stands beside rows of that product alone.


SAME = {"payload_bytes": "bytes"}
"""Columns of ours by the quantity that the file calls otherwise."""


def points(rows: pd.DataFrame, ys: Iterable[str], x: str, lines: Sequence[PublishedLine] | None = None) -> list[object]:
    """The points of a SPEC (dashboards.figures.studies) for a figure of these rows.

    rows: of `ci.sweeps.studies.columns`.  ys: columns that its axes of values show; x: the column below.
    """
    known = {name: set(rows[name]) for name in ("operator", "dtype", "world")} | _dimensions(rows)
    products = {str(name).split()[0] for name in rows["market_name"].dropna() if str(name)}
    every, found = published.load() if lines is None else lines, list[object]()
    for y in dict.fromkeys(ys):
        fits = published.beside(every, known, y, SAME.get(x, x))
        here = [line for line in fits if line.x or any(product in line.device for product in products)]
        found += [{**one, "quantity": y} for one in published.points(here) if _in_view(one["x"], known.get(x, ()))]
    return found


def _in_view(x: object, measured: Collection[object]) -> bool:
    """Whether a point lies within what was measured: further out it would shrink everything else."""
    numbers = [float(one) for one in measured if isinstance(one, (int, float))]
    return not isinstance(x, float) or not numbers or min(numbers) <= x <= max(numbers)


def _dimensions(rows: pd.DataFrame) -> dict[str, set[object]]:
    """The different values of each dimension of the cases."""
    found: dict[str, set[object]] = {}
    for dims in rows["dims"]:
        for name, value in dims.items():
            found.setdefault(name, set()).add(value)
    return found
