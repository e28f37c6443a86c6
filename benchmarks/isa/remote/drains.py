"""Drains: waits for a wave's own stores to other ranks, before it has issued the rest of them (gfx942, gfx950).

On gfx9 one counter, vmcnt, counts the vector memory operations of a wave that are under way, loads and stores alike,
and they leave it in the order of issue.  `s_waitcnt vmcnt(n)` lets the wave go on when at most the last n issued are
under way.  So a load that is issued after stores and waited for means waiting for these stores too, and a store to
another rank is done when the link has answered (CDNA3 ISA document, section 4.4; so does LLVM place the waits:
SIInsertWaitcnts.cpp).

What is counted.  A *block* is what a wave stores to every peer it serves, before it turns to the next: one pass
through the innermost loop around remote stores, or a part of it where the compiler has unrolled the loop: a new block
begins where a store returns to a heap that others have followed.  (provenance.py says which stores are remote; the one
into the rank's own output counts as one where it goes through a heap base as well.)  Of the ways through the loop the
one with the most remote stores is taken, then the one with the most instructions: that of a tile without a masked edge.
Walked twice, every operation in order, a wait is a drain if a remote store is among those that it waits for.  It counts
*inside* if the last remote store before it and the next one after it belong to the same block, *between* if they belong
to two.  It does not count if its purpose is to publish the stores, that is, if `buffer_wbl2` (the write-back of a
release) follows before the next remote store.  Without a loop around them, remote stores begin a block as above.  The
greatest counts over all blocks and loops are given.

Limits.  An inner loop is walked once.  A loop over the peers that the compiler keeps is one block per peer: its drains
are between blocks.  Where bases are loaded in the loop, each load counts as another heap, so an unrolled loop is one
block.  The counters of gfx10 and later, which count stores apart, are not understood.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from benchmarks.isa.code import Code, Instruction
from benchmarks.isa.remote.provenance import Provenance

_COUNTED = ("global_", "flat_", "buffer_", "scratch_", "tbuffer_")
"""Beginnings of the names of instructions that vmcnt counts; `buffer_inv` is not one (SIInsertWaitcnts.cpp)."""

_STORE_WEIGHT = 1 << 20
"""What a remote store weighs against an instruction when a way through a loop is chosen: more than any kernel has."""


@dataclasses.dataclass(frozen=True)
class Drains:
    """Waits for remote stores inside a block of them, and between one block and the next."""

    inside: int = 0
    between: int = 0


Waited = list[tuple[int, int]]
"""For each remote store in order: the heap it goes to, and the drains since the remote store before it."""


def drains(code: Code, found: Provenance) -> Drains:
    """The greatest counts over the loops that hold remote stores, and the code outside of them."""
    stores = [(block, i) for block, i in found.remote if is_store(i)]
    around = {block: code.innermost(block) for block, _ in stores}
    counts = []
    for loop in dict.fromkeys(around.values()):
        heaps = {id(i): found.carried[id(i)] for block, i in stores if loop is not None or around[block] is None}
        weights = [_weight(block.instructions, heaps) for block in code.blocks]
        body = code.through(code.heaviest_pass(loop, weights))
        counts.append(_of_loop(body, heaps) if loop else _greatest(_waits_before_stores([body], heaps)[0]))
    return Drains(max((c.inside for c in counts), default=0), max((c.between for c in counts), default=0))


def _weight(instructions: Sequence[Instruction], heaps: Mapping[int, int]) -> int:
    return len(instructions) + _STORE_WEIGHT * sum(id(i) in heaps for i in instructions)


def _of_loop(body: Sequence[Instruction], heaps: Mapping[int, int]) -> Drains:
    """Of a pass that follows another."""
    _, second = _waits_before_stores([body, body], heaps)
    return _greatest(second)


def _greatest(waited: Waited) -> Drains:
    """Of the blocks in a pass, and of the waits between two of them, the pass before included."""
    inside, between, left, last = [0], [], set[int](), None
    for heap, count in waited:
        begins = last is None or (heap != last and heap in left)
        if begins:
            between.append(count)
            inside.append(0)
            left = set()
        else:
            inside[-1] += count
        left |= {last} if last is not None and not begins else set()
        last = heap
    return Drains(max(inside), max(between))


def _waits_before_stores(passes: Sequence[Sequence[Instruction]], heaps: Mapping[int, int]) -> list[Waited]:
    """Walk the passes one after the other; what was waited for before each remote store of each pass."""
    under_way: list[bool] = []
    found: list[Waited] = []
    drained = 0
    for body in passes:
        found.append([])
        for instruction in body:
            limit = allowed_under_way(instruction)
            if limit is not None:
                done = max(len(under_way) - limit, 0)
                drained += any(under_way[:done])
                del under_way[:done]
            if id(instruction) in heaps:
                found[-1].append((heaps[id(instruction)], drained))
            if id(instruction) in heaps or instruction.mnemonic.startswith("buffer_wbl2"):
                drained = 0
            if is_counted(instruction):
                under_way.append(id(instruction) in heaps)
    return found


def is_store(instruction: Instruction) -> bool:
    """Whether it stores to memory other than a wave's own scratch."""
    return instruction.mnemonic.startswith(("global_store", "buffer_store", "flat_store"))


def is_counted(instruction: Instruction) -> bool:
    """Whether vmcnt counts it."""
    return instruction.mnemonic.startswith(_COUNTED) and not instruction.mnemonic.startswith("buffer_inv")


def allowed_under_way(instruction: Instruction) -> int | None:
    """n of `s_waitcnt vmcnt(n)`, also of one written as a number; None for everything else."""
    if instruction.mnemonic != "s_waitcnt":
        return None
    written = " ".join(instruction.operands)
    named = re.search(r"vmcnt\((\d+)\)", written)
    if named:
        return int(named[1])
    if not re.fullmatch(r"0x[0-9a-fA-F]+|\d+", written):
        return None
    bits = int(written, 0)
    return bits & 0xF | bits >> 14 << 4 & 0x30
