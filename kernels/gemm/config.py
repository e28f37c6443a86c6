"""Knobs of our GEMM kernels: what is launched for a case on an architecture, and what a sweep should try.

variant       persistent: one program per SM walks over tiles that the copy engine moves (Hopper and later);
              specialized: the same with roles, of which one warp only loads (kernels/_shared/warp_roles.py); num_warps
              = 4 counts a multiplying group, split_k is the most slices of a tile left over from whole rounds;
              split: one program per tile and K slice; vector: one token, no matrix unit.
block_*       tile of C (block_m x block_n) and K step; group_m: rows of tiles per band, for L2.
split_k       K slices per tile (fp32 partial sums, added in slice order by the last one).
programs      persistent programs; 0 = one per compute unit.
parts         column parts in which a persistent tile is stored; 0 = through registers, not through TMA.
flatten       prefetch across tiles; tma: load through tensor descriptors; swap: weights as rows of the matrix unit.
xcds          compute dies over which neighbouring programs are regrouped: those of the device or partition.
num_warps, num_stages, matrix_instr_nonkdim, kpack, waves_per_eu: Triton's own (the last three on AMD only; kpack 2 lets
              gfx942 read 16 bytes per lane from LDS, and the weights of few rows bypass it; gfx950 always does).
"""

from __future__ import annotations

import math
from typing import Any

from kernels._shared.tuning import first_then, tuned_file, tuned_knobs
from kernels.hardware import compute_units, xcds
from kernels.spec import Case, Tuned, Unsupported


def shape(case: Case) -> str:
    """The key of a shape: the case's name without its dtype."""
    return f"n{case.N}_k{case.K}_m{case.M}"


def config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case; Unsupported names the architectures that have any.  "cpu" is for the interpreter in tests."""
    return tuned_knobs(TABLE, case, arch)


def rule(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case that is in no table."""
    rules = {"sm_90": _hopper, "gfx942": _cdna, "gfx950": _cdna, "cpu": _interpreter}
    if arch not in rules:
        raise Unsupported(
            f"no GEMM configuration for arch {arch!r}, only for {', '.join(rules)}; "
            "add a rule to kernels/gemm/config.py and sweep it"
        )
    return rules[arch](case, arch)


TABLE = Tuned(tuned_file(__file__), shape, rule)
"""An entry serves all dtypes of a shape."""


def candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep tries for a case: the present choice, then others of its shape class."""
    table = _hopper_candidates(case) if arch == "sm_90" else _cdna_candidates(case, arch)
    return first_then(config(case, arch), table)


# ---- Hopper ----------------------------------------------------------------------------------------------------------


def _hopper(case: Case, arch: str) -> dict[str, Any]:
    if case.M == 1:
        return _vector(4, 1024, 4)
    sms = compute_units(case, arch)
    if case.M <= 64:  # one slice or two: 3 to 31 % faster than four in eleven of twelve shapes of H200
        rows = next(rows for rows in (16, 32, 64) if rows >= case.M)
        return _split(case, rows, 64, 128, 4, 6, fill=sms, least=4096, swap=rows < 64)
    square = _split(case, 128, 128, 64, 4, 7, fill=sms, least=4096)
    if case.M <= 256 or sms >= _tiles(case, square):
        full = _tiles(case, square) * square["split_k"] >= 0.75 * sms  # else 9 to 16 % faster in five shapes of H200
        return square if full else _split(case, 128, 64, 64, 4, 8, fill=sms, least=4096)
    wide = _persistent(128, 256, 64, 8, 4, parts=2)
    if sms >= _tiles(case, wide):  # one round: 1.5 % faster than roles in five cases of H200
        return wide
    return _specialized(256, 3, group_m=16)


def _tile(m: int, n: int, k: int, warps: int, stages: int) -> dict[str, Any]:
    blocks = {"block_m": m, "block_n": n, "block_k": k}
    return {**blocks, "num_warps": warps, "num_stages": stages, "group_m": 8}


def _tiles(case: Case, knobs: dict[str, Any]) -> int:
    """Tiles of C."""
    return -(-case.M // knobs["block_m"]) * -(-case.N // knobs["block_n"])


def _persistent(*tile: int, **others: Any) -> dict[str, Any]:
    return {"variant": "persistent", **_tile(*tile), **others}


def _specialized(n: int, stages: int, **others: Any) -> dict[str, Any]:
    return {"variant": "specialized", **_tile(128, n, 64, 4, stages), "split_k": 1, **others}


def _split(case: Case, *tile: int, fill: int = 0, split_k: int = 0, least: int = 0, **others: Any) -> dict[str, Any]:
    """One program per tile and K slice.

    split_k is given, or the power of two up to 16 that brings the number of programs closest below `fill`, with slices
    of at least `least` and four steps.
    """
    knobs = {"variant": "split", **_tile(*tile), "split_k": split_k, "tma": True, **others}
    tiles, depth = _tiles(case, knobs), max(least, 4 * knobs["block_k"])
    enough = (s for s in (16, 8, 4, 2) if tiles * s <= fill and case.K // s >= depth)
    return {**knobs, "split_k": split_k or next(enough, 1)}


def _vector(n: int, k: int, warps: int) -> dict[str, Any]:
    return {"variant": "vector", "block_n": n, "block_k": k, "num_warps": warps}


def _hopper_candidates(case: Case) -> list[dict[str, Any]]:
    tables = ((1, _one_token), (16, _few_tokens), (64, _some_tokens), (256, _many_tokens), (math.inf, _prefill))
    return next(table(case) for most, table in tables if most >= case.M)


VECTORS = (
    (1, 2048, 2), (1, 4096, 4), (2, 1024, 2), (2, 2048, 4), (4, 512, 2), (4, 1024, 4), (4, 2048, 4), (4, 2048, 8),
    (8, 512, 4), (8, 1024, 8), (16, 256, 4)
)  # fmt: skip
"""(block_n, block_k, num_warps) that a sweep tries of variant vector on Hopper."""


def _one_token(case: Case) -> list[dict[str, Any]]:
    slices = (_split(case, 16, 64, 128, 4, 4, swap=True, split_k=s) for s in (4, 8))
    return [*(_vector(*v) for v in VECTORS), *slices]


def _few_tokens(case: Case) -> list[dict[str, Any]]:
    return [
        *(_split(case, 16, 64, 128, 4, stages, swap=True, split_k=s) for stages in (4, 6) for s in (1, 2, 4)),
        *(_split(case, 16, 64, 256, 4, 3, swap=True, split_k=s) for s in (2, 4)),
        *(_split(case, 16, 128, 128, w, 4, swap=True, split_k=s) for w in (4, 8) for s in (4, 8)),
        *(_split(case, 16, 64, 128, 4, 5, split_k=s) for s in (2, 4)),
        *(_split(case, 16, 32, 256, 4, 4, split_k=s, tma=t) for t in (True, False) for s in (1, 2)),
    ]


def _some_tokens(case: Case) -> list[dict[str, Any]]:
    return [
        *(_split(case, 64, 64, 128, 4, stages, split_k=s) for stages in (4, 6) for s in (1, 2, 4)),
        *(_split(case, 32, 64, 128, 4, stages, swap=True, split_k=s) for stages in (6, 8) for s in (1, 2)),
        *(_split(case, 64, 128, 64, 4, 8, swap=True, split_k=s) for s in (1, 2)),
        *(_split(case, 64, 128, 128, w, 3, split_k=s, swap=True) for w in (4, 8) for s in (4, 8)),
        *(_split(case, 64, 32, 128, 4, stages, split_k=s) for stages in (4, 6) for s in (1, 2)),
        _split(case, 64, 64, 64, 4, 6, split_k=4),
        _split(case, 64, 256, 64, 8, 4, split_k=8),
    ]


def _many_tokens(case: Case) -> list[dict[str, Any]]:
    return [
        *(_split(case, 128, 128, 64, 4, stages, split_k=s) for stages in (5, 7) for s in (1, 2, 4)),
        _split(case, 128, 128, 64, 8, 7, split_k=1),
        *(_split(case, 128, 64, 64, 4, stages, split_k=s) for stages in (6, 8) for s in (1, 2)),
        *(_split(case, 64, 128, 128, 4, 3, split_k=s) for s in (1, 2)),
        *(_split(case, 64, 256, 64, w, 4, split_k=s) for w in (4, 8) for s in (1, 2)),
        *(_split(case, 128, 64, 128, 4, 4, split_k=s) for s in (1, 2)),
        _split(case, 256, 64, 64, 8, 4, split_k=1),
        _persistent(128, 128, 64, 8, 5),
        _persistent(128, 64, 128, 4, 4),
        _persistent(64, 256, 64, 4, 4),
        _specialized(128, 6),
    ]


def _prefill(case: Case) -> list[dict[str, Any]]:
    return [
        *(_persistent(128, 256, 64, 8, s, parts=p) for s, p in ((3, 1), (3, 2), (4, 2), (4, 4), (3, 0), (4, 0))),
        *(_persistent(128, 256, 64, 8, 3, parts=1, group_m=g) for g in (4, 16)),
        *(_persistent(128, 256, 64, 8, s, parts=p, flatten=False) for s, p in ((3, 1), (4, 2), (4, 0))),
        _persistent(128, 256, 128, 8, 2, parts=4),
        _persistent(256, 128, 64, 8, 4, parts=2),
        _persistent(256, 128, 64, 8, 3, parts=1),
        _persistent(128, 128, 64, 8, 5),
        _persistent(128, 128, 128, 8, 3),
        _persistent(128, 128, 64, 4, 3, parts=2, programs=2 * compute_units(case, "sm_90")),
        _persistent(64, 256, 64, 4, 4),
        *(_specialized(256, 3, group_m=g, split_k=s) for g in (16, 8) for s in (1, 4)),
        _persistent(128, 256, 64, 8, 4, parts=2),
        _specialized(192, 4),
    ]


# ---- CDNA ------------------------------------------------------------------------------------------------------------


def _cdna(case: Case, arch: str) -> dict[str, Any]:
    """Tiles that hold no register in scratch memory and fit the LDS (64 KiB, 160 KiB) with Triton 3.6 and 3.8."""
    if case.M == 1:
        return _vector(4, 2048, 4)
    fill = compute_units(case, arch)
    if case.M <= 16:
        return _amd(case, arch, 16, 64, 256, 4, fill=fill)
    if case.M <= 64:
        return _amd(case, arch, 64, 64, 128, 4, fill=fill)
    if case.M <= 256:
        return _amd(case, arch, 128, 128, 64, 4, fill=fill)
    return _amd(case, arch, 256, 128, 64, 8, split_k=1, group_m=4)


def _amd(case: Case, arch: str, m: int, n: int, k: int, warps: int, **others: Any) -> dict[str, Any]:
    tuned = {"xcds": xcds(arch, compute_units(case, arch)), "matrix_instr_nonkdim": 16}
    tuned |= {"kpack": 2 if arch == "gfx942" else 1, "waves_per_eu": 0}
    return _split(case, m, n, k, warps, 2, tma=False, **{**tuned, **others})


def _cdna_candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    if case.M == 1:
        shapes = ((1, 4096, 4), (2, 2048, 4), (4, 1024, 4), (4, 2048, 4), (8, 512, 4), (8, 1024, 8))
        return [_vector(*v) for v in shapes]
    if case.M <= 256:
        m = 16 if case.M <= 16 else 64 if case.M <= 64 else 128
        return [
            _amd(case, arch, m, n, k, 4, split_k=s, waves_per_eu=w)
            for n, k in ((32, 128), (64, 128), (128, 64))
            for s in (1, 4, 8)
            for w in (0, 2)
        ]
    tiles = ((256, 256, 64, 8), (256, 128, 64, 8), (128, 256, 64, 8), (128, 128, 64, 4), (256, 256, 32, 8))
    return [
        _amd(case, arch, *tile, split_k=1, group_m=g, matrix_instr_nonkdim=i)
        for tile in tiles
        for g in (4, 8)
        for i in (16, 32)
    ]


def _interpreter(case: Case, arch: str) -> dict[str, Any]:
    return _split(case, 32, 32, 64, 4, 2, split_k=2, tma=False)
