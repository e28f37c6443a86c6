"""The code of launches on several ranks: decoded once for all, with what the order of memory needs to know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .counts import Uncounted
from .machine import Instruction, Machine, known
from .memory import Accesses, Change, Step
from .operands import VECTOR, Unknown
from .ordering import AGENT, SYSTEM, WORKGROUP, FlatMemory, Part
from .triton_driver import Launch
from .waves import ACCUMULATORS

UNLIMITED = 1 << 62
"""Instructions: schedules count their own."""

SCALAR = 1024
"""Scalar registers are numbered from here among the registers of an instruction, vector registers from 0."""

STREAM = 0
"""Number of the instruction that stands for what a rank's stream does between launches."""


@dataclass(frozen=True)
class Facts:
    """What the order needs to know of an instruction beside what it does.

    queue: "vm" or "lgkm" that it is counted by, or "".  scope of an access, an atomic, a write-back or invalidation.
    touched and written: registers (SCALAR + number for scalar ones).  waits: (vmcnt, lgkmcnt) of S_WAITCNT.
    """

    number: int
    instruction: Instruction
    name: str
    queue: str
    scope: int
    touched: frozenset[int]
    written: frozenset[int]
    waits: tuple[int, int] = (63, 15)

    @cached_property
    def top(self) -> int:
        """One more than its highest vector register, 0 without any."""
        return max((1 + one for one in self.touched | self.written if one < SCALAR), default=0)

    @cached_property
    def atomic(self) -> bool:
        """Whether others may access the same place at the same time: a read-modify-write, or with a scope."""
        return self.queue == "vm" and self.scope > 0 and self.name != "BUFFER_WBL2"


class Recording(Accesses):
    """Accesses that are not made but recorded, for the wave that executes."""

    parts: list[Part]

    def fetch(self, addresses: Any, size: int, use: Callable[[Any], None]) -> None:
        self.parts.append(Part("load", self.memory.places(addresses, size), size, use))  # type: ignore[attr-defined]

    def keep(self, addresses: Any, values: Any) -> None:
        places = self.memory.places(addresses, values.shape[1])  # type: ignore[attr-defined]
        self.parts.append(Part("store", places, values.shape[1], values.copy()))

    def modify(self, addresses: Any, size: int, change: Change, use: Callable[[Any], None]) -> None:
        places = self.memory.places(addresses, size)  # type: ignore[attr-defined]
        self.parts.append(Part("atomic", places, size, (change, use)))

    def fetch_local(self, places: Any, size: int, use: Callable[[Any], None]) -> None:
        self.parts.append(Part("local load", places, size, use))

    def keep_local(self, places: Any, values: Any) -> None:
        self.parts.append(Part("local store", places, values.shape[1], values.copy()))

    def _local_atomic(self, inst: Any) -> Step:
        """Unknown: a wave's stretch does not hold what others put into the LDS meanwhile."""
        raise Unknown(f"{inst.op.name}, of which schedules follow no order,")


class Programs:
    """Code that is executed on all ranks, decoded once: by code object, instructions by address and their facts."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.machines: dict[bytes, Machine] = {}
        self.paths: dict[tuple[int, int], list[Any]] = {}
        """What each wave does (paths.Path): of a rank and one of its launches."""
        nothing = Instruction(0, 0, "a copy of the stream", "plain", lambda w: None)
        self.facts = [Facts(0, nothing, nothing.name, "", 0, frozenset(), frozenset())]
        self.scopes = [0]
        self._known: dict[tuple[bytes, int], Facts] = {}

    def machine(self, launch: Launch) -> Machine:
        """What executes a launch on all ranks: workgroups are numbered over all of them."""
        code = launch.code
        key = code.image + launch.lds_bytes.to_bytes(4, "little")
        if key not in self.machines:
            groups = self.ranks * int(np.prod(launch.grid))
            machine = Machine(code, FlatMemory([]), 1, launch.lds_bytes, UNLIMITED)
            machine.accesses = Recording(
                machine.accesses.memory,
                np.zeros(max(8, groups * launch.lds_bytes), np.uint8),
                launch.lds_bytes,
                Uncounted(),
            )
            machine.accesses.add_scratch(0, 0)
            self.machines[key] = machine
        return self.machines[key]

    def told(self, machine: Machine, at: int) -> Facts:
        """The facts of the instruction at an address."""
        key = (machine.code.image, at)
        found = self._known.get(key)
        if found is None:
            instruction = machine.instructions.get(at) or machine._decoded(at)
            found = facts_of(len(self.facts), machine, instruction)
            self.facts.append(found)
            self.scopes.append(found.scope if found.atomic else 0)
            self._known[key] = found
        return found


def facts_of(number: int, machine: Machine, instruction: Instruction) -> Facts:
    """Registers, scope and counter of an instruction."""
    name = instruction.name
    inst = known(machine.code.image, instruction.at, machine.code.arch).inst
    form = type(inst).__name__.split("_")[0]
    queue = {"SMEM": "lgkm", "DS": "lgkm", "GLOBAL": "vm", "FLAT": "vm", "MUBUF": "vm"}.get(form, "")
    scope = 0
    if queue == "vm":
        scope = AGENT if inst.sc1 else WORKGROUP
        if "_ATOMIC_" in name:
            scope = SYSTEM if inst.sc1 else AGENT
        elif inst.sc1 and inst.sc0:
            scope = SYSTEM
    if name in ("BUFFER_INV",):
        queue = ""
    waits = (63, 15)
    if name == "S_WAITCNT":
        waits = (inst.simm16 & 15 | inst.simm16 >> 14 << 4 & 0x30, inst.simm16 >> 8 & 15)
    touched, written = set(), set()
    for operand, count in inst.op_regs.items():
        registers = _registers(inst, operand, count, name)
        if operand == "vdata" and (getattr(inst, "lds", 0) or "_LDS_" in name):
            continue
        if queue and operand in _results(inst, name):
            written |= registers
            if not ("_ATOMIC_" in name and operand == "vdata"):
                continue
        touched |= registers
    return Facts(number, instruction, name, queue, scope, frozenset(touched), frozenset(written), waits)


def _results(inst: Any, name: str) -> tuple[str, ...]:
    """Operands that an access writes when it is complete."""
    if "STORE" in name or "WRITE" in name or "_LDS_" in name or getattr(inst, "lds", 0):
        return ()
    if "_ATOMIC_" in name and not inst.sc0:
        return ()
    return ("vdst", "vdata", "sdata") if "_ATOMIC_" not in name or hasattr(inst, "vdata") else ("vdst",)


def _registers(inst: Any, operand: str, count: int, name: str) -> set[int]:
    value = getattr(inst, operand, None)
    first = getattr(value, "offset", None)
    if first is None:
        return set()
    if operand == "addr" and hasattr(inst, "saddr"):
        count = 2 if inst.saddr.offset in (124, 127) else 1
    if operand == "vdst" and name.startswith(("V_READ", "V_CMP")):
        first %= VECTOR
    if first >= VECTOR:
        return {first - VECTOR + _accumulates(inst, operand, name) + index for index in range(count)}
    return {SCALAR + first + index for index in range(count)} if first < 124 else set()


def _accumulates(inst: Any, operand: str, name: str) -> int:
    """ACCUMULATORS where the operand is an accumulation register."""
    if name.startswith("V_MFMA"):
        bit = {"src0": inst.acc & 1, "src1": inst.acc >> 1 & 1}.get(operand, inst.acc_cd)
    elif name.startswith("V_ACCVGPR"):
        bit = not name.endswith("WRITE" if operand == "src0" else "READ")
    else:
        bit = operand in ("vdata", "data", "vdst", "data0", "data1") and getattr(inst, "acc", 0)
    return ACCUMULATORS if bit else 0
