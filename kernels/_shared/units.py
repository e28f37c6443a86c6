"""How many compute units and dies a persistent kernel is spread over."""

from __future__ import annotations

from kernels.hardware import DEVICES
from kernels.spec import Case


def largest_device(arch: str) -> int:
    """Compute units of the largest device of the architecture: what an ahead-of-time compilation is for."""
    return max(device.compute_units for device in DEVICES if device.arch == arch)


def compute_units(case: Case, arch: str) -> int:
    """CUs or SMs of the placed case; without a device, those of the first product of the architecture; 4 on a CPU."""
    if case.place is not None and case.place.compute_units:
        return case.place.compute_units
    return next((device.compute_units for device in DEVICES if device.arch == arch), 4)


def xcds(arch: str) -> int:
    """Compute dies over which the hardware distributes workgroups round robin."""
    return next((device.xcds for device in DEVICES if device.arch == arch), 1)
