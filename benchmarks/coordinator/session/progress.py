"""What is told of the progress of a session, case by case."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Report = Callable[[Mapping[str, Any]], None]
"""Called with {"done": cases finished, "total": cases, "what": a few words}."""


@dataclasses.dataclass
class CaseCounter:
    """Counts cases, or steps, and reports what is done."""

    total: int
    report: Report
    done: int = 0

    def start(self, what: str) -> None:
        """Say what is done next."""
        self.report({"done": self.done, "total": self.total, "what": what})

    def telling(self, what: str) -> Callable[[str], None]:
        """Say what is done now, and return what adds to it while it is done."""
        self.start(what)
        return lambda more: self.start(f"{what}{more}")

    def finish(self) -> None:
        """Say that all is done."""
        self.report({"done": self.total, "total": self.total, "what": "done"})
