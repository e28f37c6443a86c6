"""Each measure of a device or machine beside what it should equal: its peers at that time, or its own past."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from ci.history.health.apart import HealthPoint, HealthSeries, Measure
from ci.history.health.cache import HealthRecord
from ci.history.health.readings import DeviceHealth, SessionNoise, TrialHealth

CASE = ["commit", "env", "kernel", "backend", "case", "case_yardstick"]
"""What two machines must share to be compared: the same work, by the same library, at the same commit."""

SHARED_CASES = 5
"""Fewest baseline cases that two machines share, below which a median over them says little (2026-11)."""

PAST_SESSIONS = 4
"""Earlier sessions that say what a machine's noise used to be."""

WHOLE = "machine"
DAY_MS = 86_400_000

Read = Callable[[DeviceHealth], float | None]
OF_DEVICE: dict[Measure, Read] = {
    Measure.CLOCK: lambda device: device.clock_mhz,
    Measure.LINK: lambda device: device.link_gbs,
    Measure.TEMPERATURE: lambda device: device.temperature_c,
    Measure.THROTTLED: lambda device: device.throttled,
}


def all_series(record: HealthRecord, frame: pd.DataFrame | None = None) -> list[HealthSeries]:
    """Every series of every machine; with the records' frame also the times of the baselines."""
    found = [*of_devices(record.trials), *of_machines(record.trials), *of_noise(record.noise)]
    return found if frame is None else [*found, *of_baselines(frame)]


def of_devices(trials: Iterable[TrialHealth]) -> list[HealthSeries]:
    """Each GPU beside the median of the others of its machine, trial by trial; throttling beside none at all."""
    points: dict[tuple[str, str, Measure], list[HealthPoint]] = defaultdict(list)
    for trial in trials:
        for measure, read in OF_DEVICE.items():
            for place, value, peers in _beside_others([read(device) for device in trial.devices], measure):
                point = HealthPoint(trial.at_ms, trial.commit, value, peers)
                points[trial.machine, f"GPU {place}", measure].append(point)
    return [HealthSeries(*key, tuple(those)) for key, those in sorted(points.items())]


def _beside_others(values: Sequence[float | None], measure: Measure) -> Iterator[tuple[int, float, float]]:
    """(device, its value, its peers')."""
    for place, value in enumerate(values):
        others = [one for other, one in enumerate(values) if other != place and one is not None]
        if value is not None and measure is Measure.THROTTLED:
            yield place, value, 0.0
        elif value is not None and others and np.median(others) > 0:
            yield place, value, float(np.median(others))


def of_machines(trials: Sequence[TrialHealth]) -> list[HealthSeries]:
    """The clock of a machine beside that of others of its product, wherever they ran an operator at the same commit."""
    seen: dict[tuple[str, str, str], dict[str, list[TrialHealth]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if _clock(trial) is not None:
            seen[trial.product, trial.operator, trial.commit][trial.machine].append(trial)
    points: dict[str, list[HealthPoint]] = defaultdict(list)
    for by_machine in seen.values():
        clocks = {name: float(np.median([_clock(one) or 0.0 for one in those])) for name, those in by_machine.items()}
        for name, those in by_machine.items() if len(clocks) > 1 else ():
            peers = float(np.median([clock for other, clock in clocks.items() if other != name]))
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
    """The past ends PAST_SESSIONS before a session, so that a run of noisy ones is not its own measure."""
    quiet = float(np.median([one.noise for one in sessions[:PAST_SESSIONS]]))
    points = []
    for place, one in enumerate(sessions[PAST_SESSIONS:], PAST_SESSIONS):
        points.append(HealthPoint(one.at_ms, one.commit, one.noise, quiet))
        if one.noise <= 2 * quiet:
            quiet = float(np.median([s.noise for s in sessions[: place + 1] if s.noise <= 2 * quiet] or [quiet]))
    return points


def of_baselines(frame: pd.DataFrame) -> list[HealthSeries]:
    """Commit by commit: how long the baselines take here / on machines of the same product, median over the cases."""
    rows = frame[(frame["status"] == "ok") & frame["baseline"].astype(bool) & (frame["kind"] == "gpu")]
    found = [part for _, group in rows.groupby(["device", "count"], sort=True) for part in _among(group)]
    return sorted(found, key=lambda series: series.machine)


def _among(rows: pd.DataFrame) -> Iterator[HealthSeries]:
    """Machines of one product, each beside the median of the others in the same cases at the same commits."""
    if rows["machine"].nunique() < 2:
        return
    times = rows.pivot_table("seconds", CASE, "machine", aggfunc="median")
    dates = rows.groupby("commit")["date"].min().dt.as_unit("ms").astype("int64")
    for machine in times.columns:
        ratio = (times[machine] / times.drop(columns=machine).median(axis=1)).dropna()
        by_commit = ratio.groupby(level="commit", sort=False).agg(["median", "size"])
        enough = by_commit.loc[by_commit["size"] >= SHARED_CASES, "median"]
        points = (HealthPoint(int(dates[commit]), str(commit), float(value), 1.0) for commit, value in enough.items())
        yield _whole(str(machine), Measure.BASELINES, points)


def _whole(machine: str, measure: Measure, points: Iterable[HealthPoint]) -> HealthSeries:
    return HealthSeries(machine, WHOLE, measure, tuple(sorted(points, key=lambda point: point.at_ms)))
