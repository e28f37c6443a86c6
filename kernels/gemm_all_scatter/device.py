"""Triton kernels of GEMM + all-scatter: a rank's columns of C = A @ W^T, stored to all ranks as they are computed.

A rank owns the columns [rank * N, (rank + 1) * N) of out [M, WORLD * N]; N is the number of its own columns throughout.
All operands are row-major and contiguous, sums are fp32.

**Why no barrier is needed between calls.**  With MEET a program announces at its start that its rank has begun the
call, and waits for the same program of all peers before it first stores into their outputs, as the all-gather does:
what a rank's stream did with the output of the call before comes before its announcement.
The wait comes after the first product, which hides it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton import knobs as triton_knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels._shared.collectives.device import at_heaps, await_start, heaps_from, to_places
from kernels._shared.symmetric_device import (
    announce,
    finish,
    flags_at_peers,
    later,
    loads_done,
    reached,
    stores_done,
    translate,
)
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
from kernels.gemm_all_scatter.config import tiles
from kernels.hardware import compute_units, lds_limit
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap


@triton.jit
def _base(heaps, rank, i: tl.constexpr, WORLD: tl.constexpr, AMD: tl.constexpr):
    """Base of the heap of rank + i.  heaps: on AMD all bases, loaded before the first tile; else a pointer to them.

    AMD keeps them in scalar registers.  On gfx9 one counter counts loads and stores, so to wait for a base between two
    peers would be to wait for the stores to the first of them.  On NVIDIA nothing waits for stores, and every thread
    would hold the bases all the time.
    """
    if AMD:
        found = heaps[i]
    else:
        found = tl.load(heaps + ((rank + i) % WORLD if i else rank))
    return found


@triton.jit
def _scatter(
    tile, out, at, inside, heaps, rank, WORLD: tl.constexpr, PUT: tl.constexpr, ALIGN: tl.constexpr, AMD: tl.constexpr
):
    """Store a tile at out + at on every rank, its own first, then rank + 1, rank + 2, ...: no link is crowded.

    heaps: see _base.

    PUT: the peers get what is read back from this rank's own copy, in the layout that is best for copying, not what
    the matrix unit left in registers.
    """
    here = _base(heaps, rank, 0, WORLD, AMD)
    tl.store(translate(out, here, here, ALIGN) + at, tile, mask=inside)
    if PUT:
        stores_done(AMD)
        tile = tl.load(translate(out, here, here, ALIGN) + at, mask=inside, cache_modifier=".cg")
        tile = loads_done(tile, AMD)
    for i in tl.static_range(1, WORLD):
        there = _base(heaps, rank, i, WORLD, AMD)
        tl.store(translate(out, here, there, ALIGN) + at, tile, mask=inside)


@triton.jit
def _cells(m0, n0, M, N, rank, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WORLD: tl.constexpr):
    """Mask of the part of a block inside this rank's columns, and the block's offsets in out, both [ROWS, COLUMNS]."""
    m, n = m0 + tl.arange(0, ROWS), n0 + tl.arange(0, COLUMNS)
    return (m < M)[:, None] & (n < N)[None, :], m[:, None] * (WORLD * N) + (rank * N + n)[None, :]


@triton.jit
def _scatter_halves(
    slices, row, col, out, heaps, M, N, rank,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT_K: tl.constexpr, WORLD: tl.constexpr, PUT: tl.constexpr,
    ALIGN: tl.constexpr, AMD: tl.constexpr,
):  # fmt: skip
    """Add up and store a large tile, one half after the other: the sums and addresses of the whole tile do not fit
    in registers together.  slices: fp32 [SPLIT_K, BLOCK_M * BLOCK_N]."""
    HALF: tl.constexpr = BLOCK_N // 2
    for left in tl.static_range(0, BLOCK_N, HALF):
        cell = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + (left + tl.arange(0, HALF))[None, :]
        total = sum_of_slices(slices + cell, BLOCK_M, HALF, SPLIT_K, BLOCK_M * BLOCK_N)
        inside, at = _cells(row * BLOCK_M, col * BLOCK_N + left, M, N, rank, BLOCK_M, HALF, WORLD)
        _scatter(total.to(out.dtype.element_ty), out, at, inside, heaps, rank, WORLD, PUT, ALIGN, AMD)


@triton.jit
def _begun(
    signals, bases, program, rank,
    PROGRAMS: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, MEET: tl.constexpr,
):  # fmt: skip
    """Announce the call, with MEET; the epoch at which the peers have announced theirs.  signals: as for finish."""
    epoch = 0
    if MEET:
        epoch = later(reached(signals, program, rank, PROGRAMS), 1)
        flags = flags_at_peers(signals, bases, program, rank, PROGRAMS, WORLD, LANES)
        announce(flags, rank, epoch, WORLD, LANES)
    return epoch


@triton.jit
def _tiles(
    a, w, out, heaps, workspace, arrivals, signals, program, epoch, M, N, K, rank, start, before, tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT_K: tl.constexpr,
    PROGRAMS: tl.constexpr, TMA: tl.constexpr, SWAP: tl.constexpr, EVEN_K: tl.constexpr, WORLD: tl.constexpr,
    LANES: tl.constexpr, PUT: tl.constexpr, ALIGN: tl.constexpr, AMD: tl.constexpr, MEET: tl.constexpr,
    WAIT: tl.constexpr,
):  # fmt: skip
    """This program's share of `tiles` tiles, those after the first `before`, each in SPLIT_K slices of K.

    With SPLIT_K > 1 every slice writes its fp32 partial sums to workspace[tile, slice, BLOCK_M * BLOCK_N]; the slice
    that arrives last at arrivals[tile] adds them in the order of the slices and stores the tile to all ranks, so the
    result does not depend on which was last; it sets the counter back to 0, so nothing has to be cleared between calls.
    No slice waits for another, so programs need not be resident together.
    epoch: of _begun; with MEET, the peers' `program` is waited for by who stores to them: after the first whole tile's
    product, and by a slice that is the last of its tile.
    """
    rows, cols, steps = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), tl.cdiv(K, BLOCK_K)
    per_slice = tl.cdiv(steps, SPLIT_K)
    stored = start - PROGRAMS
    for item in tl.range(start, tiles * SPLIT_K, PROGRAMS):
        row, col = tile_at(before + item % tiles, rows, cols, GROUP_M)
        first = (item // tiles) * per_slice
        acc = product(
            a, w, row, col, first, tl.minimum(first + per_slice, steps), M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, TMA,
            SWAP, EVEN_K,
        )  # fmt: skip
        if SWAP:
            acc = acc.T
        stored += PROGRAMS  # counted apart from `item`, so that the epilogue does not hold the prefetching back
        row, col = tile_at(before + stored % tiles, rows, cols, GROUP_M)
        inside, at = _cells(row * BLOCK_M, col * BLOCK_N, M, N, rank, BLOCK_M, BLOCK_N, WORLD)
        if SPLIT_K == 1:
            if MEET:  # noqa: SIM102  # a constant of the compiler, then a value of the kernel
                if stored == start:
                    await_start(signals, program, rank, epoch, PROGRAMS, WORLD, LANES, WAIT)
            _scatter(acc.to(out.dtype.element_ty), out, at, inside, heaps, rank, WORLD, PUT, ALIGN, AMD)
        else:
            cell = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
            tile, part = stored % tiles, stored // tiles
            slices = workspace + tile * (SPLIT_K * BLOCK_M * BLOCK_N)
            sums = slices + cell
            tl.store(sums + part * (BLOCK_M * BLOCK_N), acc, cache_modifier=".cg")
            stores_done(AMD)
            arrived = tl.atomic_add(arrivals + tile, 1, sem="acq_rel", scope="gpu")
            if arrived == SPLIT_K - 1:
                if MEET:
                    await_start(signals, program, rank, epoch, PROGRAMS, WORLD, LANES, WAIT)
                if BLOCK_M * BLOCK_N <= 128 * 128:
                    total = sum_of_slices(sums, BLOCK_M, BLOCK_N, SPLIT_K, BLOCK_M * BLOCK_N)
                    _scatter(total.to(out.dtype.element_ty), out, at, inside, heaps, rank, WORLD, PUT, ALIGN, AMD)
                else:
                    _scatter_halves(
                        slices, row, col, out, heaps, M, N, rank, BLOCK_M, BLOCK_N, SPLIT_K, WORLD, PUT, ALIGN, AMD
                    )
                tl.store(arrivals + tile, 0)


@triton.jit(do_not_specialize=["rank"])
def fused(
    a, w, out, bases, signals, workspace, arrivals, M, N, K, rank,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT_K: tl.constexpr,
    REST: tl.constexpr, PROGRAMS: tl.constexpr, XCDS: tl.constexpr, TMA: tl.constexpr, SWAP: tl.constexpr,
    EVEN_K: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, PUT: tl.constexpr, ALIGN: tl.constexpr,
    AMD: tl.constexpr, MEET: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """PROGRAMS programs walk over all (tile, K slice) pairs; a and w are pointers, or descriptors when TMA.

    SWAP multiplies the transposed tile, with the weights as rows of the matrix unit (64 on Hopper): for few tokens.
    REST cuts only the tiles left over by the whole rounds of PROGRAMS tiles, so no program idles in the last round.
    Their slices come first: then programs finish whole tiles at different times, and the stores of some to the peers
    overlap the multiplication of others, instead of all crowding the links at once.
    workspace and arrivals: room for the tiles that are cut.
    """
    pid = tl.program_id(0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    start = spread(pid, PROGRAMS, XCDS)
    whole = tiles - tiles % PROGRAMS if REST else 0
    epoch = _begun(signals, bases, pid, rank, PROGRAMS, WORLD, LANES, MEET)
    heaps = heaps_from(bases, rank, WORLD, WORLD) if AMD else bases
    _tiles(
        a, w, out, heaps, workspace, arrivals, signals, pid, epoch, M, N, K, rank, start, whole, tiles - whole,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SPLIT_K, PROGRAMS, TMA, SWAP, EVEN_K, WORLD, LANES, PUT, ALIGN, AMD, MEET,
        WAIT,
    )  # fmt: skip
    if REST:
        _tiles(
            a, w, out, heaps, workspace, arrivals, signals, pid, epoch, M, N, K, rank, start, 0, whole, BLOCK_M,
            BLOCK_N, BLOCK_K, GROUP_M, 1, PROGRAMS, TMA, SWAP, EVEN_K, WORLD, LANES, PUT, ALIGN, AMD, MEET, WAIT,
        )  # fmt: skip
    finish(signals, bases, pid, rank, PROGRAMS, WORLD, LANES, AMD, WAIT, 1 if MEET else 0)


@triton.jit
def _copies_done(value):
    """Wait until the copy engine has written all that this thread gave it; a release then covers those writes too.

    Triton waits only until the engine has read its source.  The fence orders what the engine (the async proxy) wrote
    before what follows (PTX memory model); `value` is passed through, to tie the instruction to its place.
    """
    return tl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0;\n\tfence.proxy.async;\n\tmov.b32 $0, $1;",
        "=r,r",
        [value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _copy_to_all(
    c0, c1, c2, c3, c4, c5, c6, c7, m, n, part, WORLD: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr
):
    """Give a tile to the copy engine, once for each rank, in 1, 2 or 4 column parts of WIDTH: less shared memory."""
    if PARTS == 1:
        tile = part.to(c0.dtype)
        c0.store([m, n], tile)
        if WORLD > 1:
            c1.store([m, n], tile)
        if WORLD > 2:
            c2.store([m, n], tile)
            c3.store([m, n], tile)
        if WORLD > 4:
            c4.store([m, n], tile)
            c5.store([m, n], tile)
            c6.store([m, n], tile)
            c7.store([m, n], tile)
    else:
        left, right = halves(part)
        _copy_to_all(c0, c1, c2, c3, c4, c5, c6, c7, m, n, left, WORLD, WIDTH, PARTS // 2)
        _copy_to_all(c0, c1, c2, c3, c4, c5, c6, c7, m, n + WIDTH * (PARTS // 2), right, WORLD, WIDTH, PARTS // 2)


@triton.jit(do_not_specialize=["rank"])
def fused_tma(
    a, w, c0, c1, c2, c3, c4, c5, c6, c7, bases, signals, M, N, K, rank,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr, PARTS: tl.constexpr, FLATTEN: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr,
    ENGINE: tl.constexpr, MEET: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """fused without slices of K, where the copy engine (TMA) also writes: c0, c1, ... are descriptors of this rank's
    columns in the output of rank, rank + 1, ..., blocks [BLOCK_M, BLOCK_N / PARTS]; those past WORLD are not used.

    ENGINE is False in the interpreter, where a copy is done when it returns.  With MEET the peers are waited for before
    the first product: a flattened loop has no place for it, and these calls are long.
    """
    pid = tl.program_id(0)
    epoch = _begun(signals, bases, pid, rank, PROGRAMS, WORLD, LANES, MEET)
    if MEET:
        await_start(signals, pid, rank, epoch, PROGRAMS, WORLD, LANES, WAIT)
    rows, cols, steps = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), tl.cdiv(K, BLOCK_K)
    stored = pid - PROGRAMS
    for item in tl.range(pid, rows * cols, PROGRAMS, flatten=FLATTEN):
        row, col = tile_at(item, rows, cols, GROUP_M)
        acc = product(a, w, row, col, 0, steps, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, True, False, True)
        stored += PROGRAMS  # as in _tiles
        row, col = tile_at(stored, rows, cols, GROUP_M)
        _copy_to_all(c0, c1, c2, c3, c4, c5, c6, c7, row * BLOCK_M, col * BLOCK_N, acc, WORLD, BLOCK_N // PARTS, PARTS)
    if ENGINE:
        pid = _copies_done(pid)
    finish(signals, bases, pid, rank, PROGRAMS, WORLD, LANES, False, WAIT, 1 if MEET else 0)


@triton.jit(do_not_specialize=["rank"])
def scatter(
    c, out, bases, signals, words, rank,
    ROW: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr,
    AMD: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """Second half of the bulk-synchronous variant: c, M rows of ROW words, into this rank's columns on every rank.

    A word is 4 bytes, words = M * ROW; ROW is a multiple of 4, so a lane moves 16 bytes at a time.
    """
    program = tl.program_id(0)
    heaps = heaps_from(bases, rank, WORLD, WORLD)
    places = at_heaps(out, heaps[0], heaps, WORLD)
    for block in range(program, tl.cdiv(words, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        values = loads_done(tl.load(c + at, mask=at < words), AMD)
        to = at // ROW * (WORLD * ROW) + at % ROW + rank * ROW
        to_places(values, places, to, at < words, WORLD, False, "")
    finish(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)


# ---- from knobs to a launch: one plan serves the timed call and the ahead-of-time compilation ------------------------


INTERPRETED = bool(triton_knobs.runtime.interpret)
"""Whether the kernels run in Triton's interpreter, on CPU tensors."""

SCATTERS = ("store", "put", "tma")
"""How a tile reaches the ranks: from registers, read back from this rank's output, or by the copy engine."""

CUTS = ("all", "rest")
"""Which tiles are cut into split_k slices: all of them, or those left over by the whole rounds of programs."""

_MOST_RANKS = 8


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is launched.  blocks: tensor descriptors by parameter, with their block; other tensors are pointers.

    workspace: fp32 partial sums, counters: int32, both for the tiles that are cut, and at least one.
    """

    function: Any
    programs: int
    blocks: Blocks
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    workspace: int = 1
    counters: int = 1


def plan(case: Case, arch: str, units: int, knobs: Mapping[str, Any]) -> Plan:
    """The launch of a case on so many compute units, all knobs given (as the backend's arguments are named).

    ValueError names knobs that cannot work: an unknown scatter or cut, the copy engine where there is none, a tile
    whose operands alone exceed the LDS.
    """
    _refuse(case, arch, knobs)
    tile = (knobs["block_m"], knobs["block_n"])
    count = tiles(case, *tile)
    programs, slices, left = shares(count, units, knobs)
    options, common = compiler_options(arch, knobs), _common_constants(case, programs, knobs)
    operands = {"a": (knobs["block_m"], knobs["block_k"]), "w": (knobs["block_n"], knobs["block_k"])}
    if knobs["scatter"] == "tma":
        blocks = operands | {f"c{i}": (tile[0], tile[1] // knobs["parts"]) for i in range(_MOST_RANKS)}
        constants = {**common, "PARTS": knobs["parts"], "FLATTEN": knobs["flatten"], "ENGINE": not INTERPRETED}
        return Plan(fused_tma, programs, blocks, constants, options)
    constants = {**common, **_fused_constants(case, arch, knobs), "SPLIT_K": slices, "REST": left > 0}
    cut = left or count
    room = {"workspace": cut * slices * math.prod(tile), "counters": cut} if slices > 1 else {}
    return Plan(fused, programs, operands if knobs["tma"] else {}, constants, options, **room)


def _common_constants(case: Case, programs: int, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of both fused kernels."""
    tile = {name.upper(): knobs[name] for name in ("block_m", "block_n", "block_k", "group_m")}
    lanes = 1 << (case.world - 1).bit_length()
    peers = case.world > 1  # one rank alone meets nobody
    meeting = {"MEET": peers, "WAIT": peers and knobs["wait"]}
    return {**tile, "PROGRAMS": programs, "WORLD": case.world, "LANES": lanes, **meeting}


def _fused_constants(case: Case, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of the kernel that stores by pointers."""
    return {
        "XCDS": knobs["xcds"],
        "TMA": knobs["tma"],
        "SWAP": knobs["swap"],
        "EVEN_K": case.K % knobs["block_k"] == 0,
        "PUT": knobs["scatter"] == "put",
        "ALIGN": 16 if knobs["hint"] else int(case.itemsize),
        "AMD": arch.startswith("gfx"),
    }


def shares(count: int, units: int, knobs: Mapping[str, Any]) -> tuple[int, int, int]:
    """(programs, slices of a cut tile, tiles left over by whole rounds) for `count` tiles; 0 left over: all are cut.

    Where cut "rest" finds whole rounds and nothing else, nothing is cut; where it finds no whole round, all is.
    """
    programs, slices = knobs["programs"] or units, knobs["split_k"]
    if knobs["cut"] == "all" or slices == 1 or programs > count:
        return min(programs, count * slices), slices, 0
    left = count % programs
    return programs, slices if left else 1, left


def _refuse(case: Case, arch: str, knobs: Mapping[str, Any]) -> None:
    """ValueError for knobs that cannot work for the case or the architecture."""
    for name, known in (("scatter", SCATTERS), ("cut", CUTS)):
        if knobs[name] not in known:
            raise ValueError(f"gemm_all_scatter: {name} {knobs[name]!r} is not one of {', '.join(known)}")
    if arch.startswith("gfx") and (knobs["tma"] or knobs["scatter"] == "tma"):
        raise ValueError(f"gemm_all_scatter: tma needs a copy engine, {arch} has none; load and store by pointers")
    if knobs["scatter"] == "tma":
        _refuse_for_the_copy_engine(case, knobs)
    if case.M * case.N >= 1 << 31:
        raise ValueError(f"gemm_all_scatter: {case.M} x {case.N} elements do not fit offsets of 31 bits")
    if arch != "cpu":
        _refuse_too_large(case, arch, knobs)


def _refuse_for_the_copy_engine(case: Case, knobs: Mapping[str, Any]) -> None:
    if knobs["split_k"] > 1 or knobs["cut"] != "all" or knobs["swap"]:
        raise ValueError(
            "gemm_all_scatter: scatter 'tma' works on whole, upright tiles: split_k 1, cut 'all' and no swap; "
            f"given were split_k {knobs['split_k']}, cut {knobs['cut']!r} and swap {knobs['swap']}"
        )
    if case.N // case.world * int(case.itemsize) % 16:
        raise ValueError(
            f"gemm_all_scatter: scatter 'tma' needs columns of a multiple of 16 bytes per rank, "
            f"{case.N} / {case.world} of {case.dtype} are not"
        )


def _refuse_too_large(case: Case, arch: str, knobs: Mapping[str, Any]) -> None:
    needed, limit = least_lds(arch, knobs, case.itemsize), lds_limit(arch)
    if needed > limit:
        raise ValueError(
            f"gemm_all_scatter: tiles {knobs['block_m']} x {knobs['block_n']} x {knobs['block_k']} in "
            f"{knobs['num_stages']} stages need at least {needed} bytes of LDS (shared memory), {arch} "
            f"has {limit} for a workgroup; take smaller tiles or fewer stages"
        )


def least_lds(arch: str, knobs: Mapping[str, Any], itemsize: float) -> int:
    """Bytes of LDS that the operands' buffers take at the least; on AMD one stage may stay in registers."""
    buffers = max(1, knobs["num_stages"] - (1 if arch.startswith("gfx") else 0))
    return int((knobs["block_m"] + knobs["block_n"]) * knobs["block_k"] * itemsize) * buffers


def build(
    case: Case, heap: SymmetricHeap, a: torch.Tensor, w: torch.Tensor, knobs: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """A call that writes the columns of this rank to the output of every rank; all ranks build with the same knobs.

    Output, descriptors, workspace and counters are made here, once.
    """
    p = plan(case, case.place.arch, compute_units(case, case.place.arch), knobs)
    out = heap.alloc((case.M, case.N), a.dtype)
    columns = case.N // case.world
    tensors = passed({"a": a, "w": w}, p.blocks)
    if p.function is fused_tma:
        tensors |= _destinations(case, heap, out, columns, list(p.blocks["c0"]))
    else:
        workspace = torch.empty(p.workspace, dtype=torch.float32, device=a.device)
        arrivals = torch.zeros(p.counters, dtype=torch.int32, device=a.device)
        tensors |= {"out": out, "workspace": workspace, "arrivals": arrivals}
    shared = {"bases": heap.bases, "signals": heap.signals(case.world, p.programs), "rank": case.place.rank}
    arguments = {**tensors, **shared, "M": case.M, "N": columns, "K": case.K, **p.constants, **p.options}
    launch = p.function[(p.programs,)]

    def call() -> torch.Tensor:
        launch(**arguments)
        return out

    return call


def _destinations(
    case: Case, heap: SymmetricHeap, out: torch.Tensor, columns: int, block: list[int]
) -> dict[str, TensorDescriptor]:
    """Descriptors of this rank's columns in the output of rank, rank + 1, ...; those past the world repeat."""
    rank, found = case.place.rank, {}
    for i in range(_MOST_RANKS):
        peer = heap.peer((rank + i) % case.world, out)[:, rank * columns : (rank + 1) * columns]
        found[f"c{i}"] = TensorDescriptor(peer, list(peer.shape), list(peer.stride()), block)
    return found


def build_bulk(
    case: Case, heap: SymmetricHeap, a: torch.Tensor, w: torch.Tensor, knobs: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """A call in bulk-synchronous steps: the library's GEMM, a barrier of all ranks, one kernel that scatters."""
    columns = case.N // case.world
    row = columns * int(case.itemsize) // 4
    if columns * int(case.itemsize) % 16:
        raise ValueError(
            f"gemm_all_scatter: bulk moves 16 bytes at a time, rows of {columns} {case.dtype} are not a multiple"
        )
    out = heap.alloc((case.M, case.N), a.dtype)
    local, transposed = torch.empty((case.M, columns), dtype=a.dtype, device=a.device), w.T
    launch, constants = scatter[(knobs["programs"],)], bulk_constants(case, case.place.arch, row, knobs)
    arguments = {
        "c": local.view(torch.int32),
        "out": out.view(torch.int32),
        "bases": heap.bases,
        "signals": heap.signals(case.world, knobs["programs"]),
        "words": case.M * row,
        "rank": case.place.rank,
        **constants,
        "num_warps": knobs["num_warps"],
    }

    def call() -> torch.Tensor:
        torch.mm(a, transposed, out=local)
        if knobs["barrier"]:
            heap.barrier()
        launch(**arguments)
        return out

    return call


def bulk_constants(case: Case, arch: str, row: int, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of the scattering kernel; row: 4-byte words of a rank's row."""
    lanes = knobs["num_warps"] * (64 if arch.startswith("gfx") else 32)
    return {
        "ROW": row,
        "PROGRAMS": knobs["programs"],
        "BLOCK": lanes * 4 * knobs["unroll"],
        "WORLD": case.world,
        "LANES": 1 << (case.world - 1).bit_length(),
        "AMD": arch.startswith("gfx"),
        "WAIT": knobs["wait"],
    }


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the fused launch, for the device of the case, or the one that is assumed.

    The code is the same for all ranks; 3 stands for any.
    """
    p = plan(case, arch, compute_units(case, arch), knobs)
    columns = case.N // case.world
    operands = {"a": (case.M, case.K), "w": (columns, case.K)}
    arguments: dict[str, Any]
    if p.function is fused_tma:
        outputs = {f"c{i}": (case.M, columns) for i in range(_MOST_RANKS)}
        arguments = declared(case.dtype, operands | outputs, p.blocks)
    else:
        arguments = declared(case.dtype, operands | {"out": (case.M, case.N)}, p.blocks)
        arguments |= {"workspace": ("*fp32", (p.workspace,)), "arrivals": ("*i32", (p.counters,))}
    arguments |= {"bases": ("*i64", (case.world,)), "signals": ("*i32", (case.world, p.programs))}
    arguments |= {"M": case.M, "N": columns, "K": case.K, "rank": 3}
    return Compilation(p.function.__name__, p.function, arguments, p.constants, p.options, grid=(p.programs,))


def bulk_compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the scattering kernel of the bulk-synchronous variant."""
    row = case.N // case.world * int(case.itemsize) // 4
    arguments = {
        "c": ("*i32", (case.M, row)),
        "out": ("*i32", (case.M, row * case.world)),
        "bases": ("*i64", (case.world,)),
        "signals": ("*i32", (case.world, knobs["programs"])),
        "words": case.M * row,
        "rank": 3,
    }
    constants = bulk_constants(case, arch, row, knobs)
    options, grid = {"num_warps": knobs["num_warps"]}, (knobs["programs"],)
    return Compilation("scatter", scatter, arguments, constants, options, grid=grid)
