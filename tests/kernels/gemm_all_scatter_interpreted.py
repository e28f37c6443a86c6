"""Run by test_gemm_all_scatter.py in processes with TRITON_INTERPRET=1: the kernels' arithmetic on a CPU."""

from __future__ import annotations

from typing import Any

import torch

from kernels.gemm_all_scatter import gemm_all_scatter, launch
from kernels.numerics import compare, poison
from kernels.spec import Case, Place
from tests.kernels.fake_ranks import FakeRanks

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
    for turn in range(2):
        outputs = [call() for call in built]
        for rank, out in enumerate(outputs):
            found = compare(out, expected, gemm_all_scatter.tolerance_for(case))
            assert found.ok, (turn, rank, world, m, n, k, knobs, found.why)
            poison(out)


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
        for turn in range(2):
            found = compare(call(), expected, gemm_all_scatter.tolerance_for(case))
            assert found.ok, (backend, turn, knobs, found.why)
            poison(call())


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
