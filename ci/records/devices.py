"""Each GPU while it measured, from the readings that a trial keeps: plain facts that judge nothing."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from ci.stats import Clocks
from ci.trials.trial import Trial

HARMLESS = re.compile(r"none|idle|application clocks|display clocks|sync boost|software power cap")
"""Reasons that are no fault (benchmarks.machine.gpus.NVML_REASONS); all others are heat, power or AMD's."""


class DeviceAtWork(NamedTuple):
    """One device while it measured; None where nothing was reported.

    clock_mhz, power_w: medians, MHz and W.  temperature_c: the highest, degrees Celsius.  held_back: share of the
    readings slowed by heat or a fault.
    """

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    held_back: float | None = None


Summary = Callable[[Sequence[float]], float]
OF_SEVERAL: Mapping[str, Summary] = {"temperature_c": max}
"""Fields of which several trials keep the worst; of the others they keep the median."""


def devices_at_work(trials: Iterable[Trial]) -> list[DeviceAtWork]:
    """Each device over some trials, in the order of the machine; [] where none was read."""
    return combined(map(_devices_of_trial, trials))


def combined(several: Iterable[Sequence[DeviceAtWork]]) -> list[DeviceAtWork]:
    """Devices of several trials, one summary each."""
    of_device = zip_longest(*several, fillvalue=DeviceAtWork())
    return [
        DeviceAtWork(
            *(_summary(f, values) for f, values in zip(DeviceAtWork._fields, zip(*d, strict=True), strict=True))
        )
        for d in of_device
    ]


def devices_text(devices: Sequence[DeviceAtWork]) -> str:
    """The column `devices` of the long frame: a JSON list of an object each, "" for none."""
    return json.dumps([device._asdict() for device in devices]) if devices else ""


def devices_in(text: str) -> list[DeviceAtWork]:
    """The devices of `devices_text`."""
    return [DeviceAtWork(**device) for device in json.loads(text or "[]")]


def _summary(field: str, values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(OF_SEVERAL.get(field, statistics.median)(known)) if known else None


def _devices_of_trial(trial: Trial) -> list[DeviceAtWork]:
    during = [(reading, *(reading.others or ())) for reading in trial.state.during]
    count = max(map(len, during), default=0)
    working = _at_work(during)
    return [
        _device([moment[n] for moment in working if n < len(moment)], [m[n] for m in during if n < len(m)])
        for n in range(count)
    ]


def _at_work(during: Iterable[tuple[Clocks, ...]]) -> list[tuple[Clocks, ...]]:
    """Moments at which no device was idle, in the upper half of the range of power: setting up needs little."""
    awake = [moment for moment in during if not any("idle" in (clocks.throttle or "") for clocks in moment)]
    power = [sum(clocks.power_w or 0.0 for clocks in moment) for moment in awake]
    middle = (min(power, default=0.0) + max(power, default=0.0)) / 2
    return [moment for moment, watts in zip(awake, power, strict=True) if watts >= middle]


def _device(working: Sequence[Clocks], during: Sequence[Clocks]) -> DeviceAtWork:
    reasons = [clocks.throttle for clocks in working if clocks.throttle]
    held_back = [any(not HARMLESS.fullmatch(one) for one in text.split(", ")) for text in reasons]
    return DeviceAtWork(
        _summary("clock_mhz", [clocks.sm_clock_mhz for clocks in working]),
        _summary("power_w", [clocks.power_w for clocks in working]),
        _summary("temperature_c", [clocks.temperature_c for clocks in during]),
        sum(held_back) / len(held_back) if held_back else None,
    )
