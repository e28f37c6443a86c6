"""GEMM + all-scatter: C[M, N] = A[M, K] @ W[N, K]^T on every rank, each rank computing N / world columns of it.

A is on every rank, the weights are split by output column (tensor parallelism of a column-parallel layer whose
output everybody needs); fp16 and bf16, 2, 4 and 8 ranks.  The weights are stored as torch.nn.Linear stores them, so a
rank holds [N / world, K].  `triton` stores each tile to all ranks as soon as it is computed, `bulk` computes first
and scatters then, the baselines are what one writes with the libraries: `blas+rccl`, and the same with the all-gather
at its best: most channels, registered buffers (the fastest of the three counts).

Cases w1of2, w1of4, ... are the share of one rank alone, on one GPU (cases.py): the product without links, by the same
kernel; `blas+rccl` is there the library's product.

**When a call is done, and when the output may be used again.**  As with the libraries: when a call has completed on a
rank's stream, that rank's output is complete, and it is the rank's own until its next call.  `triton` waits in each
call until the peers have begun it (device.py says why that is enough), `bulk` has a barrier before it scatters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kernels._shared.collectives.cases import accept, heap_of
from kernels._shared.libraries import launch_module, launcher
from kernels._shared.tuning import all_knobs, compiled_ahead
from kernels.gemm_all_scatter import config as knobs
from kernels.gemm_all_scatter import vendors
from kernels.gemm_all_scatter.cases import cases, columns_of
from kernels.numerics import normal, seed_for
from kernels.spec import Case, Compilation, Cost, Kernel, Small, Tolerance

# The tolerances of kernels/gemm: the same sums, rounded once.
gemm_all_scatter = Kernel(
    "gemm_all_scatter",
    cases=cases(),
    tolerance={"fp16": Tolerance(norm=1e-3, peak=1e-2), "bf16": Tolerance(norm=4e-3, peak=5e-2)},
    live=("a",),
)


def _weights(case: Case, seed: int, rank: int) -> torch.Tensor:
    """w [N / world, K] of a rank: normal values of its own seed, so that a swapped rank shows."""
    return normal((columns_of(case), case.K), case.dtype, seed_for(seed, case.name, "w", rank), case.place.device)


@gemm_all_scatter.inputs
def inputs(case: Case, seed: int) -> dict[str, torch.Tensor]:
    """a [M, K], equal on all ranks, w [N / world, K] of this rank, and the seed, which makes all ranks' w again."""
    accept(case, ("fp16", "bf16"))
    return {
        "a": normal((case.M, case.K), case.dtype, seed_for(seed, case.name, "a"), case.place.device),
        "w": _weights(case, seed, case.place.rank),
        "seed": torch.tensor(seed),
    }


@gemm_all_scatter.cost
def cost(case: Case) -> Cost:
    """Per rank: 2 M K N / world FLOP (the headline 2 M N K is that of all ranks); M N / world elements to every peer.

    HBM: a and w are read once, and a rank's memory takes the whole output.  Payload: the whole output.
    """
    columns, item = case.N // case.world, case.itemsize
    return Cost(
        flops=2 * case.M * case.K * columns,
        hbm_bytes=int((case.M * case.K + columns * case.K + case.M * case.N) * item),
        link_bytes=int((case.world - 1) * case.M * columns * item),
        payload_bytes=int(case.M * case.N * item),
    )


@gemm_all_scatter.reference
def reference(case: Case, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """fp32 [M, N]: products of the fp32 values, TF32 off, with the weights of all ranks, made from the seed in turn."""
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        a, seed = inputs["a"].float(), int(inputs["seed"])
        return torch.cat([a @ _weights(case, seed, rank).float().T for rank in range(case.world)], dim=1)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed


gemm_all_scatter.baseline("blas+rccl")(vendors.blas_rccl)
gemm_all_scatter.baseline("blas+rccl_most_channels")(vendors.blas_rccl_most_channels)
gemm_all_scatter.baseline("blas+rccl_registered")(vendors.blas_rccl_registered)
gemm_all_scatter.backend("torch")(vendors.copies)


@gemm_all_scatter.backend("triton", config=knobs.config, candidates=knobs.candidates, tuned=knobs.TABLE)
def triton(
    case: Case, inputs: dict[str, torch.Tensor], *,
    block_m: int = 128, block_n: int = 128, block_k: int = 64, group_m: int = 8, split_k: int = 1, cut: str = "all",
    programs: int = 0, num_warps: int = 8, num_stages: int = 3, tma: bool = False, swap: bool = False,
    flatten: bool = True, scatter: str = "store", parts: int = 1, hint: bool = True, xcds: int = 1,
    matrix_instr_nonkdim: int = 16, kpack: int = 1, waves_per_eu: int = 0, wait: bool = True,
) -> Callable[[], torch.Tensor]:  # fmt: skip
    """One kernel that multiplies and scatters (device.py beside it); knobs: config.py."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    return _launcher(case).build(case, heap_of(case), inputs["a"], inputs["w"], chosen)


@gemm_all_scatter.backend("bulk", config=knobs.bulk_config, candidates=knobs.bulk_candidates, tuned=knobs.BULK_TABLE)
def bulk(
    case: Case, inputs: dict[str, torch.Tensor], *,
    programs: int = 64, num_warps: int = 16, unroll: int = 1, barrier: bool = True, wait: bool = True,
) -> Callable[[], torch.Tensor]:  # fmt: skip
    """Bulk-synchronous: torch.mm, a barrier of all ranks, a kernel that scatters straight into row-major order."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    return _launcher(case).build_bulk(case, heap_of(case), inputs["a"], inputs["w"], chosen)


def _launcher(case: Case) -> Any:
    """The module that launches, after all refusals that need no GPU."""
    accept(case, ("fp16", "bf16"))
    columns_of(case)
    return launcher(case, _device)


def _device() -> Any:
    from kernels.gemm_all_scatter import device

    return device


compiled_ahead(gemm_all_scatter, "triton", _device)


@gemm_all_scatter.isa("bulk")
def bulk_compilations(case: Case, arch: str, **overrides: Any) -> list[Compilation]:
    """The scattering kernel; the GEMM before it is the library's."""
    chosen = all_knobs(gemm_all_scatter.backends["bulk"], case, arch, overrides)
    return [launch_module(_device).bulk_compilation(case, arch, chosen)]


@gemm_all_scatter.small()
def small(case: Case, backend: str, knobs: Mapping[str, Any]) -> Iterator[Small]:
    """One block for each program, with and without a split of K."""
    if case.world == 1 or case.dtype != "fp16" or backend != "triton":  # what dtypes share is executed in one of them
        return
    for chosen in ({}, {"split_k": 2, "num_warps": 4, "programs": 2}):
        yield Small({"M": 64, "N": 64 * case.world, "K": 128}, chosen)
