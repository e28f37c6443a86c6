"""GPUs of AMD, through amdsmi's Python, which comes with ROCm.  Releases differ in shapes and in units."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.preflight.drivers import asked
from benchmarks.preflight.nvml import named
from benchmarks.preflight.types import GpuFacts

UNKNOWN = {0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}
"""By which AMD SMI says "unknown" (amdsmi of ROCm 6 and 7, 2026-11)."""


def read() -> Iterator[GpuFacts]:
    """Every GPU that AMD SMI shows; raises what the library raises if it cannot be used."""
    smi = importlib.import_module("amdsmi")
    smi.amdsmi_init()
    return iter([_gpu(smi, handle) for handle in smi.amdsmi_get_processor_handles()])


def _gpu(smi: Any, handle: Any) -> GpuFacts:
    asic, cap = _table(smi, "get_gpu_asic_info", handle), _table(smi, "get_power_cap_info", handle)
    ecc, clock = _table(smi, "get_gpu_total_ecc_count", handle), _clock(smi, handle)
    links = link_states(_table(smi, "get_gpu_xgmi_link_status", handle).get("status"))
    errors = asked(smi, "amdsmi_gpu_xgmi_error_status", handle)
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


# ---- values, as releases and the command amd-smi write them ------------------------------------------------------


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
    """Watts: new releases give microwatts, old ones and the command watts."""
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


def _processes(running: Any) -> tuple[str, ...] | None:
    if not isinstance(running, Sequence) or isinstance(running, str):
        return None
    pids = [whole(one.get("pid")) for one in running if isinstance(one, Mapping)]
    return named(pid for pid in pids if pid)
