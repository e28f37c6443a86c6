"""A series CSV as series: header with `value`, and optionally `series`, `commit`, `time`, `unit`.

The file is read once, row by row, so a file of any size, a `.gz` or a pipe takes the memory of its numbers only.
What cannot be used is counted and said, with the line of the first; nothing is guessed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import click
import numpy as np
import pandas as pd
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from ci.bars import Bars
from ci.options import JSON, NO_VERDICT, PASS, REGRESSION, err_console, example, out_console, print_json
from ci.report.words import interval, percent, plain, plural
from ci.stats.steps import SHORTEST, IntArray, Tail, advance, find_shifts
from ci.stats.types import FloatArray, Step
from ci.tables.csv_rows import CsvRows, TableFileError, opened

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


@dataclasses.dataclass
class _Remarks:
    """What cannot be used, by what it is: how often, and where first."""

    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    first: dict[str, str] = dataclasses.field(default_factory=dict)

    def note(self, what: str, number: int, where: str) -> None:
        if number:
            self.counts[what] += number
            self.first.setdefault(what, where)

    def sentences(self) -> list[str]:
        return [f"{what}: {number} (first: {self.first[what]})" for what, number in self.counts.items()]


class _Names:
    """Texts by number, each kept once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, texts: Iterable[str]) -> list[int]:
        return [self.numbers.setdefault(text, len(self.numbers)) for text in texts]


@dataclasses.dataclass(frozen=True, eq=False)
class _Columns:
    """A chunk or the whole file, as numbers; texts as their numbers among `_Names`."""

    values: FloatArray
    times: FloatArray
    names: FloatArray
    commits: FloatArray
    units: FloatArray


def read(path: str, progress: Callable[[int], None] = lambda done: None) -> Read:
    """The series of a file, or of stdin where the path is `-`; `progress` is told the bytes of the file read so far.

    TableFileError says what is wrong with a file of which nothing can be read; OSError where it cannot be opened.
    """
    with opened(path) as raw:
        found = CsvRows(raw, plain(path))
        rows, texts = iter(found), {column: _Names() for column in ("series", "commit", "unit")}
        header, remarks, chunks = _header(found, rows, path), _Remarks(), []
        while chunk := list(itertools.islice(rows, CHUNK)):
            chunks.append(_numbers(chunk, header, texts, remarks))
            progress(raw.tell() if raw.seekable() else 0)
    if not chunks:
        raise TableFileError(f"{plain(path)} has a header and no rows; it needs one row for each point")
    whole = _Columns(*(np.concatenate(column) for column in zip(*map(_fields, chunks), strict=True)))
    name = "stdin" if path == "-" else Path(path).name
    series = list(_series(whole, {column: list(texts[column].numbers) for column in texts}, name, remarks))
    return Read(series, remarks.sentences())


def _fields(columns: _Columns) -> list[FloatArray]:
    return [getattr(columns, field.name) for field in dataclasses.fields(columns)]


def _header(found: CsvRows, rows: Iterator[tuple[int, list[str]]], path: str) -> dict[str, int]:
    """Place of each known column."""
    _, row = next(rows, (0, []))
    header = {cell.strip().lower(): i for i, cell in reversed(list(enumerate(row)))}
    if "value" not in header:
        raise TableFileError(
            f"{plain(path)} has no column `value`: its first line is {plain(found.first, 80)!r}. "
            "A series CSV starts with a header: value, and if you have them series, commit, time"
        )
    return header


def _numbers(
    chunk: list[tuple[int, list[str]]], header: dict[str, int], texts: dict[str, _Names], remarks: _Remarks
) -> _Columns:
    lines = [line for line, _ in chunk]

    def column(name: str) -> list[str]:
        place = header.get(name)
        return [] if place is None else [row[place].strip() if place < len(row) else "" for _, row in chunk]

    def numbered(name: str) -> FloatArray:
        return np.array(texts[name].of(column(name)) or [0] * len(chunk), dtype=np.float64)

    values = _values(column("value"), lines, remarks)
    times = _times(column("time"), lines, remarks) if "time" in header else np.zeros(len(chunk))
    return _Columns(values, times, numbered("series"), numbered("commit"), numbered("unit"))


def _values(cells: list[str], lines: list[int], remarks: _Remarks) -> FloatArray:
    """Finite numbers; NaN, and a remark, for what is none."""
    values = _floats(cells)
    empty = np.array([cell == "" for cell in cells])
    none = np.array([cell.lower() in ("nan", "null", "none", "na", "n/a") for cell in cells])
    infinite = np.isinf(values)
    for what, which in (
        ("rows without a value", empty),
        ("rows with the value NaN", none),
        ("rows with an infinite value", infinite),
        ("rows with a value that is not a number", np.isnan(values) & ~empty & ~none),
    ):
        at = np.flatnonzero(which)
        if len(at):
            remarks.note(what, len(at), f"line {lines[at[0]]}, {plain(cells[at[0]], 40)!r}")
    return np.where(infinite, np.nan, values)


def _floats(cells: list[str]) -> FloatArray:
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return np.asarray(pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce"), dtype=np.float64)


def _times(cells: list[str], lines: list[int], remarks: _Remarks) -> FloatArray:
    """Numbers as they are, dates as seconds since 1970 UTC; NaN, and a remark, for what is neither."""
    times = _floats(cells)
    if np.isnan(times).all():
        dates = pd.to_datetime(pd.Series(cells, dtype=object), errors="coerce", utc=True, format="mixed")
        times = np.asarray((dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds(), dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(times))
    if len(bad):
        where = f"line {lines[bad[0]]}, {plain(cells[bad[0]], 40)!r}"
        remarks.note("rows without a readable time; they stay behind the row before them", len(bad), where)
    return times


def _series(whole: _Columns, texts: dict[str, list[str]], name: str, remarks: _Remarks) -> Iterator[Series]:
    together = np.argsort(whole.names, kind="stable")
    for given in np.split(together, np.flatnonzero(np.diff(whole.names[together])) + 1):
        label = texts["series"][int(whole.names[given[0]])] if texts["series"] else name
        _refuse_mixed_units(label, whole.units[given][np.isfinite(whole.values[given])], texts["unit"])
        rows = _in_order(given, whole.times, label, remarks)
        commits = [texts["commit"][int(i)] for i in whole.commits[rows]] if texts["commit"] else []
        if repeated := max(len(commits) - len(set(commits)), 0):
            again = Counter(commits).most_common(1)[0][0]
            remarks.note("rows of a commit that their series has before; each is a point", repeated, plain(again, 40))
        yield Series(label, whole.values[rows], commits)


def _in_order(rows: IntArray, times: FloatArray, label: str, remarks: _Remarks) -> IntArray:
    """The rows by time; where that is equal or unknown, as in the file."""
    known = pd.Series(times[rows]).replace([np.inf, -np.inf], np.nan).ffill().fillna(-np.inf).to_numpy()
    back = int((known[1:] < known[:-1]).sum())
    remarks.note("rows older than the row before; their series is put in order of time", back, plain(label, 40))
    return rows[np.argsort(known, kind="stable")]


def _refuse_mixed_units(label: str, units: FloatArray, texts: list[str]) -> None:
    if len(found := Counter(units.tolist())) > 1:
        seen = ", ".join(f"{plain(texts[int(unit)], 20) or 'none'} ({number})" for unit, number in found.most_common(5))
        raise TableFileError(
            f"series {plain(label, 80)!r} mixes units: {seen}. One series has one unit; convert the values, or give "
            "each unit a series of its own"
        )


# `ridgeline detect`: change points of the series of a CSV.


Better = Literal["lower", "higher"]

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


@click.command(epilog=example("ridgeline detect history.csv --better lower"))
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--better",
    type=click.Choice(["lower", "higher"]),
    default="lower",
    show_default=True,
    help="Which values are good.",
)
@JSON
def detect(file: str, better: Better, as_json: bool) -> int:
    """Find where the level of a series changed.

    FILE is a CSV (also .gz, or - for stdin) with a header: value, and optionally series, commit, time, unit.  Rows are
    ordered by time where there is one; an index counts the rows of a series from 0, those without a value too.  Steps
    of values that are not all positive are differences, without a ratio.

    Exit code: 0 no series ends slower than it was, 1 one does, 2 no series has points enough to tell, 3 the file cannot
    be read.
    """
    with _progress() as progress:
        whole = _file(file, progress)
        found = list(_found(whole, progress))
    if as_json:
        print_json(_document(found, whole, better))
    else:
        _show(found, whole, better)
    return _exit_code(found, better)


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    return Bars(err_console(), *columns)


def _file(file: str, progress: Progress) -> Read:
    size = None if file == "-" else Path(file).stat().st_size
    task = progress.add_task("reading", total=size)
    whole = read(file, lambda done: progress.update(task, completed=done))
    progress.remove_task(task)
    return whole


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


def regressed(steps: list[Step], better: Better) -> bool:
    """Does a slower step still stand: is the last level nearer to the one after it than to the one before?"""
    return any(
        direction(step, better) == "slower"
        and abs(steps[-1].after - step.before) > abs(step.after - step.before) / 2
        and (steps[-1].after > step.before) == (step.after > step.before)
        for step in steps
    )


def _exit_code(found: list[Found], better: Better) -> int:
    if any(regressed(one.steps, better) for one in found):
        return REGRESSION
    return PASS if any(one.points >= 2 * SHORTEST for one in found) else NO_VERDICT


def _document(found: list[Found], whole: Read, better: Better) -> dict[str, object]:
    """The shape that .github/ARCHITECTURE.md fixes, and what else is known."""
    series = [
        {
            "name": one.series.name,
            "points": one.points,
            "changes": [_change(one.series, step, better) for step in one.steps],
            "regressed": regressed(one.steps, better),
            "notes": list(one.notes),
        }
        for one in found
    ]
    return {"series": series, "notes": whole.notes}


def _change(series: Series, step: Step, better: Better) -> dict[str, object]:
    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return {
        "index": step.index,
        "commit": series.commits[step.index] if series.commits else None,
        "before": step.before,
        "after": step.after,
        "ratio": number(step.ratio),
        "ratio_low": number(step.ratio_low),
        "ratio_high": number(step.ratio_high),
        "p_value": step.p_value,
        "direction": direction(step, better),
    }


def _show(found: list[Found], whole: Read, better: Better) -> None:
    console = out_console()
    rows = [(one.series, step) for one in found for step in one.steps]
    slower = sum(regressed(one.steps, better) for one in found)
    console.print(f"{len(found)} series, {plural(len(rows), 'change')}; {slower} end slower")
    if rows:
        console.print(_table(rows[:ROWS], better))
    if len(rows) > ROWS:
        console.print(f"and {plural(len(rows) - ROWS, 'more change')}; --json has all of them")
    notes = [*whole.notes, *(note for one in found for note in one.notes)]
    for note in notes[:ROWS]:
        console.print(Text(f"note: {note}"))
    if len(notes) > ROWS:
        console.print(f"and {plural(len(notes) - ROWS, 'more note')}; --json has all of them")


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
