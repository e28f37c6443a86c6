"""Every single-GPU operator of ours, executed as it is launched on MI300X and MI355X, against its reference."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl

from benchmarks.emulation.code_object import NotExecutable
from benchmarks.emulation.operands import Unknown
from benchmarks.emulation.triton_driver import NotEmulated, emulated
from benchmarks.emulation.waves import Fault
from benchmarks.emulation.worker import is_gap
from kernels.gemm import gemm
from kernels.grouped_gemm import grouped_gemm_dgrad, grouped_gemm_forward, grouped_gemm_wgrad
from kernels.moe_gemm2_mxfp4 import moe_gemm2_mxfp4
from kernels.numerics import compare, poison
from kernels.spec import Case, Place
from tests.kit import AUTHOR, HANGS_S, ROOT, git, mostly_nightly

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("emulated_operators")]


ARCHS = ("gfx942", "gfx950")


def gemm_case(m, n, k, dtype="fp16"):
    return gemm, "triton", Case(f"m{m}_n{n}_k{k}_{dtype}", dtype=dtype, M=m, N=n, K=k)


def moe_case(block, tokens, n, k):
    return (
        moe_gemm2_mxfp4,
        "triton_reduce",
        Case(f"bm{block}", dtype="mxfp4", M=tokens, N=n, K=k, E=4, topk=2, BM=block),
    )


CASES = {
    "gemm tails": (*gemm_case(200, 136, 200, "bf16"), {}),
    "gemm one tile": (*gemm_case(16, 64, 128), {}),
    "gemm vector": (*gemm_case(1, 64, 512), {}),
    "gemm split K": (*gemm_case(64, 64, 1024), {"split_k": 4}),
    "grouped forward": (grouped_gemm_forward, "triton", grouped_gemm_forward.case("tiny_extreme"), {}),
    "grouped dgrad": (grouped_gemm_dgrad, "triton", grouped_gemm_dgrad.case("tiny_extreme"), {}),
    "grouped wgrad": (grouped_gemm_wgrad, "triton", grouped_gemm_wgrad.case("tiny_extreme"), {}),
    "moe atomic": (moe_gemm2_mxfp4, "triton_atomic", moe_gemm2_mxfp4.case("tiny_bm16"), {}),
    "moe reduce": (moe_gemm2_mxfp4, "triton_reduce", moe_gemm2_mxfp4.case("tiny_bm16"), {}),
    "moe 32": (*moe_case(32, 40, 256, 512), {}),
    "moe 64": (*moe_case(64, 72, 128, 256), {}),
}


@pytest.mark.parametrize(
    ("name", "arch"), mostly_nightly(itertools.product(CASES, ARCHS), *zip(CASES, itertools.cycle(ARCHS), strict=False))
)
def test_an_operator_is_right_on(name, arch):
    kernel, backend, case, changed = CASES[name]
    case = case.at(Place(device="cpu", arch=arch))
    executed = []
    with emulated(arch, executed.append):
        declared, inputs = kernel.backends[backend], kernel.function("inputs")(case, 1)
        call = declared.build(case, inputs, **{**declared.config(case, arch), **changed})
        poison(call())
        output = call()
    found = compare(output, kernel.function("reference")(case, inputs), kernel.tolerance_for(case))
    assert found.ok, found
    assert {one.arch for one in executed} == {arch}


# Operators of other repositories in the emulator: the template, autotuned kernels, and what an emulator lacks.


TOO_LARGE = triton.Config({"BLOCK": 256}, num_warps=64)
"""4096 lanes: no workgroup of the targets has so many."""


def doubled(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def tuned(*configs):
    return triton.autotune(list(configs), key=["n"])(triton.jit(doubled))


@pytest.mark.parametrize("first", [[], [TOO_LARGE]])
def test_an_autotuned_kernel_is_executed_with_its_first_configuration(first):
    kernel = tuned(*first, *(triton.Config({"BLOCK": block}, num_warps=2) for block in (128, 64)))
    x, out, launched = torch.ones(200), torch.zeros(200), []
    with emulated("gfx942", launched.append):
        for _ in range(2):
            kernel[lambda meta: (triton.cdiv(200, meta["BLOCK"]),)](x, out, 200)
    assert torch.equal(out, 2 * x)
    assert kernel.best_config.kwargs == {"BLOCK": 128}
    assert len(launched) == 2, "nothing is launched to choose"


@triton.jit
def widened(x, out, N: tl.constexpr):
    """Numbers of fp4 (e2m1), two in a byte, as bf16; right for those from 1."""
    byte = tl.load(x + tl.arange(0, N))
    low = ((byte & 0x7).to(tl.uint16) << 6) | ((byte & 0x8).to(tl.uint16) << 12)
    high = ((byte & 0x70).to(tl.uint16) << 2) | ((byte & 0x80).to(tl.uint16) << 8)
    low = tl.where((byte & 0x6) != 0, low + (126 << 7), low)
    high = tl.where((byte & 0x60) != 0, high + (126 << 7), high)
    tl.store(out + tl.arange(0, 2 * N), tl.interleave(low, high).to(tl.bfloat16, bitcast=True))


def test_a_constant_of_packed_integers_has_32_bits():
    x, out = torch.arange(256, dtype=torch.uint8), torch.empty(512, dtype=torch.bfloat16)
    with emulated("gfx942"):
        kernel = widened[(1,)](x, out, 256)
    assert re.search(r"v_pk_add_u16 v\d+, v\d+, 0.5 op_sel:\[0,1\]", kernel.asm["amdgcn"])
    low, high = out.view(256, 2).unbind(1)
    assert low[2:8].tolist() == [1, 1.5, 2, 3, 4, 6]
    assert high[0xA0::16].tolist() == [-1, -1.5, -2, -3, -4, -6]


@triton.jit
def sized(out):
    for axis in tl.static_range(3):
        tl.atomic_add(out + axis, tl.num_programs(axis))


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_kernel_knows_the_size_of_its_grid(arch):
    out = torch.zeros(3, dtype=torch.int32)
    with emulated(arch):
        sized[(5, 3, 2)](out)
    assert out.tolist() == [150, 90, 60], "of each of the 30 workgroups"


def test_what_a_driver_lacks_here_is_named():
    with emulated("gfx950") as driver:
        assert driver.utils.get_device_properties(0)["multiprocessor_count"] == 256
        assert not hasattr(driver, "assemble_tensormap_to_arg")
        with pytest.raises(NotEmulated, match="an emulator of gfx950 has no build_tensormap"):
            driver.build_tensormap()


def raised(call):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it raises is what is looked at
        call()
    return caught.value


def test_only_what_the_operator_does_wrong_is_no_gap_of_the_emulator():
    gaps = [Unknown("V_DOT9"), NotExecutable("two launches"), NotEmulated("no get_empty_cache_for_benchmark()")]
    gaps += [raised(lambda: torch.cuda.current_stream().synchronize())]
    assert [is_gap(error) for error in gaps] == [True] * 4
    own = [Fault("4 bytes outside of every buffer"), TypeError("missing an argument"), raised(lambda: [][1])]
    assert [is_gap(error) for error in own] == [False] * 3


def ridgeline(*words, cwd):
    env = {**os.environ, **AUTHOR, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "ci", *words]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=HANGS_S)


@pytest.mark.nightly
@pytest.mark.parametrize("idiom", ['place.arch == "cpu"', 'place.device == "cpu"'])
def test_the_template_is_executed_on_both_targets_and_a_wrong_tail_is_found(tmp_path, idiom):
    git(tmp_path, "init", "-qb", "main")
    assert ridgeline("init", cwd=tmp_path).returncode == 0
    operator = tmp_path / "perf" / "rms_norm.py"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    source = operator.read_text().replace('place.arch == "cpu"', idiom)
    operator.write_text(source)
    both = ("verify", "--arch", "gfx942", "--arch", "gfx950", "--out", str(tmp_path / "checks.jsonl"))
    right = ridgeline(*both, cwd=tmp_path)
    assert right.returncode == 0, right.stderr
    for target in ("gfx942", "gfx950"):
        assert f"rms_norm/triton on {target}: 1 of 1 right" in right.stdout
    operator.write_text(source.replace("inside = column < columns", "inside = column < columns - columns % 16"))
    wrong = ridgeline(*both, cwd=tmp_path)
    assert wrong.returncode == 1, wrong.stdout
    for target in ("gfx942", "gfx950"):
        assert f"rms_norm r7_c1000 triton on {target}: wrong: " in wrong.stderr
