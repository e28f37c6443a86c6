"""What a trial says of the machine it ran on beyond its fingerprint: device readings, links, compute dies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ci.stats.types import Clocks

Json = Mapping[str, Any]
"""An object of a line that `benchmarks.trial_file.check` has let pass."""


@dataclasses.dataclass(frozen=True)
class DeviceState:
    """What the first device reported before, during and after a trial.

    of_role: the readings during the trial by the checkout that was at work, where the file says which it was.
    during: every reading during the trial, device by device.
    """

    before: Clocks | None = None
    after: Clocks | None = None
    of_role: Mapping[str, tuple[Clocks, ...]] = dataclasses.field(default_factory=dict)
    during: tuple[tuple[Clocks, ...], ...] = ()

    @classmethod
    def of(cls, data: Json) -> DeviceState:
        """From its JSON."""
        before, after = (_clocks(data[moment]) if data.get(moment) else None for moment in ("before", "after"))
        by_role: dict[str, list[Clocks]] = {}
        readings = data.get("during") or ()
        for reading in readings:
            if reading.get("role"):
                by_role.setdefault(reading["role"], []).append(_clocks(reading))
        of_role = {role: tuple(found) for role, found in by_role.items()}
        return cls(before, after, of_role, tuple(map(_devices, readings)))


def _devices(data: Json) -> tuple[Clocks, ...]:
    """One reading: the first device, then the others in their order."""
    return (_clocks(data), *(_clocks(other) for other in data.get("others") or ()))


def _clocks(data: Json) -> Clocks:
    clock, power, temperature = (data.get(name) for name in ("sm_clock_mhz", "power_w", "temperature_c"))
    return Clocks(clock, power, temperature, data.get("throttle") or "")


@dataclasses.dataclass(frozen=True)
class HeapHome:
    """Where the symmetric heap of a number of ranks was, and what its probe found out.

    rates: by home, GB/s (1e9 bytes) of writes by [from rank][to rank].  why: by home, why it could not be used.
    """

    home: str
    rates: Mapping[str, tuple[tuple[float, ...], ...]] = dataclasses.field(default_factory=dict)
    why: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, data: Json) -> HeapHome:
        """From its JSON."""
        homes = data.get("homes") or {}
        rates = {name: tuple(tuple(row) for row in found["gbs"]) for name, found in homes.items() if found.get("gbs")}
        return cls(data["home"], rates, {name: found["why"] for name, found in homes.items() if found.get("why")})

    @property
    def slowest_link(self) -> float | None:
        """GB/s of the slowest pair of ranks in the home that was used; None where it was not probed."""
        table = self.rates.get(self.home, ())
        links = [rate for i, row in enumerate(table) for j, rate in enumerate(row) if i != j]
        return min(links, default=None)


def heaps_of(data: Mapping[str, Json]) -> dict[int, HeapHome]:
    """By number of ranks; the JSON has them as "w2", "w4"."""
    return {int(key[1:]): HeapHome.of(one) for key, one in data.items() if key[1:].isdigit()}


@dataclasses.dataclass(frozen=True)
class Dispatch:
    """How the programs of one untimed launch were spread over the XCDs: how many on each, and whether in turn."""

    programs: tuple[int, ...]
    round_robin: bool

    @classmethod
    def of(cls, data: Json) -> Dispatch:
        """From its JSON."""
        return cls(tuple(data["programs"]), data["round_robin"])

    def in_turn(self, programs: int) -> tuple[int, ...]:
        """How many of that many programs each XCD gets if they are dealt out in turn."""
        dies = len(self.programs)
        return tuple(len(range(first, programs, dies)) for first in range(dies))
