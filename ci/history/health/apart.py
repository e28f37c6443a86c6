"""Where a device or a machine parts from its peers, and where it comes back: one rule per measure, no statistics fit.

Peers are read at the same time, so a driver, a clock policy or a hot day that meets all of them is no finding here.
A finding begins with the first of PERSISTENT points in a row beyond the rule, and ends with as many within half of it.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ci.records.pooling import interval
from ci.stats.types import FloatArray

PERSISTENT = 3
"""Points in a row that begin or end a finding: as many trials as a night has of an operator (2026-11)."""


class Measure(enum.StrEnum):
    """What of a machine is set beside its peers."""

    CLOCK = "clock at work"
    LINK = "slowest link"
    PACE = "time beside other ranks"
    BASELINES = "time of the baselines"
    TEMPERATURE = "highest temperature"
    THROTTLED = "throttled share"
    NOISE = "noise between trials"


@dataclasses.dataclass(frozen=True)
class HealthRule:
    """How far apart is too far.  least: as a ratio - 1, or in the unit where `relative` is false.

    worse: +1 if more is worse, -1 if less is.  costs_time: whether times are proportional to it.
    chance: at most so many points of healthy machines are that far apart.
    """

    unit: str
    least: float
    worse: int
    relative: bool = True
    costs_time: bool = False
    chance: float = 0.5

    def apart(self, values: FloatArray, peers: FloatArray) -> FloatArray:
        """How much worse than their peers, in multiples of what is too far."""
        away = values / peers - 1 if self.relative else values - peers
        return self.worse * away / self.least

    def text(self, value: float) -> str:
        """With its unit."""
        return f"{value:.1%}" if self.unit == "%" else f"{value:,.4g} {self.unit}"


RULES = {
    Measure.CLOCK: HealthRule("MHz", 0.03, -1, costs_time=True, chance=0.014),
    Measure.LINK: HealthRule("GB/s", 0.05, -1, costs_time=True, chance=0.07),
    Measure.PACE: HealthRule("of the peers' time", 0.01, +1, costs_time=True, chance=0.05),
    Measure.BASELINES: HealthRule("of the peers' time", 0.02, +1, costs_time=True),
    Measure.TEMPERATURE: HealthRule("°C", 15.0, +1, relative=False),
    Measure.THROTTLED: HealthRule("%", 0.10, +1, relative=False),
    Measure.NOISE: HealthRule("%", 1.0, +1),
}
"""Least deviations, 2026-11-22.  In the 76 recorded trials on 2 and 4 H200 the GPUs of a machine differed by at most
2.3 % of their clock at work (one trial), 0.2 % of a link and 8 degrees, and none was held back by heat.  In 22 trials
of collectives and of GEMM + all-scatter there their times differed by at most 0.4 % (2 GPUs) and 0.07 % (4).
`policy.toml` takes 2 % for what a machine does on its own between two runs.  Noise: twice what it used to be.
Chances: none of 218 points of clocks, of 42 of links and of 62 of ranks' times was beyond, so at most 3 / n are (rule
of three, Hanley and Lippman-Hand, JAMA 249(13), 1983); 0.5, that of either side, where no healthy machines with peers
are recorded."""


class HealthPoint(NamedTuple):
    """A value of a device or machine, and what its peers had at that time.  at_ms: ms since 1970 UTC."""

    at_ms: int
    commit: str
    value: float
    peers: float


@dataclasses.dataclass(frozen=True, eq=False)
class HealthSeries:
    """One measure of one device (who: "GPU 3") or of all of a machine (who: "machine"), oldest first; shapes (n,)."""

    machine: str
    who: str
    measure: Measure
    at_ms: Sequence[int]
    commits: Sequence[str]
    values: FloatArray
    peers: FloatArray

    @classmethod
    def of(cls, machine: str, who: str, measure: Measure, points: Iterable[HealthPoint]) -> HealthSeries:
        """From points, which are put in order of time."""
        ordered = sorted(points, key=lambda point: point.at_ms)
        values, peers = (np.array([point[field] for point in ordered], dtype=np.float64) for field in (2, 3))
        return cls(machine, who, measure, [p.at_ms for p in ordered], [p.commit for p in ordered], values, peers)

    def point(self, index: int) -> HealthPoint:
        """One of its points."""
        values = float(self.values[index]), float(self.peers[index])
        return HealthPoint(int(self.at_ms[index]), self.commits[index], *values)


@dataclasses.dataclass(frozen=True)
class HealthFinding:
    """A stretch of a series apart from its peers.

    since: its first point.  before: the last good one, None if it was never good.  ended: the first point back among
    its peers, None while it lasts.  value, peers: medians over the stretch.  ratio: how much slower that makes it
    (1.05: 5 %), with the 99 % interval of its median; 1.0 where times do not follow.
    p_value: of the PERSISTENT points that began it if the device were healthy, by the rule's chance; of all its points
    on one side by the sign test where that is less.
    """

    machine: str
    who: str
    measure: Measure
    since: HealthPoint
    before: HealthPoint | None
    ended: HealthPoint | None
    points: int
    value: float
    peers: float
    ratio: float
    ratio_low: float
    ratio_high: float
    p_value: float

    @property
    def text(self) -> str:
        """For people: what, how much, since when."""
        rule = RULES[self.measure]
        day = datetime.datetime.fromtimestamp(self.since.at_ms / 1000, datetime.UTC).date()
        beside = "it used to be" if self.measure is Measure.NOISE else "its peers have"
        own = f"{self.who}: {self.measure} {rule.text(self.value)}"
        return f"{own}, {beside} {rule.text(self.peers)}, since {day} ({self.points} points)"


def findings(series: HealthSeries) -> list[HealthFinding]:
    """Every stretch apart, oldest first; each point is looked at once."""
    apart = RULES[series.measure].apart(series.values, series.peers)
    if np.count_nonzero(apart >= 1) < PERSISTENT:
        return []
    found, begin, run = list[HealthFinding](), -1, 0  # run: points in a row that speak for a change of state
    for index, away in enumerate(apart.tolist()):
        run = run + 1 if (away >= 1 if begin < 0 else away <= 0.5) else 0
        if run == PERSISTENT:
            first, run = index - PERSISTENT + 1, 0
            if begin >= 0:
                found.append(_finding(series, begin, first))
            begin = first if begin < 0 else -1
    return found if begin < 0 else [*found, _finding(series, begin, None)]


def _finding(series: HealthSeries, begin: int, end: int | None) -> HealthFinding:
    values, peers = series.values[begin:end], series.peers[begin:end]
    ratios = _slower(series.measure, values, peers)
    low, high = interval((ratios,))
    return HealthFinding(
        series.machine,
        series.who,
        series.measure,
        series.point(begin),
        series.point(begin - 1) if begin else None,
        series.point(end) if end is not None else None,
        len(values),
        float(np.median(values)),
        float(np.median(peers)),
        *(float(np.median(ratios)), low, high),
        p_value=min(RULES[series.measure].chance ** PERSISTENT, 2.0 * 0.5 ** len(values)),
    )


def _slower(measure: Measure, values: FloatArray, peers: FloatArray) -> FloatArray:
    """New time / old time that each point means; 1 where times do not follow the measure."""
    rule = RULES[measure]
    if not rule.costs_time:
        return np.ones(len(values))
    return values / peers if rule.worse > 0 else peers / values
