"""Inputs that an operator declares live are read anew at every call of every backend that runs on a CPU."""

from __future__ import annotations

import pytest
import torch

from kernels import registry
from kernels.gemm import gemm
from kernels.gemm_all_scatter import gemm_all_scatter
from kernels.grouped_gemm import grouped_gemm_dgrad, grouped_gemm_forward, grouped_gemm_wgrad
from kernels.numerics import compare
from kernels.spec import Case, Kernel, Place

GROUPED = Case("t", dtype="fp32", G=4, M=8, N=16, K=16, routing="balanced")
CASES = {
    gemm: Case("t", dtype="fp16", M=16, N=32, K=32),
    grouped_gemm_forward: GROUPED,
    grouped_gemm_dgrad: GROUPED,
    grouped_gemm_wgrad: GROUPED,
    gemm_all_scatter: Case("t", dtype="fp16", world=1, M=16, N=32, K=32),
}


RUNS = {
    gemm: ("blas", "torch"),
    grouped_gemm_forward: ("loop", "torch_grouped", "torch", "autotune"),
    grouped_gemm_dgrad: ("loop", "torch_grouped", "torch", "autotune"),
    grouped_gemm_wgrad: ("loop", "torch_grouped", "torch", "autotune"),
    gemm_all_scatter: ("blas+rccl", "torch"),
}
"""Backends that a CPU can run; the others need a GPU."""


@pytest.mark.parametrize(
    ("kernel", "backend"),
    [(kernel, name) for kernel, names in RUNS.items() for name in names],
    ids=lambda one: one.name if isinstance(one, Kernel) else one,
)
def test_new_values_give_a_new_result(kernel, backend):
    case = CASES[kernel].at(Place())
    inputs = kernel.function("inputs")(case, 0)
    call = kernel.backends[backend].build(case, inputs, **kernel.backends[backend].knobs(case, "cpu"))
    call()
    for name in kernel.live:
        inputs[name].copy_(torch.randn_like(inputs[name]))
    expected = kernel.function("reference")(case, inputs)
    assert compare(call(), expected, kernel.tolerance_for(case)).ok


def test_these_are_all_operators_with_live_inputs():
    found = registry.discover(["kernels"]).kernels
    assert {name for name, one in found.items() if one.live} == {kernel.name for kernel in CASES}
