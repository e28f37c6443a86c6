"""What must hold on this machine before a Triton kernel is launched, and how to get the module that launches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels._shared.tuning import all_knobs
from kernels.spec import Case, Compilation, Kernel, Unsupported


def need_triton(case: Case) -> None:
    """Unsupported where Triton cannot be imported, or has no device to compile for."""
    try:
        from triton import knobs
    except ImportError as error:
        raise _missing("Triton", error) from error
    if case.place.arch == "cpu" and not knobs.runtime.interpret:  # an emulated GPU has an architecture
        needed = "a GPU is needed" if case.world == 1 else "GPUs are needed"
        raise Unsupported(
            f"Triton compiles for GPUs only, and this machine has none; {needed} "
            "(Triton's interpreter is for tests and is never timed)"
        )


def launch_module(load: Callable[[], Any], language: str = "Triton") -> Any:
    """The module that launches an operator, imported by `load`; Unsupported where its language cannot be imported."""
    try:
        return load()
    except (ImportError, AttributeError) as error:
        raise _missing(language, error) from error


def launcher(case: Case, load: Callable[[], Any], language: str = "Triton") -> Any:
    """launch_module, on a machine that can launch the case."""
    loaded = launch_module(load, language)
    need_triton(case)
    return loaded


def compiled_ahead(
    kernel: Kernel, backend: str, load: Callable[[], Any], language: str = "Triton", **fixed: Any
) -> None:
    """Declare what a backend compiles: the one kernel that the case launches, with the knobs of config().

    Overrides go over these, and `fixed`, which no caller can change, over all.
    """

    @kernel.isa(backend)
    def compilations(case: Case, arch: str, **overrides: Any) -> list[Compilation]:
        chosen = all_knobs(kernel.backends[backend], case, arch, overrides)
        return [launch_module(load).compilation(case, arch, {**chosen, **fixed})]


def _missing(language: str, error: Exception) -> Unsupported:
    return Unsupported(f"{language} cannot be imported here ({error}); install triton 3.6 or later")
