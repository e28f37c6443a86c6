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


def hardware(arch: str) -> Any:
    """The product in our table of hardware."""
    table = naming.our("kernels.hardware")
    return next(one for one in table.DEVICES if one.arch == arch and one.market_name == PRODUCTS[arch])


def write_tools(folder: Path, arch: str) -> None:
    """Put the tools into a folder: flash-attention and bitsandbytes ask rocminfo which GPU there is."""
    units = hardware(arch).compute_units
    for name, text in TOOLS.items():
        said = text.format(arch=arch, product=PRODUCTS[arch], units=units)
        (folder / name).write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
        (folder / name).chmod(0o755)
