"""GEMM + all-scatter: C[M, N] = A[M, K] @ W[N, K]^T on every rank, each rank computing N / world columns of it.

A is on every rank, the weights are split by output column (tensor parallelism of a column-parallel layer whose
output everybody needs); fp16 and bf16, 2, 4 and 8 ranks.  The weights are stored as torch.nn.Linear stores them, so a
rank holds [N / world, K].  `triton` stores each tile to all ranks as soon as it is computed, `bulk` computes first
and scatters then, the baseline is what one writes with the vendor's libraries.

**When a call is done, and when the output may be used again.**  When a call has completed on a rank's stream, that
rank's output is complete.  The peers write into the output themselves, as soon as they start their next call: whoever
reads or overwrites the output of one call must put a barrier of all ranks (`heap.barrier()`) between that and the
next call of any rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from kernels.collectives.placing import accept, can_launch, heap_of, need_group, only_on_cpu
from kernels.gemm_all_scatter import config as knobs
from kernels.numerics import DTYPES, normal, seed_for
from kernels.spec import Case, Compilation, Cost, Kernel, Tolerance, Unsupported

WEIGHTS = ((4096, 4096), (4096, 14336), (8192, 4096), (8192, 28672))
"""(N, K) of the whole weight matrices: attention output, MLP down and up of 8B- and 70B-class models."""

TOKENS = (64, 128, 256, 512, 1024)
"""M of every weight matrix."""

DECODE = (1, 2, 4, 8, 16, 32)
"""More M of (4096, 14336): single tokens and small batches."""

PULL_REQUEST = (
    "n4096_k14336_m1",
    "n4096_k14336_m64",
    "n4096_k14336_m256",
    "n4096_k4096_m1024",
    "n8192_k28672_m512",
    "n4608_k36864_m8192",
)
"""Shapes of the tier `pr`, in fp16 for 2 and 4 ranks."""

CPU_LIMIT_FLOP = 1_000_000_000
"""Most FLOP of a rank that are timed on a CPU: some 20 ms for two ranks on two cores."""


def _cases() -> list[Case]:
    shapes = [(n, k, m) for n, k in WEIGHTS for m in TOKENS]
    shapes += [(4096, 14336, m) for m in DECODE] + [(4608, 36864, 8192)]
    found = []
    for world in (2, 4, 8):
        for dtype in ("fp16", "bf16"):
            for n, k, m in shapes:
                name = f"n{n}_k{k}_m{m}"
                often = name in PULL_REQUEST and dtype == "fp16" and world in (2, 4)
                found.append(
                    Case(
                        f"{name}_{dtype}_w{world}",
                        tier="pr" if often else "nightly",
                        world=world,
                        dtype=dtype,
                        M=m,
                        N=n,
                        K=k,
                    )
                )
    return found


# The tolerances of kernels/gemm: the same sums, rounded once.
gemm_all_scatter = Kernel(
    "gemm_all_scatter",
    cases=_cases(),
    tolerance={"fp16": Tolerance(norm=1e-3, peak=1e-2), "bf16": Tolerance(norm=4e-3, peak=5e-2)},
)


def _columns(case: Case) -> int:
    """Columns of a rank; Unsupported if the ranks do not share them evenly."""
    if case.N % case.world:
        raise Unsupported(
            f"N = {case.N} columns cannot be shared evenly by {case.world} ranks; N must be a multiple of {case.world}"
        )
    return int(case.N // case.world)


def _weights(case: Case, seed: int, rank: int) -> torch.Tensor:
    """w [N / world, K] of a rank: normal values of its own seed, so that a swapped rank shows."""
    return normal((_columns(case), case.K), case.dtype, seed_for(seed, case.name, "w", rank), case.place.device)


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


@gemm_all_scatter.baseline("blas+rccl")
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


@gemm_all_scatter.backend("torch")
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


@gemm_all_scatter.backend("triton", config=knobs.config)
def triton(
    case: Case,
    inputs: dict[str, torch.Tensor],
    *,
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    group_m: int = 8,
    split_k: int = 1,
    cut: str = "all",
    programs: int = 0,
    num_warps: int = 8,
    num_stages: int = 3,
    tma: bool = False,
    swap: bool = False,
    flatten: bool = True,
    scatter: str = "store",
    parts: int = 1,
    hint: bool = True,
    xcds: int = 1,
    matrix_instr_nonkdim: int = 16,
    kpack: int = 1,
    waves_per_eu: int = 0,
    wait: bool = True,
) -> Callable[[], torch.Tensor]:
    """One kernel that multiplies and scatters (kernels/gemm_all_scatter/device.py); knobs: config.py beside it."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    launch, heap = _launcher(case), heap_of(case)
    out = heap.alloc((case.M, case.N), DTYPES[case.dtype])
    return launch.build(case, heap, inputs["a"], inputs["w"], out, chosen)


@gemm_all_scatter.backend("bulk", config=knobs.bulk_config)
def bulk(
    case: Case,
    inputs: dict[str, torch.Tensor],
    *,
    programs: int = 64,
    num_warps: int = 16,
    unroll: int = 1,
    barrier: bool = True,
    wait: bool = True,
) -> Callable[[], torch.Tensor]:
    """Bulk-synchronous: torch.mm, a barrier of all ranks, a kernel that scatters straight into row-major order."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    launch, heap = _launcher(case), heap_of(case)
    out = heap.alloc((case.M, case.N), DTYPES[case.dtype])
    return launch.build_bulk(case, heap, inputs["a"], inputs["w"], out, chosen)


@gemm_all_scatter.isa("triton")
def compilations(case: Case, arch: str, **overrides: Any) -> list[Compilation]:
    """The one kernel that the case launches, with the knobs of config() and these over them."""
    from kernels.gemm_all_scatter import launch

    chosen = gemm_all_scatter.backends["triton"].knobs(case, arch, overrides)
    return [launch.compilation(case, arch, {**triton.__kwdefaults__, **chosen})]


@gemm_all_scatter.isa("bulk")
def bulk_compilations(case: Case, arch: str, **overrides: Any) -> list[Compilation]:
    """The scattering kernel; the GEMM before it is the vendor's."""
    from kernels.gemm_all_scatter import launch

    chosen = gemm_all_scatter.backends["bulk"].knobs(case, arch, overrides)
    return [launch.bulk_compilation(case, arch, {**bulk.__kwdefaults__, **chosen})]


def _launcher(case: Case) -> Any:
    """The module that launches, after all refusals that need no GPU."""
    accept(case, ("fp16", "bf16"))
    _columns(case)
    try:
        from kernels.gemm_all_scatter import launch
    except ImportError as error:
        raise Unsupported(f"Triton cannot be imported here ({error}); install the triton package") from error
    can_launch(case, launch.INTERPRETED)
    return launch


def _fits_cpu(case: Case) -> None:
    flop = 2 * case.M * case.K * _columns(case)
    if case.place.device == "cpu" and flop > CPU_LIMIT_FLOP:
        raise Unsupported(
            f"{flop / 1e9:.1f} GFLOP a call and rank is too much for ranks on a CPU; cases up to "
            f"{CPU_LIMIT_FLOP / 1e9:.0f} GFLOP are timed there, GPUs are needed for this one"
        )
