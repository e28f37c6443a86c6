"""The all-gather in Gluon, flat: each lane owns a contiguous run of the tile; translated pointers carry no hint."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon

from kernels.spec import Case
from samples._declare import compiled, sample

gluon_gather = sample("sample_gluon_gather", Case("m1024", tier="pr", world=8, M=1024, N=1024))


@gluon.jit
def gluon_gather_tile(
    source,
    target,
    heap_bases,
    M,
    N,
    RANK: gl.constexpr,
    WORLD: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    RUN: gl.constexpr,
    LANES: gl.constexpr,
    WARPS: gl.constexpr,
):
    layout: gl.constexpr = gl.BlockedLayout([RUN], [LANES], [WARPS], [0])
    flat = gl.arange(0, BLOCK_M * BLOCK_N, layout=layout)
    rows = gl.program_id(0) * BLOCK_M + flat // BLOCK_N
    columns = gl.program_id(1) * BLOCK_N + flat % BLOCK_N
    mask = (rows < M) & (columns < N)
    tile = gl.load(source + rows * N + columns, mask=mask)
    offsets = (rows + RANK * M) * N + columns
    own_base = gl.load(heap_bases + RANK)
    for peer in gl.static_range(WORLD):
        base = target.to(gl.uint64) + (gl.load(heap_bases + peer) - own_base)
        gl.store(base.to(gl.pointer_type(target.dtype.element_ty)) + offsets, tile, mask=mask)


compiled(
    gluon_gather,
    gluon_gather_tile,
    lambda case: {
        "source": ("*fp16", (case.M, case.N)),
        "target": ("*fp16", (case.world * case.M, case.N)),
        "heap_bases": ("*u64", (case.world,)),
        "M": case.M,
        "N": case.N,
    },
    {"RANK": 0, "WORLD": 8, "BLOCK_M": 8, "BLOCK_N": 256, "RUN": 8, "LANES": 64, "WARPS": 4},
    {"num_warps": 4},
    nvidia={"LANES": 32, "WARPS": 8, "num_warps": 8},
)
