"""What GPUs tell of themselves: NVML, amdsmi and the files of amdgpu.  What is not told is None or "", no error."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine.system import HIDING, ROOT, PciGpu, gpu_file, kfd_nodes, number_of, pci_gpus, text_of
from benchmarks.shapes import Json, JsonObject
from kernels.hardware import DEVICES, normal_chip_id


@dataclasses.dataclass(frozen=True)
class GpuFacts:
    """One GPU as drivers and files show it.

    address: on the PCI bus, "0000:c1:00.0".  chip_id: PCI device id, four hex digits.  compute, memory: partition modes
    ("SPX", "NPS1"; "MIG").  power_cap_w, power_default_w: watts.  max_clock_mhz: of the compute units.  clock_limit:
    why they may not choose their clock themselves.  uncorrected: ECC errors since the driver was loaded.  bad_pages:
    memory pages that wait to be retired.  links, links_down: XGMI or NVLink.  link_errors: whether one counts errors.
    used_bytes, busy_percent: of its memory and its time.  processes: who is on it.
    """

    address: str
    name: str = ""
    chip_id: str = ""
    driver: str = ""
    compute: str = ""
    memory: str = ""
    power_cap_w: float | None = None
    power_default_w: float | None = None
    max_clock_mhz: int | None = None
    clock_limit: str = ""
    uncorrected: int | None = None
    bad_pages: int | None = None
    links: int | None = None
    links_down: int | None = None
    link_errors: bool | None = None
    used_bytes: int | None = None
    busy_percent: int | None = None
    processes: tuple[str, ...] | None = None

    @property
    def product(self) -> str:
        """The market name by the chip, "" if that is not in the table of hardware."""
        return next((device.market_name for device in DEVICES if self.chip_id in device.chip_ids), "")

    def or_else(self, other: GpuFacts) -> GpuFacts:
        """What this one says, and the other where it says nothing."""
        told = {name: value for name, value in vars(self).items() if value not in (None, "")}
        return dataclasses.replace(other, **told)


class DriverLibrary:
    """A driver's library; what it lacks or refuses is None: a failed reading must never end a measurement.

    handles: of each GPU, by its PCI address.  unanswered: how many GPUs gave none.  Raises what the library raises
    where it cannot be used at all.  Each has `facts` of a GPU by its address, and its `reading`: sm_clock_mhz,
    mem_clock_mhz, temperature_c, power_w, throttle of now.
    """

    module = prefix = ""

    def __init__(self) -> None:
        self._library = importlib.import_module(self.module)
        self.handles: dict[str, Any] = {}
        self.unanswered = 0

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of one function of the library."""
        with contextlib.suppress(Exception):
            return getattr(self._library, f"{self.prefix}{name}")(*arguments)
        return None


SM, MEMORY, GPU_SENSOR = 1, 2, 0
"""NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU (nvml.h of CUDA 12 and 13)."""
MOST_LINKS = 18
"""NVLinks of one GPU: NVML_NVLINK_MAX_LINKS."""
UNCORRECTED, VOLATILE = 1, 0
"""NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC: since the driver was loaded."""
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
"""Bits of nvmlDeviceGetCurrentClocksEventReasons."""


class Nvml(DriverLibrary):
    """NVIDIA's, by nvidia-ml-py."""

    module, prefix = "pynvml", "nvml"

    def __init__(self) -> None:
        super().__init__()
        self._library.nvmlInit()
        count = self._library.nvmlDeviceGetCount()
        for handle in (self.ask("DeviceGetHandleByIndex", index) for index in range(count)):
            if (pci := self.ask("DeviceGetPciInfo", handle)) is not None:
                domain, _, rest = _text(pci.busId).lower().partition(":")
                self.handles[f"{domain[-4:].rjust(4, '0')}:{rest}"] = handle
        self.unanswered = count - len(self.handles)

    def facts(self, address: str) -> GpuFacts:
        """Pages that wait: remapped rows since Ampere, retirement before; 1 stands for any number."""
        handle = self.handles[address]
        links = [self.ask("DeviceGetNvLinkState", handle, index) for index in range(MOST_LINKS)]
        links = [state for state in links if state is not None]
        rows = self.ask("DeviceGetRemappedRows", handle)
        waiting = self.ask("DeviceGetRetiredPagesPendingStatus", handle) if rows is None else rows[2] or rows[3]
        running = self.ask("DeviceGetComputeRunningProcesses", handle)
        return GpuFacts(
            address=address,
            name=_text(self.ask("DeviceGetName", handle)),
            chip_id=normal_chip_id(self.ask("DeviceGetPciInfo", handle).pciDeviceId) or "",
            driver=_text(self.ask("SystemGetDriverVersion")),
            compute="MIG" if (self.ask("DeviceGetMigMode", handle) or [0])[0] else "",
            power_cap_w=_scaled(self.ask("DeviceGetPowerManagementLimit", handle), 1e-3),
            power_default_w=_scaled(self.ask("DeviceGetPowerManagementDefaultLimit", handle), 1e-3),
            max_clock_mhz=self.ask("DeviceGetMaxClockInfo", handle, SM),
            uncorrected=self.ask("DeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE),
            bad_pages=None if waiting is None else int(bool(waiting)),
            links=len(links) or None,
            links_down=links.count(0) if links else None,
            used_bytes=getattr(self.ask("DeviceGetMemoryInfo", handle), "used", None),
            busy_percent=getattr(self.ask("DeviceGetUtilizationRates", handle), "gpu", None),
            processes=None if running is None else process_names(int(process.pid) for process in running),
        )

    def reading(self, address: str) -> JsonObject:
        """See DriverLibrary."""
        handle = self.handles[address]
        bits = self.ask("DeviceGetCurrentClocksEventReasons", handle)
        bits = self.ask("DeviceGetCurrentClocksThrottleReasons", handle) if bits is None else bits
        reasons = ", ".join(name for bit, name in NVML_REASONS.items() if bits and bits & bit)
        return {
            "sm_clock_mhz": self.ask("DeviceGetClockInfo", handle, SM),
            "mem_clock_mhz": self.ask("DeviceGetClockInfo", handle, MEMORY),
            "temperature_c": self.ask("DeviceGetTemperature", handle, GPU_SENSOR),
            "power_w": _scaled(self.ask("DeviceGetPowerUsage", handle), 1e-3),
            "throttle": None if bits is None else reasons or "none",
        }


UNKNOWN = {0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}
"""By which AMD SMI says "unknown" (amdsmi of ROCm 6 and 7, 2026-11)."""


class AmdSmi(DriverLibrary):
    """AMD's, by amdsmi, which comes with ROCm.  Releases differ in shapes and in units."""

    module, prefix = "amdsmi", "amdsmi_"

    def __init__(self) -> None:
        super().__init__()
        self._library.amdsmi_init()
        listed = self._library.amdsmi_get_processor_handles()
        addresses = ((self.ask("get_gpu_device_bdf", handle), handle) for handle in listed)
        self.handles = {str(address).lower(): handle for address, handle in addresses if address}
        self.unanswered = len(listed) - len(self.handles)

    def table(self, name: str, *arguments: Any) -> Mapping[str, Any]:
        """The answer of a function that gives several values."""
        answer = self.ask(name, *arguments)
        return answer if isinstance(answer, Mapping) else {}

    def facts(self, address: str) -> GpuFacts:
        """See DriverLibrary."""
        handle = self.handles[address]
        asic, cap = self.table("get_gpu_asic_info", handle), self.table("get_power_cap_info", handle)
        kind = getattr(getattr(self._library, "AmdSmiClkType", None), "GFX", None)
        clock = self.table("get_clock_info", handle, kind)
        errors = self.ask("gpu_xgmi_error_status", handle)
        links = link_states(self.table("get_gpu_xgmi_link_status", handle).get("status"))
        chip = asic.get("device_id")
        return GpuFacts(
            address=address,
            name=word(asic.get("market_name")),
            chip_id=normal_chip_id(None if chip in UNKNOWN else chip) or "",
            driver=str(self.table("get_gpu_driver_info", handle).get("driver_version") or ""),
            compute=word(self.ask("get_gpu_compute_partition", handle)),
            memory=word(self.ask("get_gpu_memory_partition", handle)),
            power_cap_w=watts(cap.get("power_cap")),
            power_default_w=watts(cap.get("default_power_cap")),
            max_clock_mhz=count(clock.get("max_clk")),
            clock_limit=clock_limit(clock.get("clk_locked"), self.ask("get_gpu_perf_level", handle)),
            uncorrected=count(self.table("get_gpu_total_ecc_count", handle).get("uncorrectable_count")),
            bad_pages=pending_pages(self.ask("get_gpu_bad_page_info", handle)),
            links=len(links) or None,
            links_down=links.count(False) if links else None,
            link_errors=None if errors is None else "NO_ERROR" not in str(getattr(errors, "name", errors)).upper(),
            processes=_listed_processes(self.ask("get_gpu_process_list", handle)),
        )

    def reading(self, address: str) -> JsonObject:
        """See DriverLibrary.  The slowest die decides the clock."""
        metrics = self.table("get_gpu_metrics_info", self.handles[address])
        clocks = [unwrapped(clock) for clock in metrics.get("current_gfxclks") or [metrics.get("current_gfxclk")]]
        throttle = unwrapped(metrics.get("indep_throttle_status"))
        throttle = unwrapped(metrics.get("throttle_status")) if throttle is None else throttle
        return {
            "sm_clock_mhz": min(filter(None, clocks), default=None),
            "mem_clock_mhz": unwrapped(metrics.get("current_uclk")),
            "temperature_c": unwrapped(metrics.get("temperature_hotspot")),
            "power_w": unwrapped(metrics.get("current_socket_power")) or unwrapped(metrics.get("average_socket_power")),
            "throttle": None if throttle is None else f"bits {int(throttle):#x}" if throttle else "none",
        }


# ---- values, as releases of amdsmi write them ------------------------------------------------------------------------


def unwrapped(value: Any) -> Any:
    """What is meant by 750, "750 W", {"value": 750, "unit": "W"}, "N/A": a number, a text, or None."""
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, str):
        number = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*[A-Za-z%]*\s*", value)
        return None if value.strip().upper() in ("", "N/A", "NONE") else float(number[1]) if number else value.strip()
    return None if isinstance(value, list) or value in UNKNOWN else value


def count(value: Any) -> int | None:
    """A count, None for anything else."""
    number = unwrapped(value)
    return int(number) if isinstance(number, int | float) and not isinstance(number, bool) and number >= 0 else None


def watts(value: Any) -> float | None:
    """Watts: new releases give microwatts, old ones watts."""
    number = unwrapped(value)
    if not isinstance(number, int | float) or number <= 0:
        return None
    return _scaled(number, 1e-6 if number > 100_000 else 1)


def word(value: Any) -> str:
    """A text, "" for none."""
    text = unwrapped(getattr(value, "name", value))
    return text if isinstance(text, str) else ""


def clock_limit(locked: Any, level: Any) -> str:
    """Why the clock may not move by itself: it is locked, or the performance level is not automatic."""
    name = word(level).upper().removeprefix("AMDSMI_DEV_PERF_LEVEL_")
    if str(unwrapped(locked)).upper() in ("1", "1.0", "TRUE", "ENABLED", "LOCKED"):
        return "the clock is locked"
    return "" if name in ("", "AUTO", "UNKNOWN") else f"performance level {name.lower()}"


def pending_pages(pages: Any) -> int | None:
    """Bad pages that wait to be retired.  A text ("No bad pages found.") stands for none."""
    if isinstance(pages, str):
        return 0 if "no bad pages" in pages.lower() else None
    if not isinstance(pages, Sequence):
        return None
    states = [str(page.get("status", "")).upper() for page in pages if isinstance(page, Mapping)]
    return sum("PENDING" in state or state == "1" for state in states)


def link_states(states: Any) -> list[bool]:
    """Which XGMI links are up.  One that is switched off is none: the GPU's own place.  Numbers: DOWN 0, UP 1."""
    up, down = ("UP", "U", "1"), ("DOWN", "D", "0")
    names = [str(getattr(state, "name", state)).upper().rpartition("_")[2] for state in states or ()]
    return [name in up for name in names if name in (*up, *down)]


def _listed_processes(listed: Any) -> tuple[str, ...] | None:
    """Entries are objects; a text stands for none."""
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return None
    return process_names(filter(None, (count(entry.get("pid")) for entry in listed if isinstance(entry, Mapping))))


def process_names(pids: Any, root: Path = ROOT) -> tuple[str, ...]:
    """ "python (pid 7)" for each process that is not this one."""
    commands = {pid: text_of(root / f"proc/{pid}/comm") for pid in sorted(set(pids)) if pid != os.getpid()}
    return tuple(f"{command or 'process of another container'} (pid {pid})" for pid, command in commands.items())


def _scaled(value: Any, factor: float) -> float | None:
    return None if value is None else round(value * factor, 1)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


# ---- the files of amdgpu and the KFD: what is left where no library answers ------------------------------------------


def facts_by_files(root: Path, gpu: PciGpu) -> GpuFacts:
    """Of an AMD GPU.

    hwmon: power1_cap and power1_cap_default in microwatts; ras/NAME_err_count: "ue: N"; ras/gpu_vram_bad_pages: a line
    per page, "ADDRESS : SIZE : FLAG" with P for a page that waits to be retired (linux: Documentation/gpu/amdgpu/
    {thermal,ras}.rst, drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c).  kfd/proc/PID/vram_GPUID: bytes of a process on a GPU,
    whose id is in the topology's gpu_id (amdkfd/kfd_process.c).  2026-11.
    """
    folder = root / "sys/bus/pci/devices" / gpu.address
    errors = re.findall(r"^ue:\s*(\d+)", "\n".join(map(text_of, folder.glob("ras/*_err_count"))), re.MULTILINE)
    pages = folder / "ras/gpu_vram_bad_pages"
    nodes = kfd_nodes(root)
    ids = [text_of(nodes[file] / "gpu_id") for file in gpu.files if file in nodes]
    memory = [path for one in ids for path in (root / "sys/class/kfd/kfd/proc").glob(f"[0-9]*/vram_{one}")]
    owners = (int(path.parent.name) for path in memory if text_of(path) not in ("", "0"))
    return GpuFacts(
        address=gpu.address,
        name=text_of(folder / "product_name"),
        chip_id=normal_chip_id(text_of(folder / "device")) or "",
        compute=text_of(folder / "current_compute_partition"),
        memory=text_of(folder / "current_memory_partition"),
        power_cap_w=_hwmon_watts(folder, "power1_cap"),
        power_default_w=_hwmon_watts(folder, "power1_cap_default"),
        clock_limit=clock_limit(None, text_of(folder / "power_dpm_force_performance_level")),
        uncorrected=sum(map(int, errors)) if errors else None,
        bad_pages=len(re.findall(r":\s*P\s*$", text_of(pages), re.MULTILINE)) if pages.is_file() else None,
        used_bytes=number_of(folder / "mem_info_vram_used"),
        busy_percent=number_of(folder / "gpu_busy_percent"),
        processes=process_names(owners, root) if len(ids) == len(gpu.files) else None,
    )


def _hwmon_watts(folder: Path, name: str) -> float | None:
    numbers = [number_of(path / name) for path in sorted(folder.glob("hwmon/hwmon*"))]
    return next((_scaled(number, 1e-6) for number in numbers if number is not None), None)


# ---- the GPUs of a machine -------------------------------------------------------------------------------------------


def gpu_facts(root: Path = ROOT) -> tuple[list[GpuFacts], dict[str, str]]:
    """All GPUs that this process can use, by address, and why a library says nothing of them, or not of all."""
    absent: dict[str, str] = {}
    facts = facts_by_library(Nvml, absent) if gpu_file(root, ["nvidia"]) else {}
    if of_files := {
        gpu.address: facts_by_files(root, gpu)
        for gpu in pci_gpus(root)
        if gpu.vendor == "amd" and gpu.computes and gpu.is_open(root)
    }:
        of_library = facts_by_library(AmdSmi, absent)
        facts |= {
            address: of_library[address].or_else(files) if address in of_library else files
            for address, files in of_files.items()
        }
    return [facts[address] for address in sorted(facts)], absent


def facts_by_library(kind: type[Nvml | AmdSmi], absent: dict[str, str]) -> dict[str, GpuFacts]:
    """What a library says, by address; why it says nothing goes into `absent`."""
    try:
        library = kind()
        if library.unanswered:
            absent[kind.module] = f"{library.unanswered} of the GPUs give no answer"
        return {address: library.facts(address) for address in library.handles}
    except Exception as error:  # a library of the driver's: whatever it raises, it says nothing
        absent[kind.module] = f"{type(error).__name__}: {error}"[:300]
        return {}


def gpus_of_run(gpus: Sequence[GpuFacts], addresses: Collection[str] | None) -> list[GpuFacts]:
    """Those with these addresses, or (None) those that this process's variables leave visible."""
    if addresses is not None:
        return [gpu for gpu in gpus if gpu.address in {address.lower() for address in addresses}]
    variable = next((name for name in HIDING if name in os.environ), None)
    if variable is None:
        return list(gpus)
    entries = [entry.strip() for entry in os.environ[variable].split(",")]
    if not all(entry.isdigit() for entry in entries):
        return [] if entries in ([""], ["-1"]) else list(gpus)
    return [gpus[int(entry)] for entry in entries if int(entry) < len(gpus)]


class Monitor:
    """Reads the GPUs of a run, which torch sees (worker.probe.devices()), by their place in that list."""

    def __init__(self, library: Nvml | AmdSmi, devices: Sequence[Json]) -> None:
        known = list(library.handles)
        places = ((device.get("pci"), known[min(device["index"], len(known) - 1)]) for device in devices)
        self._library, self._addresses = library, [pci if pci in library.handles else nth for pci, nth in places]

    def facts(self, index: int) -> GpuFacts:
        """See DriverLibrary."""
        return self._library.facts(self._addresses[index])

    def read(self, index: int) -> JsonObject:
        """See DriverLibrary."""
        return self._library.reading(self._addresses[index])


def open_monitor(devices: Sequence[Json]) -> tuple[Monitor | None, str | None]:
    """A monitor of the devices, or None and why there is none."""
    if not devices:
        return None, "no GPU"
    kind = Nvml if devices[0]["arch"].startswith("sm_") else AmdSmi
    try:
        return Monitor(kind(), devices), None
    except Exception as error:
        return None, f"{kind.module}: {type(error).__name__}: {error}"


# ---- clocks, power, temperature and throttle reasons while devices measure -------------------------------------------
#
# Read in the coordinator: NVML and AMD SMI create no context on a device.  A machine without either has no state.


PERIOD_S = 0.25
"""Time between two readings while a trial runs."""

KEPT = 40
"""Readings per trial that are recorded at most; of a longer trial every second, or third, and so on."""


class Recorder:
    """The state before, during and after a trial, for its line in the trial file."""

    def __init__(self, monitor: Monitor | None, why_absent: str | None, count: int) -> None:
        self._monitor, self._why_absent, self._count = monitor, why_absent, count

    @contextlib.contextmanager
    def recording(self) -> Iterator[Callable[[], JsonObject]]:
        """Read in the background while inside; calling what it yields gives the `state` of the trial line."""
        readings: list[JsonObject] = []
        before, over = self._now(), threading.Event()
        thread = threading.Thread(target=self._follow, args=(readings, over), daemon=True)
        if self._monitor:
            thread.start()
        try:
            yield lambda: {
                "before": before,
                "during": readings[:: 1 + len(readings) // KEPT],
                "after": self._now(),
                "why_absent": self._why_absent,
            }
        finally:
            over.set()
            if self._monitor:
                thread.join()

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
