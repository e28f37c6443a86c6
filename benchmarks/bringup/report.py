"""The report of a bring-up: worth sending, bounded, nothing private."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bringup.steps import RowStatus, status_of

FORMAT, VERSION = "ridgeline-bringup", 1

LARGEST_BYTES = 400_000
"""A report above this loses its details: it should fit in a mail or an issue."""

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
"""Variables with such names hold values that a report never shows."""

SHORTEST_PRIVATE = 4
"""Characters; a shorter text would blank ordinary words."""


def document(
    facts: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], seconds: float, missing: Sequence[str]
) -> dict[str, Any]:
    """The report.  facts: machine, devices, versions.  missing: steps that were not run (--only, --skip)."""
    counts = Counter(row["status"] for step in steps for row in step["rows"])
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "at": now(),
        "seconds": round(seconds, 1),
        "counts": {str(status): counts[status] for status in RowStatus},
        **facts,
        "steps": list(steps),
        "not_run": list(missing),
    }
    return _bounded(without_private(whole))


def without_private(value: Any) -> Any:
    """JSON values without host name, home, checkout, Python's folder, or the values of secret variables."""
    private = _private()

    def clean(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {key: clean(one) for key, one in part.items()}
        if isinstance(part, list | tuple):
            return [clean(one) for one in part]
        if isinstance(part, str):
            for text, shown in private:
                part = part.replace(text, shown)
        return part

    return clean(value)


def _private() -> list[tuple[str, str]]:
    """What is replaced and by what, longest first."""
    secrets = [(value, "<secret>") for name, value in os.environ.items() if SECRET.search(name) and len(value) > 5]
    folders = [(str(Path.cwd()), "<here>"), (sys.prefix, "<python>"), (str(Path.home()), "<home>")]
    known = [*secrets, *folders, (platform.node(), "<host>")]
    return sorted((one for one in known if len(one[0]) >= SHORTEST_PRIVATE), key=lambda one: -len(one[0]))


def _bounded(whole: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(whole)) > LARGEST_BYTES:
        for row in (row for step in whole["steps"] for row in step["rows"]):
            row["detail"] = ""
    return whole


def step_line(name: str, seconds: float, found: list[dict[str, Any]]) -> dict[str, Any]:
    """A finished step.  found: its rows."""
    return {"step": name, "status": str(status_of(found)), "seconds": round(seconds, 2), "at": now(), "rows": found}


def now() -> str:
    """UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
