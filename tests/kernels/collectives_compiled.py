"""Run by test_collectives_compiled.py in a process per architecture: compile what is launched, no GPU."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Iterator
from typing import Any

from kernels.hardware import lds_limit
from kernels.spec import Compilation
from tests.kernels.compiled import chooses_pointers, compiled, spilled

OPERATORS = ("gemm_all_scatter", "all_reduce", "reduce_scatter", "all_to_all")


def jobs(arch: str) -> Iterator[tuple[str, Compilation]]:
    """What the pull-request cases and one of 8 ranks compile, each distinct job once, by a name.

    On AMD the others of 8 ranks are compiled by tests/ci/isa/test_own_kernels.py, and looked at by their metrics.
    Unguarded backends: one case for each number of ranks.  Their code is that of the guarded ones less a wait.
    """
    for name in OPERATORS:
        kernel, seen, unguarded = getattr(importlib.import_module(f"kernels.{name}"), name), [], set()
        for case in kernel.cases:
            elsewhere = case.tier != "pr" or (case.world == 8 and arch.startswith("gfx"))
            if elsewhere and not case.name.endswith(("w8_bf16_256MB", "n8192_k28672_m1024_bf16_w8")):
                continue
            for backend in kernel.compilations:
                if backend == "triton_unguarded":
                    if case.world in unguarded:
                        continue
                    unguarded.add(case.world)
                for job in kernel.compilations[backend](case, arch):
                    fixed = {key: value for key, value in job.constants.items() if key not in ("PROGRAMS", "ROW")}
                    if (job.label, fixed, job.options) not in seen:
                        seen.append((job.label, fixed, job.options))
                        yield f"{name}/{backend}/{case.name}", job


def pushes(arch: str) -> Iterator[tuple[str, Compilation]]:
    """What a sweep tries of all_reduce by stores alone, which no default is so far: small, large, and for 8 ranks."""
    from kernels.all_reduce import all_reduce, config, launch

    for name in ("w2_fp32_4MB", "w4_fp16_256MB", "w8_bf16_256MB"):
        case = all_reduce.case(name)
        tried = [knobs for knobs in config.candidates(case, arch) if knobs["algorithm"] == "two_shot_push"]
        for knobs in tried[::4]:
            yield (
                f"all_reduce/{name}",
                launch.compilation(case, arch, {**all_reduce.backends["triton"].build.__kwdefaults__, **knobs}),
            )


def defaults_fit(arch: str) -> None:
    """No spill, no more LDS than a workgroup has, and no store of data narrower than 8 bytes a lane.

    Two scalars are 4 bytes wide: the counter of calls and that of slices.  On Hopper all data moves 16 bytes a lane;
    AMD's matrix units leave 4 neighbouring elements in a lane, so the own copy of a tile may go out 8 bytes at a time.
    """
    count = 0
    for case, job in itertools.chain(jobs(arch), pushes(arch)):
        binary = compiled(job, arch)
        assert binary.metadata.shared <= lds_limit(arch), (case, binary.metadata.shared)
        assert spilled(binary, arch) == 0, (case, spilled(binary, arch))
        assert not chooses_pointers(binary), case
        _wide(case, binary, arch)
        _drained(case, job, binary, arch)
        if job.label == "two_shot_push" and arch == "sm_90":
            _chunks_are_released_and_acquired(case, binary)
        count += 1
    assert count >= 20, count


def _wide(case: str, binary: Any, arch: str) -> None:
    if arch.startswith("gfx"):
        found = re.findall(r"\b(?:global|flat|buffer)_store_(\w+)", binary.asm["amdgcn"])
        allowed = {"dwordx4", "dwordx2", "dword"}
        scalars = found.count("dword")
    else:
        found = re.findall(r"\bst\.global(?:\.\w+)*?\.((?:v\d\.)?b\d+)", binary.asm["ptx"])
        allowed = {"v4.b32", "b32"}
        scalars = found.count("b32")
    assert found, case
    assert set(found) <= allowed, (case, found)
    assert scalars <= 2, (case, found)
    if "/bulk/" in case or not case.startswith("gemm"):
        assert "dwordx2" not in found, (case, found)


def _drained(case: str, job: Compilation, binary: Any, arch: str) -> None:
    """AMD: every wave waits for its own stores before the barrier in front of the release."""
    if arch.startswith("gfx"):
        order = r"ASMSTART\s+s_waitcnt vmcnt\(0\)[\s\S]*?s_barrier[\s\S]*?(buffer_wbl2|atomic)"
        assert re.search(order, binary.asm["amdgcn"]), case


def _chunks_are_released_and_acquired(case: str, binary: Any) -> None:
    """All threads are between their stores and the one release, and between the acquire and their loads."""
    steps = r"ld\.global\.cg|st\.global\.v4|bar\.sync|release\.exch|acquire\.add"
    order = " ".join(re.findall(steps, binary.asm["ptx"]))
    assert re.search(
        r"st\.global\.v4 bar\.sync release\.exch (bar\.sync )+acquire\.add (bar\.sync )+ld\.global\.cg", order
    ), (case, order)


def copies_are_waited_for(arch: str) -> None:
    """Scatter by the copy engine: before the flags go out its writes are complete, not only their source read."""
    from kernels.gemm_all_scatter import gemm_all_scatter, launch

    knobs = {**gemm_all_scatter.backends["triton"].build.__kwdefaults__, "scatter": "tma", "tma": True}
    for name in ("n8192_k28672_m1024_bf16_w2", "n4608_k36864_m8192_fp16_w8"):
        case = gemm_all_scatter.case(name)
        ptx = re.sub(r"\n\s*\.loc[^\n]*", "", compiled(launch.compilation(case, arch, knobs), arch).asm["ptx"])
        assert len(re.findall(r"cp\.async\.bulk\.tensor\.2d\.global\.shared", ptx)) % case.world == 0
        order = r"cp\.async\.bulk\.wait_group 0;\s+fence\.proxy\.async;[\s\S]*bar\.sync[\s\S]*release\.exch"
        assert re.search(order, ptx), name
        assert not re.search(r"cp\.async\.bulk\.tensor\.2d\.global", ptx[ptx.index("fence.proxy.async;") :]), name


def hint_is_what_makes_stores_wide(arch: str) -> None:
    """Without the hint the same stores to peers shrink to single elements: so the check above can fail."""
    from kernels.gemm_all_scatter import config, gemm_all_scatter, launch

    case = gemm_all_scatter.case("n4608_k36864_m8192_fp16_w4")
    knobs = {**gemm_all_scatter.backends["triton"].build.__kwdefaults__, **config.config(case, arch), "hint": False}
    binary = compiled(launch.compilation(case, arch, knobs), arch)
    narrow = "global_store_short" if arch.startswith("gfx") else "st.global.b16"
    assert narrow in binary.asm["amdgcn" if arch.startswith("gfx") else "ptx"]


def other_checks() -> None:
    """In one process: importing takes as long as a check."""
    copies_are_waited_for("sm_90")
    for arch in ("gfx942", "sm_90"):
        hint_is_what_makes_stores_wide(arch)
