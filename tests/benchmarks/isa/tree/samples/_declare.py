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
    nvidia: dict[str, Any] | None = None,
) -> None:
    """Declare one compilation a case; `nvidia` are constants and options that differ there."""

    def declare(case: Case, arch: str, **knobs: Any) -> Sequence[Compilation]:
        changed = (({} if arch.startswith("gfx") else nvidia) or {}) | knobs
        ours = {name: changed.get(name, value) for name, value in constants.items()}
        launch = {
            name: changed.get(name, value)
            for name, value in options.items()
            if arch.startswith("gfx") or name in ("num_warps", "num_stages")
        }
        return [Compilation("tile", function, arguments(case), ours, launch)]

    kernel.isa("triton")(declare)
