"""A series CSV as series: header with `value`, and optionally `series`, `commit`, `time`, `unit`.

The file is read once, row by row, so a file of any size, a `.gz` or a pipe takes the memory of its numbers only.
What cannot be used is counted and said, with the line of the first; nothing is guessed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import click
import numpy as np
import pandas as pd
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from ci.bars import Bars
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
from ci.stats.steps import SHORTEST, Tail, advance, find_shifts
from ci.stats.types import FloatArray, Step
from ci.tables.read import BoolArray, CsvRows, TableFileError, floats, opened

CHUNK = 100_000
"""Rows that are numbers together; their texts are then forgotten."""


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """One series, in order of time where the file has times.

    values: as they are, NaN where there is none.  commits: beside each value, "" where the file has none.
    """

    name: str
    values: FloatArray
    commits: Sequence[str]


@dataclasses.dataclass(frozen=True, eq=False)
class Read:
    """A whole file.  notes: what was not as expected, as sentences."""

    series: list[Series]
    notes: list[str]


class _Remarks(dict[str, tuple[int, str]]):
    """What cannot be used, by what it is: how often, and where first."""

    def note(self, what: str, number: int, where: str) -> None:
        if number:
            before, first = self.get(what, (0, where))
            self[what] = before + number, first

    def sentences(self) -> list[str]:
        return [f"{what}: {number} (first: {first})" for what, (number, first) in self.items()]


COLUMNS = ("value", "time", "series", "commit", "unit")


def read(path: str, progress: Callable[[int], None] = lambda done: None) -> Read:
    """The series of a file, or of stdin where the path is `-`; `progress` is told the bytes of the file read so far.

    TableFileError says what is wrong with a file of which nothing can be read; OSError where it cannot be opened.
    """
    remarks, chunks = _Remarks(), []
    with opened(path) as raw:
        found = CsvRows(raw, plain(path))
        rows = iter(found)
        _, names = next(rows, (0, list[str]()))
        header = {name.strip().lower(): i for i, name in reversed(list(enumerate(names)))}
        if "value" not in header:
            raise TableFileError(
                f"{plain(path)} has no column `value`: its first line is {plain(found.first, 80)!r}. "
                "A series CSV starts with a header: value, and if you have them series, commit, time"
            )
        places = {name: header[name] for name in COLUMNS if name in header}
        while chunk := list(itertools.islice(rows, CHUNK)):
            chunks.append(_chunk(chunk, places, remarks))
            progress(raw.tell() if raw.seekable() else 0)
    if not chunks:
        raise TableFileError(f"{plain(path)} has a header and no rows; it needs one row for each point")
    whole = pd.concat(chunks, ignore_index=True)
    alone = [("stdin" if path == "-" else Path(path).name, whole)]
    together = whole.groupby("series", sort=False) if "series" in whole else alone
    return Read([_series(str(name), own, remarks) for name, own in together], remarks.sentences())


def _chunk(rows: list[tuple[int, list[str]]], places: dict[str, int], remarks: _Remarks) -> pd.DataFrame:
    """Rows as a frame: value and time as numbers, NaN and a remark for what is none; the others as texts."""
    cells = {
        name: pd.Series([row[place].strip() if place < len(row) else "" for _, row in rows])
        for name, place in places.items()
    }

    def note(what: str, column: str, which: BoolArray) -> None:
        if len(at := np.flatnonzero(which)):
            remarks.note(what, len(at), f"line {rows[at[0]][0]}, {plain(cells[column][at[0]], 40)!r}")

    values, told = floats(cells["value"].tolist()), cells["value"].str.lower()
    empty, none = (told == "").to_numpy(), told.isin(["nan", "null", "none", "na", "n/a"]).to_numpy()
    note("rows without a value", "value", empty)
    note("rows with the value NaN", "value", none)
    note("rows with an infinite value", "value", np.isinf(values))
    note("rows with a value that is not a number", "value", np.isnan(values) & ~empty & ~none)
    found = pd.DataFrame(cells).assign(value=np.where(np.isinf(values), np.nan, values))
    if "time" not in cells:
        return found
    times = floats(cells["time"].tolist())
    if np.isnan(times).all():  # dates, as seconds since 1970 UTC
        dates = pd.to_datetime(cells["time"], errors="coerce", utc=True, format="mixed")
        times = np.asarray((dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds(), dtype=np.float64)
    note("rows without a readable time; they stay behind the row before them", "time", ~np.isfinite(times))
    return found.assign(time=times)


def _series(name: str, rows: pd.DataFrame, remarks: _Remarks) -> Series:
    """One series by time; where that is equal or unknown, as in the file."""
    if "unit" in rows and len(units := Counter(rows["unit"][np.isfinite(rows["value"])])) > 1:
        seen = ", ".join(f"{plain(unit, 20) or 'none'} ({number})" for unit, number in units.most_common(5))
        raise TableFileError(
            f"series {plain(name, 80)!r} mixes units: {seen}. One series has one unit; convert the values, or give "
            "each unit a series of its own"
        )
    if "time" in rows:
        known = rows["time"].replace([np.inf, -np.inf], np.nan).ffill().fillna(-np.inf).to_numpy()
        back = int((known[1:] < known[:-1]).sum())
        remarks.note("rows older than the row before; their series is put in order of time", back, plain(name, 40))
        rows = rows.iloc[np.argsort(known, kind="stable")]
    commits = rows["commit"].tolist() if "commit" in rows else []
    if repeated := len(commits) - len(set(commits)):
        again = Counter(commits).most_common(1)[0][0]
        remarks.note("rows of a commit that their series has before; each is a point", repeated, plain(again, 40))
    return Series(name, rows["value"].to_numpy(), commits)


# `ridgeline detect`: change points of the series of a CSV.


Better = Literal["lower", "higher"]

SMALLEST = Settings.recorded_smallest_effect
"""Share by which a level must be slower to count, of commits that were recorded apart, as these are."""

TOGETHER = 2000
"""Series between two looks of the progress bar."""

PART = 20_000
"""Points of one series between two looks."""

ROWS = 40
"""Most rows of the table: one screen."""

WIDE = 1e4
"""Largest / smallest value beyond which a mixed unit is likelier than a change of speed."""


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
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
    file, better = given.file, given.better
    with Bars(err_console(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()) as progress:
        task = progress.add_task("reading", total=None if file == "-" else Path(file).stat().st_size)
        whole = read(file, lambda done: progress.update(task, completed=done))
        progress.remove_task(task)
        found = list(_found(whole, progress))
    if given.as_json:
        print_json(_document(found, whole, better, given.smallest))
    else:
        _show(found, whole, better, given.smallest)
    if any(regressed(one.steps, better, given.smallest) for one in found):
        return REGRESSION
    return PASS if any(one.points >= 2 * SHORTEST for one in found) else NO_VERDICT


def _found(whole: Read, progress: Progress) -> Iterator[Found]:
    task = progress.add_task("analysing", total=sum(len(series.values) for series in whole.series))
    for first in range(0, len(whole.series), TOGETHER):
        some = whole.series[first : first + TOGETHER]
        measured = [np.flatnonzero(np.isfinite(series.values)) for series in some]
        values = [series.values[at] for series, at in zip(some, measured, strict=True)]
        for series, at, steps in zip(some, measured, _steps(values), strict=True):
            placed = [dataclasses.replace(step, index=int(at[step.index])) for step in steps]
            yield Found(series, len(at), placed, tuple(_remarks(series, at)))
        progress.advance(task, sum(len(series.values) for series in some))


def _steps(values: list[FloatArray]) -> list[list[Step]]:
    """Steps as ratios; as differences where a value is not positive, of which a ratio has no meaning."""
    ratios = [i for i, one in enumerate(values) if (one > 0).all()]
    found = dict(zip(ratios, _advanced([values[i] for i in ratios]), strict=True))
    return [found[i] if i in found else find_shifts(one) for i, one in enumerate(values)]


def _advanced(values: list[FloatArray]) -> list[list[Step]]:
    """Part by part, so that a series of millions of points needs no more memory than its values."""
    tails, steps = [Tail()] * len(values), [list[Step]() for _ in values]
    longest = max((len(one) for one in values), default=0)
    for stop in range(min(PART, longest), longest + PART, PART):
        now = [i for i, one in enumerate(values) if len(one) > stop - PART]
        parts = advance([tails[i] for i in now], [values[i][:stop] for i in now])
        for i, (tail, found) in zip(now, parts, strict=True):
            tails[i], steps[i] = tail, found
    return steps


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


def _document(found: list[Found], whole: Read, better: Better, smallest: float) -> dict[str, object]:
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


def _show(found: list[Found], whole: Read, better: Better, smallest: float) -> None:
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
