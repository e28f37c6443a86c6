"""The declaration is complete; CPU backends and the kernels in the interpreter are right; bad input is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels import spec
from kernels._shared.units import compute_units
from kernels.gemm_all_scatter import config, gemm_all_scatter, launch
from kernels.numerics import compare, poison
from kernels.registry import discover
from kernels.spec import Case, Place
from kernels.symmetric_heap import HeapError
from tests.kernels.fake_ranks import FakeRanks, all_right
from tests.kernels.ranks import run_alone

MODULE = "tests.kernels.test_gemm_all_scatter"


def test_declared_once_with_the_tiers():
    gemm_all_scatter.check()
    assert discover()["gemm_all_scatter"] is gemm_all_scatter
    often = [case for case in gemm_all_scatter.cases if case.tier == "pr"]
    assert [sum(case.world == world for case in often) for world in (2, 4, 8)] == [6, 6, 6]
    shapes = 4 * 5 + 6 + 1
    swept = 3 * 3 * 6
    weak = 2 * (1 + 1 + 1)
    assert len(gemm_all_scatter.cases) == 3 * 2 * shapes + 4 * (shapes + 3 * 6) + swept + weak
    assert gemm_all_scatter.baselines == ("blas+rccl", "blas+rccl_most_channels", "blas+rccl_registered")
    for case in gemm_all_scatter.cases:
        if config.share_of(case):
            assert case.name == f"n{case.N * case.of}_k{case.K}_m{case.M}_fp16_w1of{case.of}"
            assert (case.world, case.tier) == (1, "sweep")
        else:
            assert case.name == f"n{case.N}_k{case.K}_m{case.M}_{case.dtype}_w{case.world}"
    assert "`triton_unguarded` promises less" in discover()["gemm_all_scatter"].doc


def test_cost_per_rank_adds_up_to_the_headline():
    case = gemm_all_scatter.case("n4608_k36864_m8192_fp16_w4")
    found = gemm_all_scatter.function("cost")(case)
    assert found.flops * 4 == 2 * 8192 * 4608 * 36864
    assert found.link_bytes == 3 * 8192 * 1152 * 2
    assert found.hbm_bytes == 2 * (8192 * 36864 + 1152 * 36864 + 8192 * 4608)
    assert found.payload_bytes == 8192 * 4608 * 2


def test_reference_is_the_whole_product_and_shows_a_swap():
    case = Case("t", world=2, dtype="fp16", M=4, N=16, K=40)
    weights, inputs = [], None
    for rank in range(2):
        inputs = gemm_all_scatter.function("inputs")(case.at(Place(rank=rank, world=2)), 1)
        weights.append(inputs["w"])
    placed = case.at(Place(rank=1, world=2))
    expected = gemm_all_scatter.function("reference")(placed, inputs)
    whole = inputs["a"].double() @ torch.cat(weights).double().T
    assert float((expected - whole).abs().max()) < 1e-4
    swapped = torch.cat([expected[:, 8:], expected[:, :8]], dim=1)
    assert not compare(swapped, expected, gemm_all_scatter.tolerance_for(case)).ok


def test_a_share_is_launched_as_the_whole_operator_unless_it_has_a_key_of_its_own(monkeypatch):
    for arch in ("sm_90", "gfx942", "gfx950"):
        for case in gemm_all_scatter.cases:
            if config.share_of(case) > 1:
                whole = gemm_all_scatter.case(case.name.replace("w1of", "w"))
                assert config.config(case, arch) == config.config(whole, arch), (case.name, arch)
                assert config.tiles(case, 128, 64) == config.tiles(whole, 128, 64)
    share = gemm_all_scatter.case("n4096_k4096_m64_fp16_w1of4")
    assert config.shape(share) == "w1of4_n4096_k4096_m64"
    monkeypatch.setitem(config.TUNED["sm_90"], config.shape(share), {"block_m": 16})
    assert config.config(share, "sm_90") == {"cut": "all", "block_m": 16}
    assert config.rule(share, "sm_90")["block_m"] == 64


def test_a_share_costs_a_ranks_product_and_no_link():
    cost = gemm_all_scatter.function("cost")
    share, whole = (cost(gemm_all_scatter.case(f"n4096_k4096_m64_fp16_w{end}")) for end in ("1of4", "4"))
    assert share.flops == whole.flops
    assert share.link_bytes == 0


def test_one_rank_alone_on_a_cpu():
    """torch and the library's product need no heap and no group; the others say that nothing is to do."""
    case = Case("t", dtype="fp16", M=5, N=24, K=40, of=4).at(Place())
    inputs = gemm_all_scatter.function("inputs")(case, 11)
    expected = gemm_all_scatter.function("reference")(case, inputs)
    for backend in ("torch", "blas+rccl"):
        call = gemm_all_scatter.backends[backend].build(case, inputs)
        all_right([call], expected, gemm_all_scatter.tolerance_for(case), backend)
    with pytest.raises(spec.Unsupported, match="one rank alone gathers nothing"):
        gemm_all_scatter.backends["blas+rccl_registered"].build(case, inputs)


def test_a_lone_heap():
    from kernels.symmetric_heap import LoneHeap

    heap = LoneHeap("cpu")
    given = heap.alloc((3, 4), torch.float16)
    assert heap.peer(0, given) is given
    assert heap.signals(1, 5).tolist() == [[0] * 5]
    assert heap.bases.tolist() == [0]
    with pytest.raises(HeapError, match="rank 1 of a heap of one rank"):
        heap.peer(1, given)
    assert heap.barrier() is heap.reset() is heap.close() is None


def test_unsupported_says_what_is_needed():
    case = Case("t", world=2, dtype="fp16", M=4, N=16, K=40)
    build = {name: backend.build for name, backend in gemm_all_scatter.backends.items()}
    for backend in ("triton", "bulk"):
        with pytest.raises(spec.Unsupported, match="GPUs are needed"):
            build[backend](case.at(Place()), {})
    uneven = Case("t", world=4, dtype="fp16", M=4, N=18, K=40).at(Place(world=4))
    with pytest.raises(spec.Unsupported, match=r"N = 18 .* 4 ranks; N must be a multiple of 4"):
        gemm_all_scatter.function("inputs")(uneven, 0)
    with pytest.raises(spec.Unsupported, match=r"N = 18"):
        build["triton"](uneven, {})
    wide = Case("t", world=2, dtype="fp32", M=4, N=16, K=40).at(Place())
    with pytest.raises(spec.Unsupported, match="dtype fp32 is not supported, only fp16, bf16"):
        build["triton"](wide, {})
    with pytest.raises(spec.Unsupported, match=r"there is none, and this machine has \d+ GPU"):
        build["torch"](case.at(Place()), {"w": None})
    with pytest.raises(spec.Unsupported, match="init_process_group"):
        build["blas+rccl"](case.at(Place()), {})
    big = gemm_all_scatter.case("n4608_k36864_m8192_fp16_w4").at(Place())
    with pytest.raises(spec.Unsupported, match=r"GFLOP per call and rank is too much"):
        build["torch"](big, {})
    with pytest.raises(spec.Unsupported, match=r"sm_75.*config\.py"):
        config.config(big, "sm_75")


def test_a_heap_that_is_too_small_is_named():
    ranks = FakeRanks(2, 1024)
    case = Case("t", world=2, dtype="fp16", M=64, N=64, K=40).at(Place(world=2, heap=ranks.heaps[0]))
    with pytest.raises(HeapError, match="8192 bytes asked for"):
        gemm_all_scatter.backends["torch"].build(case, gemm_all_scatter.function("inputs")(case, 0))


def bad_knobs():
    from kernels.gemm_all_scatter import launch

    case, bulk = gemm_all_scatter.case("n4096_k4096_m1024_fp16_w4"), gemm_all_scatter.backends["triton"]
    good = bulk.build.__kwdefaults__
    for arch, knobs, text in (
        ("sm_90", {"scatter": "fax"}, "'fax' is not one of store, put, tma"),
        ("gfx942", {"tma": True}, "gfx942 has none"),
        ("sm_90", {"scatter": "tma", "tma": True, "split_k": 2}, "split_k 2, cut 'all' and swap F"),
        ("sm_90", {"scatter": "tma", "tma": True, "cut": "rest"}, "split_k 1, cut 'rest' and swap False"),
        ("sm_90", {"cut": "last", "split_k": 2}, "cut 'last' is not one of all, rest"),
        ("sm_90", {"block_m": 256, "block_n": 256, "num_stages": 4}, r"262144 bytes of LDS .* sm_90 has 232448"),
        ("gfx942", {"block_k": 128, "num_stages": 3}, r"131072 bytes of LDS .* gfx942 has 65536"),
    ):
        with pytest.raises(ValueError, match=text):
            launch.plan(case, arch, 132, {**good, **knobs})
    narrow = Case("t", world=4, dtype="fp16", M=4, N=4 * 6, K=40)
    with pytest.raises(ValueError, match="multiple of 16 bytes per rank"):
        launch.plan(narrow, "sm_90", 132, {**good, "scatter": "tma", "tma": True})
    with pytest.raises(ValueError, match="31 bits"):
        launch.plan(Case("t", world=4, M=1 << 16, N=1 << 16, K=64), "sm_90", 132, good)


def what_is_cut():
    """576 tiles: what each way of cutting launches, and room for the sums of the tiles that are cut, no more."""
    from kernels.gemm_all_scatter import launch

    case, given = gemm_all_scatter.case("n4608_k36864_m8192_fp16_w4"), gemm_all_scatter.backends["triton"].build
    tile = 128 * 128
    for cut, programs, split_k, expected in (
        ("rest", 0, 2, (132, 2, True, 48, 48 * 2 * tile)),
        ("all", 0, 2, (132, 2, False, 576, 576 * 2 * tile)),
        ("rest", 575, 8, (575, 8, True, 1, 8 * tile)),
        ("rest", 0, 1, (132, 1, False, 1, 1)),
        ("rest", 96, 2, (96, 1, False, 1, 1)),
        ("rest", 576, 2, (576, 1, False, 1, 1)),
        ("rest", 577, 2, (577, 2, False, 576, 576 * 2 * tile)),
        ("rest", 2000, 2, (1152, 2, False, 576, 576 * 2 * tile)),
    ):
        knobs = {**given.__kwdefaults__, "tma": True, "cut": cut, "programs": programs, "split_k": split_k}
        p = launch.plan(case, "sm_90", 132, knobs)
        found = (p.programs, p.constants["SPLIT_K"], p.constants["REST"], p.counters, p.workspace)
        assert found == expected, (cut, programs, split_k, found)


def test_the_rest_by_rule():
    """Slices of the rest where a last round would be at most half full, of the tiles that waste the least."""
    for name, arch, split_k, columns in (
        ("n4608_k36864_m8192_fp16_w2", "sm_90", 2, 256),
        ("n4608_k36864_m8192_fp16_w4", "sm_90", 2, 128),
        ("n4608_k36864_m8192_bf16_w8", "sm_90", 2, 128),
        ("n8192_k4096_m1024_fp16_w2", "sm_90", 1, 256),
        ("n4608_k36864_m8192_fp16_w2", "gfx950", 2, 128),
        ("n4608_k36864_m8192_fp16_w4", "gfx950", 2, 128),
        ("n4608_k36864_m8192_fp16_w2", "gfx942", 1, 128),
    ):
        found = config.config(gemm_all_scatter.case(name), arch)
        assert (found["split_k"], found["cut"]) == (split_k, "rest" if split_k > 1 else "all"), (name, arch)
        assert found["block_n"] == columns, (name, arch)
    for tiles, split_k in ((132, 1), (134, 8), (148, 8), (150, 7), (198, 2), (200, 1), (396, 2), (462, 2)):
        case = Case("t", world=1, dtype="fp16", M=256, N=64 * tiles, K=4096)
        assert config.tiles(case, 128, 128) == tiles
        assert config.config(case, "sm_90")["split_k"] == split_k, tiles
    short = Case("t", world=1, dtype="fp16", M=256, N=64 * 134, K=4 * 64 * 3)
    assert config.config(short, "sm_90")["split_k"] == 3


@pytest.mark.slow
def test_every_candidate_can_be_launched_and_bad_knobs_cannot():
    run_alone(MODULE, "plans")


def plans():
    """In one process of its own, which has no interpreter: importing costs more than checking."""
    bad_knobs()
    what_is_cut()
    for arch in ("sm_90", "gfx942", "gfx950"):
        plans_of_all_candidates(arch)
    lone_plan()


def lone_plan():
    """One rank alone announces nothing and waits for nobody; it has as many programs as a rank among others."""
    from kernels.gemm_all_scatter import launch

    given = gemm_all_scatter.backends["triton"].build.__kwdefaults__
    share, whole = (
        launch.plan(gemm_all_scatter.case(f"n4096_k14336_m64_fp16_w{end}"), "sm_90", 132, given)
        for end in ("1of8", "8")
    )
    assert share.programs == whole.programs
    differing = {key for key in share.constants if share.constants[key] != whole.constants[key]}
    assert differing == {"WORLD", "LANES", "MEET", "WAIT"}
    assert not share.constants["MEET"]
    assert not share.constants["WAIT"]


def plans_of_all_candidates(arch):
    from kernels.gemm_all_scatter import launch

    backend = gemm_all_scatter.backends["triton"]
    for case in gemm_all_scatter.cases:
        tried = config.candidates(case, arch)
        assert 8 <= len(tried) <= 28, (case.name, len(tried))
        assert tried[0] == config.config(case, arch)
        for knobs in tried:
            found = launch.plan(case, arch, 132, {**backend.build.__kwdefaults__, **backend.knobs(case, arch, knobs)})
            count = config.tiles(case, knobs["block_m"], knobs["block_n"])
            assert found.programs <= count * found.constants.get("SPLIT_K", 1)
            assert found.constants.get("REST", False) == (knobs.get("cut") == "rest" and count % 132 > 0)
            assert found.programs <= 2 * compute_units(case, arch)


@pytest.mark.slow
def test_in_the_interpreter():
    run_alone(MODULE, "everything", TRITON_INTERPRET="1")


# Run by test_gemm_all_scatter.py in processes with TRITON_INTERPRET=1: the kernels' arithmetic on a CPU.


HEAP = 1 << 17
SMALL = {"block_m": 32, "block_n": 32, "block_k": 32, "programs": 3, "group_m": 2}


def placed(world: int, rank: int, m: int, n: int, k: int, heap: Any) -> Case:
    case = Case("t", world=world, dtype="fp16", M=m, N=n, K=k)
    return case.at(Place(rank=rank, world=world, heap=heap, compute_units=3))


def right(world: int, m: int, n: int, k: int, backend: str = "triton", **knobs: object) -> None:
    """Fake ranks, one after the other: two rounds into poisoned outputs match the reference on every rank."""
    ranks, built = FakeRanks(world, HEAP), []
    for heap in ranks.heaps:
        case = placed(world, heap.rank, m, n, k, heap)
        given = gemm_all_scatter.function("inputs")(case, 7)
        built.append(gemm_all_scatter.backends[backend].build(case, given, wait=False, **knobs))
    expected = gemm_all_scatter.function("reference")(case, given)
    all_right(built, expected, gemm_all_scatter.tolerance_for(case), world, m, n, k, knobs)


def tails_and_slices() -> None:
    right(1, 33, 70, 136, **SMALL)
    right(2, 33, 70, 136, **SMALL, scatter="put", hint=False)
    right(2, 33, 144, 136, **SMALL, split_k=2, xcds=2)
    right(4, 40, 160, 136, **{**SMALL, "programs": 2}, split_k=3, scatter="put")
    right(8, 5, 128, 64, **{**SMALL, "block_m": 16, "block_n": 16}, swap=True)
    right(2, 1, 80, 200, **{**SMALL, "block_m": 16, "block_n": 64}, swap=True, split_k=4)


def descriptors() -> None:
    """Loads through descriptors, and stores through a descriptor for every rank, whole and in parts."""
    right(2, 40, 144, 136, **SMALL, tma=True)
    right(2, 16, 144, 136, **{**SMALL, "block_m": 16}, tma=True, swap=True, split_k=2)
    for world, parts, flatten in ((1, 1, True), (2, 2, False), (4, 1, True), (8, 2, True)):
        right(world, 40, 40 * world, 136, **SMALL, tma=True, scatter="tma", parts=parts, flatten=flatten)


def only_the_rest_is_cut() -> None:
    """Rounds of whole tiles, one and several, and slices of the tiles left over, which share a round or need more."""
    for world, m, n, k, knobs in (
        (1, 33, 70, 136, {"programs": 4, "split_k": 2}),
        (1, 100, 70, 136, {"programs": 5, "split_k": 5}),
        (2, 100, 144, 136, {"programs": 5, "split_k": 3, "scatter": "put", "xcds": 2}),
        (2, 100, 144, 72, {"programs": 7, "split_k": 2, "tma": True}),
        (4, 70, 160, 136, {"programs": 4, "split_k": 4, "tma": True, "scatter": "put"}),
        (4, 40, 160, 136, {"split_k": 3, "swap": True}),
    ):
        given = {**SMALL, **knobs, "cut": "rest"}
        defaults = gemm_all_scatter.backends["triton"].build.__kwdefaults__
        planned = launch.plan(placed(world, 0, m, n, k, None), "cpu", 3, {**defaults, **given})
        assert planned.constants["REST"], (world, m, n, k, knobs)
        right(world, m, n, k, **given)


def bulk() -> None:
    right(2, 33, 80, 40, backend="bulk", programs=2, num_warps=1)
    right(4, 5, 160, 40, backend="bulk", programs=3, num_warps=1, unroll=2, barrier=False)
    right(1, 3, 48, 40, backend="bulk", programs=1, num_warps=1)


def a_share_alone() -> None:
    """A rank's share on one device: no heap is given, and the waiting is in."""
    case = Case("t", dtype="fp16", M=33, N=70, K=136, of=4).at(Place(compute_units=3))
    given = gemm_all_scatter.function("inputs")(case, 7)
    expected = gemm_all_scatter.function("reference")(case, given)
    for backend, knobs in (
        ("triton", {**SMALL, "split_k": 2, "scatter": "put"}),
        ("triton_unguarded", SMALL),
        ("triton", {**SMALL, "tma": True}),
    ):
        call = gemm_all_scatter.backends[backend].build(case, given, **knobs)
        all_right([call], expected, gemm_all_scatter.tolerance_for(case), backend, knobs)


def a_missing_rank_shows() -> None:
    """While rank 1 has not called, its columns stay poisoned everywhere: nobody computes them in its place."""
    ranks, built, outputs = FakeRanks(2, HEAP), [], []
    for heap in ranks.heaps:
        case = placed(2, heap.rank, 32, 64, 64, heap)
        built.append(
            gemm_all_scatter.backends["triton"].build(
                case, gemm_all_scatter.function("inputs")(case, 7), wait=False, **SMALL
            )
        )
        outputs.append(ranks.view(heap.rank)[: 32 * 64 * 2].view(torch.float16).view(32, 64))
        poison(outputs[-1])
    built[0]()
    for out in outputs:
        assert not out[:, :32].isnan().any()
        assert out[:, 32:].isnan().all()


def everything() -> None:
    """All of the above, in one process: importing takes as long as a check."""
    for check in (tails_and_slices, descriptors, only_the_rest_is_cut, bulk, a_share_alone, a_missing_rank_shows):
        check()
