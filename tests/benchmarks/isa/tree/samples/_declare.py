"""What every sample shares: a declaration whose measured half is empty, since samples are only compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernels.spec import Case, Compilation, Cost, Kernel, Tolerance


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
