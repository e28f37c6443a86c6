"""Every single-GPU operator of ours, executed as it is launched on MI300X and MI355X, against its reference."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.emulation.triton_driver import emulated
from kernels.gemm import gemm
from kernels.grouped_gemm import grouped_gemm_dgrad, grouped_gemm_forward, grouped_gemm_wgrad
from kernels.moe_gemm2_mxfp4 import moe_gemm2_mxfp4
from kernels.numerics import compare, poison
from kernels.spec import Case, Place
from tests.kit import mostly_nightly

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
    "moe 64": (*moe_case(64, 200, 128, 256), {}),
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
