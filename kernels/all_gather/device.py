"""Triton kernel of the all-gather: every rank pushes its shard into the output of all ranks.

**Why no barrier is needed between calls.**  Rank r may read the output of call k until it makes call k + 1, and peers
write into that very output.  Two means keep them off, and a call may use both:

* MEET.  A program announces at its start that its rank has begun the call, and waits for the same program of all peers
  before it stores into their outputs.  r's call k + 1 begins after all that r's stream did with the output of call k;
  the announcement comes after that, then the peer's wait, then its stores.
* STAGED.  The first blocks of a program go to a stage of the receiver, which copies them to its output itself at the
  end of its call.  So nothing has to be waited for, but the blocks go through memory once more.  The stage has two
  halves, used in turn: p stores into half k % 2 in its call k, after it ended its call k - 1, in which it had seen the
  flag that r's program raised at the end of its call k - 1, which began after r's call k - 2 had read that half.

And a call that has ended on r's stream has all of its output: every program of every peer has stored its blocks before
it raised its flags for the last time in a call (release), and r's program of the same number, which takes the same
blocks, has seen these flags (acquire) before it copied what was staged and ended.  The shard is read by its own rank
alone.  All of this is counted in device memory, so a call may be captured, as often as one likes in one graph, and
replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import triton
import triton.language as tl

from kernels._shared.collectives.device import (
    at_heaps,
    await_start,
    heaps_from,
    load_block,
    staged_places,
    take_staged,
    to_places,
)
from kernels._shared.collectives.launch import call_of, compilation_of, depth, guard
from kernels._shared.collectives.launch import constants as collective_constants
from kernels._shared.symmetric_device import announce, flags_at_peers, later, loads_done, meet, reached
from kernels.all_gather.cases import MIB
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap


@triton.jit
def _stage_blocks(
    shard, places, first, last, blocks, words,
    STEP: tl.constexpr, BLOCK: tl.constexpr, FANOUT: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr,
    STORE: tl.constexpr,
):  # fmt: skip
    """Blocks first to last of the shard to places: the stages of the receivers, and this rank's own output."""
    for block in range(first, last, STEP):
        at = block * BLOCK + tl.arange(0, BLOCK)
        values = load_block(shard, at, block, blocks, words, EVEN, LOAD)
        to_places(values, places, at, at < words, FANOUT, EVEN, STORE)


@triton.jit
def _push_blocks(
    values, shard, places, first, blocks, words,
    STEP: tl.constexpr, BLOCK: tl.constexpr, FANOUT: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr,
    STORE: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Blocks from first on, of which `values` is the first one, to the outputs of the receivers.

    AHEAD: the next block is loaded before one is stored, so that no load waits for stores.
    """
    for block in range(first, blocks, STEP):
        at = block * BLOCK + tl.arange(0, BLOCK)
        after = at + STEP * BLOCK
        if AHEAD:
            following = load_block(shard, after, block + STEP, blocks, words, EVEN, LOAD)
            to_places(values, places, at, at < words, FANOUT, EVEN, STORE)
        else:
            to_places(values, places, at, at < words, FANOUT, EVEN, STORE)
            following = load_block(shard, after, block + STEP, blocks, words, EVEN, LOAD)
        values = following


@triton.jit(do_not_specialize=["rank"])
def push(
    shard, out, stage, bases, signals, words, depth, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, FANOUT: tl.constexpr, LANES: tl.constexpr,
    EVEN: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr,
    MEET: tl.constexpr, STAGED: tl.constexpr, AHEAD: tl.constexpr,
    BLOCKED: tl.constexpr = False,
):  # fmt: skip
    """shard [words] to out[rank * words:] on every rank; out lies on the symmetric heap.  A word is 4 bytes.

    A program reads a block once and stores it to FANOUT destinations; WORLD / FANOUT groups of programs share them.
    Destinations are staggered: in step i rank r writes to rank r + i, so at any time every rank receives from
    one other and no link is crowded.  A lane moves 16 bytes (4 words) at a time; words is a multiple of 4.
    BLOCKED: a group is a run of programs, else every GROUPS-th program.
    LOAD and STORE are cache modifiers; EVEN says that words is a multiple of BLOCK.

    MEET, and STAGED blocks of each program, guard the outputs, as said above; neither: the caller must.  stage
    [2, WORLD, depth] is on the symmetric heap; depth are the words of a shard that go through it.  signals int32[WORLD,
    PROGRAMS] as for kernels._shared.symmetric_device.finish; a call with MEET raises its flags twice.
    """
    GROUPS: tl.constexpr = WORLD // FANOUT
    STEP: tl.constexpr = PROGRAMS // GROUPS
    program = tl.program_id(0)
    if BLOCKED:
        group, first = program // STEP, program % STEP
    else:
        group, first = program % GROUPS, program // GROUPS
    start = reached(signals, program, rank, PROGRAMS)
    flags = flags_at_peers(signals, bases, program, rank, PROGRAMS, WORLD, LANES)
    if MEET:
        announce(flags, rank, later(start, 1), WORLD, LANES)
    here, heaps = tl.load(bases + rank), heaps_from(bases, rank + group, WORLD, FANOUT, GROUPS)
    mine, blocks = out + rank.to(tl.int64) * words, tl.cdiv(words, BLOCK)
    direct = first + STAGED * STEP
    half = stage + ((start >> (1 if MEET else 0)) & 1).to(tl.int64) * WORLD * depth
    if STAGED > 0:
        row = half + rank.to(tl.int64) * depth
        places = staged_places(mine, row, group, here, heaps, FANOUT, GROUPS)
        _stage_blocks(
            shard, places, first, tl.minimum(direct, blocks), blocks, words, STEP, BLOCK, FANOUT, EVEN, LOAD, STORE
        )
    if MEET or STAGED == 0:
        values = load_block(shard, direct * BLOCK + tl.arange(0, BLOCK), direct, blocks, words, EVEN, LOAD)
        if MEET:
            await_start(signals, program, rank, later(start, 1), PROGRAMS, WORLD, LANES, WAIT)
        values = loads_done(values, AMD)
        places = at_heaps(mine, here, heaps, FANOUT)
        _push_blocks(values, shard, places, direct, blocks, words, STEP, BLOCK, FANOUT, EVEN, LOAD, STORE, AHEAD)
    meet(signals, flags, program, rank, later(start, 2 if MEET else 1), PROGRAMS, WORLD, LANES, AMD, WAIT)
    if STAGED > 0:
        tl.debug_barrier()  # some threads read the flags, all read the data
        for block in range(first, tl.minimum(direct, blocks), STEP):
            take_staged(half, out, block, group, rank, words, depth, BLOCK, WORLD, GROUPS, EVEN, AMD)


# ---- from knobs to a launch: one plan serves the timed call and the ahead-of-time compilation ------------------------


WORD = 4
"""Bytes.  The kernel moves words of this size whatever the dtype is: a copy has no arithmetic."""


def constants(world: int, words: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The constants of a launch for a shard of that many words."""
    fanout, fixed = fanout_of(world, words, knobs), collective_constants(world, words, WORD, arch, knobs)
    step = knobs["programs"] * fanout // world
    own = {"FANOUT": fanout, "BLOCKED": _blocked(knobs.get("order", "interleaved"))}
    return {**fixed, **own, **guard(words, fixed["BLOCK"], step, knobs)}


def fanout_of(world: int, words: int, knobs: Mapping[str, Any]) -> int:
    """Destinations of a program; ValueError for knobs or a shard that do not fit the ranks."""
    fanout = int(knobs["fanout"] or world)
    if world % fanout or knobs["programs"] % (world // fanout):
        raise ValueError(
            f"all-gather knobs: fanout {fanout} must divide the {world} ranks, and programs "
            f"{knobs['programs']} must be a multiple of the {world / fanout:g} groups"
        )
    if words % 4:
        raise ValueError(f"all-gather: a shard of {words * WORD} bytes is not a multiple of 16")
    return fanout


def partitioned(world: int, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Knobs of backend `partitioned` as those of the push: every group of programs serves one destination."""
    if knobs["programs"] < world or knobs["programs"] % world:
        raise ValueError(
            f"all-gather partitioned: programs {knobs['programs']} cannot be shared out evenly to "
            f"{world} destinations; take a multiple of {world}"
        )
    return {**knobs, "fanout": 1}


def _blocked(order: str) -> bool:
    if order not in ("interleaved", "blocked"):
        raise ValueError(f"all-gather partitioned: order {order!r} is neither 'interleaved' nor 'blocked'")
    return order == "blocked"


def build(
    case: Case, heap: SymmetricHeap, shard: torch.Tensor, out: torch.Tensor, knobs: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """A call that pushes shard into out of every rank; a collective: all ranks build with the same knobs."""
    fixed = constants(case.world, words_of(shard), case.place.arch, knobs)
    staged = _staged_words(words_of(shard), fixed)
    stage = heap.alloc((2, case.world, staged), torch.int32) if staged else out.view(torch.int32)
    return pushing(case, push, fixed, shard, out, knobs, stage=stage, depth=staged)


def _staged_words(words: int, fixed: Mapping[str, Any]) -> int:
    """Words of a shard that go through a stage."""
    return depth(words, fixed["BLOCK"], fixed["PROGRAMS"] * fixed["FANOUT"] // fixed["WORLD"], fixed["STAGED"])


def words_of(shard: torch.Tensor) -> int:
    """Words of 4 bytes; what is left over makes no word, and fanout_of refuses it."""
    return shard.numel() * shard.element_size() // WORD


def pushing(
    case: Case, function: Any, fixed: Mapping[str, Any], shard: torch.Tensor, out: torch.Tensor,
    knobs: Mapping[str, Any], **more: Any,
) -> Callable[[], torch.Tensor]:  # fmt: skip
    """A call of a kernel of this operator with these constants; more: arguments that other kernels do not have."""
    signals = case.place.heap.signals(case.world, knobs["programs"])
    tensors = {"shard": shard.view(torch.int32), "out": out.view(torch.int32), "signals": signals}
    arguments = {**tensors, **more, "words": words_of(shard)}
    return call_of(case, function, arguments, fixed, {"num_warps": knobs["num_warps"]}, out)


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the same launch."""
    fixed = constants(case.world, shard_words(case), arch, knobs)
    staged = _staged_words(shard_words(case), fixed)
    stage = {"stage": ("i32", 2 * case.world * staged)}
    return push_compilation(case, push, fixed, knobs, stage, depth=staged)


def shard_words(case: Case) -> int:
    """Words of 4 bytes in a shard of the case."""
    return int(case.MB * MIB) // (case.world * WORD)


def push_compilation(
    case: Case, function: Any, fixed: Mapping[str, Any], knobs: Mapping[str, Any],
    stage: Mapping[str, tuple[str, int]] = MappingProxyType({}), **counts: int,
) -> Compilation:  # fmt: skip
    """The compilation of a kernel of this operator.  stage, counts: arguments that other kernels do not have."""
    words = shard_words(case)
    tensors = {"shard": ("i32", words), "out": ("i32", words * case.world), **stage}
    return compilation_of(case, function, tensors, fixed, {"num_warps": knobs["num_warps"]}, words=words, **counts)
