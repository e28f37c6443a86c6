"""The least time that a call can take on a device: below it the clock has not seen the whole call."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.plan import known_hardware
from kernels import hardware
from kernels.spec import Cost

MARGIN = 0.8
"""A time below this share of the floor cannot be.  Data sheets give the matrix peak of H100 and H200 at 1830 MHz, and
the clock goes to 1980 MHz, 8 % above; other peaks are upper bounds."""

CACHE_FACTOR = 10
"""Caches move at most so many times what the memory does: MI300X 17.2 TB/s of Infinity Cache to 5.3 TB/s (AMD CDNA 3
white paper, 2023); its L2 in all 2 KB per clock and XCD at 2.1 GHz, 34 TB/s, 6.5 times."""

SWITCH_FACTOR = 2
"""A switch that adds or copies (NVLink SHARP) lets a rank send half of what the nccl-tests convention counts."""


@dataclasses.dataclass(frozen=True)
class Floor:
    """seconds: no call takes less.  because: by what, in words; "" where nothing is known."""

    seconds: float = 0.0
    because: str = ""

    def broken_by(self, samples_s: Sequence[float]) -> str:
        """What is said of samples whose median cannot be; "" if it can."""
        median_s = statistics.median(samples_s) if samples_s else self.seconds
        if median_s >= MARGIN * self.seconds:
            return ""
        return (
            f"its time cannot be: {_micro(median_s)} a call, but {self.because} take at least {_micro(self.seconds)}: "
            "the timed span does not hold the whole work"
        )


def of_case(declared: Sequence[Mapping[str, Any]], case: str, machine: Mapping[str, Any]) -> Floor:
    """Of a case on a machine, by what checkouts declare it to cost; where they disagree, the least.

    Nothing is known of a CPU, and of a device that is not in kernels/hardware.py.
    """
    device = known_hardware(machine)
    found = []
    for one in declared:
        about = next((known for known in one["cases"] if known["name"] == case), None)
        if device and about and case in one["costs"]:
            found.append(physical(Cost(**one["costs"][case]), about["dtype"], about["world"], device))
    return min(found, key=lambda floor: floor.seconds, default=Floor())


def physical(cost: Cost, dtype: str, world: int, device: hardware.Hardware) -> Floor:
    """The largest of FLOP over peak, bytes over the bandwidth of memory and caches, link bytes over the links.

    What fits in L2 and the last-level cache need not pass through memory, whatever the caches held before.
    """
    name = device.market_name
    cached = device.l2_bytes + device.llc_bytes
    memory, beyond = device.hbm_bandwidth, max(0, cost.hbm_bytes - cached)
    peak = _peak(dtype, device)
    floors = [
        Floor(beyond / memory, f"the {_size(beyond)} beyond its caches at {memory / 1e12:.3g} TB/s of an {name}"),
        Floor(
            cost.hbm_bytes / (CACHE_FACTOR * memory),
            f"{_size(cost.hbm_bytes)} at {CACHE_FACTOR} times the {memory / 1e12:.3g} TB/s of an {name}",
        ),
        Floor(cost.flops / peak, f"{cost.flops:.3g} FLOP at {peak / 1e12:.4g} TFLOP/s ({dtype}) of an {name}"),
    ]
    if world > 1:
        link = SWITCH_FACTOR * device.link_to(world - 1)
        said = (
            f"{_size(cost.link_bytes)} at {SWITCH_FACTOR} times the {link / SWITCH_FACTOR / 1e9:.4g} GB/s of its links"
        )
        floors.append(Floor(cost.link_bytes / link, said))
    return max(floors, key=lambda floor: floor.seconds)


def _peak(dtype: str, device: hardware.Hardware) -> float:
    """FLOP/s that no kernel of a dtype exceeds: infinite where the table has no peak; of packed formats the largest."""
    if dtype not in ("fp32", "fp16", "bf16", "fp8"):
        return max(device.peak_flops.values())
    return device.peak_flops.get(dtype, float("inf"))


def _size(count: float) -> str:
    return f"{count / 1e6:.4g} MB" if count < 1e9 else f"{count / 1e9:.4g} GB"


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:.3g} us"
