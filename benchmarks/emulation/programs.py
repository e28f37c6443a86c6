"""What the order of memory needs to know of an instruction, and accesses that are recorded for a schedule to make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .machine import Instruction
from .memory import QUEUES, Accesses, Change, Step, form_of
from .operands import VECTOR, Unknown
from .ordering import AGENT, SYSTEM, WORKGROUP, FlatMemory, Part
from .waves import ACCUMULATORS

SCALAR = 1024
"""Scalar registers are numbered from here among the registers of an instruction, vector registers from 0."""

MOST = {"vm": 63, "lgkm": 15}
"""What a counter counts up to: a full one holds the next access back."""


@dataclass(frozen=True, eq=False)
class Facts:
    """What the order needs to know of an instruction beside what it does.

    queue: "vm" or "lgkm" that it is counted by, or "".  scope of an access, an atomic, a write-back or invalidation.
    touched and written: registers (SCALAR + number for scalar ones).  waits: of S_WAITCNT, how many of a queue may be
    outstanding after it.
    """

    number: int
    instruction: Instruction
    queue: str = ""
    scope: int = WORKGROUP
    touched: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()
    waits: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The operation."""
        return self.instruction.name

    @cached_property
    def atomic(self) -> bool:
        """Whether others may access the same place at the same time: a read-modify-write, or with a scope."""
        return self.queue == "vm" and self.scope > WORKGROUP and self.name != "BUFFER_WBL2"

    @cached_property
    def noticed(self) -> bool:
        """Whether others could notice it: an access, wait, invalidation, barrier or end."""
        return (
            bool(self.queue or self.waits) or self.name == "BUFFER_INV" or self.instruction.kind in ("barrier", "end")
        )

    def __str__(self) -> str:
        return f"{self.name.lower()} at {self.instruction.at:#x}" if self.instruction.size else self.name


STREAM = Facts(0, Instruction(0, 0, "a copy of the stream", "plain", lambda w: None), "vm")
"""Of what stands for the instruction by which a rank's stream accesses memory between launches."""


class Recording(Accesses):
    """Accesses that are not made but recorded, for the wave that executes."""

    memory: FlatMemory
    parts: list[Part]

    def fetch(self, addresses: Any, size: int, use: Callable[[Any], None]) -> None:
        self._record("load", addresses, size, use)

    def keep(self, addresses: Any, values: Any) -> None:
        self._record("store", addresses, values.shape[1], values.copy())

    def modify(self, addresses: Any, size: int, change: Change, use: Callable[[Any], None]) -> None:
        self._record("atomic", addresses, size, (change, use))

    def _record(self, what: str, addresses: Any, size: int, given: Any) -> None:
        self.parts.append(Part(what, self.memory.places(addresses, size), size, given))

    def fetch_local(self, places: Any, size: int, use: Callable[[Any], None]) -> None:
        self.parts.append(Part("load", places, size, use, local=True))

    def keep_local(self, places: Any, values: Any) -> None:
        self.parts.append(Part("store", places, values.shape[1], values.copy(), local=True))

    def _local_atomic(self, inst: Any) -> Step:
        """Unknown: a wave's stretch does not hold what others put into the LDS meanwhile."""
        raise Unknown(f"{inst.op.name}, of which schedules follow no order,")


def queue_of(instruction: Instruction) -> str:
    """The counter of an access by lanes."""
    form = form_of(instruction.inst)
    return "" if form == "SMEM" or instruction.name == "BUFFER_INV" else QUEUES.get(form, "")


def loads_to_lds(instruction: Instruction) -> bool:
    """Whether it loads from memory to the LDS."""
    return "_LDS_" in instruction.name or bool(getattr(instruction.inst, "lds", 0))


def facts_of(number: int, instruction: Instruction) -> Facts:
    """Registers, scope and counter of an instruction."""
    name, inst = instruction.name, instruction.inst
    queue = QUEUES.get(form_of(inst), "") if name != "BUFFER_INV" else ""
    atomic, direct = "_ATOMIC_" in name, loads_to_lds(instruction)
    scope, waits = WORKGROUP, {}
    if atomic:
        scope = SYSTEM if inst.sc1 else AGENT
    elif (queue == "vm" or name == "BUFFER_INV") and inst.sc1:
        scope = SYSTEM if inst.sc0 else AGENT
    if name == "S_WAITCNT":
        waits = {"vm": inst.simm16 & 15 | inst.simm16 >> 14 << 4 & 0x30, "lgkm": inst.simm16 >> 8 & 15}
    gives = queue and not (direct or "STORE" in name or "WRITE" in name or atomic and not inst.sc0)
    touched, written = set[int](), set[int]()
    for operand, count in inst.op_regs.items():
        if operand == "vdata" and direct or operand == "vdst" and atomic and not inst.sc0:
            continue
        if operand in _without_address(inst):
            continue
        if operand == "soffset" and getattr(inst, "imm", 0) and not inst.soffset_en:  # of a scalar load: not used
            continue
        registers, result = _registers(inst, operand, count, name), operand in ("vdst", "vdata", "sdata")
        if gives and result:
            written |= registers
        if not (gives and result) or atomic and operand == "vdata":
            touched |= registers
    return Facts(number, instruction, queue, scope, frozenset(touched), frozenset(written), waits)


def _without_address(inst: Any) -> tuple[str, ...]:
    """The field of an address that is not used: of scratch memory or a buffer that is reached without a register."""
    if hasattr(inst, "sve"):
        return () if inst.sve else ("addr",)
    return ("vaddr",) if hasattr(inst, "offen") and not (inst.offen or inst.idxen) else ()


def _registers(inst: Any, operand: str, count: int, name: str) -> set[int]:
    elsewhere = operand == "src0" and hasattr(inst, "vsrc0")  # DPP and SDWA stand in its place
    first = getattr(getattr(inst, "vsrc0" if elsewhere else operand, None), "offset", None)
    if first is None:
        return set()
    if elsewhere and getattr(inst, "s0", 0) or operand == "vsrc1" and getattr(inst, "s1", 0):  # SDWA of a scalar
        first -= VECTOR
    if operand == "addr" and hasattr(inst, "saddr"):
        count = 2 if inst.saddr.offset in (124, 127) else 1
    if operand == "vdst" and name.startswith(("V_READ", "V_CMP")):
        first %= VECTOR
    if first >= VECTOR:
        first += ACCUMULATORS * _accumulates(inst, operand, name) - VECTOR
    elif first >= 124:
        return set()
    else:
        first += SCALAR
    return set(range(first, first + count))


def _accumulates(inst: Any, operand: str, name: str) -> bool:
    """Whether the operand is an accumulation register."""
    if name.startswith("V_MFMA"):
        return bool({"src0": inst.acc & 1, "src1": inst.acc >> 1 & 1}.get(operand, inst.acc_cd))
    if name.startswith("V_ACCVGPR"):
        return not name.endswith("WRITE" if operand == "src0" else "READ")
    return operand in ("vdata", "data", "vdst", "data0", "data1") and bool(getattr(inst, "acc", 0))
