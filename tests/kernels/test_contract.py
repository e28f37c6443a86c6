"""The collectives keep the library's contract under stress, and a scatter without its barrier does not.

After a call has completed on a rank, its later work may overwrite the input at once and read the output late, with no
barrier between the ranks.  So every call here gets a new input, which is overwritten right after it, and its output is
read after a delay on some ranks.  A backend that lets peers write into an output too early shows wrong words.
"""

from __future__ import annotations

import dataclasses
import importlib
import random
import time
from typing import Any

import pytest
import torch

from kernels.spec import Case, Place
from kernels.symmetric_heap import create
from tests.kernels.ranks import run_ranks

GUARDED = {
    "all_gather": (
        ("triton", {"staged": 0}),
        ("triton", {"staged": 1}),
        ("triton", {"staged": 99}),
        ("triton", {"staged": 1, "fanout": 1}),
        ("partitioned", {"staged": 1, "order": "blocked"}),
        ("gluon", {}),
    ),
    "all_to_all": (
        ("triton", {"staged": 0}),
        ("triton", {"staged": 1}),
        ("triton", {"staged": 99}),
        ("triton", {"staged": 1, "groups": 2}),
    ),
    "all_reduce": (
        ("triton", {"algorithm": "two_shot"}),
        ("triton", {"algorithm": "two_shot_push", "ahead": 1, "chunk": 2}),
        ("triton", {"algorithm": "one_shot_push"}),
        ("triton", {"algorithm": "one_shot_pull"}),
    ),
    "reduce_scatter": (
        ("triton", {"algorithm": "push"}),
        ("triton", {"algorithm": "push_chunks", "ahead": 1, "chunk": 2}),
        ("triton", {"algorithm": "pull"}),
    ),
    "gemm_all_scatter": (("triton", {"split_k": 2}), ("triton", {}), ("bulk", {})),
}
"""What keeps the contract: operators, their backends and the knobs that change how."""

CHUNKS = ("all_reduce", "reduce_scatter")
"""Of these the second variant sends in chunks."""

UNGUARDED = {"gemm_all_scatter": (("bulk", {"barrier": False}),)}
"""What does not."""


@dataclasses.dataclass
class Bench:
    """One rank.  Of `sizes` (bytes) S is tried; `shape` are the knobs of a launch."""

    rank: int
    world: int
    heap: Any
    size: int
    shape: dict[str, Any]
    calls: int

    def place(self):
        return Place(self.rank, self.world, heap=self.heap)

    def case(self, name):
        if name == "gemm_all_scatter":
            return Case("t", world=self.world, dtype="fp16", M=ROWS, N=COLUMNS * self.world, K=DEPTH).at(self.place())
        size = {"MB": self.size / 2**20} if name == "all_gather" else {"KB": self.size // 1024}
        return Case("t", world=self.world, dtype="fp32", **size).at(self.place())

    def delay(self, rng, chance):
        """Keep this rank busy for a while, or not."""
        if rng.random() < chance:
            time.sleep(rng.choice((0.001, 0.02)))


def numbers(size, rank):
    """What a rank gives, [size / 4] in fp32: small integers, so that sums are exact."""
    return ((torch.arange(size // 4) * 7 + rank * 11) % 61).float()


ROWS, COLUMNS, DEPTH = 64, 64, 64
"""Of gemm_all_scatter: rows, columns of a rank, and the depth of the product, in fp16."""


def activations():
    """fp16 [ROWS, DEPTH]: small integers, so that sums are exact, also those of fp16."""
    return (torch.arange(ROWS * DEPTH).view(ROWS, DEPTH) * 7 % 5).half()


def weights(rank):
    """fp16 [COLUMNS, DEPTH] of a rank: zeros, and some ones elsewhere on every rank."""
    at = torch.arange(COLUMNS * DEPTH).view(COLUMNS, DEPTH)
    return ((at * 11 + rank * 3) % 7 == 0).half()


def expected(name, bench):
    """The input of this rank, its output, and how much the output grows if every input grows by one."""
    if name == "gemm_all_scatter":
        a, every = activations(), torch.cat([weights(r) for r in range(bench.world)]).float()
        return a, (a.float() @ every.T).half(), every.sum(1).half()
    world, rank = bench.world, bench.rank
    every = [numbers(bench.size // (world if name == "all_gather" else 1), r) for r in range(world)]
    if name == "all_gather":
        return every[rank], torch.cat(every), 1
    if name == "all_to_all":
        return every[rank], torch.cat([x.view(world, -1)[rank] for x in every]), 1
    total = torch.stack(every).sum(0)
    return every[rank], total if name == "all_reduce" else total.view(world, -1)[rank].clone(), world


def wrong_words(bench, name, backend, knobs):
    """How many words of the outputs were wrong on this rank, over all calls."""
    given, right, growth = expected(name, bench)
    x = bench.heap.alloc(given.shape, given.dtype).copy_(given)
    turn, wrong = torch.zeros(1), torch.zeros(1)
    kernel = getattr(importlib.import_module(f"kernels.{name}"), name)
    rng, inputs = random.Random(bench.rank), {KEYS.get(name, "x"): x, "w": weights(bench.rank)}
    accepted = kernel.backends[backend].knobs(bench.case(name), "cpu", {})
    shape = {**bench.shape, **(GLUON if backend == "gluon" else {})}
    chosen = {**{key: value for key, value in shape.items() if key in accepted}, **knobs}
    call = kernel.backends[backend].build(bench.case(name), inputs, **chosen)

    for _ in range(bench.calls):
        turn.add_(1).remainder_(50)
        torch.add(given, turn, out=x)
        bench.delay(rng, 0.2)
        out = call()
        x.fill_(-7)
        bench.delay(rng, 0.3)
        wrong.add_((out != right + turn * growth).sum())
    return int(wrong.item())


KEYS = {"all_gather": "shard", "gemm_all_scatter": "a"}
"""What an operator calls its input, if not x."""

GLUON = {"rows": 8, "columns": 32, "num_warps": 1}


def results(bench, table):
    """Operator, backend, knobs and wrong words of everything in a table."""
    for name in table:
        for backend, knobs in table[name]:
            bench.heap.reset()
            yield name, backend, knobs, wrong_words(bench, name, backend, knobs)


def on_cpu(rank, world, directory):
    """Prints, rank by rank, each variant and its wrong words; with TRITON_INTERPRET=1."""
    importlib.import_module("tests.kernels.interpreted")  # which has a stand-in for Gluon
    shape = {"programs": 2, "num_warps": 1, "unroll": 1}
    with create(rank, world, "cpu", 1 << 19, directory) as heap:
        bench = Bench(rank, world, heap, 5 * 1024, shape, calls=6)
        for name, backend, knobs, wrong in results(bench, GUARDED):
            print(name, backend, knobs, wrong)
            assert not wrong, (name, backend, knobs, wrong)
        heap.signals = signals_from(heap, 2**31 - 3)
        for name, *variant, wrong in results(bench, {name: GUARDED[name][1:2] for name in CHUNKS}):
            assert not wrong, (name, *variant, "as the count of calls wraps around")


def signals_from(heap, epoch):
    """heap.signals, but as if the collectives had been at work for long."""
    zeroed = heap.signals

    def started(*shape):
        flags = zeroed(*shape).fill_(epoch)
        heap.barrier()
        return flags

    return started


def read_late(rank, world, directory):
    """Prints the wrong words of rank 0, which reads its output while the others are at their next call."""
    with create(rank, world, "cpu", 1 << 19, directory) as heap:
        bench = Bench(rank, world, heap, 8 * 1024, {"programs": 2, "num_warps": 1, "unroll": 1}, 2)
        bench.delay = lambda rng, chance: time.sleep(0.5 * (rank == 0 and chance == 0.3))  # type: ignore[method-assign]
        for name, backend, _, wrong in results(bench, UNGUARDED):
            print(name, backend, "wrong" if wrong else "right")


MODULE = "tests.kernels.test_contract"


@pytest.mark.nightly
def test_outputs_may_be_read_late_and_inputs_overwritten_at_once(tmp_path):
    (tmp_path / "meet").mkdir()
    said = run_ranks(MODULE, "on_cpu", 2, tmp_path / "meet", TRITON_INTERPRET="1")
    for rank in said:
        assert rank.count(" 0\n") == sum(len(variants) for variants in GUARDED.values())


@pytest.mark.nightly
def test_a_scatter_without_its_barrier_is_caught(tmp_path):
    (tmp_path / "meet").mkdir()
    said = run_ranks(MODULE, "read_late", 2, tmp_path / "meet", TRITON_INTERPRET="1")
    assert said[0].splitlines() == ["gemm_all_scatter bulk wrong"]
