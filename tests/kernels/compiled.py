"""Run by test_ahead_of_time.py in a process per architecture: compile what the pull-request cases launch, no GPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.all_gather import all_gather
from kernels.gemm import gemm
from kernels.hardware import lds_limit
from kernels.spec import Compilation

_SHORT = {torch.float16: "fp16", torch.bfloat16: "bf16"}

TARGETS = {
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx950": GPUTarget("hip", "gfx950", 64),
    "sm_90": GPUTarget("cuda", 90, 32),
}


def compiled(job: Compilation, arch: str) -> Any:
    """Compile as a launch would: pointers and sizes that are multiples of 16 are known to be."""
    names, signature, hints = job.function.arg_names, {}, {}
    for index, name in enumerate(names):
        value = job.arguments.get(name)
        kind = "constexpr" if name in job.constants else _kind(value)
        signature[name] = kind
        if kind.startswith("*") or (kind == "i32" and value % 16 == 0):
            hints[index,] = [["tt.divisibility", 16]]
    constants = {(names.index(name),): value for name, value in job.constants.items()}
    source = ASTSource(job.function, signature, constexprs=constants, attrs=hints)
    return triton.compile(source, target=TARGETS[arch], options=dict(job.options))


def _kind(value: Any) -> str:
    """Triton's name of an argument's type."""
    if isinstance(value, TensorDescriptor):
        return f"tensordesc<{_SHORT[value.base.dtype]}{value.block_shape}>"
    return value[0] if isinstance(value, tuple) else "i32"


def spilled(binary: Any, arch: str) -> int:
    """Vector and scalar registers spilled (AMD), bytes of stack per thread (NVIDIA)."""
    if arch.startswith("gfx"):
        return sum(int(count) for count in re.findall(r"\.[sv]gpr_spill_count: *(\d+)", binary.asm["amdgcn"]))
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"STACK:(\d+)", said)[0])


def chooses_pointers(binary: Any) -> bool:
    """Whether a pointer is chosen from two, which Triton 3.6 cannot compile for AMD; the version here may."""
    return any("arith.select" in line and "!tt.ptr" in line for line in binary.asm["ttir"].splitlines())


def jobs(kernel: Any, arch: str) -> dict[str, Compilation]:
    """What the kernel's pull-request cases compile, each distinct job once, by case."""
    found: dict[str, Compilation] = {}
    for case in kernel.cases:
        if case.tier == "pr":
            for job in kernel.compilations["triton"](case, arch):
                if (job.constants, job.options) not in [(j.constants, j.options) for j in found.values()]:
                    found[case.name] = job
    return found


def defaults_fit(arch: str) -> None:
    """No default configuration spills or asks for more LDS than a workgroup can have."""
    for kernel in (gemm, all_gather):
        for case, job in jobs(kernel, arch).items():
            binary = compiled(job, arch)
            assert binary.metadata.shared <= lds_limit(arch), (case, binary.metadata.shared)
            assert spilled(binary, arch) == 0, (case, spilled(binary, arch))
            assert not chooses_pointers(binary), case


def pushes_16_bytes(arch: str) -> None:
    """Every store of data to a peer moves 16 bytes a lane; the one narrow store left is the call counter."""
    for case, job in jobs(all_gather, arch).items():
        binary = compiled(job, arch)
        if arch.startswith("gfx"):
            text, pattern = binary.asm["amdgcn"], r"\b(?:global|flat|buffer)_store_(\w+)"
            wide, narrow = "dwordx4", ["dword"]
        else:
            text, pattern = binary.asm["ptx"], r"\bst\.global(?:\.c[gs]|\.wt)?\.(v4\.b32|\w+)"
            wide, narrow = "v4.b32", ["b32"]
        widths = re.findall(pattern, text)
        assert widths.count(wide) >= job.constants["FANOUT"], (case, widths)
        assert [w for w in widths if w != wide] == narrow, (case, widths)


def stores_are_drained(arch: str) -> None:
    """On AMD every wave waits for its own stores before the barrier in front of the release."""
    for kernel in (gemm, all_gather):
        for case, job in jobs(kernel, arch).items():
            if job.constants.get("SPLIT_K", 2) == 1 or job.label == "vector":
                continue
            text = compiled(job, arch).asm["amdgcn"]
            order = r"ASMSTART\s+s_waitcnt vmcnt\(0\)[\s\S]*?s_barrier[\s\S]*?(buffer_wbl2|atomic)"
            assert re.search(order, text), case


def uses_the_copy_engine_and_wgmma(arch: str) -> None:
    """Hopper: large shapes run on wgmma, fed by TMA."""
    job = jobs(gemm, arch)["n4096_k4096_m1024_fp16"]
    ptx = compiled(job, arch).asm["ptx"]
    assert "wgmma.mma_async.sync.aligned.m64n256k16" in ptx
    assert "cp.async.bulk.tensor" in ptx
