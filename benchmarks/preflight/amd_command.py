"""GPUs of AMD, through the command `amd-smi --json`, where amdsmi's Python does not fit the driver."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.preflight.amd_library import chip, limit, link_states, pending, value, watts, whole, word
from benchmarks.preflight.nvml import named
from benchmarks.preflight.types import GpuFacts

COMMAND_S = 20.0
"""Seconds for one call: 8 GPUs answer in 1 to 3 s; a driver that hangs must not hang us (2026-11)."""


class NoAnswer(Exception):
    """amd-smi cannot be started, fails, or prints no JSON."""


def read() -> Iterator[GpuFacts]:
    """Every GPU that `amd-smi static` lists; raises NoAnswer."""
    static = _by_gpu(asked("static"))
    if not static:
        raise NoAnswer("amd-smi static --json lists no GPU")
    others = {name: _by_gpu(_perhaps(name)) for name in ("metric", "process", "bad-pages", "xgmi")}
    of = {index: {name: found.get(index, {}) for name, found in others.items()} for index in static}
    return iter([gpu(one, of[index]) for index, one in static.items()])


def asked(name: str) -> Any:
    """What `amd-smi NAME --json` prints; raises NoAnswer."""
    try:
        done = subprocess.run(
            ["amd-smi", name, "--json"], capture_output=True, text=True, timeout=COMMAND_S, stdin=subprocess.DEVNULL
        )
        return json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise NoAnswer(f"amd-smi {name} --json: {type(error).__name__}: {error}") from error


def _perhaps(name: str) -> Any:
    try:
        return asked(name)
    except NoAnswer:
        return []


def _by_gpu(answer: Any) -> dict[int, Mapping[str, Any]]:
    """By number: a list of objects with the key "gpu", or, since ROCm 7, the same under "gpu_data"."""
    listed = answer.get("gpu_data", []) if isinstance(answer, Mapping) else answer
    found = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    return {one["gpu"]: one for one in found if isinstance(one.get("gpu"), int)}


def gpu(static: Mapping[str, Any], other: Mapping[str, Mapping[str, Any]]) -> GpuFacts:
    """One GPU from its sections in `static` and in the other calls, by their names."""
    asic, power, parts = (_section(static, name) for name in ("asic", "limit", "partition"))
    ecc, clocks = _section(other["metric"], "ecc"), _section(_section(other["metric"], "clock"), "gfx_0")
    links = link_states(_links(other["xgmi"]))
    return GpuFacts(
        address=str(value(_section(static, "bus").get("bdf")) or "").lower(),
        name=word(asic.get("market_name")),
        chip_id=chip(asic.get("device_id")),
        compute=word(parts.get("compute_partition") or parts.get("accelerator_partition")),
        memory=word(parts.get("memory_partition")),
        power_cap_w=watts(power.get("socket_power") or power.get("socket_power_limit") or power.get("power_cap")),
        power_default_w=watts(power.get("max_power") or power.get("max_power_limit")),
        max_clock_mhz=whole(clocks.get("max_clk")),
        clock_limit=limit(clocks.get("clk_locked"), other["metric"].get("perf_level")),
        corrected=whole(ecc.get("total_correctable_count")),
        uncorrected=whole(ecc.get("total_uncorrectable_count")),
        bad_pages=pending(other["bad-pages"].get("pending")),
        links=len(links) if links else None,
        links_down=links.count(False) if links else None,
        processes=_processes(other["process"].get("process_list")),
    )


def _section(whole_: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = whole_.get(name)
    return found if isinstance(found, Mapping) else {}


def _links(found: Mapping[str, Any]) -> Sequence[Any]:
    """`link_status`: a list of "U", "D" (down) and "X" (disabled), or a text of them."""
    states = found.get("link_status")
    return states.split() if isinstance(states, str) else states if isinstance(states, list) else ()


def _processes(listed: Any) -> tuple[str, ...] | None:
    """Entries are objects, in some releases each under "process_info"; a text stands for none."""
    if not isinstance(listed, list):
        return None
    entries = [one.get("process_info", one) for one in listed if isinstance(one, Mapping)]
    pids = [whole(one.get("pid")) for one in entries if isinstance(one, Mapping)]
    return named(pid for pid in pids if pid)
