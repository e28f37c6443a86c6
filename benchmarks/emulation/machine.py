"""Executes the instructions of a launch: decodes each once, runs it for all waves that stand there.

Waves that branch apart go on as groups of their own and join again where they meet: the group at the lowest address
goes first, until it has executed PATIENCE more instructions than others, so that a wave that waits for another's store
gets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .code_object import KernelCode
from .counts import Observer, matrix_cycles
from .matrix import matrix_step
from .memory import MOST_WAVES, QUEUES, Accesses, form_of
from .operands import Unknown, signed
from .scalar_steps import scalar_step
from .vector_steps import vector_step
from .waves import VCC, Fault, Memory, Waves, joined, zeros

PATIENCE = 10_000
"""Instructions by which one group of waves may be ahead of another that could go on."""

_IDLE = "S_NOP S_WAITCNT S_SLEEP S_SETPRIO S_ICACHE_INV S_SETHALT S_SENDMSG S_INST_PREFETCH V_NOP V_CLREXCP"
NOTHING = {**dict.fromkeys(_IDLE.split(), "plain"), "S_BARRIER": "barrier", "S_ENDPGM": "end"}
"""Instructions that change no register or memory, and their kind; plain ones change only time, as every access is
complete when the next instruction begins."""

Step = Callable[[Waves], None]


@dataclass(frozen=True)
class Instruction:
    """One instruction: where it is, what it is, and what it does.

    kind: "plain" (do only), "branch" (do gives which waves go to `target`), "jump" (do gives where each wave goes),
    "barrier" or "end".  do: a function of the waves; None of an access to memory before a launch compiles it for its
    own.  cycles: in the matrix unit, None if
    that is not known.  inst: its fields, as tinygrad decodes them.
    """

    at: int
    size: int
    name: str
    kind: str
    do: Any
    target: int = 0
    cycles: int | None = 0
    inst: Any = None


class Machine:
    """One launch of a kernel: `run` ends when every wave has ended."""

    at_once = True
    """Whether all workgroups run together, each with its LDS and scratch memory."""

    def __init__(self, code: KernelCode, memory: Memory, workgroups: int, lds_bytes: int, limit: int) -> None:
        self.code, self.limit = code, limit
        self.watch: Callable[[Machine, Instruction, Waves], None] | None = None
        self.grid = workgroups, 1, 1
        self.share = 1.0
        """Workgroups of the launch for each one that is executed."""
        self.observer = Observer()
        together = workgroups * self.at_once
        self.accesses = Accesses(memory, zeros(max(8, together * lds_bytes)), lds_bytes, self.observer)
        self.accesses.add_scratch(together * MOST_WAVES, code.scratch_bytes)
        self.instructions: dict[int, Instruction] = {}
        self.executed: Counter[int] = Counter()
        """Address of an instruction -> how often a wave executed it."""
        self._alive = np.zeros(workgroups, np.int64)
        self._first = 0
        """Of the workgroups that run."""
        self._parked: list[Waves] = []
        self._ready: list[Waves] = []

    def run(self, waves: Waves) -> None:
        """Execute until all waves have ended.  Fault and Unknown name the wave and the instruction."""
        np.add.at(self._alive, waves.own(), 1)
        self._ready = [waves]
        spent = 0
        with np.errstate(all="ignore"):
            while self._ready:
                if spent >= self.limit:
                    raise Fault(f"no end after {self.limit} instructions; waves stand at {self._places()}")
                spent += self._turn(min(PATIENCE, self.limit - spent))
        if self._parked:
            raise Fault(f"a barrier that not all waves of a workgroup reach: {self._places()}")

    def _places(self) -> str:
        groups = [*self._ready, *self._parked]
        return ", ".join(
            f"{group.pc - self.code.entry:#x} ({len(group)} waves, the first is wave {group.ids[0, 1]} of workgroup "
            f"{group.ids[0, 0]})"
            for group in groups[:8]
        )

    def _turn(self, most: int) -> int:
        """Let the group at the lowest address go on for so many instructions at most; how many it executed."""
        w = min(self._ready, key=lambda group: (group.steps // PATIENCE, group.pc))
        self._ready.remove(w)
        others = {group.pc for group in self._ready}
        begun = w.steps
        while w.steps < begun + most:
            if w.steps > begun and w.pc in others:
                break
            w.steps += 1
            instruction = self.instructions.get(w.pc) or self._decoded(w.pc)
            self.executed[w.pc] += len(w)
            self.observer.at, self.observer.name = w.pc - self.code.entry, instruction.name
            if not w.full:
                self.observer.partly(w)
            if self.watch:
                self.watch(self, instruction, w)
            try:
                result = instruction.do(w)
                if instruction.kind == "jump":
                    self.check_call(result, w)
            except (Fault, Unknown) as error:
                raised = type(error)(f"{error}; {self._where(instruction, w, error)}")
                raised.at = instruction.at
                raise raised from error
            w.pc = instruction.at + instruction.size
            if instruction.kind == "plain":
                continue
            if instruction.kind == "branch":
                self.observer.branch(w, result)
                if result.all():
                    w.pc = instruction.target
                elif result.any():
                    self._split(w, result, instruction.target)
                    return w.steps - begun
                continue
            if instruction.kind == "jump":
                for target in np.unique(result):
                    away = w.taken(result == target)
                    away.pc = int(target)
                    self._meet(away)
                return w.steps - begun
            if instruction.kind == "end":
                np.subtract.at(self._alive, w.own(), 1)
            else:
                self._parked.append(w)
            self._release()
            return w.steps - begun
        self._meet(w)
        return w.steps - begun

    def check_call(self, targets: Any, w: Waves) -> None:
        """Fault where waves go to what ends a program: an assertion of the kernel that does not hold."""
        if self.code.functions.get(int(targets[0]), "").startswith("__triton_assert_fail"):
            raise Fault("a device_assert does not hold", (0, int(w.active[0].argmax())))

    def _where(self, instruction: Instruction, w: Waves, error: Exception) -> str:
        place = getattr(error, "place", None)
        index, lane = place if isinstance(place, tuple) else (0, None)
        workgroup, wave = w.ids[index] + (self._first, 0)
        offset = instruction.at - self.code.entry
        told = f"{instruction.name} at {offset:#x} of {self.code.name}, workgroup {workgroup}, wave {wave}"
        scalar_load = instruction.name.startswith("S_")
        return told if lane is None or scalar_load else f"{told}, lane {lane}"

    def _split(self, w: Waves, goes: Any, target: int) -> None:
        away, stays = w.taken(goes), w.taken(~goes)
        away.pc = target
        self._meet(away)
        self._meet(stays)

    def _meet(self, w: Waves) -> None:
        """Join those that stand at the same instruction."""
        same = [group for group in self._ready if group.pc == w.pc]
        self._ready = [group for group in self._ready if group.pc != w.pc] + [joined([w, *same])]

    def _release(self) -> None:
        """Let those workgroups go on of which all waves that live are at a barrier."""
        if not self._parked:
            return
        arrived = np.zeros_like(self._alive)
        for group in self._parked:
            np.add.at(arrived, group.own(), 1)
        free = (arrived > 0) & (arrived == self._alive)
        if not free.any():
            return
        parked, self._parked = self._parked, []
        for group in parked:
            goes = free[group.own()]
            if goes.any():
                self._meet(group.taken(goes))
            if not goes.all():
                self._parked.append(group.taken(~goes))

    # Decoding.

    def _decoded(self, at: int) -> Instruction:
        if not 0 <= at < len(self.code.image):
            raise Fault(f"a jump to {at - self.code.entry:#x}, outside of the code of {self.code.name}")
        try:
            one = known(self.code.image, at, self.code.arch)
            do = one.do or self.accesses.step(one.inst)
        except Unknown as error:
            inst = decoded(self.code.image, at)
            raise Unknown(
                f"{error} cannot be executed: {inst} at {at - self.code.entry:#x} of {self.code.name}"
            ) from error
        found = Instruction(at, one.size, one.name, one.kind, do, at + one.target, one.cycles, one.inst)
        self.instructions[at] = found
        return found


MOST_KNOWN = 1 << 16
"""Instructions that are remembered: kernels of one operator share most of theirs."""

SIZES = (4, 8, 16)
"""Bytes of an instruction; the first four say how many."""

_KNOWN: dict[tuple[str, bytes], Instruction] = {}


def known(image: bytes, at: int, arch: str) -> Instruction:
    """The instruction that stands at an offset, as if it stood at 0.  Unknown if it cannot be executed."""
    for size in SIZES:
        if found := _KNOWN.get((arch, image[at : at + size])):
            return found
    inst = decoded(image, at)
    name, size = inst.op.name.removesuffix("_E32").removesuffix("_E64"), inst.size()
    kind, do = _compiled(inst, name, arch)
    target = size + 4 * signed(inst.simm16, 16) if kind == "branch" else 0
    cycles = matrix_cycles(name, (getattr(inst, "cbsz", 0), getattr(inst, "blgp", 0)))
    if len(_KNOWN) >= MOST_KNOWN:
        _KNOWN.clear()
    one = _KNOWN[arch, image[at : at + size]] = Instruction(0, size, name, kind, do, target, cycles, inst)
    return one


SCALED = 0xD3AC
"""Upper half of the first word of V_MFMA_LD_SCALE_B32, with which a scaled MFMA begins.  tinygrad (0.14) takes any
eight bytes before an F8F6F4 for it."""


def decoded(image: bytes, at: int) -> Any:
    """The instruction that stands at an offset, with its fields."""
    from tinygrad.renderer.amd import decode_inst

    size = 16 if int.from_bytes(image[at : at + 4], "little") >> 16 == SCALED else 8
    return decode_inst(image[at : at + size].ljust(size, b"\0"), "cdna")


BRANCHES: dict[str, Callable[[Waves], Any]] = {
    "S_BRANCH": lambda w: np.ones(len(w), np.bool_),
    "S_CBRANCH_SCC0": lambda w: ~w.scc,
    "S_CBRANCH_SCC1": lambda w: w.scc,
    "S_CBRANCH_VCCZ": lambda w: w.s64(VCC) == 0,
    "S_CBRANCH_VCCNZ": lambda w: w.s64(VCC) != 0,
    "S_CBRANCH_EXECZ": lambda w: ~w.active.any(1),
    "S_CBRANCH_EXECNZ": lambda w: w.active.any(1),
}
"""Which of the waves go to the target."""


def _swap(inst: Any) -> tuple[str, Step]:
    def swap(w: Waves) -> Any:
        target = w.s64(inst.ssrc0.offset)
        w.set_s64(inst.sdst.offset, np.full(len(w), w.pc + inst.size(), np.uint64))
        return target

    return "jump", swap


def _trap(w: Waves) -> None:
    raise Fault("the kernel ends itself (s_trap), as an assertion that does not hold does")


CALLS: dict[str, Callable[[Any], tuple[str, Step]]] = {
    "S_GETPC_B64": lambda inst: (
        "plain",
        lambda w: w.set_s64(inst.sdst.offset, np.full(len(w), w.pc + inst.size(), np.uint64)),
    ),
    "S_SETPC_B64": lambda inst: ("jump", lambda w: w.s64(inst.ssrc0.offset)),
    "S_SWAPPC_B64": _swap,
    "S_TRAP": lambda inst: ("plain", _trap),
}
"""How functions are called and return, and how a kernel breaks off; the address of an instruction is its offset in the
image."""


def _compiled(inst: Any, name: str, arch: str) -> tuple[str, Callable[[Waves], Any] | None]:
    """(kind, do) of an instruction."""
    form = form_of(inst)
    if form in QUEUES:
        return "plain", None
    if name in BRANCHES:
        return "branch", BRANCHES[name]
    if name in NOTHING:
        return NOTHING[name], lambda w: None
    if name in CALLS:
        return CALLS[name](inst)
    if form in ("SOP1", "SOP2", "SOPC", "SOPK"):
        return "plain", scalar_step(inst, name)
    if name.startswith("V_MFMA"):
        return "plain", matrix_step(inst, name, arch)
    if name.startswith("V_"):
        return "plain", vector_step(inst, name, arch)
    raise Unknown(name)
