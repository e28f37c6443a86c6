"""`ridgeline detect`: change points of the series of a CSV."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click
import numpy as np
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from ci.commands.history.series_file import Read, Series, read
from ci.options import JSON, NO_VERDICT, PASS, REGRESSION, err_console, example, out_console
from ci.report.words import interval, percent, plain, plural
from ci.stats.steps import Tail, advance, find_shifts
from ci.stats.steps_scan import SHORTEST
from ci.stats.types import FloatArray, Step

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
        click.echo(json.dumps(_document(found, whole, better), indent=1))
    else:
        _show(found, whole, better)
    return _exit_code(found, better)


def _progress() -> Progress:
    console = err_console()
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


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
    """The shape that DESIGN section 8 fixes, and what else is known."""
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
