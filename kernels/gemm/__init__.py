"""GEMM: C[M, N] = A[M, K] @ W[N, K]^T, weights stored as torch.nn.Linear stores them, fp16 and bf16.

Shapes are the projections of LLM layers: (N, K) of attention output, MLP down and MLP up of 8B- and 70B-class
models, M from one token to a prefill batch.  A case's name tells N, K, M and the dtype and never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels.gemm import config as knobs
from kernels.numerics import DTYPES, normal, seed_for
from kernels.spec import Case, Compilation, Cost, Kernel, Tolerance, Unsupported

WEIGHTS = ((4096, 4096), (4096, 14336), (8192, 4096), (8192, 28672))
"""(N, K) of the weight matrices."""

TOKENS = (1, 16, 64, 256, 1024, 4096, 8192)
"""M: one token, small decode batches, prefill."""

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
"""Cases of the tier `pr`: every M, every weight and both dtypes occur."""

CPU_LIMIT_FLOP = 2_000_000_000
"""Largest case timed on a CPU.  At some 100 GFLOP/s of a small CPU it takes 20 ms; the largest of all, a minute."""


def _cases() -> list[Case]:
    named = [
        (f"n{n}_k{k}_m{m}_{dtype}", {"M": m, "N": n, "K": k, "dtype": dtype})
        for dtype in ("fp16", "bf16")
        for n, k in WEIGHTS
        for m in TOKENS
    ]
    return [Case(name, tier="pr" if name in PULL_REQUEST else "nightly", **dims) for name, dims in named]


# Rounding the fp32 sum once to a significand of p bits (fp16 11, bf16 8) errs by at most 2^-p of a value, and by
# 0.4 * 2^-p in the mean square.  Sums of matrix units truncate as well: up to 2e-4 for K = 28672 on Hopper.  The
# largest of 10^8 normal values is 6 rms.  Hence norm: 0.4 * 2^-p + 2e-4, peak: 6 * 2^-p + 2e-3, each about doubled.
gemm = Kernel(
    "gemm", cases=_cases(), tolerance={"fp16": Tolerance(norm=1e-3, peak=1e-2), "bf16": Tolerance(norm=4e-3, peak=5e-2)}
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


@gemm.baseline("blas")
def blas(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.mm into a given output: hipBLASLt or rocBLAS, cuBLASLt, oneDNN on a CPU."""
    _fits_cpu(case)
    a, transposed, out = inputs["a"], inputs["w"].T, _output(case)
    return lambda: torch.mm(a, transposed, out=out)


@gemm.backend("torch")
def linear(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """What torch.nn.Linear runs on a CPU."""
    if case.place.device != "cpu":
        raise Unsupported(
            "on a GPU torch.nn.Linear is the library call that the baseline blas times; "
            "this backend is for machines without one"
        )
    _fits_cpu(case)
    a, w, out = inputs["a"], inputs["w"], _output(case)
    return lambda: torch.ops.aten.linear.out(a, w, None, out=out)


@gemm.backend("triton", config=knobs.config)
def triton(
    case: Case,
    inputs: dict[str, torch.Tensor],
    *,
    variant: str = "split",
    block_m: int = 64,
    block_n: int = 64,
    block_k: int = 64,
    group_m: int = 8,
    num_warps: int = 4,
    num_stages: int = 3,
    programs: int = 0,
    parts: int = 1,
    flatten: bool = True,
    split_k: int = 1,
    tma: bool = False,
    swap: bool = False,
    xcds: int = 1,
    matrix_instr_nonkdim: int = 16,
    kpack: int = 1,
    waves_per_eu: int = 0,
) -> Callable[[], torch.Tensor]:
    """Our kernels (kernels/gemm/device.py); the knobs are explained in kernels/gemm/config.py."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    launch = _launcher(case)
    return launch.build(case, inputs["a"], inputs["w"], _output(case), chosen)


@gemm.isa("triton")
def compilations(case: Case, arch: str, **overrides: Any) -> list[Compilation]:
    """The one kernel that the case launches, with the knobs of config() and these over them."""
    from kernels.gemm import launch

    chosen = gemm.backends["triton"].knobs(case, arch, overrides)
    return [launch.compilation(case, arch, {**triton.__kwdefaults__, **chosen})]


def _launcher(case: Case) -> Any:
    """The module that launches; Unsupported where Triton has nothing to compile for."""
    try:
        from kernels.gemm import launch
    except ImportError as error:
        raise Unsupported(f"Triton cannot be imported here ({error}); install the triton package") from error
    if case.place.device == "cpu" and not launch.INTERPRETED:
        raise Unsupported(
            "Triton compiles for GPUs only, and this machine has none; "
            "a GPU is needed (Triton's interpreter is for tests and is never timed)"
        )
    return launch


def _output(case: Case) -> torch.Tensor:
    return torch.empty((case.M, case.N), dtype=DTYPES[case.dtype], device=case.place.device)


def _fits_cpu(case: Case) -> None:
    flop = 2 * case.M * case.N * case.K
    if case.place.device == "cpu" and flop > CPU_LIMIT_FLOP:
        raise Unsupported(
            f"{flop / 1e9:.0f} GFLOP a call is too much for a CPU; cases up to "
            f"{CPU_LIMIT_FLOP / 1e9:.0f} GFLOP are timed there, a GPU is needed for this one"
        )
