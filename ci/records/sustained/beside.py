"""The sustained times of the newest records beside the spaced ones: the same case and backend on the same machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd

from ci.records import store
from ci.records.derived import derive
from ci.records.regimes.folders import SUSTAINED, folder_of
from ci.records.sustained.energy import JoulesPerCall, joules_of

SERIES = ["machine", "kernel", "case", "backend"]
"""What a sustained and a spaced time must share to stand beside each other."""


@dataclasses.dataclass(frozen=True)
class BesideRow:
    """One backend in one case in both regimes.  Seconds; NaN and None where the regime or the counter has nothing.

    *_ratio: time of the fastest baseline / our time in the rounds of the same trials, above 1 ours is faster; with its
    99 % interval.  commit: of the sustained record; spaced_commit: of the spaced one, which may be another.
    """

    machine: str
    device: str
    kernel: str
    case: str
    backend: str
    baseline: bool
    env: str
    commit: str
    spaced_commit: str
    spaced_s: float
    sustained_s: float
    spaced_ratio: float
    spaced_low: float
    spaced_high: float
    sustained_ratio: float
    sustained_low: float
    sustained_high: float
    joules: JoulesPerCall | None


def beside(results: Path, spaced: pd.DataFrame | None = None) -> list[BesideRow]:
    """Every series that has a sustained time, by its newest record.  spaced: the frame of `results`, if loaded."""
    folder = folder_of(results, SUSTAINED)
    frame = store.load(folder) if folder.is_dir() else pd.DataFrame()
    if not len(frame):
        return []
    sustained = _newest(frame)
    other = _newest(store.load(results) if spaced is None else spaced).set_index(SERIES)
    found, energy = list[BesideRow](), _Energy(folder)
    for row in sustained.sort_values(SERIES).itertuples(index=False):
        key = tuple(str(getattr(row, name)) for name in SERIES)
        there = other.loc[key] if key in other.index else None
        found.append(_row(row, there, energy.of(row)))
    return found


def _newest(frame: pd.DataFrame) -> pd.DataFrame:
    """The newest right row of each series; texts are plain."""
    right = frame[(frame["status"] == "ok") & frame["seconds"].notna()].reset_index(drop=True)
    plain = derive(right).astype(dict.fromkeys((*SERIES, "commit", "env", "device", "baseline_name"), str))
    return plain.sort_values("date", kind="stable").drop_duplicates(SERIES, keep="last")


class _Energy:
    """The joules of the records in a folder, each record read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[str, str, str], dict[tuple[str, str, str], JoulesPerCall]] = {}

    def of(self, row: object) -> JoulesPerCall | None:
        machine, commit, env = (str(getattr(row, name)) for name in ("machine", "commit", "env"))
        if (machine, commit, env) not in self._known:
            self._known[machine, commit, env] = self._read(machine, commit, env)
        kernel, case, backend = (str(getattr(row, name)) for name in ("kernel", "case", "backend"))
        return self._known[machine, commit, env].get((kernel, case, backend))

    def _read(self, machine: str, commit: str, env: str) -> dict[tuple[str, str, str], JoulesPerCall]:
        found = {}
        trials = store.notes(self._folder, machine, commit, env)
        [place] = store.places(self._folder, machine, commit, env)
        for operator in dict.fromkeys(trial.operator for trial in trials):
            own = [trial for trial in trials if trial.operator == operator]
            role = place.role_in(own[-1])
            found |= {(operator, case, b): one for (case, r, b), one in joules_of(own).items() if r == role}
        return found


def _row(sustained: object, spaced: pd.Series | None, joules: JoulesPerCall | None) -> BesideRow:
    def told(row: object | None, name: str) -> float:
        return float(getattr(row, name)) if row is not None else np.nan

    def ratio(row: object | None) -> tuple[float, float, float]:
        return told(row, "paired_ratio"), told(row, "paired_low"), told(row, "paired_high")

    return BesideRow(
        *(str(getattr(sustained, name)) for name in ("machine", "device", "kernel", "case", "backend")),
        bool(sustained.baseline),
        *(str(getattr(sustained, name)) for name in ("env", "commit")),
        str(spaced["commit"]) if spaced is not None else "",
        told(spaced, "seconds"),
        told(sustained, "seconds"),
        *ratio(spaced),
        *ratio(sustained),
        joules,
    )
