"""What a trial says of the machine under it: each device at work, and how much the baselines differ between trials."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import chdtri

from ci.records.ledger import machine_folders
from ci.records.rows import Json
from ci.stats.types import Clocks
from ci.trials.file import read
from ci.trials.trial import HeapHome, Trial
from ci.whole_files import WriteError, replace

CAP = "software power cap"
"""NVML's word for a device that is held at its power cap: what a large GEMM meets, and no fault."""

HARMLESS = re.compile(r"none|idle|application clocks|display clocks|sync boost|software power cap")
"""Reasons that are no fault (benchmarks.coordinator.device_state.NVML_REASONS); all others are heat, power or AMD's."""


@dataclasses.dataclass(frozen=True)
class DeviceHealth:
    """One device during one trial; None where nothing was reported.

    clock_mhz, power_w: medians while at work, MHz and W.  temperature_c: the highest, degrees Celsius.
    capped, throttled: shares of the readings at work at the power cap, and held back by heat or a fault.
    link_gbs: the slowest link to or from it that the heap's probe found, GB/s (1e9 bytes).
    pace: its time of the same calls / the median of all ranks', median over the arms that all devices ran.
    """

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    capped: float | None = None
    throttled: float | None = None
    link_gbs: float | None = None
    pace: float | None = None


@dataclasses.dataclass(frozen=True)
class TrialHealth:
    """A trial as far as machine health goes.  at_ms: its start, ms since 1970 UTC.  product: what its peers share."""

    machine: str
    product: str
    at_ms: int
    commit: str
    session: str
    operator: str
    devices: tuple[DeviceHealth, ...]

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> TrialHealth:
        """From `dataclasses.asdict`."""
        return cls(**{**data, "devices": tuple(DeviceHealth(**one) for one in data["devices"])})


@dataclasses.dataclass(frozen=True)
class SessionNoise:
    """How much equal things differed between the trials of one session.

    noise: typical standard deviation of a baseline's median time between trials, as a share of it; over `cases` arms.
    """

    machine: str
    at_ms: int
    commit: str
    session: str
    noise: float
    cases: int


def of_trial(trial: Trial) -> TrialHealth:
    """The devices of a trial."""
    working = _at_work(trial.state.during)
    links, paces = _links(trial.heaps), _paces(trial)
    count = max((len(moment) for moment in trial.state.during), default=0)
    devices = tuple(
        _device([m[n] for m in working if n < len(m)], _hottest(trial.state.during, n), links.get(n), paces.get(n))
        for n in range(count)
    )
    product = f"{trial.machine.count} × {trial.machine.device or trial.machine.name}"
    commit = next((c.recordable or "" for _, c in sorted(trial.checkouts.items(), reverse=True)), "")
    return TrialHealth(trial.machine.name, product, trial.started_ms, commit, trial.session, trial.operator, devices)


def noise_of(trials: Sequence[Trial]) -> list[SessionNoise]:
    """One number per session with at least two trials of a baseline, oldest first.

    Per arm the standard deviation of the logarithms of the trials' medians, divided by what its median would be for
    so many normal values of deviation 1 (chi-square with n - 1 degrees); the median over the arms is their typical
    one, whichever arm has two states.
    """
    by_session: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_session[trial.session].append(trial)
    found = (_session_noise(sorted(those, key=lambda trial: trial.order)) for those in by_session.values())
    return sorted((one for one in found if one), key=lambda one: (one.at_ms, one.session))


def _session_noise(trials: Sequence[Trial]) -> SessionNoise | None:
    levels: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for trial in trials:
        declared = trial.declaration()
        for case, role, backend, arm in trial.arms():
            if arm.ok and declared and backend in declared.baselines:
                levels[trial.operator, case, role, backend].append(float(np.log(arm.median)))
    spread = [_deviation(logs) for logs in levels.values() if len(logs) >= 2]
    if not spread:
        return None
    health = of_trial(trials[0])
    return SessionNoise(
        health.machine, health.at_ms, health.commit, health.session, float(np.median(spread)), len(spread)
    )


def _deviation(logs: Sequence[float]) -> float:
    degrees = len(logs) - 1
    return float(np.std(logs, ddof=1) / np.sqrt(chdtri(degrees, 0.5) / degrees))


def _at_work(during: Iterable[tuple[Clocks, ...]]) -> list[tuple[Clocks, ...]]:
    """Moments at which no device was idle, in the upper half of the range of power: setting up needs little."""
    awake = [moment for moment in during if not any("idle" in clocks.throttle for clocks in moment)]
    power = [sum(clocks.power_w or 0.0 for clocks in moment) for moment in awake]
    middle = (min(power, default=0.0) + max(power, default=0.0)) / 2
    return [moment for moment, watts in zip(awake, power, strict=True) if watts >= middle]


def _device(working: Sequence[Clocks], hottest: float | None, link: float | None, pace: float | None) -> DeviceHealth:
    said = [clocks.throttle for clocks in working if clocks.throttle]
    return DeviceHealth(
        _median([clocks.sm_clock_mhz for clocks in working]),
        _median([clocks.power_w for clocks in working]),
        hottest,
        _share([CAP in words for words in said]),
        _share([_held_back(words) for words in said]),
        link,
        pace,
    )


def _held_back(words: str) -> bool:
    return any(not HARMLESS.fullmatch(reason) for reason in words.split(", "))


def _hottest(during: Iterable[tuple[Clocks, ...]], device: int) -> float | None:
    found = [moment[device].temperature_c for moment in during if device < len(moment)]
    return max((one for one in found if one is not None), default=None)


def _links(heaps: Mapping[int, HeapHome]) -> dict[int, float]:
    """GB/s of each rank's slowest link, of the largest world that was probed."""
    table = heaps[max(heaps)].rates.get(heaps[max(heaps)].home, ()) if heaps else ()
    ranks = range(len(table))
    pairs = {a: [table[a][b] for b in ranks if b != a] + [table[b][a] for b in ranks if b != a] for a in ranks}
    return {rank: min(rates) for rank, rates in pairs.items() if rates}


def _paces(trial: Trial) -> dict[int, float]:
    """Rank by rank, of the arms that ran on all devices: rank n is device n there."""
    found = [arm.rank_s for _, _, _, arm in trial.arms() if arm.ok and len(arm.rank_s) == trial.machine.count > 1]
    if not found:
        return {}
    logs = np.log(np.array(found))
    away = np.median(logs - np.median(logs, axis=1, keepdims=True), axis=0)
    return {rank: float(value) for rank, value in enumerate(np.exp(away))}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(statistics.median(known)) if known else None


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


# The health of every recorded trial, each file of notes read once: kept in `results/.cache`, safe to delete.


VERSION = 3
"""Of what is kept; raise it with any change of what is read."""


@dataclasses.dataclass(frozen=True)
class HealthRecord:
    """All that the notes of a results folder say of its machines, oldest first."""

    trials: tuple[TrialHealth, ...] = ()
    noise: tuple[SessionNoise, ...] = ()


def load(results_dir: Path) -> HealthRecord:
    """Of all machines.  A trial in the notes of two commits counts once; a broken line is left out."""
    trials: dict[tuple[str, int, str, str], TrialHealth] = {}
    noise: dict[tuple[str, str], SessionNoise] = {}
    for folder in machine_folders(results_dir):
        for entry in _entries(folder, results_dir):
            for one in map(TrialHealth.of_json, entry["trials"]):
                trials.setdefault((one.session, one.at_ms, one.machine, one.operator), one)
            for found in (SessionNoise(**one) for one in entry["noise"]):
                noise.setdefault((found.machine, found.session), found)
    return HealthRecord(
        tuple(sorted(trials.values(), key=lambda one: (one.at_ms, one.machine, one.session, one.operator))),
        tuple(sorted(noise.values(), key=lambda one: (one.at_ms, one.machine, one.session))),
    )


def _notes(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.notes.jsonl*"))


def _stamp(path: Path) -> list[int]:
    """Size and time of a file, by which a change is seen."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _entry(stamp: Sequence[int], trials: Sequence[Trial]) -> Json:
    """What notes say of the machine."""
    told = [dataclasses.asdict(of_trial(trial)) for trial in trials]
    return {"stamp": stamp, "trials": told, "noise": [dataclasses.asdict(one) for one in noise_of(trials)]}


def _entries(folder: Path, results_dir: Path) -> Iterable[Json]:
    """What the files of notes of a machine say.

    Only files that changed are read; a store that cannot be written only costs time.
    """
    store = results_dir / ".cache" / f"health-{folder.name}.note"
    kept: Json = {}
    fresh: Json = {}
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        found = json.loads(store.read_text())
        kept = dict(found["files"]) if found["version"] == VERSION else {}
    for path in _notes(folder):
        stamp = _stamp(path)
        found = kept.get(path.name)
        fresh[path.name] = found if found and found["stamp"] == stamp else _entry(stamp, read(path).trials)
    if fresh and fresh != kept:
        with contextlib.suppress(WriteError):
            replace(store.parent / ".gitignore", "*\n")
            replace(store, json.dumps({"version": VERSION, "files": fresh}))
    return fresh.values()
