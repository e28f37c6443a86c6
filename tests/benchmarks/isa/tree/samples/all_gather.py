"""A copying all-gather: one tile is loaded once and stored to every rank."""

import triton
import triton.language as tl

from kernels.spec import Case
from samples import compiled, sample, translate

all_gather = sample(
    "sample_all_gather",
    Case("m1024", tier="pr", world=8, M=1024, N=1024),
    Case("m2048", tier="pr", world=8, M=2048, N=4096),
    Case("huge", world=8, M=16384, N=16384),
)


@triton.jit
def all_gather_tile(
    source,
    target,
    heap_bases,
    M,
    N,
    RANK: tl.constexpr,
    WORLD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tile = tl.load(source + rows[:, None] * N + columns[None, :], mask=mask)
    own = target + (rows[:, None] + RANK * M) * N + columns[None, :]
    own_base = tl.load(heap_bases + RANK)
    for peer in range(WORLD):
        remote = translate(own, own_base, heap_bases, peer)
        tl.store(remote, tile, mask=mask)


compiled(
    all_gather,
    all_gather_tile,
    lambda case: {
        "source": ("*fp16", (case.M, case.N)),
        "target": ("*fp16", (case.world * case.M, case.N)),
        "heap_bases": ("*u64", (case.world,)),
        "M": case.M,
        "N": case.N,
    },
    {"RANK": 0, "WORLD": 8, "BLOCK_M": 64, "BLOCK_N": 64},
    {"num_warps": 8},
)
