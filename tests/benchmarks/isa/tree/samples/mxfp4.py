"""A GEMM of MXFP4 by MXFP4: packed e2m1 with one e8m0 scale for 32 elements along K."""

import triton
import triton.language as tl

from kernels.spec import Case
from samples._declare import compiled, sample

mxfp4 = sample("sample_mxfp4", Case("m64", tier="pr", dtype="mxfp4", M=64, N=1024, K=1024))


@triton.jit
def mxfp4_tile(a, b, a_scale, b_scale, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    packed = tl.arange(0, BLOCK_K // 2)
    scales = tl.arange(0, BLOCK_K // 32)
    a += rows[:, None] * (K // 2) + packed[None, :]
    b += packed[:, None] + columns[None, :] * (K // 2)
    a_scale += rows[:, None] * (K // 32) + scales[None, :]
    b_scale += columns[:, None] * (K // 32) + scales[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BLOCK_K)):
        total = tl.dot_scaled(tl.load(a), tl.load(a_scale), "e2m1", tl.load(b), tl.load(b_scale), "e2m1", total)
        a += BLOCK_K // 2
        b += BLOCK_K // 2
        a_scale += BLOCK_K // 32
        b_scale += BLOCK_K // 32
    tl.store(
        c + rows[:, None] * N + columns[None, :],
        total.to(c.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


compiled(
    mxfp4,
    mxfp4_tile,
    lambda case: {
        "a": ("*u8", (case.M, case.K // 2)),
        "b": ("*u8", (case.N, case.K // 2)),
        "a_scale": ("*u8", (case.M, case.K // 32)),
        "b_scale": ("*u8", (case.N, case.K // 32)),
        "c": ("*bf16", (case.M, case.N)),
        "M": case.M,
        "N": case.N,
        "K": case.K,
    },
    {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 256},
    {"num_warps": 4, "num_stages": 2, "matrix_instr_nonkdim": 16},
)
