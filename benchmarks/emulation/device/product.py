"""Which GPU is emulated, and what ROCm's command-line tools say of it to programs that ask them.

Standard library only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ... import naming

PRODUCTS = {"gfx942": "MI300X", "gfx950": "MI355X"}
"""Which product of the architecture it is."""

HIP = "7.2.0"
"""Version of HIP that torch.version and hipconfig report."""

TOOLS = {
    "rocminfo": "Agent 1\n  Name:                    {arch}\n  Marketing Name:          AMD Instinct {product}\n"
    "  Device Type:             GPU\n  Compute Unit:            {units}",
    "rocm_agent_enumerator": "{arch}",
    "rocm-smi": "GPU[0] : Card Series: AMD Instinct {product}",
    "hipconfig": HIP,
}
"""What each prints, whatever its options are."""

AMDSMI = """\
from types import SimpleNamespace

AmdSmiMemoryType = SimpleNamespace(VRAM=0)

class AmdSmiException(Exception):
    pass

def amdsmi_init(*_):
    pass

def amdsmi_get_processor_handles():
    return ["the emulated GPU"]

def amdsmi_get_gpu_asic_info(_):
    name, chip = "AMD Instinct {product}", "{chip}"
    return {{"market_name": name, "target_graphics_version": "{arch}", "num_compute_units": {units}, "device_id": chip}}

def amdsmi_get_gpu_memory_total(*_):
    return {memory}

def __getattr__(name):
    def missing(*_):
        raise AmdSmiException(name + " is not emulated")
    if name.startswith("__"):
        raise AttributeError(name)
    return missing

amdsmi_shut_down = amdsmi_init
"""
"""ROCm's Python module of that name, by which vLLM asks whether there is a GPU of AMD."""


def hardware(arch: str) -> Any:
    """The product in our table of hardware."""
    table = naming.our("kernels.hardware")
    return next(one for one in table.DEVICES if one.arch == arch and one.market_name == PRODUCTS[arch])


def write_tools(folder: Path, arch: str) -> None:
    """Put the tools into a folder: flash-attention and bitsandbytes ask rocminfo which GPU there is."""
    gpu = hardware(arch)
    facts = {"arch": arch, "product": PRODUCTS[arch], "units": gpu.compute_units, "chip": f"0x{gpu.chip_ids[0]}"}
    facts["memory"] = gpu.hbm_bytes
    (folder / "amdsmi.py").write_text(AMDSMI.format(**facts))
    for name, text in TOOLS.items():
        said = text.format(**facts)
        (folder / name).write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
        (folder / name).chmod(0o755)
