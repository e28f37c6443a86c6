"""The library's contract, under stress: run by test_contract.py on CPUs, and on GPUs with

    python -m tests.kernels.contract RANK WORLD DIRECTORY [--calls N] [--only OPERATOR]

one process per rank, all with the same empty directory, in which they meet.

After a call has completed on a rank's stream, later work of this stream may overwrite its input at once and read its
output late, with no barrier between the ranks.  So every call here gets a new input, which is overwritten right after
it, and its output is read after a delay on some ranks.  On GPUs the same happens inside captured graphs of 1, 2 and 3
calls, replayed.  A backend that lets peers write into an output too early shows wrong words.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from kernels.spec import Case, Kernel, Place
from kernels.symmetric_heap import create
from tests.kernels import gluon_shim

GUARDED: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
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

UNGUARDED = {name: (("triton_unguarded", {}),) for name in ("all_gather", "all_to_all", "gemm_all_scatter")}
"""What does not."""


@dataclasses.dataclass
class Bench:
    """One rank.  Of `sizes` (bytes) S is tried; `shape` are the knobs of a launch."""

    rank: int
    world: int
    device: str
    heap: Any
    size: int
    shape: dict[str, Any]
    calls: int
    graphs: int

    def place(self) -> Place:
        return Place(self.rank, self.world, self.device, architecture(self.device), None, self.heap)

    def case(self, name: str) -> Case:
        if name == "gemm_all_scatter":
            return Case("t", world=self.world, dtype="fp16", M=ROWS, N=COLUMNS * self.world, K=DEPTH).at(self.place())
        size = {"MB": self.size / 2**20} if name == "all_gather" else {"KB": self.size // 1024}
        return Case("t", world=self.world, dtype="fp32", **size).at(self.place())

    def delay(self, rng: random.Random, chance: float) -> None:
        """Keep this rank's stream busy for a while, or not."""
        if rng.random() < chance:
            if self.device == "cpu":
                time.sleep(rng.choice((0.001, 0.02)))
            else:
                torch.cuda._sleep(rng.choice((2_000, 20_000, 100_000)))

    def all_agree(self, count: int) -> int:
        """The sum over the ranks."""
        if self.device == "cpu":
            return count
        total = torch.tensor([count], device=self.device)
        torch.distributed.all_reduce(total)
        return int(total.item())


def architecture(device: str) -> str:
    """As in kernels.hardware: gfx942, sm_90, cpu."""
    if device == "cpu":
        return "cpu"
    found = torch.cuda.get_device_properties(device)
    return found.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{found.major}{found.minor}"


def numbers(size: int, rank: int, device: str) -> torch.Tensor:
    """What a rank gives, [size / 4] in fp32: small integers, so that sums are exact."""
    return ((torch.arange(size // 4, device=device) * 7 + rank * 11) % 61).float()


ROWS, COLUMNS, DEPTH = 64, 64, 64
"""Of gemm_all_scatter: rows, columns of a rank, and the depth of the product, in fp16."""


def activations(device: str) -> torch.Tensor:
    """fp16 [ROWS, DEPTH]: small integers, so that sums are exact, also those of fp16."""
    return (torch.arange(ROWS * DEPTH, device=device).view(ROWS, DEPTH) * 7 % 5).half()


def weights(rank: int, device: str) -> torch.Tensor:
    """fp16 [COLUMNS, DEPTH] of a rank: zeros, and some ones elsewhere on every rank."""
    at = torch.arange(COLUMNS * DEPTH, device=device).view(COLUMNS, DEPTH)
    return ((at * 11 + rank * 3) % 7 == 0).half()


def expected(name: str, bench: Bench) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """The input of this rank, its output, and how much the output grows if every input grows by one."""
    if name == "gemm_all_scatter":
        a, every = activations(bench.device), torch.cat([weights(r, bench.device) for r in range(bench.world)]).float()
        return a, (a.float() @ every.T).half(), every.sum(1).half()
    world, rank = bench.world, bench.rank
    every = [numbers(bench.size // (world if name == "all_gather" else 1), r, bench.device) for r in range(world)]
    if name == "all_gather":
        return every[rank], torch.cat(every), 1
    if name == "all_to_all":
        return every[rank], torch.cat([x.view(world, -1)[rank] for x in every]), 1
    total = torch.stack(every).sum(0)
    return every[rank], total if name == "all_reduce" else total.view(world, -1)[rank].clone(), world


def wrong_words(bench: Bench, name: str, backend: str, knobs: dict[str, Any]) -> int:
    """How many words of the outputs were wrong on this rank, over all calls."""
    given, right, growth = expected(name, bench)
    x = bench.heap.alloc(given.shape, given.dtype).copy_(given)
    turn, wrong = torch.zeros(1, device=bench.device), torch.zeros(1, device=bench.device)
    kernel: Kernel = getattr(importlib.import_module(f"kernels.{name}"), name)
    rng, inputs = random.Random(bench.rank), {KEYS.get(name, "x"): x, "w": weights(bench.rank, bench.device)}
    accepted = kernel.backends[backend].knobs(bench.case(name), architecture(bench.device), {})
    shape = {**bench.shape, **(GLUON if backend == "gluon" else {})}
    chosen = {**{key: value for key, value in shape.items() if key in accepted}, **knobs}
    call = kernel.backends[backend].build(bench.case(name), inputs, **chosen)

    def step(late: bool = False) -> None:
        turn.add_(1).remainder_(50)
        torch.add(given, turn, out=x)
        bench.delay(rng, 0.2)
        out = call()
        x.fill_(-7)
        bench.delay(rng, 1.0 if late else 0.3)
        wrong.add_((out != right + turn * growth).sum())

    for _ in range(bench.calls):
        step()
    replay(bench, step)
    return bench.all_agree(int(wrong.item()))


KEYS = {"all_gather": "shard", "gemm_all_scatter": "a"}
"""What an operator calls its input, if not x."""

GLUON = {"rows": 8, "columns": 32, "num_warps": 1}


def replay(bench: Bench, step: Callable[[bool], None]) -> None:
    """On a GPU: graphs of 1, 3 and 2 steps, each replayed; one rank is late in each step, as captured."""
    for steps in (1, 3, 2) if bench.graphs else ():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for i in range(steps):
                step((i + steps) % bench.world == bench.rank)
        for _ in range(bench.graphs):
            graph.replay()
        torch.cuda.synchronize()


def results(bench: Bench, table: Any, only: str = "") -> Iterator[tuple[str, str, dict[str, Any], int]]:
    """Operator, backend, knobs and wrong words of everything in a table."""
    for name in table:
        for backend, knobs in table[name] if only in ("", name) else ():
            bench.heap.reset()
            yield name, backend, knobs, wrong_words(bench, name, backend, knobs)


def on_cpu(rank: int, world: int, directory: str) -> None:
    """Prints, rank by rank, each variant and its wrong words; with TRITON_INTERPRET=1."""
    with gluon_shim.installed():
        importlib.import_module("kernels.all_gather.gluon_launch")
    shape = {"programs": 2, "num_warps": 1, "unroll": 1}
    with create(rank, world, "cpu", 1 << 19, directory) as heap:
        bench = Bench(rank, world, "cpu", heap, 5 * 1024, shape, calls=6, graphs=0)
        for name, backend, knobs, wrong in results(bench, GUARDED):
            print(name, backend, knobs, wrong)
            assert not wrong, (name, backend, knobs, wrong)


def read_late(rank: int, world: int, directory: str) -> None:
    """Prints the wrong words of rank 0, which reads its output while the others are at their next call."""
    with create(rank, world, "cpu", 1 << 19, directory) as heap:
        bench = Bench(rank, world, "cpu", heap, 8 * 1024, {"programs": 2, "num_warps": 1, "unroll": 1}, 2, 0)
        bench.delay = lambda rng, chance: time.sleep(0.5 * (rank == 0 and chance == 0.3))  # type: ignore[method-assign]
        for name, backend, _, wrong in results(bench, UNGUARDED):
            print(name, backend, "wrong" if wrong else "right")


def on_gpus(rank: int, world: int, directory: Path, calls: int, only: str) -> None:
    """The same on GPUs, and what is unguarded; many calls of few bytes, then few of more.  Rank 0 prints."""
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    store = torch.distributed.FileStore(str(directory / "store"), world)
    torch.distributed.init_process_group("nccl", store=store, rank=rank, world_size=world, device_id=device)
    few, more = {"programs": 32, "num_warps": 8, "unroll": 1}, {"programs": 64, "num_warps": 16, "unroll": 1}
    with create(rank, world, str(device), 1 << 30) as heap:
        for table, size, shape, count in (
            (GUARDED, 512 << 10, few, calls),
            (UNGUARDED, 512 << 10, few, calls // 10),
            (GUARDED, 8 << 20, more, calls // 20),
        ):
            bench = Bench(rank, world, str(device), heap, size, shape, count, count // 20)
            for name, backend, knobs, wrong in results(bench, table, only):
                if rank == 0:
                    print(f"{name} {backend} {knobs} {size >> 10} KB, {count} calls: {wrong} wrong words", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rank", type=int)
    parser.add_argument("world", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    on_gpus(asked.rank, asked.world, asked.directory, asked.calls, asked.only)
