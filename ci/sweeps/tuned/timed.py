"""What a sweep says of the knobs of a case, against the rule: ratios of times with their intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from ci.sweeps.tuned.cases import Identity, Knobs, TunedCase

REGIME = "spaced"
"""The regime by which knobs are chosen, unless a sweep has another one only."""


@dataclasses.dataclass(frozen=True)
class LogTime:
    """Of knobs in a case: log of time / time of the anchor, half its interval, and the trials behind it.

    code_hash: of what was launched, "" if nobody looked.
    """

    log: float
    half: float
    trials: int
    knobs: Knobs = dataclasses.field(default_factory=dict, compare=False)
    code_hash: str = ""


@dataclasses.dataclass(frozen=True)
class Versus:
    """time / time of something else, with its interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"


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
        return cls(knobs, _log_time(row, knobs) if ok else None, "" if ok else failed)


def _log_time(row: Mapping[Hashable, Any], knobs: Knobs) -> LogTime | None:
    ratio, low, high = (float(row[name]) for name in ("ratio", "low", "high"))
    trials, code = int(row["trials"]), str(row["code_hash"])
    if row["is_anchor"]:
        return LogTime(0.0, 0.0, trials, knobs, code)
    if not 0 < low <= high < math.inf:
        return None
    return LogTime(math.log(ratio), math.log(high / low) / 2, trials, knobs, code)


def versus(one: LogTime, other: LogTime) -> Versus:
    """The ratio of two times of a case.  Half its interval is the root of the sum of squares of both.

    Both are ratios to the same anchor, whose noise the difference does not have, so it is too wide rather than not.
    """
    return _between([(one, other)])


def over_cases(pairs: Sequence[tuple[LogTime, LogTime]]) -> Versus:
    """The geometric mean over cases of the ratio of two times, the cases independent."""
    return _between(pairs)


def _between(pairs: Sequence[tuple[LogTime, LogTime]]) -> Versus:
    log = math.fsum(one.log - other.log for one, other in pairs) / len(pairs)
    squares = (one.half**2 + other.half**2 for one, other in pairs if one != other)
    half = math.sqrt(math.fsum(squares)) / len(pairs)
    return Versus(math.exp(log), math.exp(log - half), math.exp(log + half))
