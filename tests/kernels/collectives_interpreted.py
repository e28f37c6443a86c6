"""Run by test_collectives.py in processes with TRITON_INTERPRET=1: the collective kernels on a CPU."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

import torch

from kernels.numerics import compare, poison
from kernels.spec import Case, Kernel, Place
from kernels.symmetric_heap import create
from tests.kernels.fake_ranks import FakeRanks

HEAP = 1 << 18
SMALL = {"num_warps": 1, "unroll": 1}


def operator(name: str) -> Kernel:
    return getattr(importlib.import_module(f"kernels.{name}"), name)


def placed(world: int, rank: int, kb: float, dtype: str, heap: Any) -> Case:
    return Case("t", world=world, dtype=dtype, KB=kb).at(Place(rank=rank, world=world, heap=heap))


def phases(world: int, kb: float, dtype: str, name: str, **knobs: Any) -> None:
    """Fake ranks, one after the other.  A rank that pushes is right once all have called, so each calls twice."""
    kernel, ranks, built, expected = operator(name), FakeRanks(world, HEAP), [], []
    for heap in ranks.heaps:
        case = placed(world, heap.rank, kb, dtype, heap)
        inputs = kernel.function("inputs")(case, 3)
        built.append(kernel.backends["triton"].build(case, inputs, wait=False, **{**SMALL, **knobs}))
        expected.append(kernel.function("reference")(case, inputs))
    algorithm = knobs.get("algorithm", "")
    outputs = [call() for call in built]
    if algorithm in (
        "two_shot_push",
        "push_chunks",
    ):  # the first sums of all but the last rank lack the parts of later ranks
        outputs = [call() for call in built]
    staged = algorithm in ("one_shot_push", "push") or knobs.get("staged")
    for turn in range(3 if staged else 2):
        if staged:  # the last rank alone has found the parts of all
            outputs = outputs[-1:]
            expected = expected[-1:]
        for rank, (out, right) in enumerate(zip(outputs, expected, strict=True)):
            found = compare(out, right, kernel.tolerance_for(case))
            assert found.ok, (name, turn, rank, world, kb, dtype, knobs, found.why)
            poison(out)
        outputs = [call() for call in built]


def all_reduce() -> None:
    """Every algorithm, with 1, 4 and 8 ranks, whole blocks and tails."""
    for algorithm in ("two_shot", "two_shot_push", "one_shot_push", "one_shot_pull"):
        phases(1, 1.5, "fp16", "all_reduce", algorithm=algorithm, programs=2)
        phases(4, 2.0625, "fp16", "all_reduce", algorithm=algorithm, programs=2)
    phases(8, 8.125, "fp32", "all_reduce", algorithm="two_shot", programs=1, unroll=2)
    phases(8, 8.125, "fp32", "all_reduce", algorithm="two_shot_push", programs=3, ahead=1)


def reduce_scatter() -> None:
    """Every algorithm, as for all_reduce."""
    for algorithm in ("pull", "push", "push_chunks"):
        phases(1, 1.5, "fp16", "reduce_scatter", algorithm=algorithm, programs=2)
        phases(4, 4.0625, "fp16", "reduce_scatter", algorithm=algorithm, programs=2)
    phases(8, 8.125, "fp32", "reduce_scatter", algorithm="pull", programs=1, unroll=2)


def all_to_all() -> None:
    """Every grouping of the receivers, whole blocks and tails."""
    for world, kb, groups in ((1, 1.5, 1), (2, 4, 2), (4, 4.0625, 2), (8, 8, 1)):
        for staged in (0, 1, 9):
            phases(world, kb, "fp16", "all_to_all", groups=groups, programs=2 * groups, staged=staged)


def everything() -> None:
    """All of the above and the order of sums, in one process: importing takes as long as a check."""
    for check in (all_reduce, reduce_scatter, all_to_all, sums_are_in_rank_order):
        check()


def chunks_in_a_row(rank: int, world: int, directory: str) -> None:
    """two_shot_push with real ranks: new data at every call, calls in a row, no barrier but those of the kernel.

    As many chunks ahead as there are or more, and fewer; programs with more chunks than others, and with none; epochs
    that wrap around.  Each rank dawdles before another call, and all give the same bits.
    """
    for kb, programs, ahead, epoch in (
        (8.125, 3, 1, 0),
        (8.125, 2, 3, 0),
        (8.125, 1, 0, 0),
        (1, 5, 2, 0),
        (8.125, 3, 2, 2**31 - 7),
    ):
        meeting = f"{directory}/{kb}-{programs}-{ahead}-{epoch}"
        os.makedirs(meeting, exist_ok=True)
        with create(rank, world, "cpu", 1 << 17, meeting) as heap:
            case, kernel = placed(world, rank, kb, "fp32", heap), operator("all_reduce")
            inputs = kernel.function("inputs")(case, 0)
            heap.signals = _signals_from(heap, epoch)
            call = kernel.backends["triton"].build(
                case, inputs, algorithm="two_shot_push", programs=programs, ahead=ahead, **SMALL
            )
            for turn in range(5):
                fresh = kernel.function("inputs")(case, turn)
                inputs["x"].copy_(fresh["x"])
                expected = kernel.function("reference")(case, fresh)
                time.sleep(0.02 * (turn % world == rank))
                out = call()
                assert torch.equal(out, expected), (kb, programs, ahead, epoch, turn, rank)
                poison(out)


def _signals_from(heap: Any, epoch: int) -> Any:
    """heap.signals, but as if the collectives had been at work for long."""
    zeroed = heap.signals

    def started(*shape: int) -> torch.Tensor:
        flags = zeroed(*shape).fill_(epoch)
        heap.barrier()
        return flags

    return started


ALGORITHMS: dict[str, tuple[dict[str, Any], ...]] = {
    "all_reduce": (
        {"algorithm": "two_shot"},
        {"algorithm": "two_shot_push"},
        {"algorithm": "one_shot_push"},
        {"algorithm": "one_shot_pull"},
    ),
    "reduce_scatter": ({"algorithm": "pull"}, {"algorithm": "push"}, {"algorithm": "push_chunks"}),
}


def sums_are_in_rank_order() -> None:
    """fp32, where the order shows: the very bits of the reference, for every algorithm."""
    for name in ("all_reduce", "reduce_scatter"):
        for algorithm in ALGORITHMS[name]:
            kernel, ranks, built, expected = operator(name), FakeRanks(4, HEAP), [], []
            for heap in ranks.heaps:
                case = placed(4, heap.rank, 2, "fp32", heap)
                inputs = kernel.function("inputs")(case, 3)
                expected.append(kernel.function("reference")(case, inputs))
                built.append(
                    kernel.backends["triton"].build(case, inputs, wait=False, programs=2, **SMALL, **algorithm)
                )
            outputs = [[call() for call in built] for _ in range(2)][-1]  # in chunks: as in phases
            assert torch.equal(outputs[-1], expected[-1]), (name, algorithm)
    backwards = expected[0] * 0
    for rank in reversed(range(4)):
        backwards += kernel.function("inputs")(placed(4, rank, 2, "fp32", None), 3)["x"].view(4, -1)[0]
    assert not torch.equal(backwards, expected[0]), "these values do not tell one order from another"
