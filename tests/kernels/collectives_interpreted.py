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
    """Every way, with 1, 4 and 8 ranks, whole blocks and tails."""
    for way in ("two_shot", "one_shot_push", "one_shot_pull"):
        phases(1, 1.5, "fp16", "all_reduce", way=way, programs=2)
        phases(4, 2.0625, "fp16", "all_reduce", way=way, programs=2)
    phases(8, 8.125, "fp32", "all_reduce", way="two_shot", programs=1, unroll=2)


def reduce_scatter() -> None:
    """Both ways, as for all_reduce."""
    for way in ("pull", "push"):
        phases(1, 1.5, "fp16", "reduce_scatter", way=way, programs=2)
        phases(4, 4.0625, "fp16", "reduce_scatter", way=way, programs=2)
    phases(8, 8.125, "fp32", "reduce_scatter", way="pull", programs=1, unroll=2)


def all_to_all() -> None:
    """Every grouping of the receivers, whole blocks and tails."""
    for world, kb, groups in ((1, 1.5, 1), (2, 4, 2), (4, 4.0625, 2), (8, 8, 1)):
        phases(world, kb, "fp16", "all_to_all", groups=groups, programs=2 * groups)


def everything() -> None:
    """All of the above and the order of sums, in one process: importing takes as long as a check."""
    for check in (all_reduce, reduce_scatter, all_to_all, sums_are_in_rank_order):
        check()


def real_ranks(rank: int, world: int, directory: str) -> None:
    """Real processes with the waiting in: calls in a row, outputs poisoned in between.

    Where peers write into the output (all_to_all), a barrier stands on both sides of what is done with it; elsewhere
    none, as the kernels promise.
    """
    with create(rank, world, "cpu", 1 << 20, directory) as heap:
        for name, ways in WAYS.items():
            kernel = family(name)
            case = placed(world, rank, 2, "fp16", heap)
            inputs = kernel.function("inputs")(case, 5)
            expected = kernel.function("reference")(case, inputs)
            between = heap.barrier if name == "all_to_all" else lambda: None
            for way in ways:
                call = kernel.backends["triton"].build(case, inputs, programs=2, **SMALL, **way)
                for turn in range(4):
                    out = call()
                    found = compare(out, expected, kernel.tolerance_for(case))
                    assert found.ok, (name, way, turn, rank, found.why)
                    between()
                    poison(out)
                    between()


WAYS: dict[str, tuple[dict[str, Any], ...]] = {
    "all_reduce": ({"way": "two_shot"}, {"way": "one_shot_push"}, {"way": "one_shot_pull"}),
    "reduce_scatter": ({"way": "pull"}, {"way": "push"}),
    "all_to_all": ({"groups": 1}, {"groups": 2})}


def sums_are_in_rank_order() -> None:
    """fp32, where the order shows: the very bits of the reference, for every way."""
    for name in ("all_reduce", "reduce_scatter"):
        for way in WAYS[name]:
            kernel, ranks, built, expected = family(name), FakeRanks(4, HEAP), [], []
            for heap in ranks.heaps:
                case = placed(4, heap.rank, 2, "fp32", heap)
                inputs = kernel.function("inputs")(case, 3)
                expected.append(kernel.function("reference")(case, inputs))
                built.append(kernel.backends["triton"].build(case, inputs, wait=False, programs=2, **SMALL, **way))
            outputs = [call() for call in built]
            assert torch.equal(outputs[-1], expected[-1]), (name, way)
    backwards = expected[0] * 0
    for rank in reversed(range(4)):
        backwards += kernel.function("inputs")(placed(4, rank, 2, "fp32", None), 3)["x"].view(4, -1)[0]
    assert not torch.equal(backwards, expected[0]), "these values do not tell one order from another"
