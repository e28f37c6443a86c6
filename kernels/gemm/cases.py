"""The cases of the GEMM: projections of LLM layers, from one token to a prefill batch.

A name states N, K, M and the dtype, and never changes.
"""

from __future__ import annotations

from kernels.spec import Case

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
