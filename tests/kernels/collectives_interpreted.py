"""Run by test_collectives.py in processes with TRITON_INTERPRET=1: the collective kernels on a CPU."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from kernels.numerics import compare, poison
from kernels.spec import Case, Kernel, Place
from kernels.symmetric_heap import FakeRanks, create

HEAP = 1 << 18
SMALL = {"num_warps": 1, "unroll": 1}


def family(name: str) -> Kernel:
    return getattr(importlib.import_module(f"kernels.{name}"), name)


def placed(world: int, rank: int, kb: float, dtype: str, heap: Any) -> Case:
    return Case("t", world=world, dtype=dtype, KB=kb).at(Place(rank=rank, world=world, heap=heap))


def phases(world: int, kb: float, dtype: str, name: str, **knobs: Any) -> None:
    """Fake ranks, one after the other.  A rank that pushes is right once all have called, so each calls twice."""
    kernel, ranks, built, expected = family(name), FakeRanks(world, HEAP), [], []
    for heap in ranks.heaps:
        case = placed(world, heap.rank, kb, dtype, heap)
        inputs = kernel.function("inputs")(case, 3)
        built.append(kernel.backends["triton"].build(case, inputs, wait=False, **{**SMALL, **knobs}))
        expected.append(kernel.function("reference")(case, inputs))
    outputs = [call() for call in built]
    staged = knobs.get("way", "").endswith("push")
    for turn in range(3):
        if staged:  # the last rank alone has found the parts of all
            outputs = outputs[-1:]
            expected = expected[-1:]
        for rank, (out, right) in enumerate(zip(outputs, expected, strict=True)):
            found = compare(out, right, kernel.tolerance_for(case))
            assert found.ok, (name, turn, rank, world, kb, dtype, knobs, found.why)
            poison(out)
        outputs = [call() for call in built]


def all_reduce() -> None:
    """Every way, with 1, 2, 4 and 8 ranks, whole blocks and tails."""
    for way in ("two_shot", "one_shot_push", "one_shot_pull"):
        phases(1, 1.5, "fp16", "all_reduce", way=way, programs=2)
        phases(2, 1.25, "fp32", "all_reduce", way=way, programs=3)
        phases(4, 2.0625, "fp16", "all_reduce", way=way, programs=2, unroll=2)
        phases(8, 4, "fp16", "all_reduce", way=way, programs=1)


def real_ranks(rank: int, world: int, directory: str) -> None:
    """Real processes with the waiting in: twenty calls of every way in a row, outputs poisoned in between.

    No barrier after a call is needed where the kernel begins with one; all_to_all and pushes have one here.
    """
    with create(rank, world, "cpu", 1 << 20, directory) as heap:
        for name, ways in WAYS.items():
            kernel = family(name)
            case = placed(world, rank, 2, "fp16", heap)
            inputs = kernel.function("inputs")(case, 5)
            expected = kernel.function("reference")(case, inputs)
            for way in ways:
                knobs = {"way": way} if way else {}
                call = kernel.backends["triton"].build(case, inputs, programs=2, **SMALL, **knobs)
                for turn in range(20):
                    out = call()
                    found = compare(out, expected, kernel.tolerance_for(case))
                    assert found.ok, (name, way, turn, rank, found.why)
                    if name == "all_to_all":
                        heap.barrier()
                    poison(out)
                    if name == "all_to_all":
                        heap.barrier()


WAYS = {"all_reduce": ("two_shot", "one_shot_push", "one_shot_pull")}


def sums_are_in_rank_order() -> None:
    """fp32, where the order shows: the very bits of the reference, for every way."""
    for way in WAYS["all_reduce"]:
        world, kernel, ranks, built = 4, family("all_reduce"), FakeRanks(4, HEAP), []
        for heap in ranks.heaps:
            case = placed(world, heap.rank, 2, "fp32", heap)
            inputs = kernel.function("inputs")(case, 3)
            built.append(kernel.backends["triton"].build(case, inputs, wait=False, way=way, programs=2, **SMALL))
        outputs = [call() for call in built]
        assert torch.equal(outputs[-1] if way == "one_shot_push" else outputs[0],
                           kernel.function("reference")(case, inputs)) or way == "two_shot"
        if way == "two_shot":
            assert torch.equal(outputs[0], kernel.function("reference")(case, inputs))
