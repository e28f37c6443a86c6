"""Drains: waits for a wave's own stores to other ranks, before it has issued the rest of them (gfx942, gfx950).

On gfx9 one counter, vmcnt, counts the vector memory operations of a wave that are under way, loads and stores alike,
and they leave it in the order of issue.  `s_waitcnt vmcnt(n)` lets the wave go on when at most the last n issued are
under way.  So a load that is issued after stores and waited for means waiting for these stores too, and a store to
another rank is done when the link has answered (CDNA3 ISA document, section 4.4; so does LLVM place the waits:
SIInsertWaitcnts.cpp).

What is counted.  A *block* is what a wave stores to every peer it serves, before it turns to the next: one pass
through the innermost loop around remote stores, or a part of it where the compiler has unrolled the loop.  A new block
begins where a store returns to a heap that others have followed, or, where all go to one heap, after a load.
(provenance.py says which stores are remote; the one into the rank's own output counts as one where it goes through a
heap base as well.)  Of the ways through the loop the one with the most remote stores is taken, then the one with the
most instructions: that of a tile without a masked edge.  Walked twice, every operation in order, a wait is a drain if
a remote store is among those that it waits for.  It counts *inside* if the last remote store before it and the next one
after it belong to the same block, *between* if they belong to two.  It does not count if its purpose is to publish the
stores, that is, if `buffer_wbl2` (the write-back of a release) follows before the next remote store.  Without a loop
around them, remote stores make up blocks in the same way.  The greatest counts over all blocks and loops are given.

Limits.  An inner loop is walked once.  A loop over the peers that the compiler keeps is one block per peer: its drains
are between blocks.  Where bases are loaded in the loop, each load counts as another heap, so an unrolled loop is one
block.  The counters of gfx10 and later, which count stores apart, are not understood.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from .code import Code, Instruction
from .provenance import Provenance

_COUNTED = ("global_", "flat_", "buffer_", "scratch_", "tbuffer_")
"""Beginnings of the names of instructions that vmcnt counts; `buffer_inv` is not one (SIInsertWaitcnts.cpp)."""

_STORE_WEIGHT = 1 << 20
"""What a remote store weighs against an instruction when a way through a loop is chosen: more than any kernel has."""


@dataclasses.dataclass(frozen=True)
class Drains:
    """Waits for remote stores inside a block of them, and between one block and the next."""

    inside: int = 0
    between: int = 0


@dataclasses.dataclass(frozen=True)
class Stored:
    """A remote store: its heap; drains, and whether anything was loaded, since the remote store before it."""

    heap: int
    drains: int
    loaded: bool


def drains(code: Code, found: Provenance) -> Drains:
    """The greatest counts over the loops that hold remote stores, and the code outside of them."""
    stores = [(block, i) for block, i in found.remote if is_store(i)]
    around = {block: code.innermost(block) for block, _ in stores}
    counts = []
    for loop in dict.fromkeys(around.values()):
        heaps = {id(i): found.carried[id(i)] for block, i in stores if loop is not None or around[block] is None}
        weights = [_weight(block.instructions, heaps) for block in code.blocks]
        body = code.through(code.heaviest_pass(loop, weights))
        counts.append(_of_loop(body, heaps) if loop else _greatest(_stores([body], heaps)[0]))
    return Drains(max((c.inside for c in counts), default=0), max((c.between for c in counts), default=0))


def _weight(instructions: Sequence[Instruction], heaps: Mapping[int, int]) -> int:
    return len(instructions) + _STORE_WEIGHT * sum(id(i) in heaps for i in instructions)


def _of_loop(body: Sequence[Instruction], heaps: Mapping[int, int]) -> Drains:
    """Of a pass that follows another."""
    return _greatest(_stores([body, body], heaps)[1])


def _greatest(stores: Sequence[Stored]) -> Drains:
    """Of the blocks in a pass, and of the waits between two of them, the pass before included."""
    inside, between = [0], [0]
    for block in _blocks(stores):
        between.append(block[0].drains)
        inside.append(sum(store.drains for store in block[1:]))
    return Drains(max(inside), max(between))


def _blocks(stores: Sequence[Stored]) -> list[list[Stored]]:
    """The remote stores of a pass, block by block."""
    one_heap = len({store.heap for store in stores}) == 1
    found: list[list[Stored]] = []
    for store in stores:
        block = found[-1] if found else []
        returns = any(store.heap == other.heap for other in block) and block[-1].heap != store.heap
        if not block or returns or (one_heap and store.loaded):
            found.append([store])
        else:
            block.append(store)
    return found


def _stores(passes: Sequence[Sequence[Instruction]], heaps: Mapping[int, int]) -> list[list[Stored]]:
    """Walk the passes one after the other; the remote stores of each."""
    under_way: list[bool] = []
    found: list[list[Stored]] = []
    drained, loaded = 0, False
    for body in passes:
        found.append([])
        for instruction in body:
            done = _done(instruction, len(under_way))
            drained += any(under_way[:done])
            del under_way[:done]
            remote = id(instruction) in heaps
            if remote:
                found[-1].append(Stored(heaps[id(instruction)], drained, loaded))
            if remote or instruction.mnemonic.startswith("buffer_wbl2"):
                drained = 0
            loaded = not remote and (loaded or "_load_" in instruction.mnemonic)
            if is_counted(instruction):
                under_way.append(remote)
    return found


def _done(instruction: Instruction, under_way: int) -> int:
    """How many of so many operations it waits for."""
    limit = allowed_under_way(instruction)
    return 0 if limit is None else max(under_way - limit, 0)


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
