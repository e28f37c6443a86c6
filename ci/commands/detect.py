"""`ridgeline detect`: change points of the series of a CSV, `value` and optionally `series`, `commit`, `time`, `unit`.

What cannot be used is counted and said, with the row of the first; nothing is guessed.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import click
import numpy as np
import pandas as pd
from rich.table import Table
from rich.text import Text

from ci.bars import bar
from ci.judging.policy import Settings
from ci.options import (
    JSON,
    NO_VERDICT,
    PASS,
    REGRESSION,
    Given,
    err_console,
    option,
    out_console,
    print_json,
    print_notes,
    verb,
)
from ci.report.words import interval, percent, plain, plural
from ci.stats.steps import SHORTEST, find_many, find_shifts
from ci.stats.types import FloatArray, Step
from ci.tables import ABSENT, TableError, read_cells

COLUMNS = ("value", "time", "series", "commit", "unit")


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """One series, in order of time where the file has times.

    values: as they are, NaN where there is none.  commits: of each value, empty where the file has none.
    """

    name: str
    values: FloatArray
    commits: Sequence[str]


@dataclasses.dataclass(frozen=True, eq=False)
class SeriesFile:
    """A whole file.  notes: what was not as expected, as sentences."""

    series: list[Series]
    notes: list[str]


def read(path: str) -> SeriesFile:
    """The series of a file, or of stdin where the path is `-`.

    TableError says what is wrong with a file of which nothing can be read; OSError where it cannot be opened.
    """
    cells = read_cells(path)
    header = list(map(str, cells))
    cells = cells.set_axis([name.lower() for name in header], axis=1)
    if "value" not in cells:
        raise TableError(
            f"{plain(path)} has no column `value`: its first line is {plain(','.join(header), 80)!r}. "
            "A series CSV starts with a header: value, and if you have them series, commit, time"
        )
    texts = cells["value"].str.lower()
    values = pd.to_numeric(cells["value"], errors="coerce").astype(float)
    troubles: dict[str, tuple[str, pd.Series[bool]]] = {
        "rows without a value": ("value", texts == ""),
        "rows with the value NaN": ("value", texts.isin(ABSENT) & (texts != "")),
        "rows with an infinite value": ("value", values.abs() == np.inf),
        "rows with a value that is not a number": ("value", values.isna() & ~texts.isin(ABSENT)),
    }
    rows = cells.assign(value=values.where(np.isfinite(values)))
    if "time" in cells:
        rows["time"] = pd.to_numeric(cells["time"], errors="coerce").astype(float)
        if rows["time"].isna().all():  # dates, as seconds since 1970 UTC
            dates = pd.to_datetime(cells["time"], errors="coerce", utc=True, format="mixed")
            rows["time"] = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
        unreadable = "rows without a readable time; they stay behind the row before them"
        troubles[unreadable] = ("time", ~np.isfinite(rows["time"]))
    notes = [
        f"{what}: {which.sum()} (first: row {which.argmax() + 1}, {plain(cells[column].iloc[which.argmax()], 40)!r})"
        for what, (column, which) in troubles.items()
        if which.any()
    ]
    single = [("stdin" if path == "-" else Path(path).name, rows)]
    groups = rows.groupby("series", sort=False) if "series" in rows else single
    return SeriesFile([_series(str(name), own, notes) for name, own in groups], notes)


def _series(name: str, rows: pd.DataFrame, notes: list[str]) -> Series:
    """One series by time; where that is equal or unknown, as in the file."""
    if "unit" in rows and len(units := Counter(rows["unit"][rows["value"].notna()])) > 1:
        seen = ", ".join(f"{plain(unit, 20) or 'none'} ({number})" for unit, number in units.most_common(5))
        raise TableError(
            f"series {plain(name, 80)!r} mixes units: {seen}. One series has one unit; convert the values, or give "
            "each unit a series of its own"
        )
    if "time" in rows:
        known = rows["time"].replace([np.inf, -np.inf], np.nan).ffill().fillna(-np.inf)
        if not known.is_monotonic_increasing:
            notes.append(f"series {plain(name, 40)!r} is put in order of time")
            rows = rows.loc[known.sort_values(kind="stable").index]
    commits = rows["commit"].tolist() if "commit" in rows else []
    if repeated := len(commits) - len(set(commits)):
        notes.append(f"series {plain(name, 40)!r} has {plural(repeated, 'row')} of a commit again; each is a point")
    return Series(name, rows["value"].to_numpy(), commits)


# ---- steps ----------------------------------------------------------------------------------------------------------


Better = Literal["lower", "higher"]

SMALLEST = Settings.recorded_smallest_effect
"""Share by which a level must be slower to count, of commits that were recorded apart, as these are."""

ROWS = 40
"""Most rows of the table: one screen."""

WIDE = 1e4
"""Largest / smallest value beyond which a mixed unit is likelier than a change of speed."""


@dataclasses.dataclass(frozen=True, eq=False)
class SeriesSteps:
    """A series, its steps with indices among its rows, and how many of its rows have a value."""

    series: Series
    points: int
    steps: list[Step]
    notes: tuple[str, ...]


@verb("ridgeline detect history.csv --better lower")
@click.argument("file", type=click.Path(allow_dash=True))
@option("--better", "Which values are good.", click.Choice(["lower", "higher"]), default="lower")
@option(
    "--smallest SHARE",
    "Least change that ends a series slower; smaller ones are listed.",
    click.FloatRange(0.0, 1.0),
    default=SMALLEST,
)
@JSON
def detect(given: Given) -> int:
    """Find where the level of a series changed.

    FILE is a CSV (also .gz, or - for stdin) with a header: value, and optionally series, commit, time, unit.  Rows are
    ordered by time where there is one; an index counts the rows of a series from 0, those without a value too.  Steps
    of values that are not all positive are differences, without a ratio.

    Exit code: 0 no series ends slower than it was by --smallest, 1 one does, 2 no series has points enough to tell,
    3 the file cannot be read.
    """
    better = given.better
    with bar(err_console(), f"reading {plain(given.file, 80)}"):
        whole = read(given.file)
        found = _with_steps(whole)
    if given.as_json:
        print_json(_document(found, whole, better, given.smallest))
    else:
        _show(found, whole, better, given.smallest)
    if any(regressed(one.steps, better, given.smallest) for one in found):
        return REGRESSION
    return PASS if any(one.points >= 2 * SHORTEST for one in found) else NO_VERDICT


def _with_steps(file: SeriesFile) -> list[SeriesSteps]:
    """Every series with its steps: as ratios, or as differences where a value is not positive and has no ratio."""
    measured = [np.flatnonzero(np.isfinite(series.values)) for series in file.series]
    values = [series.values[at] for series, at in zip(file.series, measured, strict=True)]
    ratios = iter(find_many([own for own in values if (own > 0).all()]))
    steps = [next(ratios) if (own > 0).all() else find_shifts(own) for own in values]
    return [
        SeriesSteps(
            series,
            len(at),
            [dataclasses.replace(step, index=int(at[step.index])) for step in own],
            tuple(_remarks(series, at)),
        )
        for series, at, own in zip(file.series, measured, steps, strict=True)
    ]


def _remarks(series: Series, at: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Iterator[str]:
    values, name = series.values[at], plain(series.name, 80)
    if len(at) < 2 * SHORTEST:
        yield f"{name}: {plural(len(at), 'point')}; {2 * SHORTEST} are the fewest that can show a step"
    elif (worst := float(values.min())) <= 0:
        yield f"{name}: {worst:g} is not positive and has no ratio; its steps are differences"
    elif values.max() > WIDE * values.min():
        yield f"{name}: values from {values.min():g} to {values.max():g}; are units mixed in it?"


def direction(step: Step, better: Better) -> str:
    """Which way the step goes, for what is timed."""
    return "slower" if (step.after > step.before) == (better == "lower") else "faster"


def regressed(steps: list[Step], better: Better, smallest: float) -> bool:
    """Does a slower step still stand: is the last level nearer to the one after it than to the one before?

    smallest: share of the level before by which the last one must differ to count.
    """
    return any(
        direction(step, better) == "slower"
        and abs(steps[-1].after - step.before) > abs(step.after - step.before) / 2
        and (steps[-1].after > step.before) == (step.after > step.before)
        and abs(steps[-1].after - step.before) >= smallest * abs(step.before)
        for step in steps
    )


def _document(found: list[SeriesSteps], whole: SeriesFile, better: Better, smallest: float) -> dict[str, object]:
    """The shape that .github/ARCHITECTURE.md fixes, and what else is known."""
    series = []
    for one in found:
        changes = []
        for step in one.steps:
            told = {name: value if math.isfinite(value) else None for name, value in dataclasses.asdict(step).items()}
            commit = one.series.commits[step.index] if one.series.commits else None
            changes.append({"commit": commit, **told, "direction": direction(step, better)})
        known = {"name": one.series.name, "points": one.points, "changes": changes}
        series.append({**known, "regressed": regressed(one.steps, better, smallest), "notes": list(one.notes)})
    return {"series": series, "notes": whole.notes}


def _show(found: list[SeriesSteps], whole: SeriesFile, better: Better, smallest: float) -> None:
    console = out_console()
    rows = [(one.series, step) for one in found for step in one.steps]
    slower = sum(regressed(one.steps, better, smallest) for one in found)
    console.print(f"{len(found)} series, {plural(len(rows), 'change')}; {slower} end slower")
    if rows:
        console.print(_table(rows[:ROWS], better))
    if len(rows) > ROWS:
        console.print(f"and {plural(len(rows) - ROWS, 'more change')}; --json has all of them")
    notes = [*whole.notes, *(note for one in found for note in one.notes)]
    print_notes(console, notes, ROWS)


def _table(rows: list[tuple[Series, Step]], better: Better) -> Table:
    table = Table("series", "at", "commit", "change", "99 % interval", "before", "after", "p", "", box=None)
    for series, step in rows:
        ratio = step.ratio if math.isfinite(step.ratio) else None
        low, high = (step.ratio_low, step.ratio_high) if ratio else (None, None)
        way = direction(step, better)
        cells = (
            plain(series.name, 60),
            str(step.index),
            plain(series.commits[step.index], 40)[:12] if series.commits else "-",
            percent(ratio),
            interval(low, high),
            f"{step.before:.4g}",
            f"{step.after:.4g}",
            f"{step.p_value:.1g}",
        )
        table.add_row(*map(Text, cells), Text(way, style="red" if way == "slower" else "green"))
    return table
