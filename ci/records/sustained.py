"""The times of sustained calls beside those of spaced ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from ci.records import store
from ci.records.ledger import SUSTAINED, folder_of

# The sustained times of the newest records beside the spaced ones: the same case and backend on the same machine.


Series: TypeAlias = tuple[str, str, str, str]
"""Machine, kernel, case, backend: what a sustained and a spaced time share to stand beside each other."""

SERIES = ["machine", "kernel", "case", "backend"]


@dataclasses.dataclass(frozen=True)
class RegimeTime:
    """The newest time of a series in one regime, in seconds.

    ratio: time of the fastest baseline / our time in the rounds of the same trials, above 1 ours is faster; low, high:
    its 99 % interval.  NaN for a baseline, and where none was timed.
    """

    commit: str
    env: str
    seconds: float
    ratio: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class BesideRow:
    """One backend in one case in both regimes.  spaced: None where it was never timed so; its commit may be another."""

    machine: str
    device: str
    kernel: str
    case: str
    backend: str
    baseline: bool
    sustained: RegimeTime
    spaced: RegimeTime | None


def beside(results: Path, spaced: pd.DataFrame | None = None) -> list[BesideRow]:
    """Every series that has a sustained time, by its newest record.  spaced: the frame of `results`, if loaded."""
    folder = folder_of(results, SUSTAINED)
    if not folder.is_dir():
        return []
    others = _times(_newest(store.load(results) if spaced is None else spaced))
    newest = _newest(store.load(folder))
    times, found = _times(newest), list[BesideRow]()
    facts = zip(newest["device"].astype(str), newest["baseline"], strict=True)
    for (series, time), (device, baseline) in sorted(zip(times.items(), facts, strict=True)):
        machine, kernel, case, backend = series
        found.append(BesideRow(machine, device, kernel, case, backend, bool(baseline), time, others.get(series)))
    return found


def _newest(frame: pd.DataFrame) -> pd.DataFrame:
    """The newest right row of each series."""
    right = frame[(frame["status"] == "ok") & frame["seconds"].notna()]
    return right.sort_values("date", kind="stable").drop_duplicates(SERIES, keep="last")


def _times(newest: pd.DataFrame) -> dict[Series, RegimeTime]:
    texts = (newest[name].astype(str) for name in (*SERIES, "commit", "env"))
    numbers = (newest[name].astype(float) for name in ("seconds", "paired_ratio", "paired_low", "paired_high"))
    rows = zip(*texts, *numbers, strict=True)
    return {(machine, kernel, case, backend): RegimeTime(*time) for machine, kernel, case, backend, *time in rows}
