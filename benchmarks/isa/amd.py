"""AMD machine code (gfx942, gfx950): which stores go to other ranks, the waits among them, and all metrics."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..shapes import JsonObject
from .code import Code, Instruction, Jump, common_metrics, counted, widths

# Which loads an address was computed from: how remote stores are distinguished from local ones in AMD code.
#
# A remote pointer is `heap_bases[peer] + (pointer - heap_bases[own])`, so its address registers carry the result of a
# load of 8 bytes that is not a kernel argument.  A forward data-flow analysis over the control-flow graph follows each
# such load through registers (and through scratch slots, if they spill).  LDS is not followed: addresses do not pass
# through it.

_BEFORE_ARGUMENTS = {"private_segment_buffer": 4, "dispatch_ptr": 2, "queue_ptr": 2}
"""User SGPRs that come before the kernel-argument pointer, in registers each (LLVM AMDGPU user guide, table "SGPR
register set up order")."""

_ARGUMENT = 1
State = dict[str, int]
Place = tuple[int, Instruction]


class Provenance:
    """Result of the analysis.

    remote: (block, instruction) of every store, load and atomic whose address carries a loaded 8-byte value.
    carried: by id of such an instruction, which of these values its address carries, one bit each.
    bases: (block, instruction) of every load that such an address carries, each once.

    arguments: the scalar registers that point to the kernel's arguments at entry.
    """

    def __init__(self, code: Code, arguments: tuple[str, ...]) -> None:
        self._code = code
        self._sources: dict[tuple[int, int], int] = {}
        self._places: list[Place] = []
        entry = dict.fromkeys(arguments, _ARGUMENT)
        self._at_entry: list[State | None] = [entry] + [None] * (len(code.blocks) - 1)
        self._settle()
        self.remote: list[Place] = []
        self.carried: dict[int, int] = {}
        for block, state in enumerate(self._at_entry):
            for instruction, mask in self._addresses(block, dict(state or {})):
                self.remote.append((block, instruction))
                self.carried[id(instruction)] = mask
        every = functools.reduce(operator.or_, self.carried.values(), 0)
        self.bases = [place for bit, place in enumerate(self._places, start=1) if every >> bit & 1]

    def _settle(self) -> None:
        """Run blocks until no state at a block's entry grows any more."""
        waiting = [0]
        while waiting:
            block = waiting.pop()
            state = dict(self._at_entry[block] or {})
            for _ in self._addresses(block, state):
                pass
            for target in self._code.successors[block]:
                known = self._at_entry[target]
                if known is None:
                    self._at_entry[target] = dict(state)
                    waiting.append(target)
                elif _merge(known, state) and target not in waiting:
                    waiting.append(target)

    def _addresses(self, block: int, state: State) -> Iterator[tuple[Instruction, int]]:
        """Run a block over `state`; yield each memory access whose address carries a source, with its sources."""
        for index, instruction in enumerate(self._code.blocks[block].instructions):
            reads, writes, address = roles(instruction)
            if address is None:
                every, low = _union(state, reads), _union(state, low_halves(instruction))
                _write(state, writes, every)
                _write(state, writes[:1] if instruction.mnemonic in _LOW_FROM_LOW else (), low)
                continue
            mask = _union(state, address)
            if mask & ~_ARGUMENT and not instruction.mnemonic.startswith(("s_", "scratch_")):
                yield instruction, mask & ~_ARGUMENT
            _write(state, writes, self._loaded(block, index, instruction, mask, state))

    def _loaded(self, block: int, index: int, instruction: Instruction, address: int, state: State) -> int:
        """What a memory instruction's result carries: itself if it may be a heap base, else nothing."""
        name = instruction.mnemonic
        if name.startswith("scratch_"):
            slot = "scratch:" + instruction.operands[-1]
            if "store" in name:
                state[slot] = _union(state, registers(instruction.operands[1]))
                return 0
            return state.get(slot, 0)
        if address & _ARGUMENT or "load" not in name or re.search(r"dwordx", name) is None:
            return 0
        if (block, index) not in self._sources:
            self._places.append((block, instruction))
            self._sources[block, index] = 1 << len(self._places)
        return self._sources[block, index]


def argument_pointer(text: str) -> tuple[str, ...]:
    """The register pair that points to the kernel's arguments at entry, from the directives of the assembly text."""
    enabled = dict(re.findall(r"\.amdhsa_user_sgpr_(\w+) (\d+)", text))
    first = sum(size for name, size in _BEFORE_ARGUMENTS.items() if enabled.get(name) == "1")
    return f"s{first}", f"s{first + 1}"


def _merge(known: State, state: State) -> bool:
    """Add what `state` carries to `known`; whether anything was new."""
    new = {one: mask | known.get(one, 0) for one, mask in state.items() if mask & ~known.get(one, 0)}
    known.update(new)
    return bool(new)


def _union(state: State, names: tuple[str, ...]) -> int:
    return functools.reduce(operator.or_, (state.get(register, 0) for register in names), 0)


def _write(state: State, names: tuple[str, ...], mask: int) -> None:
    for register in names:
        if mask:
            state[register] = mask
        else:
            state.pop(register, None)


_LOW_FROM_LOW = ("v_mad_u64_u32", "v_mad_i64_i32", "v_lshl_add_u64", "v_lshlrev_b64", "s_lshl_b64")
"""64-bit results whose low half depends on the low halves of the sources only.  Compilers use such an instruction for a
32-bit result too, with anything in the high half of a source."""

_RESULTLESS = ("s_cmp", "s_bitcmp", "s_branch", "s_cbranch", "s_wait", "s_nop", "s_barrier", "ds_write", "ds_store")


@functools.lru_cache(maxsize=65536)
def roles(instruction: Instruction) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...] | None]:
    """(registers read, registers written, registers of the address); the address is None outside memory.

    The first operand of an instruction is its result, except for stores and comparisons of scalars.  A buffer's address
    is the base in its descriptor: its offsets have 32 bits and reach no other heap.
    """
    name, operands = instruction.mnemonic, instruction.operands
    each = [registers(o) for o in operands]
    if name.startswith(("global_", "flat_", "scratch_", "buffer_", "s_load")):
        returns = "store" not in name and ("atomic" not in name or "sc0" in " ".join(operands))
        if name.startswith("buffer_"):
            address = next((found[:2] for found in each[1:] if len(found) == 4 and found[0].startswith("s")), ())
        else:
            address = sum(each[1:], ()) if returns else sum(each[:1] + each[2:], ())
        return (), each[0] if returns and each else (), address
    if name.startswith(_RESULTLESS):
        return sum(each, ()), (), None
    kept = each[0] if name.startswith("v_writelane") and each else ()
    return sum(each[1:], ()) + kept, each[0] if each else (), None


@functools.lru_cache(maxsize=65536)
def low_halves(instruction: Instruction) -> tuple[str, ...]:
    """The first register of each source: of a 64-bit one its low half."""
    return tuple(found[0] for o in instruction.operands[1:] if (found := registers(o)))


@functools.lru_cache(maxsize=65536)
def registers(operand: str) -> tuple[str, ...]:
    """The registers an operand names: "v[2:3]" is v2 and v3; literals, labels and modifiers name none."""
    found: list[str] = []
    for bank, low, high, single in re.findall(r"(?<![\w.])([vsa])(?:\[(\d+):(\d+)\]|(\d+))(?!\w)", operand):
        found += [f"{bank}{n}" for n in (range(int(low), int(high) + 1) if low else (int(single),))]
    return tuple(found)


# Drains: waits for a wave's own stores to other ranks, before it has issued the rest of them (gfx942, gfx950).
#
# On gfx9 one counter, vmcnt, counts the vector memory operations of a wave that are under way, loads and stores
# alike, and they leave it in the order of issue.  `s_waitcnt vmcnt(n)` lets the wave go on when at most the last n
# issued are under way.  So a load that is issued after stores and waited for means waiting for these stores too, and a
# store to another rank is done when the link has answered (CDNA3 ISA document, section 4.4; so does LLVM place the
# waits: SIInsertWaitcnts.cpp).
#
# What is counted.  A *block* is what a wave stores to every peer it serves, before it turns to the next: one pass
# through the innermost loop around remote stores, or a part of it where the compiler has unrolled the loop.  A new
# block begins where a store returns to a heap that others have followed, or, where all go to one heap, after a load.
# (The analysis above says which stores are remote; the one into the rank's own output counts as one where it goes
# through a heap base as well.)  Of the ways through the loop the one with the most remote stores is taken, then the
# one with the most instructions: that of a tile without a masked edge.  Walked twice, every operation in order, a wait
# is a drain if a remote store is among those that it waits for.  It counts *inside* if the last remote store before it
# and the next one after it belong to the same block, *between* if they belong to two.  It does not count if its
# purpose is to publish the stores, that is, if `buffer_wbl2` (the write-back of a release) follows before the next
# remote store.  Without a loop around them, remote stores make up blocks in the same way.  The greatest counts over all
# blocks and loops are given.
#
# Limits.  An inner loop is walked once.  A loop over the peers that the compiler keeps is one block per peer: its
# drains are between blocks.  Where bases are loaded in the loop, each load counts as another heap, so an unrolled loop
# is one block.  The counters of gfx10 and later, which count stores apart, are not understood.


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
    stores = [(block, i) for block, i in found.remote if kind(i) == "store"]
    around = {block: code.innermost(block) for block, _ in stores}
    counts = []
    for loop in dict.fromkeys(around.values()):
        heaps = {id(i): found.carried[id(i)] for block, i in stores if loop is not None or around[block] is None}
        weights = [
            len(block.instructions) + _STORE_WEIGHT * sum(id(i) in heaps for i in block.instructions)
            for block in code.blocks
        ]
        body = code.through(code.heaviest_pass(loop, weights))
        passes = [body, body] if loop else [body]
        counts.append(_greatest(_stores(passes, heaps)[-1]))
    return Drains(max((c.inside for c in counts), default=0), max((c.between for c in counts), default=0))


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
            limit = allowed_under_way(instruction)
            done = 0 if limit is None else max(len(under_way) - limit, 0)
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


# Metrics of AMD machine code (gfx942, gfx950): the text that Triton keeps as `amdgcn`.
#
# Instruction names follow the AMD Instinct MI300 (CDNA3) and CDNA4 ISA documents, and LLVM's AMDGPU user guide for
# the metadata.  `.group_segment_fixed_size` is always 0 there, since Triton's LDS is dynamic: LDS bytes come from the
# caller.


MEMORY_BYTES = {
    "dwordx4": 16,
    "dwordx3": 12,
    "dwordx2": 8,
    "dwordx8": 32,
    "dwordx16": 64,
    "dword": 4,
    "ushort": 2,
    "sshort": 2,
    "short": 2,
    "ubyte": 1,
    "sbyte": 1,
    "byte": 1,
}
"""Bytes per lane, by the size word in the name of a buffer, global, flat, scratch or scalar memory instruction."""

_LDS_ACCESS = re.compile(
    r"ds_(read|write|load|store)(2|_2addr)?(?:st64|_stride64)?_(?:[a-z0-9]+_)*?[bui](\d+)(?:_\w+)?"
)
_FIELDS = {
    "vgpr": "vgpr_count",
    "agpr": "agpr_count",
    "sgpr": "sgpr_count",
    "vgpr_spills": "vgpr_spill_count",
    "sgpr_spills": "sgpr_spill_count",
    "scratch_bytes": "private_segment_fixed_size",
    "_workgroup": "max_flat_workgroup_size",
    "_wave": "wavefront_size",
}


def parse(text: str) -> Code:
    """The instructions and labels of an `amdgcn` text; directives, comments and metadata are left out."""
    lines: list[str | Instruction] = []
    for raw in text.split(".amdgpu_metadata")[0].splitlines():
        line = raw.split(";")[0].strip()
        label = re.fullmatch(r"([.\w$]+):", line)
        if label:
            lines.append(label[1])
        elif line and not line.startswith("."):
            name, _, rest = line.partition(" ")
            lines.append(Instruction(name.strip(), _operands(rest)))
    return Code(lines, jump)


def _operands(text: str) -> tuple[str, ...]:
    """Operands, split at commas outside brackets; modifiers stay with the last operand."""
    return tuple(part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip())


def jump(instruction: Instruction) -> Jump | None:
    """Where a branch goes; None for everything else."""
    name = instruction.mnemonic
    if name == "s_endpgm" or name.startswith(("s_setpc", "s_endpgm")):
        return Jump((), falls_through=False)
    if name == "s_branch":
        return Jump(instruction.operands[:1], falls_through=False)
    if name.startswith("s_cbranch"):
        return Jump(instruction.operands[:1], falls_through=True)
    return None


def kind(instruction: Instruction) -> str:
    """The class an instruction counts in: mfma, load, store, atomic, lds, scratch, scalar_load, wait, barrier, branch,
    valu or salu (every other scalar one)."""
    name = instruction.mnemonic
    if name.startswith(("v_mfma", "v_smfmac")):
        return "mfma"
    if name.startswith("scratch_"):
        return "scratch"
    if name.startswith(("global_", "buffer_", "flat_")):
        return next((word for word in ("atomic", "store", "load") if word in name), "salu")
    if name.startswith("ds_"):
        return "lds"
    if name.startswith(("s_load", "s_buffer_load")):
        return "scalar_load"
    if name.startswith("s_wait"):
        return "wait"
    if name.startswith("s_barrier"):
        return "barrier"
    if name.startswith(("s_cbranch", "s_branch")):
        return "branch"
    return "valu" if name.startswith("v_") else "salu"


def access_bytes(instruction: Instruction) -> int | None:
    """Bytes per lane that a memory instruction moves; None where the name has no size word."""
    words = instruction.mnemonic.split("_")
    return next((MEMORY_BYTES[word] for word in words if word in MEMORY_BYTES), None)


def lds_access(instruction: Instruction) -> tuple[str, str] | None:
    """("read" or "write", width of one access in bytes, "2x8" for a paired one); None for other LDS instructions."""
    match = _LDS_ACCESS.fullmatch(instruction.mnemonic)
    if match is None:
        return None
    direction = {"load": "read", "store": "write"}.get(match[1], match[1])
    return direction, ("2x" if match[2] else "") + str(int(match[3]) // 8)


def metrics(text: str, code: Code, lds_bytes: int, translates: bool) -> JsonObject:
    """All metrics that the text gives, by name; see benchmarks.isa.__main__ for the meaning and unit of each.

    translates: the kernel forms pointers from integers, so heap-base loads can be distinguished from other loads.
    """
    fields = {name: _field(text, key) for name, key in _FIELDS.items()}
    threads, wave = fields.pop("_workgroup"), fields.pop("_wave")
    loads = [i for i in code.instructions if kind(i) == "load"]
    return {
        **fields,
        **common_metrics(code, kind, access_bytes, "mfma", "scratch"),
        "lds_bytes": lds_bytes,
        "waves_per_group": -(-threads // wave),
        "agpr_moves_in_loops": sum(i.mnemonic.startswith("v_accvgpr") for i in code.within(code.in_loops)),
        "code_bytes": sum(map(int, re.findall(r"; codeLenInByte = (\d+)", text))),
        "loads_to_lds": sum(any(re.search(r"\blds\b", o) for o in i.operands) for i in loads),
        **_remote(code, argument_pointer(text) if translates else None),
        **_lds(code.instructions),
    }


def _remote(code: Code, arguments: tuple[str, ...] | None) -> JsonObject:
    """Stores through pointers built from heap bases, and how many bases and bytes the longest path moves.

    A path runs each loop once, so what the compiler duplicates for two branches counts once.
    """
    found = Provenance(code, arguments) if arguments else None
    stores = [(block, i) for block, i in (found.remote if found else ()) if kind(i) == "store"]
    stored, loaded = Counter[int](), Counter[int]()
    for block, instruction in stores:
        stored[block] += access_bytes(instruction) or 0
    waits = drains(code, found) if found else Drains()
    for block, instruction in found.bases if found else ():
        loaded[block] += (access_bytes(instruction) or 8) // 8
    return {
        "remote_store_widths": widths(access_bytes(i) for _, i in stores),
        "remote_store_names": counted(i.mnemonic for _, i in stores),
        "remote_store_bytes": code.heaviest_path(stored),
        "remote_store_bytes_in_loops": code.heaviest_path(_inside(stored, code)),
        "subdword_remote_stores": sum((access_bytes(i) or 4) < 4 for _, i in stores),
        "remote_store_drains": waits.inside,
        "remote_store_drains_between": waits.between,
        "heap_base_loads": code.heaviest_path(loaded),
        "heap_base_loads_in_loops": code.heaviest_path(_inside(loaded, code)),
    }


def _inside(weights: Mapping[int, int], code: Code) -> dict[int, int]:
    return {block: weight for block, weight in weights.items() if block in code.in_loops}


def _lds(instructions: Iterable[Instruction]) -> JsonObject:
    accesses = [access for i in instructions if kind(i) == "lds" and (access := lds_access(i))]
    reads = [width for direction, width in accesses if direction == "read"]
    writes = [width for direction, width in accesses if direction == "write"]
    return {"lds_read_widths": counted(reads), "lds_write_widths": counted(writes)}


def _field(text: str, key: str) -> int:
    match = re.search(rf"\.{key}:\s+(\d+)", text)
    if match is None:
        raise ValueError(f"the assembly text has no .{key}: it is not what Triton 3.6 to 3.9 writes for an AMD target")
    return int(match[1])
