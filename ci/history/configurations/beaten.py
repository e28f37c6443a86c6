"""Where the knobs in use lost to others that were measured beside them, from the rows of sweeps in their order."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ci.history.steps.words import SeriesKey

Identity = str
"""Canonical JSON of all knobs of a launch."""

LEAST_TRIALS = 2
"""Of knobs that beat those in use: one process start has a bias that no round shows."""


@dataclasses.dataclass(frozen=True)
class KnobTime:
    """Of knobs in one sweep: log of time / time of the anchor, half its interval, trials."""

    log: float
    half: float
    trials: int


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
    times: Mapping[Identity, KnobTime]
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


def _times(rows: Iterable[Mapping[Hashable, Any]]) -> tuple[dict[Identity, KnobTime], Identity]:
    """Times by identity, those with most trials where one has several; and the identity of the knobs in use."""
    found: dict[Identity, KnobTime] = {}
    chosen = ""
    for row in rows:
        name = json.dumps(row["config"], sort_keys=True)
        chosen = name if not row["point"] else chosen
        one = _time(row)
        if one and one.trials > found.get(name, KnobTime(0, 0, 0)).trials:
            found[name] = one
    return found, chosen if chosen in found else ""


def _time(row: Mapping[Hashable, Any]) -> KnobTime | None:
    if row["is_anchor"]:
        return KnobTime(0.0, 0.0, int(row["trials"]))
    ratio, low, high = (float(row[name]) for name in ("ratio", "low", "high"))
    if not 0 < low <= high < math.inf:
        return None
    return KnobTime(math.log(ratio), math.log(high / low) / 2, int(row["trials"]))


def loss_to(swept: SweptCase, other: Identity) -> Loss:
    """By how much the knobs in use are slower than others; halves of intervals add in squares."""
    ours, theirs = swept.times[swept.chosen], swept.times[other]
    log, half = ours.log - theirs.log, math.hypot(ours.half, theirs.half)
    return Loss(other, math.exp(log), math.exp(log - half), math.exp(log + half))


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
