"""A collective operator on all ranks of a world, in one process: captured launches, run under schedules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from mmap import mmap
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import launch
from .code_object import NotExecutable
from .ordering import UNIT, FlatMemory
from .paths import Program
from .programs import STREAM, Facts
from .schedule import LIMIT, Hazard, Schedule, World
from .triton_driver import Launch, driving
from .waves import Memory

TIMES_LONGER = 4
"""A schedule that executes so many times the instructions of the first one is a livelock."""

HEAP_BYTES = 1 << 26
"""Of each rank's heap; only what is allocated of it takes memory."""

CALLS = 2
"""Calls one after the other in every schedule: what guards an output between them is executed too."""


POISON = 0xFB
"""Bytes of an output before a call."""


class Unsound(Exception):
    """The first schedule, which nothing disturbs, has a hazard or is not what the reference says."""


def world(kernel: Any, backend: str, case: Any, arch: str, changed: dict[str, Any]) -> World:
    """Build a collective backend on all ranks of a case for each call, with inputs of its own; nothing is executed."""
    import torch

    from kernels.numerics import compare

    builds = [_Build(kernel, backend, case, arch, changed, seed) for seed in range(CALLS)]
    first, memory, ranks = builds[0], builds[0].memory(), range(case.world)
    outputs = [(memory.place(one.data_ptr()), one.numel() * one.element_size()) for one in first.results]
    writes: list[list[list[tuple[int, Any]]]] = [[[] for _ in builds] for _ in ranks]
    for rank, (call, build) in itertools.product(ranks, enumerate(builds)):
        for (address, before, _), (_, after, _) in zip(first.buffers[rank], build.buffers[rank], strict=True):
            differ = np.flatnonzero(before != after) // UNIT * UNIT
            if len(differ):
                part = slice(differ[0], differ[-1] + UNIT)
                writes[rank][call].append((memory.place(address) + differ[0], after[part].copy()))
        start, size = outputs[rank]
        writes[rank][call].append((start, np.full(size, POISON, np.uint8)))

    def compared(rank: int, call: int, output: Any) -> Any:
        like = first.results[rank]
        given = torch.from_numpy(output.copy()).view(like.dtype).view(like.shape)
        return compare(given, builds[call].references[rank], kernel.tolerance_for(case))

    return World(memory, *programs(memory, first.launches), writes, outputs, compared)


def programs(memory: FlatMemory, launches: Sequence[Launch]) -> tuple[list[Program], list[Facts]]:
    """What the launch of each rank does, and the facts of all instructions by number."""
    facts = [STREAM]
    return [Program(memory, one, rank, facts) for rank, one in enumerate(launches)], facts


class _Build:
    """A backend built on all ranks of a world, in heaps of its own; its first call captured."""

    def __init__(self, kernel: Any, backend: str, case: Any, arch: str, changed: dict[str, Any], seed: int) -> None:
        import torch

        from kernels.spec import Place
        from kernels.symmetric_heap import SymmetricHeap

        self.views = [torch.frombuffer(mmap(-1, HEAP_BYTES), dtype=torch.uint8) for _ in range(case.world)]
        memory = SimpleNamespace(
            home="emulation",
            device="cpu",
            bases=[view.data_ptr() for view in self.views],
            view=self.views.__getitem__,
            reserve=lambda start, size: None,
            barrier=lambda: None,  # the ranks are built one after the other
        )
        self.heaps = [SymmetricHeap(rank, memory) for rank in range(case.world)]
        declared = kernel.backends[backend]
        self.launches: list[Launch] = []
        placed = [
            case.at(Place(rank=rank, world=case.world, device="cpu:0", arch=arch, heap=heap))
            for rank, heap in enumerate(self.heaps)
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
        if len({(int(np.prod(one.grid)), one.warps) for one in self.launches}) > 1:
            raise NotExecutable("launches of the ranks differ in their grid or waves")
        self.references = [kernel.function("reference")(one, inputs) for one, inputs in zip(placed, given, strict=True)]
        self._kept = [given, calls]  # whose memory the buffers are
        self.buffers = [self._buffers(rank) for rank in range(case.world)]

    def _buffers(self, rank: int) -> list[tuple[int, Any, str]]:
        """What a rank's stream may write: what is taken of its heap, and its own tensors in the kernel's order."""
        heap, one = self.heaps[rank], self.launches[rank]
        held = self.views[rank][: heap.bytes - heap.left].numpy()
        taken = [(self.views[rank].data_ptr(), held, f"heap of rank {rank}")]
        known = {heap.bases.data_ptr(), *heap.bases.tolist()}
        for argument in one.arguments:
            for start, contents, name in one.memory.buffers():
                if start not in known and start <= int(argument) < start + len(contents):
                    taken.append((start, contents, f"{name} of rank {rank}"))
                    known.add(start)
        return taken

    def memory(self) -> FlatMemory:
        """All buffers of all ranks, and what the launches' first registers point to."""
        found = [buffer for rank in self.buffers for buffer in rank]
        for rank, one in enumerate(self.launches):
            bases = self.heaps[rank].bases
            found.append((bases.data_ptr(), bases.numpy().view(np.uint8), f"bases of rank {rank}"))
            starting = Memory()
            launch.started(one.code, starting, launch.segment(one.code, one.arguments), one.grid, one.warps, rank)
            found += starting.buffers()
        return FlatMemory(found)


class Schedules:
    """Runs a world under seeds.  Its first, undisturbed run is compared with the reference; all others must equal it.

    error: the largest "norm" and "peak" of the first run.  Raises Unsound.
    """

    def __init__(self, of: World) -> None:
        self.world, self.limit = of, LIMIT
        self.expected: Any = None
        self._initial = of.memory.bytes.copy()
        try:
            calm = self.run(0)
        except Hazard as hazard:
            raise Unsound(f"the first schedule: {hazard}") from None
        self.limit, self.expected = TIMES_LONGER * calm.executed, calm.results
        self.error = {"norm": 0.0, "peak": 0.0}
        for rank, call in itertools.product(range(len(calm.results)), range(CALLS)):
            found = of.compared(rank, call, calm.results[rank][call])
            if not found.ok:
                raise Unsound(f"rank {rank}, call {call}: not what the reference says: {found}")
            self.error = {name: max(value, getattr(found, name)) for name, value in self.error.items()}

    def run(self, seed: int) -> Schedule:
        """One schedule, executed.  Raises Hazard."""
        self.world.memory.bytes[:] = self._initial
        schedule = Schedule(self.world, self.expected, seed, self.limit)
        schedule.run()
        return schedule
