"""Progress: a bar on a terminal, a line every 10 s elsewhere; and that of a child, which tells it as JSON lines."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
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


def printable(line: str) -> str:
    """One line of foreign text for a terminal: control and other unprintable characters escaped, its length limited."""
    text = line.rstrip().replace("\t", "    ")
    more = len(text) - LONGEST_LINE
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:LONGEST_LINE])
    return f"{shown} ... ({more} more characters)" if more > 0 else shown


class ProgressBars(Bars):
    """One progress bar for each task, removed when the work is done; the first one is called `title`."""

    def __init__(self, console: Console, title: str) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        super().__init__(console, TextColumn("{task.description}", markup=False), *columns)
        self._title, self._first = title, self.add_task(title, total=None)
        self._bars: dict[str, TaskID] = {}

    def show(self, event: Mapping[str, Any]) -> None:
        """Move the bar of the event's task (`arch`; without one there is one bar), and describe it by its `what`."""
        task = str(event.get("arch", ""))
        what = str(event.get("what") or f"{self._title} {task}")
        if task not in self._bars:
            self._bars[task] = self.add_task(what) if self._bars else self._first
        self.update(self._bars[task], completed=event["done"], total=event["total"], description=printable(what))


def is_progress(message: Mapping[str, Any]) -> bool:
    """Whether a message of a child moves a bar: {"done", "total", "what"} or {"done", "total", "arch"}."""
    numbers = isinstance(message.get("done"), int | float) and isinstance(message.get("total"), int | float | None)
    return numbers and "total" in message and ("what" in message or "arch" in message)


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is; None if it is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
