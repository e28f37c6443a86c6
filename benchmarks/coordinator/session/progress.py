"""What a session says of how far it is."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

Report = Callable[[Mapping[str, Any]], None]
"""Called with {"done": cases finished, "total": cases, "what": a few words}."""


def one_at_a_time(report: Report) -> Report:
    """The same, for several threads: an event is said to its end."""
    lock = threading.Lock()

    def said(event: Mapping[str, Any]) -> None:
        with lock:
            report(event)

    return said


@dataclasses.dataclass
class CaseCounter:
    """Counts cases, or steps, and reports what is done."""

    total: int
    report: Report
    done: int = 0

    def start(self, what: str) -> None:
        """Say what is done next."""
        self.report({"done": min(self.done, self.total), "total": self.total, "what": what})

    def telling(self, what: str) -> Callable[[str], None]:
        """Say what is done now, and return what adds to it while it is done."""
        self.start(what)
        return lambda more: self.start(f"{what}{more}")

    def finish(self) -> None:
        """Say that all is done."""
        self.report({"done": self.total, "total": self.total, "what": "done"})
