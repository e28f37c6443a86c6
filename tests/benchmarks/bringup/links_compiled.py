"""Run by test_links.py in a process per architecture: compile the kernels of `fences`, no GPU."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.bringup import link_device
from benchmarks.bringup.probes import MANY
from kernels.spec import Compilation
from tests.kernels.compiled import compiled, spilled


def litmus(arch: str, world: int, ordered: bool) -> Any:
    arguments = dict.fromkeys(("data", "signals", "wrong"), ("*i32", (1024,)))
    arguments |= {"bases": ("*i64", (world,)), "rank": 3, "rounds": 16}
    fixed = {"PROGRAMS": MANY.programs, "BLOCK": MANY.block, "WORLD": world, "LANES": max(2, world)}
    fixed |= {"AMD": arch.startswith("gfx"), "ORDERED": ordered}
    return compiled(Compilation("litmus", link_device.litmus, arguments, fixed, {"num_warps": 4}), arch)


def defaults(arch: str) -> None:
    """Stores of data are 16 bytes wide, nothing spills, and on AMD the ordered test drains before it raises a flag."""
    for world in (2, 8):
        for binary in (litmus(arch, world, True), litmus(arch, world, False)):
            assert spilled(binary, arch) == 0
            text = binary.asm["amdgcn" if arch.startswith("gfx") else "ptx"]
            wide = r"\b(?:global|flat|buffer)_store_dwordx4" if arch.startswith("gfx") else r"\bst\.global\.v4\.b32"
            assert len(re.findall(wide, text)) >= 1, text[:2000]
    if arch.startswith("gfx"):
        order = r"ASMSTART\s+s_waitcnt vmcnt\(0\)[\s\S]*?s_barrier[\s\S]*?(buffer_wbl2|atomic)"
        assert re.search(order, litmus(arch, 2, True).asm["amdgcn"])
        assert "buffer_wbl2" not in litmus(arch, 2, False).asm["amdgcn"], "the control must not write back"
