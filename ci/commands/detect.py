"""`ridgeline detect`: change points of the series of a CSV, `value` and optionally `series`, `commit`, `time`.

A cell that cannot be used is refused by row and column; a row without a value is left out and counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click
import numpy as np
import pandas as pd

from ci.judging.policy import Settings
from ci.options import JSON, NO_VERDICT, PASS, REGRESSION, Given, option, print_json, verb
from ci.report.model import Sheet, markdown
from ci.report.words import interval, percent, plain, plural
from ci.stats import Step
from ci.stats.steps import SHORTEST, find
from ci.tables import ABSENT, TableError, read_cells

Better = Literal["lower", "higher"]

SMALLEST = Settings.recorded_smallest_effect
"""Share by which a level must be slower to count, of commits that were recorded apart, as these are."""


@dataclasses.dataclass(frozen=True, eq=False)
class SeriesSteps:
    """A series.  rows: in order of time where the file has times.  points: how many have a value.  steps: with indices
    among the rows."""

    name: str
    rows: pd.DataFrame
    points: int
    steps: Sequence[Step]


def read(path: str) -> dict[str, pd.DataFrame]:
    """The rows of each series of a file (stdin for `-`) in order of time, `value` NaN where there is none.

    TableError says which cell cannot be used, or why nothing can be read; OSError where it cannot be opened.
    """
    cells = read_cells(path)
    header = list(map(str, cells))
    rows = cells.set_axis([name.lower() for name in header], axis=1)
    if "value" not in rows:
        raise TableError(
            f"{plain(path)} has no column `value`: its first line is {plain(','.join(header), 80)!r}. "
            "A series CSV starts with a header: value, and if you have them series, commit, time"
        )
    numbers = pd.to_numeric(rows["value"], errors="coerce").astype(float)
    absent = rows["value"].str.lower().isin(ABSENT)
    _refuse(rows["value"], ~absent & ~((numbers > 0) & (numbers < np.inf)), "is no positive number, and has no ratio")
    rows["value"] = numbers.where(~absent)
    if "time" in rows:
        moments: pd.Series = pd.to_numeric(rows["time"], errors="coerce").astype(float)
        if moments.isna().all():
            moments = pd.to_datetime(rows["time"], errors="coerce", utc=True, format="mixed")
        _refuse(rows["time"], moments.isna(), "is no time: seconds, or a date such as 2026-11-28")
        rows = rows.loc[moments.sort_values(kind="stable").index]
    if "series" not in rows:
        rows["series"] = "stdin" if path == "-" else Path(path).name
    if "commit" not in rows:
        rows["commit"] = None
    return {str(name): own for name, own in rows.groupby("series", sort=False)}


def _refuse(column: pd.Series, wrong: pd.Series, why: str) -> None:
    if wrong.any():
        cell = plain(column[wrong].iloc[0], 40)
        raise TableError(f"row {wrong.idxmax()}, column {column.name!r}: {cell!r} {why}; mend or empty the cell")


@verb("ridgeline detect history.csv --better lower")
@click.argument("file", type=click.Path(allow_dash=True))
@option("--better", "Which values are good.", click.Choice(["lower", "higher"]), default="lower")
@JSON
def detect(given: Given) -> int:
    """Find where the level of a series changed.

    FILE is a CSV (also .gz, or - for stdin) with a header: value, and optionally series, commit, time.  Rows are
    ordered by time where there is one; an index counts the rows of a series from 0, those without a value too.

    Exit code: 0 no series ends slower than it was (a change below the policy's least effect of recorded commits is
    only listed), 1 one does, 2 no series has points enough to tell, 3 the file cannot be read.
    """
    all_series = with_steps(read(given.file))
    regressions = {own.name for own in all_series if regressed(own.steps, given.better)}
    if given.as_json:
        print_json({"series": [_document(own, given.better, own.name in regressions) for own in all_series]})
    else:
        _show(all_series, given.better, len(regressions))
    if regressions:
        return REGRESSION
    return PASS if any(own.points >= 2 * SHORTEST for own in all_series) else NO_VERDICT


def with_steps(rows_of: dict[str, pd.DataFrame]) -> list[SeriesSteps]:
    """Every series with its steps."""
    series = []
    for name, rows in rows_of.items():
        values = rows["value"].reset_index(drop=True).dropna()
        steps = [dataclasses.replace(step, index=int(values.index[step.index])) for step in find(values.to_numpy())]
        series.append(SeriesSteps(name, rows, len(values), steps))
    return series


def direction(step: Step, better: Better) -> str:
    """Which way the step goes, for what is timed."""
    return "slower" if (step.after > step.before) == (better == "lower") else "faster"


def regressed(steps: Sequence[Step], better: Better) -> bool:
    """Does a slower step still stand: is the last level nearer to the one after it than to the one before?

    It counts from SMALLEST on.
    """
    sign = 1 if better == "lower" else -1
    return any(
        sign * (step.after - step.before) > 0
        and sign * (steps[-1].after - step.before) > sign * (step.after - step.before) / 2
        and sign * (steps[-1].after - step.before) >= SMALLEST * step.before
        for step in steps
    )


def _document(series: SeriesSteps, better: Better, is_regression: bool) -> dict[str, object]:
    """The shape that .github/ARCHITECTURE.md fixes, and what else is known."""
    changes = [
        {"commit": series.rows["commit"].iloc[step.index], **dataclasses.asdict(step)}
        | {"direction": direction(step, better)}
        for step in series.steps
    ]
    return {"name": series.name, "points": series.points, "changes": changes, "regressed": is_regression}


def _show(all_series: Sequence[SeriesSteps], better: Better, slower: int) -> None:
    rows = [
        (
            plain(own.name, 60),
            plain(own.rows["commit"].iloc[step.index] or "-", 12),
            direction(step, better),
            str(step.index),
            percent(step.ratio),
            interval(step.ratio_low, step.ratio_high),
            *(f"{number:.4g}" for number in (step.before, step.after, step.p_value)),
        )
        for own in all_series
        for step in own.steps
    ]
    head = ("series", "commit", "", "at", "change", "99 % interval", "before", "after", "p")
    title = f"{len(all_series)} series, {plural(len(rows), 'change')}; {slower} end slower"
    click.echo(markdown(Sheet(title, head, tuple(rows), 3)) if rows else title)
    gaps = sum(len(own.rows) - own.points for own in all_series)
    if gaps:
        click.echo(f"left out: {plural(gaps, 'row')} without a value")
    if short := sum(own.points < 2 * SHORTEST for own in all_series):
        click.echo(f"{short} series have under {2 * SHORTEST} points, the fewest that can show a step")
