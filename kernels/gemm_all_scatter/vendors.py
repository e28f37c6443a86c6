"""The baselines of GEMM + all-scatter, and what stands in for a GPU kernel on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from kernels._shared.collectives import registered, vendor
from kernels._shared.collectives.cases import heap_of, need_group, only_on_cpu
from kernels.gemm_all_scatter.cases import columns_of as _columns
from kernels.numerics import DTYPES
from kernels.spec import Case, Unsupported

CPU_LIMIT_FLOP = 1_000_000_000
"""Most FLOP of a rank that are timed on a CPU: some 20 ms for two ranks on two cores."""


def blas_rccl(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.mm, all_gather_into_tensor, and one copy that makes the result row-major.

    The product goes straight into this rank's part of the gathered buffer, so the all-gather is in place.  That leaves
    [world, M, N / world]; one strided copy makes [M, N] of it, and for M = 1 it is that already: no copy then.
    One rank alone gathers nothing: it is the library's product and nothing else.
    """
    return _ordinary(case, inputs, None)


def blas_rccl_most_channels(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The same; the all-gather has as many channels as help (vendor.MOST_CHANNELS)."""
    return _ordinary(case, inputs, vendor.most_channels())


def blas_rccl_registered(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """As blas_rccl_most_channels, in a buffer that the library has allocated and registered on all ranks."""
    _accept(case)
    group, nothing = vendor.most_channels(), inputs["a"].new_empty(1)

    def make(_: torch.Tensor, gathered: torch.Tensor) -> Callable[[], torch.Tensor]:
        return _multiply_and_gather(case, inputs, gathered, group)

    return _by_rows(case, registered.build(nothing, case.M * case.N, group, make))


def _ordinary(case: Case, inputs: dict[str, torch.Tensor], group: Any) -> Callable[[], torch.Tensor]:
    if case.world == 1:
        return _product(case, inputs)
    _accept(case)
    gathered = inputs["a"].new_empty(case.M * case.N)
    return _by_rows(case, _multiply_and_gather(case, inputs, gathered, group))


def _product(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.mm alone, for the share of one rank."""
    _fits_cpu(case)
    a, transposed, out = inputs["a"], inputs["w"].T, inputs["a"].new_empty(case.M, case.N)
    return lambda: torch.mm(a, transposed, out=out)


def _accept(case: Case) -> None:
    _fits_cpu(case)
    if case.world == 1:
        raise Unsupported("one rank alone gathers nothing; blas+rccl is the library's product here")
    need_group(case)


def _multiply_and_gather(
    case: Case, inputs: dict[str, torch.Tensor], gathered: torch.Tensor, group: Any
) -> Callable[[], torch.Tensor]:
    """A call that fills gathered, [world * M * N / world] elements: the product of each rank after the other."""
    a, transposed = inputs["a"], inputs["w"].T
    mine = gathered.view(case.world, case.M, _columns(case))[case.place.rank]

    def call() -> torch.Tensor:
        torch.mm(a, transposed, out=mine)
        dist.all_gather_into_tensor(gathered, mine.view(-1), group=group)
        return gathered

    return call


def _by_rows(case: Case, gather: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """A call of the same product in row-major order, [M, N]."""
    if case.M == 1:
        return lambda: gather().view(1, case.N)
    out = torch.empty((case.M, case.N), dtype=DTYPES[case.dtype], device=case.place.device)
    by_rank = out.view(case.M, case.world, _columns(case)).transpose(0, 1)

    def call() -> torch.Tensor:
        by_rank.copy_(gather().view(by_rank.shape))
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
