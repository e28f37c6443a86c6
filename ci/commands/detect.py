"""`ridgeline detect`: change points of the series of a CSV, `value` and optionally `series`, `commit`, `time`, `unit`.

What cannot be used is counted and said, with the row of the first; nothing is guessed.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
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
from ci.stats.types import Step
from ci.tables import ABSENT, TableError, read_cells

Better = Literal["lower", "higher"]

SMALLEST = Settings.recorded_smallest_effect
"""Share by which a level must be slower to count, of commits that were recorded apart, as these are."""

ROWS = 40
"""Most rows of the table: one screen."""


@dataclasses.dataclass(frozen=True, eq=False)
class SeriesSteps:
    """A series in order of time where the file has times.

    commits: of each row, empty where the file has none.  points: how many rows have a value.  steps: with indices among
    the rows.  notes: why it may have none.
    """

    name: str
    commits: Sequence[str]
    points: int
    steps: Sequence[Step]
    notes: Sequence[str]


def read(path: str) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The rows of each series of a file (stdin for `-`), `value` NaN where there is none; what was not as expected.

    TableError says what is wrong with a file of which nothing can be read; OSError where it cannot be opened.
    """
    cells = read_cells(path)
    header = list(map(str, cells))
    rows = cells.set_axis([name.lower() for name in header], axis=1)
    if "value" not in rows:
        raise TableError(
            f"{plain(path)} has no column `value`: its first line is {plain(','.join(header), 80)!r}. "
            "A series CSV starts with a header: value, and if you have them series, commit, time"
        )
    texts, notes = rows["value"].str.lower(), list[str]()
    rows["value"] = pd.to_numeric(rows["value"], errors="coerce").astype(float)
    troubles = {
        "rows without a value": texts.isin(ABSENT),
        "rows with an infinite value": rows["value"].abs() == np.inf,
        "rows with a value that is not a number": rows["value"].isna() & ~texts.isin(ABSENT),
    }
    for what, which in troubles.items():
        if which.any():
            first = int(which.to_numpy().argmax())
            notes.append(f"{what}: {which.sum()} (first: row {first + 1}, {plain(texts.iloc[first], 40)!r})")
    rows["value"] = rows["value"].where(np.isfinite(rows["value"]))
    if "time" in rows:
        moments = pd.to_numeric(rows["time"], errors="coerce").astype(float)
        if moments.isna().all():  # dates, as seconds since 1970 UTC
            dates = pd.to_datetime(rows["time"], errors="coerce", utc=True, format="mixed")
            moments = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
        if moments.isna().any():
            notes.append(f"rows without a readable time: {moments.isna().sum()}; they stay behind the row before them")
        rows["time"] = moments
    groups = rows.groupby("series", sort=False) if "series" in rows else [(_file_name(path), rows)]
    return {str(name): _in_order(str(name), own, notes) for name, own in groups}, notes


def _file_name(path: str) -> str:
    return "stdin" if path == "-" else Path(path).name


def _in_order(name: str, rows: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """The rows of a series by time; where that is equal or unknown, as in the file.  TableError where units differ."""
    units = Counter(rows["unit"][rows["value"].notna()] if "unit" in rows else ())
    if len(units) > 1:
        seen = ", ".join(f"{plain(unit, 20) or 'none'} ({number})" for unit, number in units.most_common(5))
        raise TableError(
            f"series {plain(name, 80)!r} mixes units: {seen}. One series has one unit; convert the values, or give "
            "each unit a series of its own"
        )
    moments = rows["time"].ffill().fillna(-np.inf) if "time" in rows else pd.Series(0.0, rows.index)
    if not moments.is_monotonic_increasing:
        notes.append(f"series {plain(name, 40)!r} is put in order of time")
        rows = rows.loc[moments.sort_values(kind="stable").index]
    return rows


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
        rows, notes = read(given.file)
        series = _with_steps(rows)
    regressions = {one.name for one in series if regressed(one.steps, better, given.smallest)}
    if given.as_json:
        print_json({"series": [_document(one, better, one.name in regressions) for one in series], "notes": notes})
    else:
        _show(series, notes, better, len(regressions))
    if regressions:
        return REGRESSION
    return PASS if any(one.points >= 2 * SHORTEST for one in series) else NO_VERDICT


def _with_steps(rows_of: dict[str, pd.DataFrame]) -> list[SeriesSteps]:
    """Every series with its steps: as ratios, or as differences where a value is not positive and has no ratio."""
    measured = {name: np.flatnonzero(rows["value"].notna()) for name, rows in rows_of.items()}
    values = {name: rows["value"].to_numpy()[measured[name]] for name, rows in rows_of.items()}
    ratios = iter(find_many([own for own in values.values() if (own > 0).all()]))
    series = []
    for name, rows in rows_of.items():
        at, own, notes = measured[name], values[name], list[str]()
        steps = next(ratios) if (own > 0).all() else find_shifts(own)
        if len(own) < 2 * SHORTEST:
            notes = [f"{plural(len(own), 'point')}; {2 * SHORTEST} are the fewest that can show a step"]
        elif (worst := float(own.min())) <= 0:
            notes = [f"{worst:g} is not positive and has no ratio; its steps are differences"]
        commits = rows["commit"].tolist() if "commit" in rows else []
        placed = [dataclasses.replace(step, index=int(at[step.index])) for step in steps]
        series.append(SeriesSteps(name, commits, len(own), placed, [f"{plain(name, 80)}: {note}" for note in notes]))
    return series


def direction(step: Step, better: Better) -> str:
    """Which way the step goes, for what is timed."""
    return "slower" if (step.after > step.before) == (better == "lower") else "faster"


def regressed(steps: Sequence[Step], better: Better, smallest: float) -> bool:
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


def _document(series: SeriesSteps, better: Better, is_regression: bool) -> dict[str, object]:
    """The shape that .github/ARCHITECTURE.md fixes, and what else is known."""
    changes = []
    for step in series.steps:
        numbers = {name: value if math.isfinite(value) else None for name, value in dataclasses.asdict(step).items()}
        commit = series.commits[step.index] if series.commits else None
        changes.append({"commit": commit, **numbers, "direction": direction(step, better)})
    facts = {"name": series.name, "points": series.points, "changes": changes}
    return {**facts, "regressed": is_regression, "notes": list(series.notes)}


def _show(series: Sequence[SeriesSteps], notes: Sequence[str], better: Better, slower: int) -> None:
    console = out_console()
    steps = [(one, step) for one in series for step in one.steps]
    console.print(f"{len(series)} series, {plural(len(steps), 'change')}; {slower} end slower")
    table = Table("series", "at", "commit", "change", "99 % interval", "before", "after", "p", "", box=None)
    for one, step in steps[:ROWS]:
        ratio = step.ratio if math.isfinite(step.ratio) else None
        low, high = (step.ratio_low, step.ratio_high) if ratio else (None, None)
        way = direction(step, better)
        cells = (
            plain(one.name, 60),
            str(step.index),
            plain(one.commits[step.index], 40)[:12] if one.commits else "-",
            percent(ratio),
            interval(low, high),
            f"{step.before:.4g}",
            f"{step.after:.4g}",
            f"{step.p_value:.1g}",
        )
        table.add_row(*map(Text, cells), Text(way, style="red" if way == "slower" else "green"))
    if steps:
        console.print(table)
    if len(steps) > ROWS:
        console.print(f"and {plural(len(steps) - ROWS, 'more change')}; --json has all of them")
    print_notes(console, [*notes, *(note for one in series for note in one.notes)], ROWS)
