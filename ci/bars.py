"""Progress of a child: the JSON lines in which it tells it, and a bar for each of its tasks."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LONGEST_LINE = 2000
"""Characters of one line of a child that are shown: what a kernel prints is not ours."""


def printable(line: str) -> str:
    """One line of foreign text for a terminal: control and other unprintable characters escaped, its length limited."""
    text = line.rstrip().replace("\t", "    ")
    more = len(text) - LONGEST_LINE
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:LONGEST_LINE])
    return f"{shown} ... ({more} more characters)" if more > 0 else shown


@dataclasses.dataclass(frozen=True)
class ProgressEvent:
    """A line of progress.  task: which bar it moves ("": the only one); what: its description, "" to keep it."""

    task: str
    what: str
    done: float
    total: float | None


class ProgressBars:
    """One progress bar for each task, removed when the program ends; without a terminal nothing is shown."""

    def __init__(self, console: Console, title: str) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._title = title
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressBars:
        self._progress.start()
        self._first = self._progress.add_task(self._title, total=None)
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def update(self, event: ProgressEvent) -> None:
        """Move the bar of a task."""
        what = event.what or f"{self._title} {event.task}"
        if event.task not in self._tasks:
            self._tasks[event.task] = self._progress.add_task(what) if self._tasks else self._first
        bar = self._tasks[event.task]
        self._progress.update(bar, completed=event.done, total=event.total, description=printable(what))


def event_in(line: str) -> ProgressEvent | None:
    """The progress in a line, None if it is something else: {"done", "total", "what"} or {"done", "total", "arch"}."""
    found = json_object(line) if line.startswith("{") else None
    if found is None or not ({"done", "total"} <= found.keys() and {"what", "arch"} & found.keys()):
        return None
    done, total = found["done"], found["total"]
    if not isinstance(done, int | float) or not isinstance(total, int | float | None):
        return None
    return ProgressEvent(str(found.get("arch", "")), str(found.get("what", "")), done, total)


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is; None if it is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
