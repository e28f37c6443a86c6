"""A collective operator on all ranks of a world, in one process: captured launches, run under schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import launch
from .code_object import NotExecutable
from .ordering import FlatMemory
from .programs import Programs
from .schedule import LIMIT, MOST, Between, Hazard, Schedule
from .triton_driver import Launch, driving
from .waves import Memory

TIMES_LONGER = 4
"""A schedule that executes so many times the instructions of the first one is a livelock."""

HEAP_BYTES = 1 << 26
"""Of each rank's heap; only what is allocated of it takes memory."""

CALLS = 2
"""Calls one after the other in every schedule: what guards an output between them is executed too."""


class OneProcess:
    """The heaps of all ranks in one process, for kernels.symmetric_heap: a barrier returns at once."""

    home, device = "emulation", "cpu"

    def __init__(self, world: int, size: int) -> None:
        import torch

        self._heaps = [torch.zeros(size, dtype=torch.uint8) for _ in range(world)]
        self.bases = [heap.data_ptr() for heap in self._heaps]

    def view(self, rank: int) -> Any:
        """The heap of a rank."""
        return self._heaps[rank]

    def reserve(self, start: int, size: int) -> None:
        """Nothing to do: the memory is there."""

    def barrier(self) -> None:
        """Nothing to wait for: the ranks are built one after the other."""

    def close(self) -> None:
        """Give the memory back."""
        self._heaps = []


class Unsound(Exception):
    """The first schedule, which nothing disturbs, has a hazard or is not what the reference says."""


@dataclass(frozen=True)
class World:
    """Launches of all ranks, [rank][call], the memory that they share, and what their streams do in between.

    outputs: first place and bytes of each rank's output.  references: [rank][call], tensors; likes: an output of each
    rank, for its type and shape.
    """

    memory: FlatMemory
    launches: list[list[Launch]]
    between: list[list[Between]]
    outputs: list[tuple[int, int]]
    references: list[list[Any]]
    likes: list[Any]
    tolerance: Any


def world(kernel: Any, backend: str, case: Any, arch: str, changed: dict[str, Any], calls: int = CALLS) -> World:
    """Build a collective backend on all ranks of a case for each call, with inputs of its own; nothing is executed."""
    builds = [_Build(kernel, backend, case, arch, changed, seed) for seed in range(calls)]
    first = builds[0]
    memory = first.memory()
    between: list[list[Between]] = [[] for _ in range(case.world)]
    for number, build in enumerate(builds):
        for rank in range(case.world):
            writes = []
            for (address, contents, _), (_, others, _) in zip(first.buffers[rank], build.buffers[rank], strict=True):
                writes += _differences(memory, address, contents, others) if number else []
            start, size = first.output(memory, rank)
            poison = np.full(size, 0xFB, np.uint8)
            between[rank].append(Between((*writes, (start, poison))))
    return World(
        memory,
        [[first.launches[rank]] * calls for rank in range(case.world)],
        between,
        [first.output(memory, rank) for rank in range(case.world)],
        [[build.references[rank] for build in builds] for rank in range(case.world)],
        first.results,
        kernel.tolerance_for(case),
    )


def _differences(memory: FlatMemory, address: int, contents: Any, others: Any) -> list[tuple[int, Any]]:
    """Runs of bytes of a buffer that have another content in a later build, as writes to places."""
    differ = np.flatnonzero(contents != others)
    if not len(differ):
        return []
    start = int(memory.places(np.array([address], np.uint64), 1)[0])
    first, last = int(differ[0]) & ~1, (int(differ[-1]) | 1) + 1
    return [(start + first, others[first:last].copy())]


class _Build:
    """A backend built on all ranks of a world, in heaps of its own; its first call captured."""

    def __init__(self, kernel: Any, backend: str, case: Any, arch: str, changed: dict[str, Any], seed: int) -> None:
        from kernels.spec import Place
        from kernels.symmetric_heap import SymmetricHeap

        self.heap = OneProcess(case.world, HEAP_BYTES)
        self.handles = [SymmetricHeap(rank, self.heap) for rank in range(case.world)]
        declared = kernel.backends[backend]
        self.launches: list[Launch] = []
        self.results: list[Any] = []
        self.references: list[Any] = []
        self.buffers: list[list[tuple[int, Any, str]]] = []
        self._kept: list[Any] = []
        placed = [
            case.at(Place(rank=rank, world=case.world, device="cpu", arch=arch, heap=heap))
            for rank, heap in enumerate(self.handles)
        ]
        given = [kernel.function("inputs")(one, seed) for one in placed]
        with driving(arch, self.launches.append):
            calls = [
                declared.build(one, inputs, **{**declared.config(one, arch), **changed})
                for one, inputs in zip(placed, given, strict=True)
            ]
            self.results = [call() for call in calls]
        if len(self.launches) != case.world:
            raise NotExecutable(f"{len(self.launches)} launches for {case.world} ranks: one for each can be scheduled")
        self.references = [kernel.function("reference")(one, inputs) for one, inputs in zip(placed, given, strict=True)]
        self._kept = [given, calls]
        self.buffers = [self._buffers(rank) for rank in range(case.world)]

    def _buffers(self, rank: int) -> list[tuple[int, Any, str]]:
        """What a rank's stream may write: what is taken of its heap, and its own tensors in the kernel's order."""
        heap, handle = self.heap.view(rank), self.handles[rank]
        taken = [(self.heap.bases[rank], heap[: handle.bytes - handle.left].numpy(), f"heap of rank {rank}")]
        one = self.launches[rank]
        for argument in one.arguments:
            for start, contents, name in one.memory.buffers():
                known = [handle.bases.data_ptr(), *self.heap.bases, *(address for address, _, _ in taken)]
                if start not in known and start <= int(argument) < start + len(contents):
                    taken.append((start, contents, f"{name} of rank {rank}"))
        return taken

    def memory(self) -> FlatMemory:
        """All buffers of all ranks, and what the launches' first registers point to."""
        found = [buffer for rank in self.buffers for buffer in rank]
        for rank, one in enumerate(self.launches):
            bases = self.handles[rank].bases
            found.append((bases.data_ptr(), bases.numpy().view(np.uint8), f"bases of rank {rank}"))
            starting = Memory()
            launch.started(one.code, starting, launch.segment(one.code, one.arguments), one.grid, one.warps, rank)
            found += starting.buffers()
        return FlatMemory(found)

    def output(self, memory: FlatMemory, rank: int) -> tuple[int, int]:
        """First place and bytes of a rank's output."""
        result = self.results[rank]
        place = memory.places(np.array([result.data_ptr()], np.uint64), result.numel() * result.element_size())
        return int(place[0]), result.numel() * result.element_size()


class Schedules:
    """Runs a world under seeds.  Its first, undisturbed run is compared with the reference; all others must equal it.

    sound: runs of the same world without a fault, whose outputs are taken; then the first hazard ends a schedule.
    error: the largest "norm" and "peak" of the first run.  Raises Unsound.
    """

    def __init__(self, of: World, sound: Schedules | None = None) -> None:
        self.world, self.programs = of, Programs(len(of.launches))
        self.most, self.limit = (1, sound.limit) if sound else (MOST, LIMIT)
        self.error = {"norm": 0.0, "peak": 0.0}
        self._initial = sound._initial if sound else of.memory.bytes.copy()
        self.expected = sound.expected if sound else self._calm()

    def _calm(self) -> list[list[Any]]:
        """Outputs of one run, [rank][call]."""
        import torch

        from kernels.numerics import compare

        schedule = self._schedule(0, None)
        schedule.run()
        self.limit = TIMES_LONGER * schedule.executed
        if schedule.hazards:
            raise Unsound(f"the first schedule: {schedule.hazards[0]}")
        for rank, outputs in enumerate(schedule.results):
            like = self.world.likes[rank]
            for call, output in enumerate(outputs):
                found = compare(
                    torch.from_numpy(output.copy()).view(like.dtype).view(like.shape),
                    self.world.references[rank][call],
                    self.world.tolerance,
                )
                if not found.ok:
                    raise Unsound(f"rank {rank}, call {call}: not what the reference says: {found}")
                self.error = {name: max(value, getattr(found, name)) for name, value in self.error.items()}
        return schedule.results

    def _schedule(self, seed: int, expected: list[list[Any]] | None) -> Schedule:
        self.world.memory.bytes[:] = self._initial
        one = self.world
        return Schedule(
            self.programs, one.memory, one.launches, one.between, one.outputs, expected, seed, self.most, self.limit
        )

    def run(self, seed: int) -> Schedule:
        """One schedule, executed; its hazards are in it."""
        schedule = self._schedule(seed, self.expected)
        schedule.run()
        return schedule

    def hazards(self, seeds: Sequence[int]) -> Iterator[Hazard]:
        """What is wrong under these seeds, schedule by schedule."""
        for seed in seeds:
            yield from self.run(seed).hazards
