"""Where a device or a machine parts from its peers, and where it comes back: one rule per measure, no statistics fit.

Peers are read at the same time, so a driver, a clock policy or a hot day that meets all of them is no finding here.
A finding begins with the first of PERSISTENT points in a row beyond the rule, and ends with as many within half of it.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ci.history.readings import DeviceHealth, HealthRecord, SessionNoise, TrialHealth
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


# Each measure of a device or machine beside what it should equal: its peers at that time, or its own past.


CASE = ["commit", "env", "kernel", "backend", "case", "case_yardstick"]
"""What two machines must share to be compared: the same work, by the same library, at the same commit."""

PRODUCT = ("device", "count")
"""What machines of one product share."""

SHARED_CASES = 5
"""Fewest baseline cases that two machines share, below which a median over them says little (2026-11)."""

PAST_SESSIONS = 4
"""Earlier sessions that say what a machine's noise used to be."""

LONGEST_PAST = 60
"""Quiet sessions that are remembered, two months of nights: what a machine was a year ago is no measure of it."""

WHOLE = "machine"
DAY_MS = 86_400_000

Read = Callable[[DeviceHealth], float | None]
OF_DEVICE: dict[Measure, Read] = {
    Measure.CLOCK: lambda device: device.clock_mhz,
    Measure.LINK: lambda device: device.link_gbs,
    Measure.PACE: lambda device: device.pace,
    Measure.TEMPERATURE: lambda device: device.temperature_c,
    Measure.THROTTLED: lambda device: device.throttled,
}


def all_series(record: HealthRecord, frame: pd.DataFrame | None = None) -> list[HealthSeries]:
    """Every series of every machine; with the records' frame also the times of the baselines."""
    found = [*of_devices(record.trials), *of_machines(record.trials), *of_noise(record.noise)]
    return found if frame is None else [*found, *of_baselines(frame)]


def of_devices(trials: Iterable[TrialHealth]) -> list[HealthSeries]:
    """Each GPU beside the median of the others of its machine, trial by trial; throttling beside none at all."""
    by_machine: dict[str, list[TrialHealth]] = defaultdict(list)
    for trial in trials:
        by_machine[trial.machine].append(trial)
    found = (
        series
        for machine, those in sorted(by_machine.items())
        for measure in OF_DEVICE
        for series in _of_measure(machine, those, measure)
    )
    return [series for series in found if len(series.values)]


def _of_measure(machine: str, trials: Sequence[TrialHealth], measure: Measure) -> Iterator[HealthSeries]:
    """The series of every GPU of a machine."""
    read, count = OF_DEVICE[measure], max(len(trial.devices) for trial in trials)
    table = np.full((len(trials), count), np.nan)
    for row, trial in enumerate(trials):
        table[row, : len(trial.devices)] = [np.nan if (v := read(d)) is None else v for d in trial.devices]
    for gpu in range(count):
        alone = measure is Measure.THROTTLED or count < 2
        peers = (
            np.zeros(len(trials)) if alone else pd.DataFrame(np.delete(table, gpu, axis=1)).median(axis=1).to_numpy()
        )
        known = np.isfinite(table[:, gpu]) & (np.isfinite(peers) if measure is Measure.THROTTLED else peers > 0)
        rows = np.flatnonzero(known).tolist()
        at, commits = [trials[row].at_ms for row in rows], [trials[row].commit for row in rows]
        yield HealthSeries(machine, f"GPU {gpu}", measure, at, commits, table[known, gpu], peers[known])


def of_machines(trials: Sequence[TrialHealth]) -> list[HealthSeries]:
    """The clock of a machine beside that of others of its product, wherever they ran an operator at the same commit."""
    seen: dict[tuple[str, str, str], dict[str, list[TrialHealth]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if _clock(trial) is not None:
            seen[trial.product, trial.operator, trial.commit][trial.machine].append(trial)
    points: dict[str, list[HealthPoint]] = defaultdict(list)
    for by_machine in seen.values():
        clocks = {name: statistics.median(_clock(one) or 0.0 for one in those) for name, those in by_machine.items()}
        for name, those in by_machine.items() if len(clocks) > 1 else ():
            peers = statistics.median(clock for other, clock in clocks.items() if other != name)
            points[name].append(HealthPoint(those[0].at_ms, those[0].commit, clocks[name], peers))
    return [_whole(machine, Measure.CLOCK, those) for machine, those in sorted(points.items())]


def _clock(trial: TrialHealth) -> float | None:
    """MHz of its slowest device: the one that the others wait for."""
    return min((device.clock_mhz for device in trial.devices if device.clock_mhz), default=None)


def of_noise(sessions: Iterable[SessionNoise]) -> list[HealthSeries]:
    """The noise of each session beside the median of the machine's sessions before it."""
    by_machine: dict[str, list[SessionNoise]] = defaultdict(list)
    for session in sessions:
        by_machine[session.machine].append(session)
    return [
        _whole(machine, Measure.NOISE, _beside_past(those))
        for machine, those in sorted(by_machine.items())
        if len(those) > PAST_SESSIONS
    ]


def _beside_past(sessions: Sequence[SessionNoise]) -> list[HealthPoint]:
    """Beside the median of the last quiet sessions: those that were noisy themselves are no measure of it."""
    quiet = [one.noise for one in sessions[:PAST_SESSIONS]]
    points = []
    for one in sessions[PAST_SESSIONS:]:
        usual = statistics.median(quiet[-LONGEST_PAST:])
        points.append(HealthPoint(one.at_ms, one.commit, one.noise, usual))
        if one.noise <= 2 * usual:
            quiet.append(one.noise)
    return points


def of_baselines(frame: pd.DataFrame) -> list[HealthSeries]:
    """Commit by commit: how long the baselines take here / on machines of the same product, median over the cases."""
    rows = peers(frame)
    rows = rows[(rows["status"] == "ok") & (rows["kind"] == "gpu")]
    found = [part for _, group in rows.groupby(["device", "count"], sort=True, observed=True) for part in _among(group)]
    return sorted(found, key=lambda series: series.machine)


def peers(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that tell how machines of one product time the same baselines; none where each is the only one."""
    machines = frame[[*PRODUCT, "machine"]].drop_duplicates()
    several = machines.loc[machines.duplicated(list(PRODUCT), keep=False), "machine"]
    return frame[frame["machine"].isin(several) & frame["baseline"].astype(bool)]


def _among(rows: pd.DataFrame) -> Iterator[HealthSeries]:
    """Machines of one product, each beside the median of the others in the same cases at the same commits."""
    if rows["machine"].nunique() < 2:
        return
    times = rows.pivot_table("seconds", CASE, "machine", aggfunc="median", observed=True)
    dates = rows.groupby("commit", observed=True)["date"].min().dt.as_unit("ms").astype("int64")
    for machine in times.columns:
        ratio = (times[machine] / times.drop(columns=machine).median(axis=1)).dropna()
        by_commit = ratio.groupby(level="commit", sort=False, observed=True).agg(["median", "size"])
        enough = by_commit.loc[by_commit["size"] >= SHARED_CASES, "median"]
        points = (HealthPoint(int(dates[commit]), str(commit), float(value), 1.0) for commit, value in enough.items())
        yield _whole(str(machine), Measure.BASELINES, points)


def _whole(machine: str, measure: Measure, points: Iterable[HealthPoint]) -> HealthSeries:
    return HealthSeries.of(machine, WHOLE, measure, points)


# All machines as their page shows them: when last seen, how they were session by session, and what was found.


UNSEEN_DAYS = 3
"""A machine that measured nothing for so many days while another did is told: a night may fail, three in a row do not
by themselves."""


@dataclasses.dataclass(frozen=True)
class SessionHealth:
    """One session of a machine: medians over its trials, device by device; temperature is the highest.

    noise: see `SessionNoise`, None where nothing was repeated.
    """

    at_ms: int
    commit: str
    session: str
    trials: int
    devices: tuple[DeviceHealth, ...]
    noise: float | None


@dataclasses.dataclass(frozen=True)
class MachineHealth:
    """A machine over time.  behind_days: between its newest trial and the newest of any machine."""

    machine: str
    product: str
    last_seen_ms: int
    behind_days: float
    sessions: tuple[SessionHealth, ...]
    findings: tuple[HealthFinding, ...]

    @property
    def unseen(self) -> bool:
        """Whether it has dropped out while others go on."""
        return self.behind_days >= UNSEEN_DAYS

    @property
    def standing(self) -> list[HealthFinding]:
        """What is apart now."""
        return [one for one in self.findings if one.ended is None]


def machines(record: HealthRecord, frame: pd.DataFrame | None = None) -> list[MachineHealth]:
    """Every machine, by name.  The same records give the same answer on any day."""
    by_machine: dict[str, list[TrialHealth]] = defaultdict(list)
    for trial in record.trials:
        by_machine[trial.machine].append(trial)
    newest = max((trial.at_ms for trial in record.trials), default=0)
    noise = {(one.machine, one.session): one for one in record.noise}
    found = all_findings(record, frame)
    return [
        MachineHealth(
            name,
            those[-1].product,
            those[-1].at_ms,
            (newest - those[-1].at_ms) / DAY_MS,
            _sessions(those, noise),
            tuple(one for one in found if one.machine == name),
        )
        for name, those in sorted(by_machine.items())
    ]


def all_findings(record: HealthRecord, frame: pd.DataFrame | None = None) -> list[HealthFinding]:
    """Every stretch of every series, by machine and time."""
    found = [finding for series in all_series(record, frame) for finding in findings(series)]
    return sorted(found, key=lambda one: (one.machine, one.since.at_ms, one.who, one.measure))


def _sessions(trials: Sequence[TrialHealth], noise: dict[tuple[str, str], SessionNoise]) -> tuple[SessionHealth, ...]:
    by_session: dict[str, list[TrialHealth]] = defaultdict(list)
    for trial in trials:
        by_session[trial.session].append(trial)
    return tuple(
        SessionHealth(
            those[0].at_ms,
            those[0].commit,
            session,
            len(those),
            _devices(those),
            found.noise if (found := noise.get((those[0].machine, session))) else None,
        )
        for session, those in by_session.items()
    )


def _devices(trials: Sequence[TrialHealth]) -> tuple[DeviceHealth, ...]:
    count = max(len(trial.devices) for trial in trials)
    by_device = [[t.devices[n] for t in trials if n < len(t.devices)] for n in range(count)]
    return tuple(_middle(those) for those in by_device)


EXTREME: dict[str, Callable[[list[float]], float]] = {"temperature_c": max, "link_gbs": min}
"""Fields of which a session keeps its worst trial; of the others it keeps the median."""


def _middle(those: Sequence[DeviceHealth]) -> DeviceHealth:
    values = {}
    for field in dataclasses.fields(DeviceHealth):
        known = [value for one in those if (value := getattr(one, field.name)) is not None]
        choose = EXTREME.get(field.name, statistics.median)
        values[field.name] = choose(known) if known else None
    return DeviceHealth(**values)
