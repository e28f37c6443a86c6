"""What came of a sweep: by case, the best points, the winner and what is known of it, and what was not measured."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from benchmarks.points import Knobs
from ci.stats.sweeps import INDIFFERENCE
from ci.sweeps.measured import Measured
from ci.sweeps.pruning import Pruned


@dataclasses.dataclass(frozen=True)
class PointRow:
    """One point for people.  knobs: what it overrides, in words; "" for a backend as it is.  rung: from 0.

    seconds, ratio, low, high: None where it has none.  equal_to: the label whose times it shares.
    """

    label: str
    backend: str
    knobs: str
    status: str
    why: str
    seconds: float | None
    ratio: float | None
    low: float | None
    high: float | None
    trials: int
    rounds: int
    rung: int
    equal_to: str
    is_anchor: bool

    @property
    def name(self) -> str:
        """Backend and knobs."""
        return f"{self.backend} {self.knobs}" if self.knobs else self.backend


@dataclasses.dataclass(frozen=True)
class CaseRanking:
    """The points of a case under a regime.  ranked: those with a ratio, best first.  anchor: the backend whose default
    is at 1.  unusable: how many points have no time of their own, by reason.

    winner: the best of the anchor's backend; None where nothing but failures was measured.  runner_up: the next one
    whose code is another's.
    """

    operator: str
    case: str
    regime: str
    anchor: str
    ranked: tuple[PointRow, ...]
    winner: PointRow | None
    runner_up: PointRow | None
    unusable: dict[str, int]

    @property
    def beats_anchor(self) -> bool:
        """Whether the winner is faster than the anchor beyond its interval."""
        return bool(self.winner and not self.winner.is_anchor and (self.winner.high or math.inf) < 1)


def rankings(measured: Measured, pruned: Pruned | None = None) -> list[CaseRanking]:
    """By case and regime, in the order of the files.  pruned: what was not measured at all, counted too."""
    names = ("operator", "case", "regime")
    keys = dict.fromkeys(zip(*(measured.frame[name] for name in names), strict=True))
    return [_ranking(measured.frame, key, pruned) for key in keys]


def _ranking(frame: pd.DataFrame, key: tuple[str, str, str], pruned: Pruned | None) -> CaseRanking:
    operator, case, regime = key
    own = frame[(frame["operator"] == operator) & (frame["case"] == case) & (frame["regime"] == regime)]
    rows = [_row(row) for _, row in own.iterrows()]
    timed = sorted((row for row in rows if row.ratio is not None), key=lambda row: row.ratio or math.inf)
    anchor = str(own["anchor"].iloc[0])
    first, second = (*_winners([row for row in timed if row.backend == anchor and not row.equal_to]), None, None)[:2]
    unusable = Counter(row.status for row in rows if row.status != "ok")
    unusable += Counter({"equal to another": sum(bool(row.equal_to) for row in rows)})
    for dropped in pruned.dropped if pruned else ():
        unusable[dropped.kind] += dropped.point.case == case
    return CaseRanking(operator, case, regime, anchor, tuple(timed), first, second, dict(+unusable))


def _winners(family: Sequence[PointRow]) -> list[PointRow]:
    """Best first: the anchor and the points of the last rung, then the others, which are known too badly to win."""
    last = max((row.rung for row in family if not row.is_anchor), default=0)
    return sorted(family, key=lambda row: (row.rung < last and not row.is_anchor, row.ratio or math.inf))


def _row(found: pd.Series[Any]) -> PointRow:
    label = f"{found['backend']}@{found['point']}" if found["point"] else found["backend"]
    return PointRow(
        label,
        found["backend"],
        words(found["knobs"]),
        found["status"],
        found["why"],
        _number(found["seconds"]),
        _number(found["ratio"]),
        _number(found["low"]),
        _number(found["high"]),
        trials=int(found["trials"]),
        rounds=int(found["rounds"]),
        rung=int(found["rung"]),
        equal_to=found["equal_to"],
        is_anchor=bool(found["is_anchor"]),
    )


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def words(knobs: Knobs) -> str:
    """Knobs as they are given on the command line: "block_m=64 num_warps=8"."""
    return " ".join(f"{name}={value}" for name, value in knobs.items())


def finalists(ranking: CaseRanking, indifference: float = INDIFFERENCE) -> list[PointRow]:
    """Points that may be within the indifference of the winner: whoever likes one of them better may take it."""
    if ranking.winner is None or ranking.winner.ratio is None:
        return []
    bound = ranking.winner.ratio * (1 + indifference)
    return [row for row in ranking.ranked if row.backend == ranking.anchor and (row.ratio or math.inf) <= bound]


def best_of(rows: Sequence[PointRow], most: int) -> list[PointRow]:
    """The first rows to show: the best, and always the anchor and the plain backends."""
    shown = [row for row in rows[:most] if not row.equal_to]
    plain = [row for row in rows[most:] if not row.knobs]
    return [*shown, *plain]
