"""The recorded sweeps of a folder of results, as the events of configurations need them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

from ci.history.configurations.beaten import SweptCase, swept_cases
from ci.judging import policy
from ci.sweeps import measured

FOLDER = "sweeps"
"""Of a folder of results: `ridgeline record` keeps the lines of sweeps there, by machine."""


def read(results: Path) -> list[SweptCase]:
    """Every backend that a recorded sweep measured as it is, in the order of the files; none without sweeps."""
    files = sorted(results.glob(f"{FOLDER}/*/*.jsonl*"))
    return [one for found in (measured.read_all(files) if files else []) for one in _of_sweep(found)]


def _of_sweep(found: measured.Measured) -> Iterator[SweptCase]:
    """Nothing of a sweep with local changes: the history has no commit for it."""
    return iter(()) if found.origin.dirty or not found.origin.commit else swept_in(found)


def swept_in(found: measured.Measured) -> Iterator[SweptCase]:
    """Every backend that a sweep measured as it is."""
    rules = policy.load()
    smallest = {
        str(name): rules.settings(str(name), found.machine.kind).smallest_effect
        for name in found.frame["operator"].unique()
    }
    versions = {**found.environment.requirements, **({"driver": found.machine.driver} if found.machine.driver else {})}
    origin = found.origin
    yield from swept_cases(found.frame, origin.machine, origin.commit or "", started_ms(found), smallest, versions)


def started_ms(found: measured.Measured) -> int:
    """When a sweep began, milliseconds since 1970 UTC; 0 where nobody wrote it down."""
    try:
        return int(datetime.datetime.fromisoformat(found.started_at).timestamp() * 1000)
    except ValueError:
        return found.date_ms or 0
