"""Run by test_all_gather.py in a process per architecture: compile what `partitioned` and `gluon` launch, no GPU."""

from __future__ import annotations

import re
from typing import Any

import triton
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

from kernels.all_gather import all_gather
from kernels.hardware import lds_limit
from kernels.spec import Compilation
from tests.kernels.compiled import TARGETS, spilled

CASES = ("w4_fp16_8MB", "w8_fp32_512MB")


def compiled(job: Compilation, arch: str) -> Any:
    """Compile as a launch would, Triton or Gluon: pointers, and sizes that are multiples of 16, are known to be."""
    names, signature, hints = job.function.arg_names, {}, {}
    for index, name in enumerate(names):
        value = job.arguments.get(name)
        signature[name] = "constexpr" if name in job.constants else value[0] if isinstance(value, tuple) else "i32"
        if isinstance(value, tuple) or (value is not None and value % 16 == 0):
            hints[index,] = [["tt.divisibility", 16]]
    constants = {(names.index(name),): value for name, value in job.constants.items()}
    kind = GluonASTSource if isinstance(job.function, GluonJITFunction) else ASTSource
    source = kind(job.function, signature, constexprs=constants, attrs=hints)
    return triton.compile(source, target=TARGETS[arch], options=dict(job.options))


def stored_widths(binary: Any, arch: str) -> list[int]:
    """Bytes a lane of every store to global memory."""
    if arch.startswith("gfx"):
        words = re.findall(r"\b(?:global|flat|buffer)_store_(\w+)", binary.asm["amdgcn"])
        return [{"dwordx4": 16, "dwordx2": 8, "dword": 4}.get(word, 0) for word in words]
    words = re.findall(r"\bst\.global\S*?\.(v4\.b32|v2\.b32|b\d+)", binary.asm["ptx"])
    return [{"v4.b32": 16, "v2.b32": 8, "b32": 4}.get(word, 0) for word in words]


def stores_16_bytes(arch: str) -> None:
    """Defaults: nothing spills, LDS suffices, every remote store moves 16 bytes a lane; one count is 4 bytes wide."""
    for backend in ("partitioned", "gluon"):
        for name in CASES:
            (job,) = all_gather.compilations[backend](all_gather.case(name), arch)
            binary = compiled(job, arch)
            where = (backend, name)
            assert binary.metadata.shared <= lds_limit(arch), where
            assert spilled(binary, arch) == 0, where
            assert set(stored_widths(binary, arch)) == {16, 4}, (where, stored_widths(binary, arch))
            assert stored_widths(binary, arch).count(4) == 1, where
            if arch.startswith("gfx"):
                order = r"s_waitcnt vmcnt\(0\)[\s\S]*?ASMEND[\s\S]*?s_barrier[\s\S]*?(buffer_wbl2|atomic)"
                assert re.search(order, binary.asm["amdgcn"]), where


def knobs_reach_the_code(arch: str) -> None:
    """Large tile without spills; runs of a whole lane and rows of a matrix still move 16 bytes; 4 asked, 4 stored."""
    case = all_gather.case("w4_fp16_512MB")
    for knobs, widest in (
        ({"rows": 32, "columns": 1024, "num_warps": 8}, 16),
        ({"vector": 0}, 16),
        ({"width": 4096}, 16),
        ({"vector": 4}, 4),
    ):
        (job,) = all_gather.compilations["gluon"](case, arch, **knobs)
        binary = compiled(job, arch)
        assert spilled(binary, arch) == 0, knobs
        assert set(stored_widths(binary, arch)) == {widest, 4}, (knobs, stored_widths(binary, arch))


def check(arch: str) -> None:
    """All of it, in one process."""
    stores_16_bytes(arch)
    knobs_reach_the_code(arch)
