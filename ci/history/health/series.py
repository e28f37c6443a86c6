"""Each measure of a device or machine beside what it should equal: its peers at that time, or its own past."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ci.history.health.apart import HealthPoint, HealthSeries, Measure
from ci.history.health.cache import HealthRecord
from ci.history.health.readings import DeviceHealth, SessionNoise, TrialHealth
from ci.history.steps.series import codes, first_rows
from ci.stats.types import FloatArray

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
        peers = np.zeros(len(trials)) if alone else _median_of(np.delete(table, gpu, axis=1))
        known = np.isfinite(table[:, gpu]) & (np.isfinite(peers) if measure is Measure.THROTTLED else peers > 0)
        rows = np.flatnonzero(known).tolist()
        at, commits = [trials[row].at_ms for row in rows], [trials[row].commit for row in rows]
        yield HealthSeries(machine, f"GPU {gpu}", measure, at, commits, table[known, gpu], peers[known])


def _median_of(rows: FloatArray) -> FloatArray:
    """The median of each row without its NaN, NaN where there is nothing else."""
    ordered, counts = np.sort(rows, axis=1), np.isfinite(rows).sum(axis=1)  # NaN sorts last
    low, high = (np.clip(place, 0, rows.shape[1] - 1) for place in ((counts - 1) // 2, counts // 2))
    every = np.arange(len(rows))
    return np.where(counts > 0, (ordered[every, low] + ordered[every, high]) / 2, np.nan)


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
    machines = first_rows(frame, (*PRODUCT, "machine"))
    if not frame[list(PRODUCT)].iloc[machines].duplicated().any():
        return frame.iloc[:0]
    product = codes(frame, PRODUCT)
    names, count = np.unique(product[machines], return_counts=True)
    wanted: npt.NDArray[np.bool_] = np.isin(product, names[count > 1]) & frame["baseline"].to_numpy(bool)
    return frame[wanted]


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
