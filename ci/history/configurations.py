"""Whether the configuration in use is still the best of those that sweeps measured: events of a kind of their own."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ci.history.series import SeriesKey
from ci.judging import policy
from ci.records.ledger import sweeps_in
from ci.sweeps import measured
from ci.sweeps.rungs import LEAST_TRIALS, LogTime, versus

# Where the knobs in use lost to others that were measured beside them, from the rows of sweeps in their order.


Identity = str
"""Canonical JSON of all knobs of a launch."""


@dataclasses.dataclass(frozen=True, eq=False)
class SweptCase:
    """A case and backend in one recorded sweep.  chosen: the knobs in use.  times: of all that have one.

    started_ms: when the sweep began, milliseconds since 1970 UTC.  smallest: the share of the time that counts.
    versions: of the environment, to say what changed.
    """

    key: SeriesKey
    commit: str
    started_ms: int
    chosen: Identity
    times: Mapping[Identity, LogTime]
    smallest: float
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Loss:
    """Time of the knobs in use / time of others in one sweep, with its interval."""

    better: Identity
    ratio: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, eq=False)
class Beaten:
    """A stretch in which the knobs in use lost to others.  before: the last sweep in which they were unbeaten.

    ended: the sweep in which the knobs in use were unbeaten again, None while there is none.
    """

    before: SweptCase
    first: SweptCase
    loss: Loss
    earlier: Loss | None = None
    ended: SweptCase | None = None

    @property
    def retuned(self) -> bool:
        """Whether it ended because other knobs are in use."""
        return self.ended is not None and self.ended.chosen != self.first.chosen


def swept_cases(
    frame: pd.DataFrame,
    machine: str,
    commit: str,
    started_ms: int,
    smallest: Mapping[str, float],
    versions: Mapping[str, str],
) -> Iterator[SweptCase]:
    """What the frame of one sweep (`ci.sweeps.measured.COLUMNS`) says of each backend that was measured as it is.

    smallest: by operator.  Of several regimes the series has one each, the name of the backend says which.
    """
    names = ["operator", "case", "backend", "regime"]
    for place, rows in frame[frame["status"] == "ok"].groupby(names, sort=False):
        operator, case, backend, regime = map(str, place)
        times, chosen = _times(rows.to_dict(orient="records"))
        if chosen and len(times) > 1:
            shown = backend if regime == "spaced" else f"{backend} ({regime})"
            key = SeriesKey(machine, operator, shown, case)
            yield SweptCase(key, commit, started_ms, chosen, times, smallest[operator], versions)


def _times(rows: Iterable[Mapping[Hashable, Any]]) -> tuple[dict[Identity, LogTime], Identity]:
    """Times by identity, those with most trials where one has several; and the identity of the knobs in use."""
    found: dict[Identity, LogTime] = {}
    chosen = ""
    for row in rows:
        name = json.dumps(row["config"], sort_keys=True)
        chosen = name if not row["point"] else chosen
        one = LogTime.of_row(row, row["config"])
        if one and one.trials > found.get(name, LogTime(0, 0, 0)).trials:
            found[name] = one
    return found, chosen if chosen in found else ""


def loss_to(swept: SweptCase, other: Identity) -> Loss:
    """By how much the knobs in use are slower than others."""
    found = versus(swept.times[swept.chosen], swept.times[other])
    return Loss(other, found.ratio, found.low, found.high)


def loss_of(swept: SweptCase) -> Loss | None:
    """The loss to the fastest knobs that beat those in use beyond doubt, by what counts; None if none do."""
    others = sorted((one.log, name) for name, one in swept.times.items() if name != swept.chosen)
    sure = (loss_to(swept, name) for _, name in others if swept.times[name].trials >= LEAST_TRIALS)
    return next((one for one in sure if one.low > 1 + swept.smallest), None)


def stretches(sweeps: Sequence[SweptCase]) -> list[Beaten]:
    """Where one series was beaten after it had been the best; sweeps in the order of the history."""
    found: list[Beaten] = []
    best: SweptCase | None = None
    for swept in sweeps:
        loss = loss_of(swept)
        if found and found[-1].ended is None and loss is None:
            found[-1] = dataclasses.replace(found[-1], ended=swept)
        elif loss and (not found or found[-1].ended) and best and best.chosen == swept.chosen:
            earlier = loss_to(best, loss.better) if loss.better in best.times else None
            if earlier is None or loss.low > earlier.high:
                found.append(Beaten(best, swept, loss, earlier))
        if loss is None:
            best = swept
    return found


def better_knobs(used: Identity, better: Identity) -> str:
    """What better knobs change of those in use: "warps 4 -> 8"."""
    old, new = json.loads(used), json.loads(better)
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name, 'default')} -> {new.get(name, 'default')}" for name in names)


# The recorded sweeps of a folder of results, as the events of configurations need them.


def read(results: Path) -> list[SweptCase]:
    """Every backend that a recorded sweep measured as it is, in the order of the files; none without sweeps."""
    trials, _ = sweeps_in(results)
    clean = (one for one in measured.gathered(trials) if one.origin.commit and not one.origin.dirty)
    return [one for found in clean for one in swept_in(found)]  # the history has no commit for local changes


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
