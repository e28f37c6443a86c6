"""Small kernels with known code, for the tests of benchmarks.isa."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import triton
import triton.language as tl

from kernels.spec import Case, Compilation, Cost, Kernel, Tolerance

# What every sample shares: a declaration whose measured half is empty, since samples are only compiled.


def sample(name: str, *cases: Case) -> Kernel:
    """A kernel with that name and those cases, whose only backend is "triton"."""
    kernel = Kernel(name, cases=cases, tolerance=Tolerance())
    kernel.inputs(lambda case, seed: {})
    kernel.cost(lambda case: Cost())
    kernel.reference(lambda case, inputs: None)
    kernel.backend("triton")(lambda case, inputs: lambda: None)
    return kernel


def compiled(
    kernel: Kernel,
    function: Any,
    arguments: Callable[[Case], dict[str, Any]],
    constants: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Declare one compilation a case."""

    def declare(case: Case, arch: str) -> Sequence[Compilation]:
        known = {n: v for n, v in options.items() if arch.startswith("gfx") or n in ("num_warps", "num_stages")}
        return [Compilation("tile", function, arguments(case), constants, known)]

    kernel.isa("triton")(declare)


# Pointer translation into a peer's heap, as every remote store of the samples uses it.


@triton.jit
def translate(pointer, own_base, heap_bases, rank):
    """The same offset in the heap of `rank`, in this process's address space.

    The hint stands here and not at the caller: on the result of a call it is lost when the call is inlined.
    """
    offset = pointer.to(tl.uint64) - own_base
    remote = (tl.load(heap_bases + rank) + offset).to(pointer.dtype)
    return tl.max_contiguous(tl.multiple_of(remote, (1, 16)), (1, 16))
