"""The declaration is complete and costs what the formula says; the CPU backends are right."""

from __future__ import annotations

import pytest
import torch

from kernels import spec
from kernels.gemm import config, gemm, vendors
from kernels.numerics import compare, poison
from kernels.registry import discover
from kernels.spec import Case, Place
from tests.kernels.fake_ranks import all_right
from tests.kernels.ranks import run_alone

SMALL = Case("small", M=5, N=48, K=40, dtype="fp16").at(Place())
MODULE = "tests.kernels.test_gemm"


def test_declared_once_with_the_tiers():
    gemm.check()
    assert discover()["gemm"] is gemm
    tiers = [case.tier for case in gemm.cases]
    assert [tiers.count(tier) for tier in spec.TIERS] == [10, 46, 48]
    assert {case.M for case in gemm.cases if case.tier == "pr"} == {1, 16, 64, 256, 1024, 4096, 8192}
    assert gemm.baselines == ("blas",)
    for case in gemm.cases:
        assert case.name == f"n{case.N}_k{case.K}_m{case.M}_{case.dtype}"


def test_cost_is_the_formula():
    found = gemm.function("cost")(gemm.case("n4096_k14336_m64_fp16"))
    assert found.flops == 2 * 64 * 4096 * 14336
    assert found.hbm_bytes == 2 * (64 * 14336 + 4096 * 14336 + 64 * 4096)
    assert (found.link_bytes, found.payload_bytes) == (0, 0)


@pytest.mark.parametrize("backend", ["torch", "blas"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_cpu_backends_against_the_reference(backend, dtype):
    case = Case("t", M=5, N=48, K=40, dtype=dtype).at(Place())
    inputs = gemm.function("inputs")(case, 3)
    call = gemm.backends[backend].build(case, inputs)
    first = call()
    poison(first)
    again = call()
    assert again.data_ptr() == first.data_ptr()
    found = compare(again, gemm.function("reference")(case, inputs), gemm.tolerance_for(case))
    assert found.ok, found.why


def test_reference_is_the_textbook_sum_and_restores_tf32():
    inputs = gemm.function("inputs")(SMALL, 1)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        expected = gemm.function("reference")(SMALL, inputs)
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    a, w = inputs["a"].double(), inputs["w"].double()
    textbook = torch.stack([torch.stack([(a[m] * w[n]).sum() for n in range(48)]) for m in range(5)])
    assert float((expected - textbook).abs().max()) < 1e-4


def test_tolerance_sees_a_lost_slice_of_k_and_a_swapped_tile():
    case = Case("t", M=64, N=64, K=4096, dtype="fp16").at(Place())
    inputs = gemm.function("inputs")(case, 1)
    expected = gemm.function("reference")(case, inputs)
    right = expected.half()
    assert compare(right, expected, gemm.tolerance_for(case)).ok
    lost = (inputs["a"][:, 16:].float() @ inputs["w"][:, 16:].float().T).half()
    assert not compare(lost, expected, gemm.tolerance_for(case)).ok
    swapped = torch.cat([right[:32].roll(16, 0), right[32:]])
    assert not compare(swapped, expected, gemm.tolerance_for(case)).ok


def test_unsupported_says_what_is_needed():
    build = gemm.backends["triton"].build
    with pytest.raises(spec.Unsupported, match="GPU is needed"):
        build(SMALL, gemm.function("inputs")(SMALL, 0))
    big = gemm.case("n8192_k28672_m1024_bf16").at(Place())
    for backend in ("torch", "blas"):
        with pytest.raises(spec.Unsupported, match="481 GFLOP"):
            gemm.backends[backend].build(big, {})
    with pytest.raises(spec.Unsupported, match="baseline blas"):
        gemm.backends["torch"].build(big.at(Place(device="cuda:0", arch="sm_90")), {})
    with pytest.raises(spec.Unsupported, match=r"sm_75.*config\.py"):
        config.config(big, "sm_75")


@pytest.mark.parametrize("arch", ["sm_90", "gfx942", "gfx950"])
def test_every_candidate_is_made_of_known_knobs(arch):
    backend = gemm.backends["triton"]
    for case in gemm.cases:
        tried = config.candidates(case, arch)
        assert 4 <= len(tried) <= 24, (case.name, len(tried))
        assert tried[0] == config.config(case, arch)
        for knobs in tried:
            backend.knobs(case, arch, knobs)
            if knobs["variant"] == "split":
                assert case.K // (knobs["split_k"] * knobs["block_k"]) >= 1, (case.name, knobs)


def test_an_unknown_knob_is_refused():
    with pytest.raises(spec.DeclarationError, match="block_q"):
        gemm.backends["triton"].knobs(SMALL, "sm_90", {"block_q": 3})


@pytest.mark.slow
@pytest.mark.parametrize("check", ["split_and_tails", "descriptors", "one_token", "counters_clear_themselves"])
def test_in_the_interpreter(check):
    run_alone(MODULE, check, TRITON_INTERPRET="1")


def test_threads_are_those_of_one_call_and_restored_for_the_others():
    case = Case("t", M=5, N=48, K=40, dtype="fp16").at(Place())
    inputs = gemm.function("inputs")(case, 3)
    before, seen = torch.get_num_threads(), []
    plain = gemm.backends["torch"].build(case, inputs)()
    limited = gemm.backends["torch"].build(case, inputs, threads=1)
    assert torch.equal(limited(), plain)
    assert torch.get_num_threads() == before
    counted = vendors._in_threads(lambda: seen.append(torch.get_num_threads()), before + 1)
    counted()
    assert (seen, torch.get_num_threads()) == ([before + 1], before)
    failing = vendors._in_threads(lambda: 1 / 0, before + 1)
    with pytest.raises(ZeroDivisionError):
        failing()
    assert torch.get_num_threads() == before
    with pytest.raises(spec.Unsupported, match="-1 threads; give 1 or more"):
        gemm.backends["torch"].build(case, inputs, threads=-1)


# Run by test_gemm.py in a process with TRITON_INTERPRET=1: the kernels' arithmetic on a CPU, tails included.


PLACE = Place(compute_units=3)


def right(m: int, n: int, k: int, **knobs: object) -> None:
    """Two calls into a poisoned output match the reference."""
    case = Case("t", M=m, N=n, K=k, dtype="fp16").at(PLACE)
    inputs = gemm.function("inputs")(case, 7)
    expected = gemm.function("reference")(case, inputs)
    call = gemm.backends["triton"].build(case, inputs, **knobs)
    all_right([call], expected, gemm.tolerance_for(case), m, n, k, knobs)


def split_and_tails() -> None:
    right(33, 70, 136, variant="split", block_m=32, block_n=32, block_k=32)
    right(33, 70, 136, variant="split", block_m=32, block_n=32, block_k=32, split_k=2, xcds=4, group_m=2)
    right(33, 64, 128, variant="split", block_m=16, block_n=64, block_k=32, split_k=4, swap=True)
    right(5, 64, 96, variant="split", block_m=16, block_n=32, block_k=64, split_k=2)


def descriptors() -> None:
    for parts, flatten in ((1, True), (2, False), (4, True), (0, True)):
        right(
            70,
            96,
            136,
            variant="persistent",
            block_m=32,
            block_n=32,
            block_k=32,
            parts=parts,
            flatten=flatten,
            group_m=2,
        )
    for parts in (0, 1):
        right(70, 96, 136, variant="specialized", block_m=32, block_n=32, block_k=32, parts=parts)
    right(40, 72, 136, variant="split", block_m=32, block_n=32, block_k=32, split_k=2, tma=True)
    right(16, 72, 136, variant="split", block_m=16, block_n=64, block_k=64, split_k=1, tma=True, swap=True)


def one_token() -> None:
    right(1, 70, 200, variant="vector", block_n=8, block_k=64)
    right(1, 64, 256, variant="vector", block_n=16, block_k=128)


def counters_clear_themselves() -> None:
    """The slice that finishes a tile leaves its counter at 0: seen from the workspace of a built call."""
    case = Case("t", M=32, N=64, K=128, dtype="fp16").at(PLACE)
    inputs = gemm.function("inputs")(case, 1)
    call = gemm.backends["triton"].build(case, inputs, variant="split", block_m=32, block_n=32, block_k=32, split_k=4)
    arguments = next(cell.cell_contents for cell in call.__closure__ or () if isinstance(cell.cell_contents, dict))
    for _ in range(3):
        call()
        assert arguments["arrivals"].tolist() == [0, 0]
    arguments["arrivals"][0] = 1  # as if the call before had not cleared it
    poison(arguments["workspace"])
    early = call().clone()
    assert early[:, :32].isnan().all(), "a counter that was not cleared goes unseen"
