"""Progress: a bar on a terminal, a line every 10 s elsewhere; and that of a child, which tells it as JSON lines."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LONGEST_LINE = 2000
"""Characters of one line of a child that are shown: what a kernel prints is not ours."""


SAID_EVERY_S = 10.0
"""Seconds between two lines about long work where no terminal shows a bar."""


class Bars(Progress):
    """Bars that go when the work is done; where the console is no terminal, a line every SAID_EVERY_S seconds."""

    def __init__(self, console: Console, *columns: ProgressColumn) -> None:
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._done = threading.Event()
        self._saying = threading.Thread(target=self._say, daemon=True)

    def start(self) -> None:
        super().start()
        if self.disable:
            self._saying.start()

    def stop(self) -> None:
        self._done.set()
        if self._saying.is_alive():  # a line that it is about to write comes before what follows
            self._saying.join()
        super().stop()

    def _say(self) -> None:
        while not self._done.wait(SAID_EVERY_S):
            for task in self.tasks:
                if task.finished or (not task.completed and task is not self.tasks[0]):
                    continue
                of = f" {task.completed:,.0f}/{task.total:,.0f}" if task.total else ""
                line = f"{task.description}{of}, {task.elapsed or 0:.0f} s"
                self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def bar(console: Console, what: str, *columns: ProgressColumn) -> Bars:
    """Bars with one task, of unknown length."""
    bars = Bars(console, *(columns or (SpinnerColumn(), TextColumn("{task.description}", markup=False))))
    bars.add_task(what, total=None)
    return bars


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
    """One progress bar for each task, removed when the program ends."""

    def __init__(self, console: Console, title: str) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Bars(console, *columns)
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
    event = json_object(line) if line.startswith("{") else None
    if event is None or not ({"done", "total"} <= event.keys() and {"what", "arch"} & event.keys()):
        return None
    done, total = event["done"], event["total"]
    if not isinstance(done, int | float) or not isinstance(total, int | float | None):
        return None
    return ProgressEvent(str(event.get("arch", "")), str(event.get("what", "")), done, total)


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is; None if it is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
