"""Joules of a call, from the bursts of a record's trials."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ci.records.pooling import interval
from ci.stats.types import FloatArray
from ci.trials.trial import Trial

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
