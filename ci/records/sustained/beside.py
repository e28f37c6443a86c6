"""The sustained times of the newest records beside the spaced ones: the same case and backend on the same machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from ci.records import store
from ci.records.regimes.folders import SUSTAINED, folder_of
from ci.records.sustained.energy import JoulesPerCall, joules_of

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
    """One backend in one case in both regimes.  spaced: None where it was never timed so; its commit may be another.

    joules: of a call in the sustained record, None where no counter said.
    """

    machine: str
    device: str
    kernel: str
    case: str
    backend: str
    baseline: bool
    sustained: RegimeTime
    spaced: RegimeTime | None
    joules: JoulesPerCall | None


def beside(results: Path, spaced: pd.DataFrame | None = None) -> list[BesideRow]:
    """Every series that has a sustained time, by its newest record.  spaced: the frame of `results`, if loaded."""
    folder = folder_of(results, SUSTAINED)
    if not folder.is_dir():
        return []
    others = _times(_newest(store.load(results) if spaced is None else spaced))
    newest, energy = _newest(store.load(folder)), _Energy(folder)
    times, found = _times(newest), list[BesideRow]()
    facts = zip(newest["device"].astype(str), newest["baseline"], strict=True)
    for (series, time), (device, baseline) in sorted(zip(times.items(), facts, strict=True)):
        machine, kernel, case, backend = series
        joules = energy.of(machine, time)
        named = machine, device, kernel, case, backend, bool(baseline)
        found.append(BesideRow(*named, time, others.get(series), joules.get((kernel, case, backend))))
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


Joules: TypeAlias = Mapping[tuple[str, str, str], JoulesPerCall]
"""By kernel, case and backend."""


class _Energy:
    """The joules of the records in a folder, each record read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[str, str, str], Joules] = {}

    def of(self, machine: str, time: RegimeTime) -> Joules:
        """What the record of a time says."""
        where = machine, time.commit, time.env
        if where not in self._known:
            self._known[where] = dict(self._read(*where))
        return self._known[where]

    def _read(self, machine: str, commit: str, env: str) -> Joules:
        found: dict[tuple[str, str, str], JoulesPerCall] = {}
        trials = store.notes(self._folder, machine, commit, env)
        place = store.Place(machine, commit, env)
        for operator in dict.fromkeys(trial.operator for trial in trials):
            own = [trial for trial in trials if trial.operator == operator]
            role = place.role_in(own[-1])
            found |= {(operator, case, b): one for (case, r, b), one in joules_of(own).items() if r == role}
        return found
