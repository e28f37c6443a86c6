"""What a step of the bring-up found: rows, as they travel between processes and stand in the report."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any

TEXT_CHARACTERS, DETAIL_CHARACTERS = 600, 1500
"""How much of a sentence, and of a traceback or log, is kept."""


class RowStatus(enum.StrEnum):
    """What became of one thing that was looked at."""

    PASS = "pass"
    FAIL = "fail"
    NOT_HERE = "not here"


WORST_FIRST = (RowStatus.FAIL, RowStatus.PASS, RowStatus.NOT_HERE)
"""The status of a step is the first of these that one of its rows has."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the report.  name: what was looked at.  next_step: "" where there is nothing to do.

    numbers: value and unit by name.  detail: the end of a traceback or log.
    """

    name: str
    status: RowStatus
    text: str
    next_step: str = ""
    numbers: Mapping[str, tuple[float, str]] = dataclasses.field(default_factory=dict)
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """JSON values, of bounded size; a number that is not finite is left out."""
        numbers = {
            name: {"value": float(f"{value:.4g}"), "unit": unit}
            for name, (value, unit) in self.numbers.items()
            if math.isfinite(value)
        }
        return {
            "name": self.name,
            "status": str(self.status),
            "text": self.text[:TEXT_CHARACTERS],
            "next_step": self.next_step[:TEXT_CHARACTERS],
            "numbers": numbers,
            "detail": self.detail[-DETAIL_CHARACTERS:],
        }


def passed(name: str, text: str, next_step: str = "", **numbers: tuple[float, str]) -> Row:
    """A row of what works.  numbers: name=(value, unit)."""
    return Row(name, RowStatus.PASS, text, next_step, numbers)


def failed(name: str, text: str, next_step: str, detail: str = "", **numbers: tuple[float, str]) -> Row:
    """A row of what does not."""
    return Row(name, RowStatus.FAIL, text, next_step, numbers, detail)


def not_here(name: str, text: str, next_step: str = "") -> Row:
    """A row of what this machine does not have; text says why."""
    return Row(name, RowStatus.NOT_HERE, text, next_step)


def status_of(rows: Iterable[Mapping[str, Any]]) -> RowStatus:
    """The status of a step by its rows; one without rows is not here."""
    found = {row["status"] for row in rows}
    return next((status for status in WORST_FIRST if status in found), RowStatus.NOT_HERE)
