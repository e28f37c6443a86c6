"""The baseline of the GEMM, and the same product for machines without a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernels.numerics import DTYPES
from kernels.spec import Case, Unsupported

CPU_LIMIT_FLOP = 2_000_000_000
"""Largest case timed on a CPU.  At some 100 GFLOP/s of a small CPU it takes 20 ms; the largest of all, a minute."""


def blas(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.mm into a given output: hipBLASLt or rocBLAS, cuBLASLt, oneDNN on a CPU."""
    _fits_cpu(case)
    a, transposed, out = inputs["a"], inputs["w"].T, _output(case)
    return lambda: torch.mm(a, transposed, out=out)


def linear(case: Case, inputs: dict[str, torch.Tensor], *, threads: int = 0) -> Callable[[], torch.Tensor]:
    """What torch.nn.Linear runs on a CPU, in `threads` threads; 0: as many as the process has anyway."""
    if case.place.device != "cpu":
        raise Unsupported(
            "on a GPU torch.nn.Linear is the library call that the baseline blas times; "
            "this backend is for machines without one"
        )
    _fits_cpu(case)
    a, w, out = inputs["a"], inputs["w"], _output(case)
    if threads < 0:
        raise Unsupported(f"{threads} threads; give 1 or more, or 0 for as many as the process has")

    def call() -> torch.Tensor:
        return torch.ops.aten.linear.out(a, w, None, out=out)

    return _in_threads(call, threads) if threads else call


def _in_threads(call: Callable[[], torch.Tensor], threads: int) -> Callable[[], torch.Tensor]:
    """The call in so many threads; the other backends of the process keep the number that it had."""

    def limited() -> torch.Tensor:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return call()
        finally:
            torch.set_num_threads(before)

    return limited


def _output(case: Case) -> torch.Tensor:
    return torch.empty((case.M, case.N), dtype=DTYPES[case.dtype], device=case.place.device)


def _fits_cpu(case: Case) -> None:
    flop = 2 * case.M * case.N * case.K
    if case.place.device == "cpu" and flop > CPU_LIMIT_FLOP:
        raise Unsupported(
            f"{flop / 1e9:.0f} GFLOP per call is too much for a CPU; cases up to "
            f"{CPU_LIMIT_FLOP / 1e9:.0f} GFLOP are timed there, a GPU is needed for this one"
        )
