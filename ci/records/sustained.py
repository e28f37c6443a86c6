"""What the records of sustained calls hold beside times, and how they stand beside the spaced ones."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from ci.records import store
from ci.records.ledger import SUSTAINED, folder_of
from ci.records.pooling import Place, interval
from ci.stats.types import FloatArray
from ci.trials.trial import Trial

# Joules of a call, from the bursts of a record's trials.


TRIANGLE_99 = 0.9
"""99 % of the differences of two independent uniform errors are below this share of their width: 1 - sqrt(0.01)."""

Key = tuple[str, str, str]
"""Case, role, backend."""


@dataclasses.dataclass(frozen=True)
class JoulesPerCall:
    """Of one call on all its devices together, with its 99 % interval.

    bursts: those in which the counters said enough.  seconds: in which they were followed, in all of them.
    """

    joules: float
    low: float
    high: float
    bursts: int
    seconds: float


@dataclasses.dataclass(frozen=True, eq=False)
class _Bursts:
    """The bursts of one arm in one trial that have joules.  poll_s: seconds between askings of a counter."""

    joules: FloatArray
    seconds: FloatArray
    poll_s: float


def joules_of(trials: Sequence[Trial]) -> dict[Key, JoulesPerCall]:
    """By case, role and backend, what the energy counters said in all trials of an operator together."""
    found: dict[Key, list[_Bursts]] = {}
    for trial in trials:
        for key, bursts in _bursts(json.loads(trial.text)):
            found.setdefault(key, []).append(bursts)
    return {key: _pooled(those) for key, those in found.items()}


def _bursts(line: Mapping[str, Any]) -> Iterator[tuple[Key, _Bursts]]:
    for name, case in line["cases"].items():
        poll_s = (case.get("energy") or {}).get("poll_s") or 0.0
        for arm_key, arm in case.get("arms", {}).items():
            pairs = zip(arm.get("energy_j") or (), arm.get("energy_s") or (), strict=False)
            known = [(joules, seconds) for joules, seconds in pairs if joules and seconds]
            if known:
                role, _, backend = arm_key.partition("/")
                joules, seconds = np.array(known, np.float64).T
                yield (name, role, backend), _Bursts(joules, seconds, poll_s)


def _pooled(trials: Sequence[_Bursts]) -> JoulesPerCall:
    """Median over all bursts; the interval is that of times, and never narrower than the counters' moments allow.

    A burst's span is known to the time between two askings at both ends; the errors of n bursts are independent.
    """
    seconds = float(sum(one.seconds.sum() for one in trials))
    bursts = sum(len(one.joules) for one in trials)
    middle = float(np.median(np.concatenate([one.joules for one in trials])))
    unsure = TRIANGLE_99 * max(one.poll_s for one in trials) * math.sqrt(bursts) / seconds
    low, high = interval([one.joules for one in trials])
    return JoulesPerCall(middle, min(low, middle * (1 - unsure)), max(high, middle * (1 + unsure)), bursts, seconds)


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
    newest, joules = _newest(store.load(folder)), functools.cache(functools.partial(_joules_at, folder))
    times, found = _times(newest), list[BesideRow]()
    facts = zip(newest["device"].astype(str), newest["baseline"], strict=True)
    for (series, time), (device, baseline) in sorted(zip(times.items(), facts, strict=True)):
        machine, kernel, case, backend = series
        said = joules(Place(machine, time.commit, time.env)).get((kernel, case, backend))
        found.append(BesideRow(machine, device, kernel, case, backend, bool(baseline), time, others.get(series), said))
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


def _joules_at(folder: Path, place: Place) -> Mapping[tuple[str, str, str], JoulesPerCall]:
    """What a record says, by kernel, case and backend."""
    by_operator: dict[str, list[Trial]] = {}
    for trial in store.trials(folder, place):
        by_operator.setdefault(trial.operator, []).append(trial)
    return {
        (operator, case, backend): one
        for operator, own in by_operator.items()
        for (case, role, backend), one in joules_of(own).items()
        if role == place.role_in(own[-1])
    }
