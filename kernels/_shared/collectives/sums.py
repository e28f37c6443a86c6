"""From knobs to a launch of a sum over the ranks: what all_reduce and reduce_scatter share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels._shared.collectives.cases import on_heap
from kernels._shared.collectives.launch import call_of, compilation_of, constants
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """One value of the knob `algorithm` of a sum.  barriers: rows of signals.  part: a rank adds up one part, not all.

    halves: 1 or 2 for a staging buffer of that many halves, 0 without one; then the peers read the input, which lies
    on the symmetric heap instead.  chunks: it sends in chunks, by the knobs `ahead` and `chunk`.
    """

    function: Any
    barriers: int
    halves: int
    part: bool = True
    chunks: bool = False


@dataclasses.dataclass(frozen=True)
class Sum:
    """Launches of all_reduce or reduce_scatter.  whole: every rank gets the whole sum, not its part.

    ahead_is: what is said of the knob `ahead` when it is below 0.
    """

    operator: str
    whole: bool
    ahead_is: str
    algorithms: Mapping[str, Algorithm]

    def build(
        self, case: Case, heap: SymmetricHeap, given: torch.Tensor, knobs: Mapping[str, Any]
    ) -> Callable[[], torch.Tensor]:
        """A call that adds up the `given` of all ranks; a collective: all ranks build with the same knobs.

        What peers read or write lies on the symmetric heap, as with a user who allocates it there: the input of the
        algorithms that read, the whole output of those that add up parts.
        """
        algorithm, count, out, fixed = self._plan(case, given.numel(), case.place.arch, knobs)
        tensors = {"x": given, "out": torch.empty(out, dtype=given.dtype, device=given.device)}
        if algorithm.halves:
            tensors["stage"] = heap.alloc((algorithm.halves, case.world, count), given.dtype)
        else:
            tensors["x"] = on_heap(heap, given)
        if self.whole and algorithm.part:
            tensors["out"] = heap.alloc(given.shape, given.dtype)
        signals = heap.signals(algorithm.barriers, case.world, knobs["programs"])
        arguments = {**tensors, "signals": signals, "count": count}
        return call_of(case, algorithm.function, arguments, fixed, knobs, tensors["out"])

    def compilation(self, case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
        """The ahead-of-time compilation of the launch."""
        elements = int(case.KB * 1024) // int(case.itemsize)
        algorithm, count, out, fixed = self._plan(case, elements, arch, knobs)
        tensors = {"x": (case.dtype, elements), "out": (case.dtype, out)}
        if algorithm.halves:
            tensors["stage"] = (case.dtype, algorithm.halves * case.world * count)
        return compilation_of(case, algorithm.function, arch, tensors, count, fixed, knobs, algorithm.barriers)

    def _plan(
        self, case: Case, elements: int, arch: str, knobs: Mapping[str, Any]
    ) -> tuple[Algorithm, int, int, dict[str, Any]]:
        """(algorithm, elements that a program walks over, those of the output, constants); ValueError for knobs."""
        name = knobs["algorithm"]
        if name not in self.algorithms:
            raise ValueError(f"{self.operator}: algorithm {name!r} is not one of {', '.join(self.algorithms)}")
        algorithm = self.algorithms[name]
        if algorithm.chunks and (knobs["ahead"] < 0 or knobs["chunk"] < 1):
            raise ValueError(
                f"{self.operator}: ahead {knobs['ahead']} must be at least 0{self.ahead_is}, "
                f"and chunk {knobs['chunk']} at least 1 block"
            )
        count = elements // case.world if algorithm.part else elements
        chunks = {"AHEAD": knobs["ahead"], "CHUNK": knobs["chunk"]} if algorithm.chunks else {}
        fixed = {**constants(case.world, count, int(case.itemsize), arch, knobs), **chunks}
        return algorithm, count, elements if self.whole else count, fixed
