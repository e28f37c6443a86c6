"""Clocks, power and temperature: what tells a slow machine from a slow kernel."""

from __future__ import annotations

from benchmarks.bringup.context import StepContext
from benchmarks.bringup.rows import Row, failed, passed
from benchmarks.coordinator import device_state

UNITS = {"sm_clock_mhz": "MHz", "mem_clock_mhz": "MHz", "temperature_c": "C", "power_w": "W"}
"""What a monitor reads, and its units."""


def sensors(context: StepContext) -> list[Row]:
    """One reading of every GPU, and the limits of the first."""
    library = "amdsmi (part of ROCm: /opt/rocm/share/amd_smi)" if context.amd else "nvidia-ml-py"
    monitor, why = device_state.open_monitor(context.devices)
    if monitor is None:
        said = f"clocks, power and throttling cannot be read: {why}"
        return [failed("sensors", said, f"pip install {library}, and check its permissions")]
    readings = [monitor.read(index) for index in range(len(context.devices))]
    missing = [f"{name} of GPU {index}" for index, one in enumerate(readings) for name in UNITS if one[name] is None]
    static = monitor.static(0)
    numbers = {name: (readings[0][name], unit) for name, unit in UNITS.items() if readings[0][name] is not None}
    if static["power_cap_w"]:
        numbers["power_cap"] = (static["power_cap_w"], "W")
    if missing:
        said = f"not read: {', '.join(missing[:6])}{' ...' if len(missing) > 6 else ''}"
        return [failed("sensors", said, f"update {library} to the driver's version", **numbers)]
    throttled = {one["throttle"] for one in readings} - {None, "none", "idle"}
    driver = f"driver {static['driver']}" if static["driver"] else "driver unknown"
    note = f"; throttled at rest: {', '.join(sorted(throttled))}" if throttled else ""
    return [passed("sensors", f"{len(readings)} GPUs read, {driver}{note}", **numbers)]
