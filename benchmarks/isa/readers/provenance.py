"""Which loads an address was computed from: how remote stores are distinguished from local ones in AMD code.

A remote pointer is `heap_bases[peer] + (pointer - heap_bases[own])`, so its address registers carry the result of a
load of 8 bytes that is not a kernel argument.  A forward data-flow analysis over the control-flow graph follows each
such load through registers (and through scratch slots, if they spill).  LDS is not followed: addresses do not pass
through it.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterator

from .code import Code, Instruction

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
    grown = False
    for register, mask in state.items():
        old = known.get(register, 0)
        if mask & ~old:
            known[register] = old | mask
            grown = True
    return grown


def _union(state: State, names: tuple[str, ...]) -> int:
    mask = 0
    for register in names:
        mask |= state.get(register, 0)
    return mask


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
