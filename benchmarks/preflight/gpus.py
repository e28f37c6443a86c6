"""What GPUs tell of themselves, through the libraries of their drivers or files; each may know no answer."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.preflight import system
from benchmarks.preflight.system import HIDING, GpuFacts, PciGpu
from kernels.hardware import DEVICES, normal_chip_id


def answer(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function says, None if it raises: a failed reading must never end a measurement."""
    try:
        return function(*arguments)
    except Exception:
        return None


def asked(library: Any, name: str, *arguments: Any) -> Any:
    """The answer of one function of a library, None if it is missing or refuses."""
    return answer(lambda: getattr(library, name)(*arguments))


# GPUs of NVIDIA, through nvidia-ml-py.  What a driver does not report is None.


MOST_LINKS = 18
"""NVLinks of one GPU (NVML_NVLINK_MAX_LINKS, nvml.h of CUDA 12 and 13)."""
UNCORRECTED, CORRECTED, VOLATILE = 1, 0, 0
"""NVML_MEMORY_ERROR_TYPE_*, NVML_VOLATILE_ECC: since the driver was loaded (nvml.h)."""
SM = 1
"""NVML_CLOCK_SM (nvml.h)."""


def by_nvml() -> Iterator[GpuFacts]:
    """Every GPU that NVML shows; raises what NVML raises if there is none."""
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    return iter([_of_nvml(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount())])


def _of_nvml(nvml: Any, handle: Any) -> GpuFacts:
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    states = [asked(nvml, "nvmlDeviceGetNvLinkState", handle, index) for index in range(MOST_LINKS)]
    links = [state for state in states if state is not None]
    retiring = asked(nvml, "nvmlDeviceGetRetiredPagesPendingStatus", handle)
    remapped = asked(nvml, "nvmlDeviceGetRemappedRows", handle)
    return GpuFacts(
        address=address(_text(pci.busId)),
        name=_text(asked(nvml, "nvmlDeviceGetName", handle)),
        chip_id=f"{pci.pciDeviceId >> 16:04x}",
        compute="MIG" if (asked(nvml, "nvmlDeviceGetMigMode", handle) or [0])[0] else "",
        power_cap_w=_of_milliwatts(asked(nvml, "nvmlDeviceGetPowerManagementLimit", handle)),
        power_default_w=_of_milliwatts(asked(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        max_clock_mhz=asked(nvml, "nvmlDeviceGetMaxClockInfo", handle, SM),
        corrected=asked(nvml, "nvmlDeviceGetTotalEccErrors", handle, CORRECTED, VOLATILE),
        uncorrected=asked(nvml, "nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE),
        bad_pages=_pending(retiring, remapped),
        links=len(links) if links else None,
        links_down=links.count(0) if links else None,
        used_bytes=getattr(asked(nvml, "nvmlDeviceGetMemoryInfo", handle), "used", None),
        busy_percent=getattr(asked(nvml, "nvmlDeviceGetUtilizationRates", handle), "gpu", None),
        processes=_nvml_processes(asked(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)),
    )


def address(text: str) -> str:
    """As the kernel writes it: "00000000:C1:00.0" is "0000:c1:00.0"."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}"


def _pending(retiring: Any, remapped: Any) -> int | None:
    """Pages that wait for a reset: retirement before Ampere, row remapping since; 1 stands for any number."""
    rows = None if remapped is None else int(bool(remapped[2]) or bool(remapped[3]))
    return rows if rows is not None else None if retiring is None else int(bool(retiring))


def _nvml_processes(running: Any) -> tuple[str, ...] | None:
    return None if running is None else named(int(one.pid) for one in running)


def named(pids: Any, root: Path = Path("/")) -> tuple[str, ...]:
    """ "python (pid 7)" for each process that is not this one."""
    return tuple(f"{_command(root, pid)} (pid {pid})" for pid in sorted(set(pids)) if pid != os.getpid())


def _command(root: Path, pid: int) -> str:
    try:
        return (root / f"proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "process of another container"


def _of_milliwatts(milliwatts: Any) -> float | None:
    return None if milliwatts is None else round(milliwatts * 1e-3, 1)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


# GPUs of AMD, through amdsmi's Python, which comes with ROCm.  Releases differ in shapes and in units.


UNKNOWN = {0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}
"""By which AMD SMI says "unknown" (amdsmi of ROCm 6 and 7, 2026-11)."""


def by_amdsmi() -> Iterator[GpuFacts]:
    """Every GPU that AMD SMI shows; raises what the library raises if it cannot be used."""
    smi = importlib.import_module("amdsmi")
    smi.amdsmi_init()
    return iter([_of_amdsmi(smi, handle) for handle in smi.amdsmi_get_processor_handles()])


def _of_amdsmi(smi: Any, handle: Any) -> GpuFacts:
    asic, cap = _table(smi, "get_gpu_asic_info", handle), _table(smi, "get_power_cap_info", handle)
    ecc, clock = _table(smi, "get_gpu_total_ecc_count", handle), _clock(smi, handle)
    errors = asked(smi, "amdsmi_gpu_xgmi_error_status", handle)
    links = link_states(_table(smi, "get_gpu_xgmi_link_status", handle).get("status"))
    return GpuFacts(
        address=str(smi.amdsmi_get_gpu_device_bdf(handle)).lower(),
        name=word(asic.get("market_name")),
        chip_id=chip(asic.get("device_id")),
        compute=word(asked(smi, "amdsmi_get_gpu_compute_partition", handle)),
        memory=word(asked(smi, "amdsmi_get_gpu_memory_partition", handle)),
        power_cap_w=watts(cap.get("power_cap")),
        power_default_w=watts(cap.get("default_power_cap")),
        max_clock_mhz=whole(clock.get("max_clk")),
        clock_limit=limit(clock.get("clk_locked"), asked(smi, "amdsmi_get_gpu_perf_level", handle)),
        corrected=whole(ecc.get("correctable_count")),
        uncorrected=whole(ecc.get("uncorrectable_count")),
        bad_pages=pending(asked(smi, "amdsmi_get_gpu_bad_page_info", handle)),
        links=len(links) if links else None,
        links_down=links.count(False) if links else None,
        link_errors=None if errors is None else "NO_ERROR" not in str(getattr(errors, "name", errors)).upper(),
        processes=_processes(asked(smi, "amdsmi_get_gpu_process_list", handle)),
    )


def _table(smi: Any, name: str, *arguments: Any) -> Mapping[str, Any]:
    found = asked(smi, f"amdsmi_{name}", *arguments)
    return found if isinstance(found, Mapping) else {}


def _clock(smi: Any, handle: Any) -> Mapping[str, Any]:
    kind = getattr(getattr(smi, "AmdSmiClkType", None), "GFX", None)
    return _table(smi, "get_clock_info", handle, kind)


# ---- values, as releases of amdsmi write them --------------------------------------------------------------------


def value(given: Any) -> Any:
    """What is meant by 750, "750 W", {"value": 750, "unit": "W"}, "N/A": a number, a text, or None."""
    if isinstance(given, Mapping):
        given = given.get("value")
    if isinstance(given, str):
        number = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*[A-Za-z%]*\s*", given)
        return None if given.strip().upper() in ("", "N/A", "NONE") else float(number[1]) if number else given.strip()
    return None if isinstance(given, list) or given in UNKNOWN else given


def whole(given: Any) -> int | None:
    """A count, None for anything else."""
    number = value(given)
    return int(number) if isinstance(number, int | float) and not isinstance(number, bool) and number >= 0 else None


def watts(given: Any) -> float | None:
    """Watts: new releases give microwatts, old ones watts."""
    number = value(given)
    if not isinstance(number, int | float) or number <= 0:
        return None
    return round(number * 1e-6, 1) if number > 100_000 else round(float(number), 1)


def word(given: Any) -> str:
    """A text, "" for none."""
    found = value(getattr(given, "name", given))
    return found if isinstance(found, str) else ""


def chip(given: Any) -> str:
    """A PCI device id: 0x74a1, 29857 or "0x74a1"; "" for none."""
    return f"{given:04x}" if isinstance(given, int) and given not in UNKNOWN else word(given)


def limit(locked: Any, level: Any) -> str:
    """Why the clock may not move by itself: it is locked, or the performance level is not automatic."""
    said = word(level).upper().removeprefix("AMDSMI_DEV_PERF_LEVEL_")
    if str(value(locked)).upper() in ("1", "1.0", "TRUE", "ENABLED", "LOCKED"):
        return "the clock is locked"
    return "" if said in ("", "AUTO", "UNKNOWN") else f"performance level {said.lower()}"


def pending(pages: Any) -> int | None:
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
    names = [str(getattr(one, "name", one)).upper().rpartition("_")[2] for one in states or ()]
    return [name in up for name in names if name in (*up, *down)]


def _processes(listed: Any) -> tuple[str, ...] | None:
    """Entries are objects; a text stands for none."""
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return None
    pids = [whole(one.get("pid")) for one in listed if isinstance(one, Mapping)]
    return named(pid for pid in pids if pid)


# GPUs of AMD, from the files of amdgpu and the KFD: what is left where no library answers.
#
# hwmon: power1_cap and power1_cap_default in microwatts; ras/NAME_err_count: "ue: N" and "ce: N";
# ras/gpu_vram_bad_pages: one line a page, "ADDRESS : SIZE : FLAG" with P for a page that waits to be retired
# (torvalds/linux: Documentation/gpu/amdgpu/{thermal,ras}.rst, drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c);
# /sys/class/kfd/kfd/proc/PID/vram_GPUID: bytes of a process on a GPU, whose id is in the topology's gpu_id
# (amdkfd/kfd_process.c), 2026-11.


def by_files(root: Path) -> Iterator[GpuFacts]:
    """Every GPU of AMD whose render device this process may open."""
    owners = _kfd_processes(root)
    for gpu in system.pci_gpus(root):
        if gpu.vendor == "amd" and any(system.access(root, file) is system.Access.OPEN for file in gpu.files):
            yield _of_files(root, gpu, owners)


def _of_files(root: Path, gpu: PciGpu, owners: dict[int, set[int]]) -> GpuFacts:
    folder = root / "sys/bus/pci/devices" / gpu.address
    minors = [int(file.removeprefix("/dev/dri/renderD")) for file in gpu.files]
    known = owners.keys() >= {*minors}
    return GpuFacts(
        address=gpu.address,
        name=system.text_of(folder / "product_name"),
        chip_id=system.text_of(folder / "device"),
        compute=gpu.compute,
        memory=gpu.memory,
        power_cap_w=_of_microwatts(folder, "power1_cap"),
        power_default_w=_of_microwatts(folder, "power1_cap_default"),
        clock_limit=limit(None, system.text_of(folder / "power_dpm_force_performance_level")),
        corrected=_errors(folder, "ce"),
        uncorrected=_errors(folder, "ue"),
        bad_pages=_bad_pages(folder / "ras/gpu_vram_bad_pages"),
        used_bytes=gpu.used_bytes,
        busy_percent=gpu.busy_percent,
        processes=named((pid for minor in minors for pid in owners[minor]), root) if known else None,
    )


def _kfd_processes(root: Path) -> dict[int, set[int]]:
    """Process ids with memory on a GPU, by the minor of its render device."""
    found: dict[int, set[int]] = {}
    for minor, folder in system.kfd_nodes(root).items():
        if gpu := system.text_of(folder / "gpu_id"):
            files = (root / "sys/class/kfd/kfd/proc").glob(f"[0-9]*/vram_{gpu}")
            found[minor] = {int(file.parent.name) for file in files if system.text_of(file) not in ("", "0")}
    return found


def _errors(folder: Path, kind: str) -> int | None:
    """The sum over the blocks of a GPU."""
    texts = [system.text_of(path) for path in (folder / "ras").glob("*_err_count")]
    counts = [int(found[1]) for text in texts if (found := re.search(rf"^{kind}:\s*(\d+)", text, re.MULTILINE))]
    return sum(counts) if counts else None


def _bad_pages(path: Path) -> int | None:
    if not path.is_file():
        return None
    return sum(bool(re.search(r":\s*P\s*$", line)) for line in system.text_of(path).splitlines())


def _of_microwatts(folder: Path, name: str) -> float | None:
    texts = [system.text_of(path / name) for path in sorted((folder / "hwmon").glob("hwmon*"))]
    numbers = [int(text) for text in texts if text.isdigit()]
    return round(numbers[0] * 1e-6, 1) if numbers else None


# Whom to ask about GPUs: NVIDIA's through NVML; AMD's through amdsmi and the files of amdgpu.


def gpus(root: Path = Path("/")) -> tuple[list[GpuFacts], dict[str, str]]:
    """All GPUs that this process can reach, by address, and why a library says nothing of them."""
    present = [gpu for gpu in system.pci_gpus(root) if gpu.taken]
    absent: dict[str, str] = {}
    found: dict[str, GpuFacts] = {}
    if any(gpu.vendor == "nvidia" for gpu in present):
        found |= _asked("nvml", by_nvml, absent)
    if any(gpu.vendor == "amd" and _is_open(root, gpu) for gpu in present):
        of_files = {one.address: one for one in by_files(root)}
        said = _asked("amdsmi", by_amdsmi, absent)
        found |= {address: said[address].or_else(one) if address in said else one for address, one in of_files.items()}
    return [_named(found[address], root) for address in sorted(found)], absent


def _is_open(root: Path, gpu: system.PciGpu) -> bool:
    return any(system.access(root, file) is system.Access.OPEN for file in gpu.files)


def _asked(name: str, read: Callable[[], Iterator[GpuFacts]], absent: dict[str, str]) -> dict[str, GpuFacts]:
    """What a library says, by address; why it says nothing goes into `absent`."""
    try:
        return {one.address: one for one in read()}
    except Exception as error:  # a library of the driver's: whatever it raises, it says nothing
        absent[name] = f"{type(error).__name__}: {error}"[:300]
        return {}


def _named(one: GpuFacts, root: Path) -> GpuFacts:
    chip = one.chip_id or system.text_of(root / "sys/bus/pci/devices" / one.address / "device")
    known = normal_chip_id(chip) or ""
    return dataclasses.replace(one, chip_id=known, product=product(one.name, known))


def product(name: str, chip_id: str) -> str:
    """The market name of what reports this, "" if it is not in the table of hardware, or fits several entries."""
    by_chip = {device.market_name for device in DEVICES if chip_id and chip_id in device.chip_ids}
    if len(by_chip) == 1:
        return by_chip.pop()
    words = set(re.findall(r"[A-Z0-9]+", name.upper()))
    by_name = [device for device in DEVICES if any(set(one.upper().split()) <= words for one in device.names)]
    longest = max((len(one) for device in by_name for one in device.names), default=0)
    best = {device.market_name for device in by_name if any(len(one) == longest for one in device.names)}
    return best.pop() if len(best) == 1 else ""


def chosen(found: Sequence[GpuFacts], ours: Collection[str] | None) -> Iterable[GpuFacts]:
    """Those of a run: by address, or those that this process's variables leave visible."""
    if ours is not None:
        return [one for one in found if one.address in {address.lower() for address in ours}]
    variable = next((name for name in HIDING if name in os.environ), None)
    entries = [entry.strip() for entry in os.environ[variable].split(",")] if variable else []
    if not all(entry.isdigit() for entry in entries) or not variable:
        return [] if variable and entries in ([""], ["-1"]) else found
    return [found[int(entry)] for entry in entries if int(entry) < len(found)]
