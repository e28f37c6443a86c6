"""Clock, power, temperature and throttle reasons of the devices, read while they measure.

Read in the coordinator: NVML and AMD SMI create no context on the device.  What a driver does not report is None; a
machine without either library has no state and gives the reason.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.preflight.gpus import answer, value, watts
from benchmarks.shapes import Json, JsonObject

PERIOD_S = 0.25
"""Time between two readings while a trial runs."""

KEPT = 40
"""Readings per trial that are recorded; those of a longer trial are thinned evenly."""

NVML_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons, nvml.h of CUDA 12 and 13."""


class Nvml:
    """NVIDIA, through nvidia-ml-py; devices by their place in the list that it was opened with.

    read: sm_clock_mhz, mem_clock_mhz, temperature_c, power_w, throttle of one.  static: its power_cap_w, chip_id,
    partition, driver.  energy_j: joules that it has taken since some moment, None where it does not count.
    """

    def __init__(self, found: Sequence[Json]) -> None:
        self._nvml = importlib.import_module("pynvml")
        self._nvml.nvmlInit()
        self._handles = [self._handle(device) for device in found]

    def read(self, index: int) -> JsonObject:
        n, handle = self._nvml, self._handles[index]
        return {
            "sm_clock_mhz": answer(n.nvmlDeviceGetClockInfo, handle, n.NVML_CLOCK_SM),
            "mem_clock_mhz": answer(n.nvmlDeviceGetClockInfo, handle, n.NVML_CLOCK_MEM),
            "temperature_c": answer(n.nvmlDeviceGetTemperature, handle, n.NVML_TEMPERATURE_GPU),
            "power_w": _scaled(answer(n.nvmlDeviceGetPowerUsage, handle), 1e-3),
            "throttle": self._throttle(handle),
        }

    def static(self, index: int) -> JsonObject:
        n, handle = self._nvml, self._handles[index]
        pci = answer(n.nvmlDeviceGetPciInfo, handle)
        return {
            "power_cap_w": _scaled(answer(n.nvmlDeviceGetPowerManagementLimit, handle), 1e-3),
            "chip_id": f"{pci.pciDeviceId >> 16:04x}" if pci is not None else None,
            "partition": None,
            "driver": _text(answer(n.nvmlSystemGetDriverVersion)),
        }

    def energy_j(self, index: int) -> float | None:
        """nvmlDeviceGetTotalEnergyConsumption: mJ since the driver was loaded, from Volta on (nvml.h, CUDA 12)."""
        millijoules = answer(self._nvml.nvmlDeviceGetTotalEnergyConsumption, self._handles[index])
        return None if millijoules is None else millijoules * 1e-3

    def _handle(self, device: Json) -> Any:
        """By unique id: NVML counts all devices, the process may see only some of them."""
        if device.get("uuid"):
            handle = answer(self._nvml.nvmlDeviceGetHandleByUUID, "GPU-" + device["uuid"].removeprefix("GPU-"))
            if handle is not None:
                return handle
        return self._nvml.nvmlDeviceGetHandleByIndex(device["index"])

    def _throttle(self, handle: Any) -> str | None:
        read = getattr(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
            self._nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
        )
        bits = answer(read, handle) if read else None
        if bits is None:
            return None
        return ", ".join(name for bit, name in NVML_REASONS.items() if bits & bit) or "none"


class AmdSmi:
    """AMD, through amdsmi (part of ROCm); as Nvml."""

    def __init__(self, found: Sequence[Json]) -> None:
        self._smi = importlib.import_module("amdsmi")
        self._smi.amdsmi_init()
        handles = self._smi.amdsmi_get_processor_handles()
        by_bus = {str(answer(self._smi.amdsmi_get_gpu_device_bdf, handle)).lower(): handle for handle in handles}
        self._handles = [
            by_bus.get(device.get("pci") or "", handles[min(device["index"], len(handles) - 1)]) for device in found
        ]

    def read(self, index: int) -> JsonObject:
        metrics = answer(self._smi.amdsmi_get_gpu_metrics_info, self._handles[index]) or {}
        clocks = [value(c) for c in metrics.get("current_gfxclks") or [metrics.get("current_gfxclk")]]
        known = [clock for clock in clocks if clock]
        power = value(metrics.get("current_socket_power")) or value(metrics.get("average_socket_power"))
        return {
            "sm_clock_mhz": min(known) if known else None,  # the slowest die decides
            "mem_clock_mhz": value(metrics.get("current_uclk")),
            "temperature_c": value(metrics.get("temperature_hotspot")),
            "power_w": power,
            "throttle": _amd_throttle(metrics),
        }

    def static(self, index: int) -> JsonObject:
        smi, handle = self._smi, self._handles[index]
        cap = (answer(smi.amdsmi_get_power_cap_info, handle) or {}).get("power_cap")
        compute = answer(smi.amdsmi_get_gpu_compute_partition, handle)
        memory = answer(smi.amdsmi_get_gpu_memory_partition, handle)
        driver = answer(smi.amdsmi_get_gpu_driver_info, handle) or {}
        return {
            "power_cap_w": watts(cap),
            "chip_id": None,
            "partition": f"{compute}/{memory}" if compute and memory else None,
            "driver": driver.get("driver_version"),
        }

    def energy_j(self, index: int) -> float | None:
        """amdsmi_get_energy_count: `energy_accumulator` ("power" before ROCm 6.2) in units of `counter_resolution` uJ.

        The unit is 15.259 uJ on MI200 and MI300 (amd_smi documentation of ROCm 6 and 7, 2026-11).
        """
        found = answer(self._smi.amdsmi_get_energy_count, self._handles[index]) or {}
        count, unit = (value(found.get(key)) for key in ("energy_accumulator", "counter_resolution"))
        count = value(found.get("power")) if count is None else count
        return None if count is None or unit is None else float(count) * float(unit) * 1e-6


Monitor = Nvml | AmdSmi
"""A library that reads devices."""


def open_monitor(found: Sequence[Json]) -> tuple[Monitor | None, str | None]:
    """A monitor of the devices, or None and why there is none."""
    if not found:
        return None, "no GPU"
    kind = Nvml if found[0]["arch"].startswith("sm_") else AmdSmi
    try:
        return kind(found), None
    except Exception as error:
        library = "nvidia-ml-py" if kind is Nvml else "amdsmi"
        return None, f"{library}: {type(error).__name__}: {error}"


@contextlib.contextmanager
def following(follow: Callable[[threading.Event], None], is_there: bool) -> Iterator[None]:
    """Have what is followed in the background while inside, if it is there; told by an event that it is over."""
    over = threading.Event()
    thread = threading.Thread(target=follow, args=(over,), daemon=True)
    if is_there:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.is_alive():
            thread.join()


class Recorder:
    """The state before, during and after a trial, for its line in the trial file."""

    def __init__(self, monitor: Monitor | None, why_absent: str | None, count: int) -> None:
        self._monitor, self._why_absent, self._count = monitor, why_absent, count

    @contextlib.contextmanager
    def recording(self) -> Iterator[Callable[[], JsonObject]]:
        """Read in the background while inside; calling what it yields gives the `state` of the trial line."""
        readings: list[JsonObject] = []
        before = self._now()
        with following(lambda over: self._follow(readings, over), bool(self._monitor)):
            yield lambda: {
                "before": before,
                "during": thinned(readings, KEPT),
                "after": self._now(),
                "why_absent": self._why_absent,
            }

    def _follow(self, readings: list[JsonObject], over: threading.Event) -> None:
        begin = time.monotonic()
        while not over.wait(PERIOD_S):
            now = self._now()
            if now is not None:
                readings.append({"at_s": round(time.monotonic() - begin, 3), **now})

    def _now(self) -> JsonObject | None:
        """The first device, and the others under "others"."""
        if self._monitor is None:
            return None
        first, *others = [self._monitor.read(index) for index in range(self._count)]
        return {**first, "others": others} if others else first


def thinned(readings: list[JsonObject], keep: int) -> list[JsonObject]:
    """At most `keep` readings, evenly spread."""
    if len(readings) <= keep:
        return list(readings)
    return [readings[i * len(readings) // keep] for i in range(keep)]


def _amd_throttle(metrics: Json) -> str | None:
    status = value(metrics.get("indep_throttle_status"))
    status = value(metrics.get("throttle_status")) if status is None else status
    if status is None:
        return None
    return f"bits {int(status):#x}" if status else "none"


def _scaled(value: Any, factor: float) -> float | None:
    return None if value is None else round(value * factor, 1)


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
