"""GEMM: C[M, N] = A[M, K] @ W[N, K]^T, weights stored as torch.nn.Linear stores them, fp16 and bf16.

Shapes are the projections of LLM layers: (N, K) of attention output, MLP down and MLP up of 8B- and 70B-class
models, M from one token to a prefill batch.  A case's name tells N, K, M and the dtype and never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kernels._shared.libraries import launcher
from kernels._shared.tuning import compiled_ahead
from kernels.gemm import config as knobs
from kernels.gemm import vendors
from kernels.numerics import normal, seed_for
from kernels.spec import Case, Cost, Kernel, Small, Tolerance

WEIGHTS = ((4096, 4096), (4096, 14336), (8192, 4096), (8192, 28672))
"""(N, K) of the weight matrices."""

TOKENS = (1, 16, 64, 256, 1024, 4096, 8192)
"""M: one token, small decode batches, prefill."""

BETWEEN = (2, 4, 8, 32, 128, 512)
"""M that make a sweep from 1 to 1024 complete in powers of two; on demand only."""

PULL_REQUEST = (
    "n4096_k4096_m1_fp16",
    "n4096_k4096_m16_fp16",
    "n4096_k14336_m64_fp16",
    "n8192_k28672_m64_bf16",
    "n8192_k4096_m256_fp16",
    "n4096_k4096_m1024_fp16",
    "n8192_k28672_m1024_bf16",
    "n4096_k4096_m4096_bf16",
    "n4096_k14336_m4096_fp16",
    "n8192_k4096_m8192_fp16",
)
"""Cases of the tier `pr`: every M, every weight matrix and both dtypes occur."""


def cases() -> list[Case]:
    """Every weight matrix, M and dtype."""
    return [
        _case(n, k, m, dtype)
        for tokens in (TOKENS, BETWEEN)
        for dtype in ("fp16", "bf16")
        for n, k in WEIGHTS
        for m in tokens
    ]


def _case(n: int, k: int, m: int, dtype: str) -> Case:
    name = f"n{n}_k{k}_m{m}_{dtype}"
    tier = "pr" if name in PULL_REQUEST else "sweep" if m in BETWEEN else "nightly"
    return Case(name, tier=tier, M=m, N=n, K=k, dtype=dtype)


# Rounding the fp32 sum once to a significand of p bits (fp16 11, bf16 8) errs by at most 2^-p of a value, and by
# 0.4 * 2^-p in the mean square.  Sums of matrix units truncate as well: up to 2e-4 for K = 28672 on Hopper.  The
# largest of 10^8 normal values is 6 rms.  Hence norm: 0.4 * 2^-p + 2e-4, peak: 6 * 2^-p + 2e-3, each about doubled.
gemm = Kernel(
    "gemm",
    cases=cases(),
    tolerance={"fp16": Tolerance(norm=1e-3, peak=1e-2), "bf16": Tolerance(norm=4e-3, peak=5e-2)},
    live=("a", "w"),
)


@gemm.inputs
def inputs(case: Case, seed: int) -> dict[str, torch.Tensor]:
    """a [M, K] and w [N, K], standard normal: |C| stays below 1100 for K = 28672, in range for fp16."""
    return {
        "a": normal((case.M, case.K), case.dtype, seed_for(seed, case.name, "a"), case.place.device),
        "w": normal((case.N, case.K), case.dtype, seed_for(seed, case.name, "w"), case.place.device),
    }


@gemm.cost
def cost(case: Case) -> Cost:
    """2 M N K FLOP (a multiply and an add each count); every operand crosses HBM once: (M K + N K + M N) elements."""
    elements = case.M * case.K + case.N * case.K + case.M * case.N
    return Cost(flops=2 * case.M * case.N * case.K, hbm_bytes=int(elements * case.itemsize))


@gemm.reference
def reference(case: Case, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """fp32 product of the fp32 values, TF32 off: fp32 [M, N]."""
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        return inputs["a"].float() @ inputs["w"].float().T
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed


gemm.baseline("blas")(vendors.blas)
gemm.backend("torch")(vendors.linear)


@gemm.backend("triton", config=knobs.config, candidates=knobs.candidates, tuned=knobs.TABLE)
def triton(
    case: Case, inputs: dict[str, torch.Tensor], *,
    variant: str = "split", block_m: int = 64, block_n: int = 64, block_k: int = 64, group_m: int = 8,
    num_warps: int = 4, num_stages: int = 3, programs: int = 0, parts: int = 1, flatten: bool = True,
    split_k: int = 1, tma: bool = False, swap: bool = False, xcds: int = 1,
    matrix_instr_nonkdim: int = 16, kpack: int = 1, waves_per_eu: int = 0,
) -> Callable[[], torch.Tensor]:  # fmt: skip
    """Our kernels (kernels/gemm/device.py); the knobs are explained in kernels/gemm/config.py."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    return launcher(case, _device).build(case, inputs["a"], inputs["w"], chosen)


def _device() -> Any:
    from kernels.gemm import device

    return device


compiled_ahead(gemm, "triton", _device)


@gemm.small(M=256, N=256, K=1024)
def small(case: Case, backend: str, knobs: Mapping[str, Any]) -> Iterator[Small]:
    """A tail in every dimension, or none: of declared cases with the same knobs one dtype has the tails."""
    n, k, tails = knobs["block_n"], knobs["block_k"], case.dtype == "bf16"
    if knobs["variant"] == "vector":
        yield Small({"M": 1, "N": 3 * n + 1, "K": k + 72} if tails else {"M": 1, "N": 4 * n, "K": 2 * k})
        return
    m, slices = knobs["block_m"], knobs["split_k"]
    yield Small({"M": m + 5, "N": n + 24, "K": k * slices + 40} if tails else {"M": m, "N": n, "K": 2 * k * slices})
