"""All machines as their page shows them: when last seen, how they were session by session, and what was found."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence

import pandas as pd

from ci.history.health.apart import DAY_MS, HealthFinding, all_series, findings
from ci.history.health.readings import DeviceHealth, HealthRecord, SessionNoise, TrialHealth

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
        choose = EXTREME.get(field.name, _median)
        values[field.name] = choose(known) if known else None
    return DeviceHealth(**values)


def _median(values: list[float]) -> float:
    return float(statistics.median(values))
