"""How many compute units and dies a persistent kernel is spread over: what the device has, not what its product has.

MI308X shares gfx942 with MI300X and has 80 CUs; a partition (DPX, QPX, CPX) is a device with a half, a quarter or an
eighth of the CUs and as much of the dies.
"""

from __future__ import annotations

from kernels.hardware import DEVICES, parts
from kernels.spec import Case

ON_A_CPU = 4
"""Programs of a persistent kernel in the interpreter."""


def compute_units(case: Case, arch: str) -> int:
    """CUs or SMs of the device on which the case is placed; without one, those that are assumed."""
    if case.place is not None and case.place.compute_units:
        return case.place.compute_units
    return assumed_units(arch)


def assumed_units(arch: str) -> int:
    """CUs or SMs where no device is there to ask: those of the first product of the architecture in DEVICES."""
    return next((device.compute_units for device in DEVICES if device.arch == arch), ON_A_CPU)


def xcds(arch: str, units: int | None = None) -> int:
    """Compute dies of a device with so many CUs, over which the hardware distributes workgroups round robin.

    None: of the product that is assumed.  A count that fits no product and no partition gives 1: programs keep their
    order, which is never wrong.
    """
    count = units or assumed_units(arch)
    found = {part.xcds for device in DEVICES if device.arch == arch for part in parts(device, count)}
    return found.pop() if len(found) == 1 else 1
