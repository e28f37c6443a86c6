"""Gluon kernel of the all-gather: the push of device.py over two-dimensional tiles, with an explicit layout."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

barrier = getattr(gl, "barrier", None) or gl.thread_barrier  # Triton 3.6 has the second name only


@gluon.jit
def finish(
    signals, bases, program, rank,
    PROGRAMS: gl.constexpr, WORLD: gl.constexpr, LANES: gl.constexpr, LAYOUT: gl.constexpr, AMD: gl.constexpr,
    WAIT: gl.constexpr,
):  # fmt: skip
    """kernels._shared.symmetric_device.finish in Gluon; LAYOUT is that of the LANES flags, one per lane."""
    lane = gl.arange(0, LANES, layout=LAYOUT)
    peer = (lane < WORLD) & (lane != rank)
    own = signals + rank * PROGRAMS + program
    epoch = gl.load(own) + 1
    here, there = gl.load(bases + rank), gl.load(bases + lane, mask=lane < WORLD, other=0)
    flag = own.to(gl.int64) + (there - here)
    if (
        AMD
    ):  # the barrier does not wait for stores, and a release covers those of its own wave; see kernels._shared.ordering
        gl.inline_asm_elementwise(
            "s_waitcnt vmcnt(0)\n\tv_mov_b32 $0, $1",
            "=v,v,~{memory}",
            [gl.program_id(0)],
            dtype=gl.int32,
            is_pure=False,
            pack=1,
        )
    barrier()
    count = gl.full([LANES], 0, gl.int32, layout=LAYOUT)
    gl.atomic_xchg(flag.to(signals.dtype), count + epoch, mask=peer, sem="release", scope="sys")
    if WAIT:
        arrivals = signals + lane * PROGRAMS + program
        late = 1
        while late > 0:
            seen = gl.atomic_add(arrivals, count, mask=peer, sem="acquire", scope="sys")
            late = gl.sum(gl.where(peer & (seen < epoch), 1, 0), 0)
    gl.store(own, epoch)


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
    Groups of programs and the order of destinations are those of kernels.all_gather.device.push.
    The hints stand where the pointer is used: Triton 3.6 and 3.9 lose the alignment of a pointer made from an integer.
    """
    GROUPS: gl.constexpr = WORLD // FANOUT
    ACROSS: gl.constexpr = WIDTH // COLUMNS
    ALIGN: gl.constexpr = 4 * VECTOR if VECTOR < 4 else 16
    layout: gl.constexpr = gl.BlockedLayout([VECTOR], [THREADS], [WARPS], [0])
    program = gl.program_id(0)
    group = program % GROUPS
    here, heaps = gl.load(bases + rank), (gl.load(bases + (rank + group) % WORLD),)
    for i in gl.static_range(1, FANOUT):
        heaps = heaps + (gl.load(bases + (rank + group + i * GROUPS) % WORLD),)
    mine = (out + rank.to(gl.int64) * words).to(gl.int64) - here
    flat = gl.arange(0, ROWS * COLUMNS, layout=layout)
    inside = flat // COLUMNS * WIDTH + flat % COLUMNS
    tiles = gl.cdiv(gl.cdiv(words, WIDTH), ROWS) * ACROSS
    for tile in range(program // GROUPS, tiles, PROGRAMS // GROUPS):
        at = tile // ACROSS * (ROWS * WIDTH) + tile % ACROSS * COLUMNS + inside
        source = gl.max_contiguous(gl.multiple_of(shard + at, ALIGN), VECTOR)
        if EVEN:
            values = gl.load(source, cache_modifier=LOAD)
        else:
            values = gl.load(source, mask=at < words, cache_modifier=LOAD)
        for i in gl.static_range(FANOUT):
            base = gl.multiple_of((mine + heaps[i]).to(out.dtype), 16)
            target = gl.max_contiguous(gl.multiple_of(base + at, ALIGN), VECTOR)
            if EVEN:
                gl.store(target, values, cache_modifier=STORE)
            else:
                gl.store(target, values, mask=at < words, cache_modifier=STORE)
    flags: gl.constexpr = gl.BlockedLayout([1], [THREADS], [WARPS], [0])
    finish(signals, bases, program, rank, PROGRAMS, WORLD, LANES, flags, AMD, WAIT)
