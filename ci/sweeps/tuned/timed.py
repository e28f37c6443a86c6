"""What a sweep says of the knobs of a case, against the rule: ratios of times with their intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from benchmarks.points import Knobs
from ci.sweeps.catalogue import Identity, TunedCase
from ci.sweeps.times import LogTime

REGIME = "spaced"
"""The regime by which knobs are chosen, unless a sweep has another one only."""


Timings = Mapping[Identity, LogTime]


@dataclasses.dataclass(frozen=True, eq=False)
class TimedCase:
    """A case that was measured.  good: what has a time; bad: why others have none, by identity."""

    tuned: TunedCase
    good: Timings
    bad: Mapping[Identity, str]

    @property
    def rule(self) -> Identity:
        """The identity of the rule's knobs."""
        return self.tuned.identity(self.tuned.rule)


def timed(case: TunedCase, frame: pd.DataFrame) -> TimedCase | None:
    """What a sweep's frame (`ci.sweeps.measured.COLUMNS`) says of the case; None if it has nothing of it.

    Knobs that stand in several rows, as the anchor and as a point for instance, count once: as what has most trials.
    """
    mine = (frame["operator"] == case.operator) & (frame["case"] == case.case) & (frame["backend"] == case.backend)
    rows = frame[mine]
    regimes = set(rows["regime"])
    rows = rows[rows["regime"] == (REGIME if REGIME in regimes else min(regimes, default=""))]
    good, bad = dict[Identity, LogTime](), dict[Identity, str]()
    for row in (_Row.of(one, case) for one in rows.to_dict(orient="records")):
        identity = case.identity(row.knobs)
        if row.failed:
            bad.setdefault(identity, row.failed)
        elif row.time and row.time.trials > good.get(identity, LogTime(0, 0, 0)).trials:
            good[identity] = row.time
    good = {identity: one for identity, one in good.items() if identity not in bad}
    return TimedCase(case, good, bad) if good or bad else None


@dataclasses.dataclass(frozen=True)
class _Row:
    """What counts of a row.  time: None where it has none; failed: why, "" if nothing failed."""

    knobs: Knobs
    time: LogTime | None
    failed: str

    @classmethod
    def of(cls, row: Mapping[Hashable, Any], case: TunedCase) -> _Row:
        """From a row of `ci.sweeps.measured.COLUMNS`; an arm that was never built does not say its whole config."""
        knobs = {**case.defaults, **row["config"]} if row["config"] else {**case.chosen, **row["knobs"]}
        failed = ": ".join(text for text in (str(row["status"]), str(row["why"] or "")) if text)
        ok = row["status"] == "ok"
        return cls(knobs, LogTime.of_row(row, knobs) if ok else None, "" if ok else failed)
