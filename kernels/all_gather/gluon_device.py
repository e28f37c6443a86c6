"""Gluon kernel of the all-gather: the push of device.py over two-dimensional tiles, with an explicit layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels._shared.collectives.cases import lanes
from kernels._shared.collectives.launch import constants_of_all
from kernels.all_gather.device import WORD, fanout_of, push_compilation, pushing, shard_words, words_of
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap

barrier = getattr(gl, "barrier", None) or gl.thread_barrier  # Triton 3.6 has the second name only


@gluon.jit
def flags_at_peers(
    signals, bases, program, rank,
    PROGRAMS: gl.constexpr, WORLD: gl.constexpr, LANES: gl.constexpr, LAYOUT: gl.constexpr,
):  # fmt: skip
    """kernels._shared.symmetric_device.flags_at_peers; LAYOUT is that of the LANES flags, one per lane."""
    lane = gl.arange(0, LANES, layout=LAYOUT)
    own = signals + rank * PROGRAMS + program
    here, there = gl.load(bases + rank), gl.load(bases + lane, mask=lane < WORLD, other=0)
    return (own.to(gl.int64) + (there - here)).to(signals.dtype)


@gluon.jit
def announce(flags, rank, epoch, WORLD: gl.constexpr, LANES: gl.constexpr, LAYOUT: gl.constexpr, SEM: gl.constexpr):
    """kernels._shared.symmetric_device.announce; after stores_done and with SEM "release", its raise_flags."""
    lane = gl.arange(0, LANES, layout=LAYOUT)
    value = gl.full([LANES], 0, gl.int32, layout=LAYOUT) + epoch
    gl.atomic_xchg(flags, value, mask=(lane < WORLD) & (lane != rank), sem=SEM, scope="sys")


@gluon.jit
def stores_done(AMD: gl.constexpr):
    """kernels._shared.symmetric_device.stores_done."""
    if AMD:
        gl.inline_asm_elementwise(
            "s_waitcnt vmcnt(0)\n\tv_mov_b32 $0, $1",
            "=v,v,~{memory}",
            [gl.program_id(0)],
            dtype=gl.int32,
            is_pure=False,
            pack=1,
        )
    barrier()


@gluon.jit
def loads_done(values, AMD: gl.constexpr):
    """kernels._shared.symmetric_device.loads_done, for words of 4 bytes."""
    if AMD:
        values = gl.inline_asm_elementwise("", "=v,0", [values], dtype=gl.int32, is_pure=False, pack=1)
    return values


@gluon.jit
def await_peers(
    signals, program, rank, epoch,
    PROGRAMS: gl.constexpr, WORLD: gl.constexpr, LANES: gl.constexpr, LAYOUT: gl.constexpr, WAIT: gl.constexpr,
):  # fmt: skip
    """kernels._shared.symmetric_device.await_peers.  Epochs wrap around: what counts is their difference."""
    if WAIT:
        lane = gl.arange(0, LANES, layout=LAYOUT)
        peer = (lane < WORLD) & (lane != rank)
        arrivals = signals + lane * PROGRAMS + program
        nothing = gl.full([LANES], 0, gl.int32, layout=LAYOUT)
        late = 1
        while late > 0:
            seen = gl.atomic_add(arrivals, nothing, mask=peer, sem="acquire", scope="sys")
            late = gl.sum(gl.where(peer & (seen - epoch < 0), 1, 0), 0)


@gluon.jit
def load_tile(source, at, tile, tiles, words, VECTOR: gl.constexpr, EVEN: gl.constexpr, LOAD: gl.constexpr):
    """Words source[at] of a tile; nothing is read outside, and of a tile past the last one nothing at all."""
    ALIGN: gl.constexpr = 4 * VECTOR if VECTOR < 4 else 16
    place = gl.max_contiguous(gl.multiple_of(source + at, ALIGN), VECTOR)
    if EVEN:
        return gl.load(place, mask=tile < tiles, cache_modifier=LOAD)
    return gl.load(place, mask=at < words, cache_modifier=LOAD)


@gluon.jit
def store_tile(
    values, out, mine, heaps, at, words,
    FANOUT: gl.constexpr, VECTOR: gl.constexpr, EVEN: gl.constexpr, STORE: gl.constexpr,
):  # fmt: skip
    """A tile to FANOUT destinations.  mine: bytes from the base of a heap to this rank's part of out there."""
    ALIGN: gl.constexpr = 4 * VECTOR if VECTOR < 4 else 16
    for i in gl.static_range(FANOUT):
        base = gl.multiple_of((mine + heaps[i]).to(out.dtype), 16)
        target = gl.max_contiguous(gl.multiple_of(base + at, ALIGN), VECTOR)
        if EVEN:
            gl.store(target, values, cache_modifier=STORE)
        else:
            gl.store(target, values, mask=at < words, cache_modifier=STORE)


@gluon.jit(do_not_specialize=["rank"])
def push_tiles(
    shard, out, bases, signals, words, rank,
    PROGRAMS: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, WIDTH: gl.constexpr, VECTOR: gl.constexpr,
    THREADS: gl.constexpr, WARPS: gl.constexpr, WORLD: gl.constexpr, FANOUT: gl.constexpr, LANES: gl.constexpr,
    EVEN: gl.constexpr, LOAD: gl.constexpr, STORE: gl.constexpr, AMD: gl.constexpr, WAIT: gl.constexpr,
):  # fmt: skip
    """shard [words] to out[rank * words:] on every rank; out lies on the symmetric heap.  A word is 4 bytes.

    The shard is a matrix of WIDTH words per row, cut into tiles of ROWS x COLUMNS words; only the last row of tiles can
    stick out.  A tile is numbered row by row, and a lane owns runs of VECTOR words; 4 words are one move of 16 bytes.
    Groups of programs, the order of destinations and the meeting of the ranks before the first store are those of
    kernels.all_gather.device.push, without a stage.
    The hints stand where the pointer is used: Triton 3.6 and 3.9 lose the alignment of a pointer made from an integer.
    """
    GROUPS: gl.constexpr = WORLD // FANOUT
    STEP: gl.constexpr = PROGRAMS // GROUPS
    ACROSS: gl.constexpr = WIDTH // COLUMNS
    layout: gl.constexpr = gl.BlockedLayout([VECTOR], [THREADS], [WARPS], [0])
    single: gl.constexpr = gl.BlockedLayout([1], [THREADS], [WARPS], [0])
    program = gl.program_id(0)
    group, first = program % GROUPS, program // GROUPS
    start = gl.load(signals + rank * PROGRAMS + program)
    flags = flags_at_peers(signals, bases, program, rank, PROGRAMS, WORLD, LANES, single)
    announce(flags, rank, start + 1, WORLD, LANES, single, "relaxed")
    here, heaps = gl.load(bases + rank), (gl.load(bases + (rank + group) % WORLD),)
    for i in gl.static_range(1, FANOUT):
        heaps = heaps + (gl.load(bases + (rank + group + i * GROUPS) % WORLD),)
    mine = (out + rank.to(gl.int64) * words).to(gl.int64) - here
    flat = gl.arange(0, ROWS * COLUMNS, layout=layout)
    inside = flat // COLUMNS * WIDTH + flat % COLUMNS
    tiles = gl.cdiv(gl.cdiv(words, WIDTH), ROWS) * ACROSS
    at = first // ACROSS * (ROWS * WIDTH) + first % ACROSS * COLUMNS
    values = load_tile(shard, at + inside, first, tiles, words, VECTOR, EVEN, LOAD)
    await_peers(signals, program, rank, start + 1, PROGRAMS, WORLD, LANES, single, WAIT)
    barrier()  # some threads read the flags, all write the data
    values = loads_done(values, AMD)
    for tile in range(first, tiles, STEP):
        after = (tile + STEP) // ACROSS * (ROWS * WIDTH) + (tile + STEP) % ACROSS * COLUMNS
        following = load_tile(shard, after + inside, tile + STEP, tiles, words, VECTOR, EVEN, LOAD)
        store_tile(values, out, mine, heaps, at + inside, words, FANOUT, VECTOR, EVEN, STORE)
        at, values = after, loads_done(following, AMD)
    stores_done(AMD)
    announce(flags, rank, start + 2, WORLD, LANES, single, "release")
    await_peers(signals, program, rank, start + 2, PROGRAMS, WORLD, LANES, single, WAIT)
    gl.store(signals + rank * PROGRAMS + program, start + 2)


# ---- from knobs to a launch ------------------------------------------------------------------------------------------


def constants(case: Case, words: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The constants of a launch for a shard of that many words; ValueError names the knobs that do not fit."""
    fanout = fanout_of(case.world, words, knobs)
    rows, columns, width = _tile(int(case.itemsize), knobs)
    vector = _vector(rows * columns * WORD, arch, knobs)
    return {
        **constants_of_all(case.world, arch, knobs),
        "FANOUT": fanout,
        "ROWS": rows,
        "COLUMNS": columns,
        "WIDTH": width,
        "VECTOR": vector // WORD,
        "THREADS": lanes(arch, 1),
        "WARPS": knobs["num_warps"],
        "EVEN": words % (rows * width) == 0,
    }


def _tile(itemsize: int, knobs: Mapping[str, Any]) -> tuple[int, int, int]:
    """Rows of a tile, and its columns and the matrix's in words."""
    rows, columns = knobs["rows"], knobs["columns"]
    width = knobs["width"] or columns
    for name, value in (("rows", rows), ("columns", columns), ("num_warps", knobs["num_warps"])):
        if value < 1 or value & (value - 1):
            raise ValueError(f"all-gather gluon: {name} is {value}, a layout needs a power of two")
    if columns * itemsize % WORD:
        raise ValueError(f"all-gather gluon: columns {columns} of {itemsize} bytes are not a multiple of {WORD} bytes")
    if width % columns:
        raise ValueError(f"all-gather gluon: columns {columns} of a tile do not divide the matrix's width {width}")
    return rows, columns * itemsize // WORD, width * itemsize // WORD


def _vector(tile: int, arch: str, knobs: Mapping[str, Any]) -> int:
    """Contiguous bytes of a lane; ValueError unless the tile of that many bytes is divided evenly among all lanes."""
    threads = lanes(arch, knobs["num_warps"])
    vector = knobs["vector"] or tile // threads
    if vector < WORD or vector & (vector - 1) or tile % (vector * threads):
        raise ValueError(
            f"all-gather gluon: a tile of {knobs['rows']} x {knobs['columns']} is {tile} bytes, which a "
            f"layout of {threads} lanes with {vector} contiguous bytes each does not divide; vector must "
            f"be a power of two of at least {WORD} bytes (0: all of a lane's bytes in one run)"
        )
    return vector


def build(
    case: Case, heap: SymmetricHeap, shard: torch.Tensor, out: torch.Tensor, knobs: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """A call that pushes shard into out of every rank; a collective: all ranks build with the same knobs."""
    fixed = constants(case, words_of(shard), case.place.arch, knobs)
    return pushing(case, push_tiles, fixed, shard, out, knobs)


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the same launch."""
    return push_compilation(case, push_tiles, constants(case, shard_words(case), arch, knobs), knobs)
