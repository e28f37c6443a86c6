"""What a user would call instead: torch and the packages that bring a grouped GEMM of their own.

Every function takes (case, inputs) and returns a callable that is timed; `product` says which of the three products.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from kernels._shared.errors import first_line
from kernels.grouped_gemm.routing import lens
from kernels.spec import Case, Unsupported, functional

CPU_LIMIT_FLOP = 2e9
"""A CPU multiplies some 1e10 to 1e11 FLOP/s, and a case is called a few hundred times."""


def host_slices(case: Case) -> list[slice]:
    """Rows of each expert, known on the host from the case's routing: what `loop` needs and a real step must copy."""
    result, start = [], 0
    for count in lens(case.routing, case.G, case.M):
        result.append(slice(start, start + count))
        start += count
    return result


def loop(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.mm per expert, on sizes that the host knows already, into one output: cuBLASLt or hipBLASLt."""
    steps, out = _mm_steps(product, case, x)
    empty = [out[g] for g, rows in enumerate(host_slices(case)) if product == "wgrad" and rows.start == rows.stop]

    def call() -> torch.Tensor:
        for part in empty:
            part.zero_()
        for left, right, part in steps:
            torch.mm(left, right, out=part)
        return out

    return call


def _mm_steps(product: str, case: Case, x: dict[str, torch.Tensor]) -> tuple[list[tuple[Any, Any, Any]], torch.Tensor]:
    _suits(case)
    slices = [(g, rows) for g, rows in enumerate(host_slices(case)) if rows.stop > rows.start]
    if product == "wgrad":
        out = torch.empty((case.G, case.N, case.K), dtype=x["a"].dtype, device=x["a"].device)
        return [(x["dy"][rows].T, x["a"][rows], out[g]) for g, rows in slices], out
    left, columns = (x["a"], case.N) if product == "forward" else (x["dy"], case.K)
    out = torch.empty((left.shape[0], columns), dtype=left.dtype, device=left.device)
    return [(left[rows], x["b"][g].T if product == "forward" else x["b"][g], out[rows]) for g, rows in slices], out


def torch_grouped(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch._grouped_mm.  It has no `out`: every result is a new tensor, taken from what the allocator holds."""
    if not hasattr(torch, "_grouped_mm"):
        raise Unsupported(f"torch {torch.__version__} has no _grouped_mm; torch 2.8 or later has it")
    _suits(case)
    if product == "wgrad":
        left, right = x["dy"].T, x["a"]
    else:
        left, right = (x["a"], x["b"].transpose(-2, -1)) if product == "forward" else (x["dy"], x["b"])
    try:
        torch._grouped_mm(left, right, offs=x["ends"])
    except (RuntimeError, NotImplementedError) as error:
        raise Unsupported(f"torch._grouped_mm refuses this case on {case.place.arch}: {first_line(error)}") from error
    return functional(lambda: torch._grouped_mm(left, right, offs=x["ends"]))


def gmm(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The `grouped_gemm` package (tgale96): CUTLASS or cuBLAS on CUDA, hipBLASLt in its ROCm port; host sizes."""
    backend = _package("grouped_gemm.backend", "pip install grouped_gemm")
    _on_gpu(case, "grouped_gemm")
    sizes = torch.tensor(lens(case.routing, case.G, case.M), dtype=torch.int64, device="cpu")
    if product == "wgrad":
        out = torch.zeros((case.G, case.N, case.K), dtype=x["a"].dtype, device=x["a"].device)
        return lambda: backend.gmm(x["dy"], x["a"], sizes, trans_a=True, trans_b=False, c=out)
    left, columns = (x["a"], case.N) if product == "forward" else (x["dy"], case.K)
    out = torch.empty((left.shape[0], columns), dtype=left.dtype, device=left.device)
    return lambda: backend.gmm(left, x["b"], sizes, trans_a=False, trans_b=product == "forward", c=out)


def ck(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Composable Kernel's grouped GEMM, through the operators that the `primus_turbo` package registers."""
    _package("primus_turbo.pytorch", "pip install the primus_turbo wheel of this ROCm")
    operators = torch.ops.primus_turbo_cpp_extension
    name = "ck_grouped_gemm_variable_k" if product == "wgrad" else "ck_grouped_gemm"
    if not hasattr(operators, name):
        raise Unsupported(f"the installed primus_turbo registers no operator {name}; version 0.2 or later does")
    _on_gpu(case, "Composable Kernel")
    sizes = torch.tensor(lens(case.routing, case.G, case.M), dtype=torch.int64, device=x["ends"].device)
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    left, right = (x["dy"], x["a"]) if product == "wgrad" else (x["a" if product == "forward" else "dy"], x["b"])
    flags = (True, False) if product == "wgrad" else (False, product == "forward")

    def call() -> torch.Tensor:
        return getattr(operators, name)(left, right, sizes, offsets, *flags, None, False, None, 0)

    try:
        call()
    except (RuntimeError, TypeError) as error:
        raise Unsupported(f"{name} refuses this case: {first_line(error)}") from error
    return call


def on_cpu(product: str, case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The loop of torch.mm, for machines without a GPU."""
    if case.place.device != "cpu":
        raise Unsupported(f"the backend torch is for CPUs, this is {case.place.arch}; `loop` is the same on a GPU")
    return loop(product, case, x)


def _suits(case: Case) -> None:
    """Refuse on a CPU what would take minutes there."""
    flops = 2 * case.G * case.M * case.N * case.K
    if case.place.device == "cpu" and flops > CPU_LIMIT_FLOP:
        raise Unsupported(
            f"the case has {flops:.3g} FLOP, more than the {CPU_LIMIT_FLOP:.0e} that suit a CPU; it needs a GPU"
        )


def _package(module: str, remedy: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unsupported(f"{module} cannot be imported ({first_line(error)}); {remedy}") from error


def _on_gpu(case: Case, what: str) -> None:
    if case.place.device == "cpu":
        raise Unsupported(f"{what} needs a GPU, this is a CPU")
