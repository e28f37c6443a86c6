"""Triton kernels of the GEMM: C[M, N] = A[M, K] @ W[N, K]^T, all row-major and contiguous, fp32 accumulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from kernels._shared.symmetric_device import stores_done
from kernels._shared.tile_product import (
    Blocks,
    compiler_options,
    declared,
    halves,
    passed,
    product,
    spread,
    sum_of_slices,
    tile_at,
)
from kernels.hardware import compute_units
from kernels.numerics import DTYPES
from kernels.spec import Case, Compilation


@triton.jit
def _put_parts(c, m, n, part, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """Store an accumulator in 1, 2 or 4 column parts of WIDTH: less shared memory is needed to store through TMA."""
    if PARTS == 1:
        c.store([m, n], part.to(c.dtype))
    else:
        left, right = halves(part)
        _put_parts(c, m, n, left, WIDTH, PARTS // 2)
        _put_parts(c, m, n + WIDTH * (PARTS // 2), right, WIDTH, PARTS // 2)


@triton.jit
def persistent_tma(
    a, w, c, M, N, K,
    PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, PARTS: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    """PROGRAMS programs walk over all tiles; a, w, c are tensor descriptors, so the copy engine moves the tiles.

    Blocks of the descriptors: a [BLOCK_M, BLOCK_K], w [BLOCK_N, BLOCK_K], c [BLOCK_M, BLOCK_N / PARTS]; reads outside
    are zero and writes outside are dropped, so no dimension has to be a multiple of its block.  PARTS = 0: c is a
    pointer, and the tile leaves through registers.
    FLATTEN makes one loop of tiles and K steps: the loads of the next tile start during the last steps of this one.
    """
    rows, cols, steps = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), tl.cdiv(K, BLOCK_K)
    stored = tl.program_id(0) - PROGRAMS
    for tile in tl.range(tl.program_id(0), rows * cols, PROGRAMS, flatten=FLATTEN):
        row, col = tile_at(tile, rows, cols, GROUP_M)
        acc = product(a, w, row, col, 0, steps, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, True, False, True)
        stored += PROGRAMS  # counted apart from `tile`, so that the epilogue does not hold the prefetching back
        row, col = tile_at(stored, rows, cols, GROUP_M)
        if PARTS == 0:
            m, n = row * BLOCK_M + tl.arange(0, BLOCK_M), col * BLOCK_N + tl.arange(0, BLOCK_N)
            at = c + m[:, None] * N + n[None, :]
            tl.store(at, acc.to(c.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])
        else:
            _put_parts(c, row * BLOCK_M, col * BLOCK_N, acc, BLOCK_N // PARTS, PARTS)


@triton.jit
def split(
    a, w, c, workspace, arrivals, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT_K: tl.constexpr,
    XCDS: tl.constexpr, TMA: tl.constexpr, SWAP: tl.constexpr, EVEN_K: tl.constexpr, AMD: tl.constexpr,
):  # fmt: skip
    """One program per tile and K slice.  c is a pointer; a and w are pointers, or descriptors when TMA.

    With SPLIT_K > 1 every slice writes its fp32 partial sums to workspace[tile, slice, BLOCK_M * BLOCK_N]; the slice
    that arrives last at arrivals[tile] adds them in the order of the slices, so the result does not depend on which
    was last, and sets the counter back to 0: nothing has to be cleared between calls or graph replays.
    SWAP computes the transposed tile, with the weights as rows of the matrix unit (64 rows on Hopper): for few rows
    of A.  EVEN_K says that K is a multiple of BLOCK_K, so that pointer loads need no mask.
    """
    rows, cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tiles = rows * cols
    pid = spread(tl.program_id(0), tiles * SPLIT_K, XCDS)
    tile, part = pid % tiles, pid // tiles
    row, col = tile_at(tile, rows, cols, GROUP_M)
    per_slice = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K)
    first, last = part * per_slice, tl.minimum((part + 1) * per_slice, tl.cdiv(K, BLOCK_K))
    m, n = row * BLOCK_M + tl.arange(0, BLOCK_M), col * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = product(a, w, row, col, first, last, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, TMA, SWAP, EVEN_K)
    if SWAP:
        acc = acc.T
    inside = (m < M)[:, None] & (n < N)[None, :]
    at = c + m[:, None] * N + n[None, :]
    if SPLIT_K == 1:
        tl.store(at, acc.to(c.dtype.element_ty), mask=inside)
    else:
        cell = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        sums = workspace + tile * (SPLIT_K * BLOCK_M * BLOCK_N) + cell
        tl.store(sums + part * (BLOCK_M * BLOCK_N), acc, cache_modifier=".cg")
        stores_done(AMD)
        arrived = tl.atomic_add(arrivals + tile, 1, sem="acq_rel", scope="gpu")
        if arrived == SPLIT_K - 1:
            total = sum_of_slices(sums, BLOCK_M, BLOCK_N, SPLIT_K, BLOCK_M * BLOCK_N)
            tl.store(at, total.to(c.dtype.element_ty), mask=inside)
            tl.store(arrivals + tile, 0)


@triton.jit
def vector(a, w, c, N, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr):
    """M = 1: each program reads BLOCK_N rows of weights once, straight into registers; no matrix unit, no sharing."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    at = w + (n % N)[:, None] * K + k[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    for step in range(0, K, BLOCK_K):
        if EVEN_K:
            x, y = tl.load(a + step + k), tl.load(at + step, eviction_policy="evict_first")
        else:
            inside = step + k < K
            x, y = tl.load(a + step + k, mask=inside, other=0.0), tl.load(at + step, mask=inside[None, :], other=0.0)
        acc += x.to(tl.float32)[None, :] * y.to(tl.float32)
    tl.store(c + n, tl.sum(acc, axis=1).to(c.dtype.element_ty), mask=n < N)


# ---- from knobs to a launch: one plan serves the timed call and the ahead-of-time compilation ------------------------


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is launched.  blocks: tensor descriptors by parameter, with their block; other tensors are pointers.

    scratch: (dtype, shape) by parameter, zeros at first.  described: (a, w, c, ends) -> arguments of a kernel with
    descriptors of its own, see _specialized.
    """

    function: Any
    programs: int
    blocks: Blocks
    sizes: Mapping[str, int]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    scratch: Mapping[str, tuple[torch.dtype, tuple[int, ...]]] = dataclasses.field(default_factory=dict)
    described: Callable[..., dict[str, Any]] | None = None


def plan(case: Case, arch: str, units: int, knobs: Mapping[str, Any]) -> Plan:
    """The launch of a case on so many compute units, all knobs given (as the backend's arguments are named)."""
    variants = {"persistent": _persistent, "specialized": _specialized, "split": _split, "vector": _vector}
    if knobs["variant"] not in variants:
        raise ValueError(f"GEMM variant {knobs['variant']!r}; known: {', '.join(variants)}")
    return variants[knobs["variant"]](case, units, knobs, compiler_options(arch, knobs))


def _persistent(case: Case, units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    m, n, k, parts = knobs["block_m"], knobs["block_n"], knobs["block_k"], knobs["parts"]
    tiles = -(-case.M // m) * -(-case.N // n)
    programs = min(knobs["programs"] or units, tiles)
    blocks = {"a": (m, k), "w": (n, k)} | ({"c": (m, n // parts)} if parts else {})
    constants = {"PROGRAMS": programs, **_tile(knobs), "PARTS": parts, "FLATTEN": knobs["flatten"]}
    return Plan(persistent_tma, programs, blocks, _sizes(case), constants, options)


def _tile(knobs: Mapping[str, Any]) -> dict[str, int]:
    return {name.upper(): knobs[name] for name in ("block_m", "block_n", "block_k", "group_m")}


def _sizes(case: Case) -> dict[str, int]:
    return {"M": case.M, "N": case.N, "K": case.K}


def _specialized(case: Case, units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    """A grouped product of one group: of b [1, N, K], with ends [1], which holds M."""
    from kernels._shared import rows_with_roles as roles

    def described(a: Any, w: torch.Tensor, c: torch.Tensor, ends: Any) -> dict[str, Any]:
        return roles.arguments(a, w[None], c, ends, True, knobs["block_n"], knobs["block_k"])

    if knobs["block_m"] != roles.BLOCK_M.value or knobs["num_warps"] != 4:
        tile = f"{knobs['block_m']} rows and {knobs['num_warps']} warps"
        raise ValueError(f"GEMM variant 'specialized' has tiles of 128 rows and num_warps 4, not {tile}")
    programs, cut = knobs["programs"] or units, {**knobs, "split": knobs["split_k"]}
    constants, scratch = roles.constants(1, True, cut, programs), roles.scratch(cut, programs)
    return Plan(roles.rows_with_roles, programs, {}, {}, constants, options, scratch, described)


def _split(case: Case, units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    m, n, k, slices = knobs["block_m"], knobs["block_n"], knobs["block_k"], knobs["split_k"]
    tiles = -(-case.M // m) * -(-case.N // n)
    constants = {
        **_tile(knobs),
        "SPLIT_K": slices,
        "XCDS": knobs["xcds"],
        "TMA": knobs["tma"],
        "SWAP": knobs["swap"],
        "EVEN_K": case.K % k == 0,
        "AMD": "kpack" in options,
    }
    blocks = {"a": (m, k), "w": (n, k)} if knobs["tma"] else {}
    room = tiles * slices * m * n if slices > 1 else 1
    scratch = {"workspace": (torch.float32, (room,)), "arrivals": (torch.int32, (tiles,))}
    return Plan(split, tiles * slices, blocks, _sizes(case), constants, options, scratch)


def _vector(case: Case, units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    if case.M != 1:
        raise ValueError(f"GEMM variant 'vector' is for M = 1; the case {case.name} has M = {case.M}")
    n, k = knobs["block_n"], knobs["block_k"]
    constants = {"BLOCK_N": n, "BLOCK_K": k, "EVEN_K": case.K % k == 0}
    return Plan(vector, -(-case.N // n), {}, {"N": case.N, "K": case.K}, constants, options)


def build(case: Case, a: torch.Tensor, w: torch.Tensor, knobs: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """A call that writes c [M, N]; output, descriptors, workspace and counters are made here, once."""
    p = plan(case, case.place.arch, compute_units(case, case.place.arch), knobs)
    c = torch.empty((case.M, case.N), dtype=a.dtype, device=a.device)
    if p.described:
        tensors = p.described(a, w, c, torch.tensor([case.M], dtype=torch.int32, device=a.device))
    else:
        tensors = passed({"a": a, "w": w, "c": c}, p.blocks)
    for name, (dtype, shape) in p.scratch.items():
        tensors[name] = torch.zeros(shape, dtype=dtype, device=a.device)
    launch, arguments = p.function[(p.programs,)], {**tensors, **p.sizes, **p.constants, **p.options}

    def call() -> torch.Tensor:
        launch(**arguments)
        return c

    return call


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the same launch, for the device of the case, or the one that is assumed."""
    p = plan(case, arch, compute_units(case, arch), knobs)
    shapes = {"a": (case.M, case.K), "w": (case.N, case.K), "c": (case.M, case.N)}
    if p.described:
        meta = (torch.empty(shape, dtype=DTYPES[case.dtype], device="meta") for shape in shapes.values())
        arguments = p.described(*meta, ("*i32", (1,)))
    else:
        arguments = declared(case.dtype, shapes, p.blocks)
    pointers = {torch.float32: "*fp32", torch.int32: "*i32"}
    arguments |= {name: (pointers[dtype], shape) for name, (dtype, shape) in p.scratch.items()}
    every = {**arguments, **p.sizes}
    ordered = {name: every[name] for name in p.function.arg_names if name in every}
    return Compilation(p.function.__name__, p.function, ordered, p.constants, p.options, grid=(p.programs,))
