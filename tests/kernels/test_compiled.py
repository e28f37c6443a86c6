"""Defaults compile for every architecture without a GPU, fit it, and store wide and in order; knobs reach the code."""

from __future__ import annotations

import functools
import itertools
import re
import tempfile
from pathlib import Path

import pytest

from benchmarks.isa.__main__ import finish, will_not_load
from benchmarks.isa.compile import Compiler, specialise
from kernels.registry import discover
from tests.kernels.ranks import run_alone
from tests.kit import mostly_nightly


@functools.cache
def compiler(arch):
    return Compiler(arch, Path(tempfile.gettempdir()))


def compiled(job, arch):
    """A job as a launch would compile it, and its metrics."""
    binary = compiler(arch)._compiled(specialise(job))
    return binary, finish(compiler(arch)._read(binary)[0]["metrics"], arch)


def fitting(job, arch, where):
    """The same of one that can be loaded and does not spill."""
    binary, metrics = compiled(job, arch)
    assert will_not_load(metrics, arch) is None, where
    assert not any(metrics.get(name) for name in ("vgpr_spills", "sgpr_spills", "scratch_bytes")), (where, metrics)
    return binary, metrics


def drained(binary, where):
    """AMD: every wave waits for its own stores before the barrier in front of the release."""
    order = r"s_waitcnt vmcnt\(0\)[\s\S]*?ASMEND[\s\S]*?s_barrier[\s\S]*?(buffer_wbl2|atomic)"
    assert re.search(order, binary.asm["amdgcn"]), where


# ---- defaults --------------------------------------------------------------------------------------------------------

OPERATORS = ("gemm", "all_gather", "gemm_all_scatter", "all_reduce", "reduce_scatter", "all_to_all")


def operator(name):
    return discover()[name]


def jobs(arch):
    """What the pull-request cases and one of 8 ranks compile, each distinct job once, by a name.

    On AMD the others of 8 ranks are compiled by tests/ci/isa/test_own_kernels.py, and looked at by their metrics.
    """
    for name in OPERATORS:
        kernel, seen = operator(name), []
        for case, backend in itertools.product(kernel.cases, kernel.compilations):
            if not _chosen(name, case, backend, arch):
                continue
            for job in kernel.compilations[backend](case, arch):
                fixed = {key: value for key, value in job.constants.items() if key not in ("PROGRAMS", "ROW")}
                if (job.label, fixed, job.options) not in seen:
                    seen.append((job.label, fixed, job.options))
                    yield f"{name}/{backend}/{case.name}", job


def _chosen(name, case, backend, arch):
    if backend in ("partitioned", "gluon"):
        return case.name in ("w4_fp16_8MB", "w8_fp32_512MB")
    if name in ("gemm", "all_gather"):
        return case.tier == "pr" and backend == "triton"
    if case.name.endswith(("w8_bf16_256MB", "n8192_k28672_m1024_bf16_w8")):
        return True
    return case.tier == "pr" and not (case.world == 8 and arch.startswith("gfx"))


def pushes(arch):
    """What a sweep tries of all_reduce by stores alone, which no default is so far: small, large, and for 8 ranks."""
    from kernels.all_reduce import all_reduce, config, device

    for name in ("w2_fp32_4MB", "w4_fp16_256MB", "w8_bf16_256MB"):
        case = all_reduce.case(name)
        tried = [knobs for knobs in config.candidates(case, arch) if knobs["algorithm"] == "two_shot_push"]
        for knobs in tried[::4]:
            full = {**all_reduce.backends["triton"].build.__kwdefaults__, **knobs}
            yield f"all_reduce/triton/{name}", device.compilation(case, arch, full)


def defaults_fit(arch):
    """Every default fits, chooses no pointer from two, and stores what it sends wide and before it says so."""
    count = 0
    for name, job in itertools.chain(jobs(arch), pushes(arch)):
        binary, metrics = fitting(job, arch, name)
        lines = binary.asm.get("ttir", "").splitlines()  # Triton 3.6 cannot compile such a choice for AMD
        assert not any("arith.select" in line and "!tt.ptr" in line for line in lines), name
        if not name.startswith("gemm/"):
            _wide(name, job, metrics["store_widths"], arch)
        signals = not name.startswith("gemm/") or (job.constants.get("SPLIT_K", 2) > 1 and job.label != "vector")
        if arch.startswith("gfx") and signals:
            drained(binary, name)
        if job.label == "two_shot_push" and arch == "sm_90":
            _chunks_are_released_and_acquired(name, binary)
        count += 1
    assert count >= 30, count


def _wide(name, job, widths, arch):
    """16 bytes a lane.  Scalars are 4 bytes wide: the counter of calls and, not in all_gather, that of slices.

    AMD's matrix units leave 4 neighbouring elements in a lane, so the own copy of a tile may go out 8 bytes at a time.
    """
    tile = arch.startswith("gfx") and name.startswith("gemm_all_scatter/") and "/bulk/" not in name
    assert "16" in widths or tile, (name, widths)
    assert widths.keys() <= {"16", "4", *(["8"] if tile else [])}, (name, widths)
    if name.startswith("all_gather/"):
        assert widths["16"] >= job.constants.get("FANOUT", 1), (name, widths)
        assert widths["4"] == 1, (name, widths)
    assert widths.get("4", 0) <= 2, (name, widths)


def _chunks_are_released_and_acquired(name, binary):
    """All threads are between their stores and the one release, and between the acquire and their loads."""
    steps = r"ld\.global\.cg|st\.global\.v4|bar\.sync|release\.exch|acquire\.add"
    order = " ".join(re.findall(steps, binary.asm["ptx"]))
    assert re.search(
        r"st\.global\.v4 (bar\.sync )+release\.exch (bar\.sync )+acquire\.add (bar\.sync )+ld\.global\.cg", order
    ), (name, order)


# ---- knobs -----------------------------------------------------------------------------------------------------------


def knobs_reach_the_code(arch):
    """What knobs change of the code, beside the defaults; in one process: importing takes as long as a check."""
    hint_is_what_makes_stores_wide(arch)
    if arch == "sm_90":
        uses_the_copy_engine_and_wgmma()
        copies_are_waited_for()


def hint_is_what_makes_stores_wide(arch):
    """Without the hint the same stores to peers shrink to single elements: so the check of widths can fail."""
    from kernels.gemm_all_scatter import config, device, gemm_all_scatter

    case = gemm_all_scatter.case("n4608_k36864_m8192_fp16_w4")
    knobs = {**gemm_all_scatter.backends["triton"].build.__kwdefaults__, **config.config(case, arch), "hint": False}
    assert "2" in compiled(device.compilation(case, arch, knobs), arch)[1]["store_widths"]


def uses_the_copy_engine_and_wgmma():
    """Hopper: large shapes run on wgmma, fed by TMA."""
    kernel = operator("gemm")
    (job,) = kernel.compilations["triton"](kernel.case("n4096_k4096_m1024_fp16"), "sm_90")
    ptx = compiled(job, "sm_90")[0].asm["ptx"]
    assert "wgmma.mma_async.sync.aligned.m64n256k16" in ptx
    assert "cp.async.bulk.tensor" in ptx


def copies_are_waited_for():
    """Scatter by the copy engine: before the flags go out its writes are complete, not only their source read."""
    from kernels.gemm_all_scatter import device, gemm_all_scatter

    knobs = {**gemm_all_scatter.backends["triton"].build.__kwdefaults__, "scatter": "tma", "tma": True}
    for name in ("n8192_k28672_m1024_bf16_w2", "n4608_k36864_m8192_fp16_w8"):
        case = gemm_all_scatter.case(name)
        ptx = re.sub(r"\n\s*\.loc[^\n]*", "", compiled(device.compilation(case, "sm_90", knobs), "sm_90")[0].asm["ptx"])
        assert len(re.findall(r"cp\.async\.bulk\.tensor\.2d\.global\.shared", ptx)) % case.world == 0
        order = r"cp\.async\.bulk\.wait_group 0;\s+fence\.proxy\.async;[\s\S]*bar\.sync[\s\S]*release\.exch"
        assert re.search(order, ptx), name
        assert not re.search(r"cp\.async\.bulk\.tensor\.2d\.global", ptx[ptx.index("fence.proxy.async;") :]), name


# ---- a process per architecture --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("arch", mostly_nightly(["gfx942", "gfx950", "sm_90"], "gfx942"))
@pytest.mark.parametrize("check", mostly_nightly(["defaults_fit", "knobs_reach_the_code"], "knobs_reach_the_code"))
def test_code_for(check, arch):
    run_alone("tests.kernels.test_compiled", check, arch)
