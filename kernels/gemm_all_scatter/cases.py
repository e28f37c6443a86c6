"""The cases of GEMM + all-scatter, and which of them the ranks can share evenly.  Names are permanent.

n4096_k14336_m64_fp16_w8 is the whole operator on eight ranks.  n4096_k14336_m64_fp16_w1of8 is the share of one of these
eight alone, on one GPU: N is the columns of that rank, 4096 / 8, and `of` is 8.  The same kernel multiplies as many
tiles and stores them to itself only, so its time is that of the product without links.
"""

from __future__ import annotations

from kernels.spec import Case, Unsupported

WEIGHTS = ((4096, 4096), (4096, 14336), (8192, 4096), (8192, 28672))
"""(N, K) of the whole weight matrices: attention output, MLP down and up of 8B- and 70B-class models."""

TOKENS = (64, 128, 256, 512, 1024)
"""M of every weight matrix."""

DECODE = (1, 2, 4, 8, 16, 32)
"""More M: single tokens and small batches; of (4096, 14336) every night, of the others in sweeps."""

PULL_REQUEST = (
    "n4096_k14336_m1",
    "n4096_k14336_m64",
    "n4096_k14336_m256",
    "n4096_k4096_m1024",
    "n8192_k28672_m512",
    "n4608_k36864_m8192",
)
"""Shapes of the tier `pr`, in fp16."""

SHARES = (1, 2, 4, 8)
"""Ranks of which one works alone; with one, it is the whole product on one GPU: where strong scaling starts."""

WEAK_COLUMNS, WEAK_K, WEAK_TOKENS = 2048, 4096, (64, 1024)
"""Weak scaling: a rank keeps so many columns, whatever the number of ranks; N is 2048 to 16384."""


def cases() -> list[Case]:
    """Every shape, for 2, 4 and 8 ranks in fp16 and bf16; in fp16, the share of one rank alone and small M too."""
    shapes = [(n, k, m) for n, k in WEIGHTS for m in TOKENS]
    shapes += [(4096, 14336, m) for m in DECODE] + [(4608, 36864, 8192)]
    whole = [_case(world, dtype, *shape) for world in (2, 4, 8) for dtype in ("fp16", "bf16") for shape in shapes]
    small = [(n, k, m) for n, k in WEIGHTS if (n, k) != (4096, 14336) for m in DECODE]
    swept = [_case(world, "fp16", *shape, tier="sweep") for world in (2, 4, 8) for shape in small]
    shares = [_share(of, *shape) for of in SHARES for shape in [*shapes, *small]]
    return [*whole, *shares, *swept, *_weak()]


def _weak() -> list[Case]:
    """What the other cases lack of the series: one rank, and eight, with the share of one of them."""
    one = [_share(1, WEAK_COLUMNS, WEAK_K, m) for m in WEAK_TOKENS]
    eight = [(8 * WEAK_COLUMNS, WEAK_K, m) for m in WEAK_TOKENS]
    return [*one, *(_case(8, "fp16", *s, tier="sweep") for s in eight), *(_share(8, *s) for s in eight)]


def _case(world: int, dtype: str, n: int, k: int, m: int, tier: str = "nightly") -> Case:
    shape = f"n{n}_k{k}_m{m}"
    tier = "pr" if shape in PULL_REQUEST and dtype == "fp16" else tier
    return Case(f"{shape}_{dtype}_w{world}", tier=tier, world=world, dtype=dtype, M=m, N=n, K=k)


def _share(of: int, n: int, k: int, m: int) -> Case:
    """What one of `of` ranks multiplies in n{n}_k{k}_m{m}_fp16_w{of}."""
    return Case(f"n{n}_k{k}_m{m}_fp16_w1of{of}", tier="sweep", dtype="fp16", M=m, N=n // of, K=k, of=of)


def columns_of(case: Case) -> int:
    """Columns of a rank; Unsupported if the ranks do not share them evenly."""
    if case.N % case.world:
        raise Unsupported(
            f"N = {case.N} columns cannot be shared evenly by {case.world} ranks; N must be a multiple of {case.world}"
        )
    return int(case.N // case.world)
