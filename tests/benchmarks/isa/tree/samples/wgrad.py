"""Weight gradient of a grouped GEMM: the K of each group is read from memory."""

import triton
import triton.language as tl

from kernels.spec import Case
from samples import compiled, sample

wgrad = sample("sample_wgrad", Case("g4", tier="pr", dtype="bf16", G=4, T=8192, K=2048, N=1792))


@triton.jit
def wgrad_tile(a, dy, out, offsets, K, N, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr):
    group = tl.program_id(1)
    columns_of_tiles = tl.cdiv(N, BLOCK_N)
    begin = tl.load(offsets + group)
    tokens = (tl.load(offsets + group + 1) - begin).to(tl.int32)
    rows = tl.program_id(0) // columns_of_tiles * BLOCK_K + tl.arange(0, BLOCK_K)
    columns = tl.program_id(0) % columns_of_tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_T)
    a += begin * K + inner[None, :] * K + (rows % K)[:, None]
    dy += begin * N + inner[:, None] * N + (columns % N)[None, :]
    total = tl.zeros((BLOCK_K, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(tokens, BLOCK_T)):
        inside = inner < tokens - step * BLOCK_T
        total = tl.dot(tl.load(a, mask=inside[None, :], other=0.0), tl.load(dy, mask=inside[:, None], other=0.0), total)
        a += BLOCK_T * K
        dy += BLOCK_T * N
    tl.store(
        out + group.to(tl.int64) * K * N + rows[:, None] * N + columns[None, :],
        total.to(out.dtype.element_ty),
        mask=(rows[:, None] < K) & (columns[None, :] < N),
    )


compiled(
    wgrad,
    wgrad_tile,
    lambda case: {
        "a": ("*bf16", (case.T, case.K)),
        "dy": ("*bf16", (case.T, case.N)),
        "out": ("*bf16", (case.G, case.K, case.N)),
        "offsets": ("*i64", (case.G + 1,)),
        "K": case.K,
        "N": case.N,
    },
    {"BLOCK_K": 128, "BLOCK_N": 128, "BLOCK_T": 32},
    {"num_warps": 8, "num_stages": 2, "matrix_instr_nonkdim": 16, "waves_per_eu": 0},
)
