"""A GEMM with fp32 accumulation: the plain tile, and a fused one that stores its tile to every rank."""

import triton
import triton.language as tl

from kernels.spec import Case
from samples._declare import compiled, sample
from samples.translate import translate

gemm = sample("sample_gemm", Case("m256", tier="pr", M=256, N=4096, K=4096))
gemm_scatter = sample("sample_gemm_scatter", Case("m8192", tier="pr", world=8, M=8192, N=4608, K=4096))
SHAPE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
OPTIONS = {"num_warps": 8, "num_stages": 2, "matrix_instr_nonkdim": 16, "kpack": 1, "waves_per_eu": 0}


@triton.jit
def accumulate(
    a, b, rows, columns, K, stride_a, stride_b, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    inner = tl.arange(0, BLOCK_K)
    a += rows[:, None] * stride_a + inner[None, :]
    b += inner[:, None] + columns[None, :] * stride_b
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BLOCK_K)):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += BLOCK_K
        b += BLOCK_K
    return total


@triton.jit
def gemm_tile(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = accumulate(a, b, rows % M, columns % N, K, K, K, BLOCK_M, BLOCK_N, BLOCK_K)
    tl.store(
        c + rows[:, None] * N + columns[None, :],
        total.to(c.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@triton.jit
def gemm_scatter_tile(
    a,
    b,
    c,
    heap_bases,
    M,
    N,
    K,
    RANK: tl.constexpr,
    WORLD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    columns_of_tiles = tl.cdiv(N, BLOCK_N)
    own_base = tl.load(heap_bases + RANK)
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * columns_of_tiles, tl.num_programs(0)):
        rows = tile // columns_of_tiles * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tile % columns_of_tiles * BLOCK_N + tl.arange(0, BLOCK_N)
        total = accumulate(a, b, rows % M, columns % N, K, K, K, BLOCK_M, BLOCK_N, BLOCK_K).to(c.dtype.element_ty)
        own = c + rows[:, None] * (N * WORLD) + (columns + RANK * N)[None, :]
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        for peer in range(WORLD):
            if peer == RANK:
                tl.store(own, total, mask=mask)
            else:
                remote = translate(own, own_base, heap_bases, peer)
                tl.store(remote, total, mask=mask)


def operands(case, width):
    """Arguments of both tiles; `width` is the number of columns of the output."""
    return {"a": ("*fp16", (case.M, case.K)), "b": ("*fp16", (case.N, case.K)), "c": ("*fp16", (case.M, width))}


compiled(gemm, gemm_tile, lambda case: operands(case, case.N) | {"M": case.M, "N": case.N, "K": case.K}, SHAPE, OPTIONS)
compiled(
    gemm_scatter,
    gemm_scatter_tile,
    lambda case: (
        operands(case, case.N * case.world)
        | {"heap_bases": ("*u64", (case.world,)), "M": case.M, "N": case.N, "K": case.K}
    ),
    SHAPE | {"RANK": 0, "WORLD": 8},
    OPTIONS,
)
