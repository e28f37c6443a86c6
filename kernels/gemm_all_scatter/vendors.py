"""The baseline of GEMM + all-scatter, and what stands in for a GPU kernel on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from kernels._shared.collectives.placing import heap_of, need_group, only_on_cpu
from kernels.gemm_all_scatter.cases import columns_of as _columns
from kernels.numerics import DTYPES
from kernels.spec import Case, Unsupported

CPU_LIMIT_FLOP = 1_000_000_000
"""Most FLOP of a rank that are timed on a CPU: some 20 ms for two ranks on two cores."""


def blas_rccl(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.mm, all_gather_into_tensor, and one copy that makes the result row-major.

    The product goes straight into this rank's part of the gathered buffer, so the all-gather is in place.  That leaves
    [world, M, N / world]; one strided copy makes [M, N] of it, and for M = 1 it is that already: no copy then.
    """
    _fits_cpu(case)
    need_group(case)
    a, transposed, columns = inputs["a"], inputs["w"].T, _columns(case)
    gathered = torch.empty((case.world, case.M, columns), dtype=a.dtype, device=a.device)
    mine, flat = gathered[case.place.rank], gathered.view(-1)
    by_row = gathered.transpose(0, 1)
    out = gathered.view(1, case.N) if case.M == 1 else torch.empty((case.M, case.N), dtype=a.dtype, device=a.device)

    def call() -> torch.Tensor:
        torch.mm(a, transposed, out=mine)
        dist.all_gather_into_tensor(flat, mine.view(-1))
        if case.M > 1:
            out.view(case.M, case.world, columns).copy_(by_row)
        return out

    return call


def copies(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """For CPUs: torch.mm, then every rank copies its columns into the output of all ranks, then they meet."""
    only_on_cpu(case)
    _fits_cpu(case)
    heap, columns, rank = heap_of(case), _columns(case), case.place.rank
    a, transposed, out = inputs["a"], inputs["w"].T, heap.alloc((case.M, case.N), DTYPES[case.dtype])
    local = torch.empty((case.M, columns), dtype=a.dtype)
    mine = slice(rank * columns, (rank + 1) * columns)
    targets = [heap.peer((rank + i) % case.world, out)[:, mine] for i in range(case.world)]

    def call() -> torch.Tensor:
        torch.mm(a, transposed, out=local)
        for target in targets:
            target.copy_(local)
        heap.barrier()
        return out

    return call


def _fits_cpu(case: Case) -> None:
    flop = 2 * case.M * case.K * _columns(case)
    if case.place.device == "cpu" and flop > CPU_LIMIT_FLOP:
        raise Unsupported(
            f"{flop / 1e9:.1f} GFLOP per call and rank is too much for ranks on a CPU; cases up to "
            f"{CPU_LIMIT_FLOP / 1e9:.0f} GFLOP are timed there, GPUs are needed for this one"
        )
