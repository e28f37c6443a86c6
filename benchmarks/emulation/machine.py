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

from . import matrix, operands, rounding, small_floats, vector
from .code_object import OVERFLOW_BIT, KernelCode
from .counts import Observer, matrix_cycles
from .memory import Accesses, signed
from .operands import LITERAL, VECTOR, Unknown
from .scalar_steps import scalar_step
from .waves import ACCUMULATORS, EXEC, LANES, MODE, VCC, Fault, Memory, Waves, joined, lanes_of, mask_of

PATIENCE = 10_000
"""Instructions by which one group of waves may be ahead of another that could go on."""

NOTHING = {"S_NOP", "S_WAITCNT", "S_SLEEP", "S_SETPRIO", "S_ICACHE_INV", "S_SETHALT", "S_SENDMSG", "S_INST_PREFETCH"}
"""Instructions that change nothing but time, as every access is complete when the next instruction begins."""

FLOATS = ("f16", "f32", "f64")

Step = Callable[[Waves], None]


@dataclass(frozen=True)
class Instruction:
    """One instruction: where it is, what it is, and what it does.

    kind: "plain" (do only), "branch" (do gives which waves go to `target`), "barrier" or "end".  cycles: in the matrix
    unit.
    """

    at: int
    size: int
    name: str
    kind: str
    do: Callable[[Waves], Any]
    target: int = 0
    cycles: int = 0


class Machine:
    """One launch of a kernel: `run` ends when every wave has ended."""

    def __init__(self, code: KernelCode, memory: Memory, workgroups: int, lds_bytes: int, limit: int) -> None:
        self.code, self.limit = code, limit
        self.watch: Callable[[Machine, Instruction, Waves], None] | None = None
        self.observer = Observer()
        lds = np.zeros(max(8, workgroups * lds_bytes), np.uint8)
        self.accesses = Accesses(memory, lds, lds_bytes, self.observer)
        self.accesses.add_scratch(workgroups, code.scratch_bytes)
        self.instructions: dict[int, Instruction] = {}
        self.executed: Counter[int] = Counter()
        """Address of an instruction -> how often a wave executed it."""
        self._alive = np.zeros(workgroups, np.int64)
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
            except (Fault, Unknown) as error:
                raise type(error)(f"{error}; {self._where(instruction, w, error)}") from error
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
            if instruction.kind == "end":
                np.subtract.at(self._alive, w.own(), 1)
            else:
                self._parked.append(w)
            self._release()
            return w.steps - begun
        self._meet(w)
        return w.steps - begun

    def _where(self, instruction: Instruction, w: Waves, error: Exception) -> str:
        place = getattr(error, "place", None)
        index, lane = place if isinstance(place, tuple) else (0, None)
        workgroup, wave = w.ids[index]
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
            if goes.all():
                self._meet(group)
            elif goes.any():
                self._meet(group.taken(goes))
                self._parked.append(group.taken(~goes))
            else:
                self._parked.append(group)

    # Decoding.

    def _decoded(self, at: int) -> Instruction:
        if not 0 <= at < len(self.code.image):
            raise Fault(f"a jump to {at - self.code.entry:#x}, outside of the code of {self.code.name}")
        try:
            one = known(self.code.image, at, self.code.arch)
            do = one.do or self._access(one.inst)
        except Unknown as error:
            inst = decoded(self.code.image, at)
            raise Unknown(
                f"{error} cannot be executed: {inst} at {at - self.code.entry:#x} of {self.code.name}"
            ) from error
        target = at + one.size + one.jump
        self.instructions[at] = instruction = Instruction(at, one.size, one.name, one.kind, do, target, one.cycles)
        return instruction

    def _access(self, inst: Any) -> Step:
        """An access to memory, compiled for this launch."""
        form = type(inst).__name__.split("_")[0]
        kinds = {"SMEM": self.accesses.scalar_load, "DS": self.accesses.local}
        return kinds.get(form, self.accesses.vector)(inst)


@dataclass(frozen=True)
class Known:
    """What an instruction is and does, wherever it stands.

    do: None of an access to memory, which every launch compiles for its own.  jump: bytes from its end to where a
    branch goes.  The rest as of Instruction.
    """

    inst: Any
    size: int
    name: str
    kind: str
    do: Callable[[Waves], Any] | None
    jump: int
    cycles: int | None


MOST_KNOWN = 1 << 16
"""Instructions that are remembered: kernels of one operator share most of theirs."""

SIZES = (4, 8, 16)
"""Bytes of an instruction; the first four say how many."""

_KNOWN: dict[tuple[str, bytes], Known] = {}


def known(image: bytes, at: int, arch: str) -> Known:
    """The instruction that stands at an offset.  Unknown if it cannot be executed."""
    for size in SIZES:
        if found := _KNOWN.get((arch, image[at : at + size])):
            return found
    inst = decoded(image, at)
    name = inst.op.name.removesuffix("_E32").removesuffix("_E64")
    kind, do, jump = _compiled(inst, name, arch)
    cycles = matrix_cycles(name, (getattr(inst, "cbsz", 0), getattr(inst, "blgp", 0)))
    if len(_KNOWN) >= MOST_KNOWN:
        _KNOWN.clear()
    one = _KNOWN[arch, image[at : at + inst.size()]] = Known(inst, inst.size(), name, kind, do, jump, cycles)
    return one


SCALED = 0xD3AC
"""Upper half of the first word of V_MFMA_LD_SCALE_B32, with which a scaled MFMA begins.  tinygrad (0.14) takes any
eight bytes before an F8F6F4 for it."""


def decoded(image: bytes, at: int) -> Any:
    """The instruction that stands at an offset, with its fields."""
    from tinygrad.renderer.amd import decode_inst

    size = 16 if int.from_bytes(image[at : at + 4], "little") >> 16 == SCALED else 8
    return decode_inst(image[at : at + size].ljust(size, b"\0"), "cdna")


def _compiled(inst: Any, name: str, arch: str) -> tuple[str, Callable[[Waves], Any] | None, int]:
    """(kind, do, jump) of an instruction."""
    form = type(inst).__name__.split("_")[0]
    if form == "SOPP":
        return _program(name, inst.simm16)
    if form in ("SOP1", "SOP2", "SOPC", "SOPK"):
        return "plain", scalar_step(inst, name, form), 0
    if form in ("SMEM", "DS", "GLOBAL", "FLAT", "MUBUF", "SCRATCH"):
        return "plain", None, 0
    if name.startswith("V_MFMA"):
        return "plain", _matrix_step(inst, name, arch), 0
    if name.startswith("V_"):
        return "plain", _vector_step(inst, name, arch), 0
    raise Unknown(name)


def _program(name: str, field: int) -> tuple[str, Callable[[Waves], Any], int]:
    """Branches, barriers, the end, and what changes only time."""
    if name in NOTHING:
        return "plain", lambda w: None, 0
    if name == "S_ENDPGM":
        return "end", lambda w: None, 0
    if name == "S_BARRIER":
        return "barrier", lambda w: None, 0
    tests: dict[str, Callable[[Waves], Any]] = {
        "S_BRANCH": lambda w: np.ones(len(w), np.bool_),
        "S_CBRANCH_SCC0": lambda w: ~w.scc,
        "S_CBRANCH_SCC1": lambda w: w.scc,
        "S_CBRANCH_VCCZ": lambda w: w.s64(VCC) == 0,
        "S_CBRANCH_VCCNZ": lambda w: w.s64(VCC) != 0,
        "S_CBRANCH_EXECZ": lambda w: ~w.active.any(1),
        "S_CBRANCH_EXECNZ": lambda w: w.active.any(1),
    }
    if name not in tests:
        raise Unknown(name)
    return "branch", tests[name], 4 * signed(field, 16)


def _sources(inst: Any, kinds: tuple[str, ...]) -> tuple[list[Any], Callable[[Waves], Any] | None, Any]:
    """Readers of a vector instruction's operands with all their modifiers; which lanes are written (None: the active
    ones); and how the result is placed into its register (None: as it is)."""
    form, literal = type(inst).__name__, getattr(inst, "literal", None)
    where, place, readers = None, None, []
    for index, kind in enumerate(kinds):
        if kind == "mask":
            mask = inst.src2.offset if index == 2 and form.startswith("VOP3") else VCC
            readers.append(lambda w, mask=mask: lanes_of(w.s64(mask)))
            continue
        moved = index == 0 and ("DPP" in form or "SDWA" in form)
        code = (inst.vsrc0 if moved else getattr(inst, f"src{index}", None) or getattr(inst, f"vsrc{index}")).offset
        if "SDWA" in form and ((inst.s0 if index == 0 else inst.s1) if index < 2 else 0):
            code -= VECTOR
        read = operands.bits(code, kind, literal)
        negative = absolute = half = 0
        if "DPP" in form and index == 0:
            zero = bool(inst.bc)
            source, valid, written = operands.moved_lanes(inst.dpp, inst.row_mask, inst.bank_mask)
            read, readable = operands.through_lanes(read, source, valid, zero)

            def where(w: Waves, readable: Any = readable, written: Any = written, zero: bool = zero) -> Any:
                return w.active & written if zero else w.active & written & readable(w)

        if "SDWA" in form and index < 2:
            select, extend = getattr(inst, f"src{index}_sel"), getattr(inst, f"src{index}_sext")
            read = operands.sub_word(read, select, bool(extend))
        if ("DPP" in form or "SDWA" in form) and index < 2:
            negative, absolute = getattr(inst, f"src{index}_neg"), getattr(inst, f"src{index}_abs")
        elif form.startswith("VOP3"):
            negative = inst.neg >> index & 1
            absolute = getattr(inst, "abs", 0) >> index & 1
            half = getattr(inst, "opsel", 0) >> index & 1 if kind.endswith("16") else 0
        readers.append(operands.typed(read, kind, negative=bool(negative), absolute=bool(absolute), half=half))
    if "SDWA" in form and hasattr(inst, "dst_sel"):
        place = operands.placed(inst.dst_sel, inst.dst_unused)
    elif form == "VOP3" and inst.opsel >> 3 & 1:
        place = operands.placed(5, 2)
    if getattr(inst, "omod", 0):
        raise Unknown("an output modifier")
    return readers, where, place


def _raw(value: Any, kind: str) -> Any:
    """A result as the bits of its registers."""
    value = np.asarray(value, operands.TYPES[kind])
    bits = value.view(f"u{value.itemsize}")
    return bits.astype(np.uint32) if value.itemsize == 2 else bits


def _writer(inst: Any, kind: str, register: int, where: Any, place: Any) -> Callable[[Waves, Any], None]:
    clamp, wide = bool(getattr(inst, "clmp", 0)) and kind in FLOATS, operands.is_wide(kind)

    def write(w: Waves, value: Any) -> None:
        if clamp:
            value = np.clip(np.nan_to_num(value, nan=0.0), 0, 1)
        raw = _raw(value, kind)
        if kind == "f16" and (w.s[MODE] >> np.uint32(OVERFLOW_BIT)).any() and np.isinf(value).any():
            raise Unknown("an infinite fp16 result with FP16_OVFL set")
        lanes = where(w) if where else None
        if wide:
            w.set_v(register, raw.astype(np.uint32), lanes)
            w.set_v(register + 1, (raw >> np.uint64(32)).astype(np.uint32), lanes)
        else:
            w.set_v(register, place(raw, w.v[register]) if place else raw, lanes)

    return write


def _vector_step(inst: Any, name: str, arch: str) -> Step:
    form = type(inst).__name__
    if name in ("V_NOP", "V_CLREXCP"):
        return lambda w: None
    if name.startswith(("V_CMP_", "V_CMPX_")):
        return _comparison(inst, name, form)
    if name.startswith(("V_READFIRSTLANE", "V_READLANE", "V_WRITELANE", "V_PERMLANE", "V_SWAP")):
        return _across_lanes(inst, name)
    if name.startswith("V_PK_"):
        return _packed(inst, name)
    if name.startswith("V_DOT") and form == "VOP3P" and (inst.opsel or inst.neg or inst.neg_hi or inst.opsel_hi != 3):
        raise Unknown(f"{name} with selected halves or signs")
    if name.startswith("V_MAD_MIX"):
        return _mixed(inst, name, inst.vdst.offset - VECTOR)
    register = inst.vdst.offset - VECTOR
    if name.startswith("V_ACCVGPR_"):  # from, to or among the accumulation registers
        read = operands.bits(inst.src0.offset + ACCUMULATORS * (not name.endswith("WRITE")), "b32")
        into = register + ACCUMULATORS * (not name.endswith("READ"))
        return lambda w: w.set_v(into, read(w))
    if name.startswith("V_BITOP3_"):
        return _any_logic(inst, name[-3:].lower(), register)
    if name in ("V_FMAMK_F32", "V_FMAAK_F32"):
        codes = [inst.src0.offset, inst.vsrc1.offset]
        codes.insert(1 if "MK" in name else 2, LITERAL)
        readers = [operands.typed(operands.bits(code, "f32", inst.literal), "f32") for code in codes]
        write = _writer(inst, "f32", register, None, None)
        return lambda w: write(w, rounding.fused(*[read(w) for read in readers]))
    if name.startswith("V_CVT_") and name not in vector.ALU:
        return small_floats.convert(inst, name, arch, _sources, _writer)
    operation = vector.ACCUMULATING.get(name, name)
    if operation not in vector.ALU:
        raise Unknown(name)
    results, kinds, function = vector.ALU[operation]
    kind, flags = results[:3], results.endswith("mask")
    if getattr(inst, "clmp", 0) and kind not in FLOATS:
        function = vector.saturated(name, kind)
    accumulates = name in vector.ACCUMULATING
    readers, where, place = _sources(inst, kinds[:2] if accumulates else kinds)
    if accumulates:
        readers.append(operands.typed(operands.bits(register + VECTOR, kind), kind))
    if name.startswith("V_ASHR_PK_"):
        place = operands.placed(4 + (inst.opsel >> 3 & 1), 2)
    write = _writer(inst, kind, register, where, place)
    if not flags:
        return lambda w: write(w, function(*[read(w) for read in readers]))
    if where is not None:
        raise Unknown(f"{name} of other lanes")
    return _flagged(inst, write, lambda w: function(*[read(w) for read in readers]))


def _flagged(inst: Any, write: Callable[[Waves, Any], None], results: Callable[[Waves], Any]) -> Step:
    """An operation whose second result, a bit per lane, goes to a mask."""
    into = inst.sdst.offset if type(inst).__name__ == "VOP3SD" else VCC

    def step(w: Waves) -> None:
        value, flags = results(w)
        write(w, value)
        w.set_s64(into, mask_of(np.broadcast_to(flags, (len(w), LANES)) & w.active))

    return step


def _any_logic(inst: Any, kind: str, register: int) -> Step:
    """V_BITOP3: any function of three bits; its table is in the modifiers: omod, abs, neg hold 8 bits."""
    table = inst.omod << 6 | inst.abs << 3 | inst.neg
    readers = []
    for index in range(3):
        half = inst.opsel >> index & 1
        readers.append(operands.typed(operands.bits(getattr(inst, f"src{index}").offset, kind), kind, half=half))
    write = _writer(inst, kind, register, None, operands.placed(5, 2) if inst.opsel >> 3 & 1 else None)

    def step(w: Waves) -> None:
        a, b, c = (read(w) for read in readers)
        result = np.zeros((len(w), LANES), operands.TYPES[kind])
        for index in range(8):
            if table >> index & 1:
                result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        write(w, result)

    return step


def _mask_destination(inst: Any, form: str) -> int:
    if form.startswith("VOP3"):
        return int(inst.vdst.offset) % VECTOR
    if "SDST" in form and getattr(inst, "sd", 0):
        return int(inst.sdst.offset)
    return VCC


def _comparison(inst: Any, name: str, form: str) -> Step:
    _, how, kind = name.rsplit("_", 2)
    if how not in vector.COMPARISONS or kind.lower() not in operands.TYPES:
        raise Unknown(name)
    test, kind = vector.COMPARISONS[how], kind.lower()
    readers, _, _ = _sources(inst, (kind, "u32" if how == "CLASS" else kind))
    into, sets_exec = _mask_destination(inst, form), "CMPX" in name

    def compare(w: Waves) -> None:
        result = test(readers[0](w), readers[1](w)) & w.active
        w.set_s64(into, mask_of(result))
        if sets_exec:
            w.set_s64(EXEC, mask_of(result))

    return compare


def _across_lanes(inst: Any, name: str) -> Step:
    if name.startswith(("V_READFIRSTLANE", "V_READLANE", "V_WRITELANE")):
        source, into = operands.bits(inst.src0.offset, "b32"), inst.vdst.offset % VECTOR
        number = None if "FIRST" in name else operands.scalar(inst.src1.offset, "u32")

        def one(w: Waves) -> None:
            lane = number(w) & np.uint32(LANES - 1) if number else w.active.argmax(1)
            if "WRITE" in name:
                w.v[into][np.arange(len(w)), lane] = np.broadcast_to(source(w), (len(w), 1))[:, 0]
            else:
                w.s[into] = np.broadcast_to(source(w), (len(w), LANES))[np.arange(len(w)), lane]

        return one
    register = inst.vdst.offset - VECTOR
    other = inst.src0.offset - VECTOR
    if name == "V_SWAP_B32":

        def swap(w: Waves) -> None:
            mine, theirs = w.v[register].copy(), w.v[other].copy()
            w.set_v(register, theirs)
            w.set_v(other, mine)

        return swap
    if name not in ("V_PERMLANE16_SWAP_B32", "V_PERMLANE32_SWAP_B32"):
        raise Unknown(name)
    rows = 1 if "16" in name else 2

    def exchange(w: Waves) -> None:
        """Odd rows (or halves) of the first register change places with even ones of the second."""
        mine, theirs = (w.v[number].copy().reshape(len(w), -1, 2, 16 * rows) for number in (register, other))
        mine[:, :, 1], theirs[:, :, 0] = theirs[:, :, 0].copy(), mine[:, :, 1].copy()
        w.set_v(register, mine.reshape(len(w), LANES))
        w.set_v(other, theirs.reshape(len(w), LANES))

    return exchange


def _packed(inst: Any, name: str) -> Step:
    """Two results at once, each as the same operation gives it: of 16-bit halves or of pairs of registers."""
    operation = name.replace("_PK_", "_")
    if operation not in vector.ALU:
        raise Unknown(name)
    if inst.clmp:
        raise Unknown("a clamped packed result")
    kind, kinds, function = vector.ALU[operation]
    register = inst.vdst.offset - VECTOR
    high_select = inst.opsel_hi | inst.opsel_hi2 << 2
    readers: list[list[Any]] = [[], []]
    for index in range(len(kinds)):
        code = getattr(inst, f"src{index}").offset
        for part, (select, negative) in enumerate(((inst.opsel, inst.neg), (high_select, inst.neg_hi))):
            half = select >> index & 1
            if kind.endswith("32"):
                if half and 128 <= code < VECTOR:
                    raise Unknown("the upper half of a constant")
                read = operands.bits(code + half, "b32")
                readers[part].append(operands.typed(read, kind, negative=bool(negative >> index & 1)))
            else:
                raw = operands.bits(code, "b16" if 128 <= code < VECTOR else "b32")
                readers[part].append(operands.typed(raw, kind, negative=bool(negative >> index & 1), half=half))
    if name == "V_PK_MOV_B32":  # each result has a source of its own, both selected by opsel
        readers[1] = [operands.bits(inst.src1.offset + (inst.opsel >> 1 & 1), "b32")]

    def step(w: Waves) -> None:
        low, high = [_raw(function(*[read(w) for read in part]), kind) for part in readers]
        if kind.endswith("32"):
            high = high.copy()  # the first result may be written over what the second one moves
            w.set_v(register, low)
            w.set_v(register + 1, high)
        else:
            w.set_v(register, low | high << np.uint32(16))

    return step


def _mixed(inst: Any, name: str, register: int) -> Step:
    """V_FMA_MIX (V_MAD_MIX in AMD's tables): each operand is fp32, or a half of a register as fp16; one rounding."""
    high_select = inst.opsel_hi | inst.opsel_hi2 << 2
    readers = []
    for index in range(3):
        kind = "f16" if high_select >> index & 1 else "f32"
        readers.append(
            operands.typed(
                operands.bits(getattr(inst, f"src{index}").offset, kind),
                kind,
                negative=bool(inst.neg >> index & 1),
                absolute=bool(inst.neg_hi >> index & 1),
                half=inst.opsel >> index & 1 if kind == "f16" else 0,
            )
        )
    kind = "f32" if name.endswith("F32") else "f16"
    place = operands.placed(5 if "HI" in name else 4, 2) if kind == "f16" else None
    write = _writer(inst, kind, register, None, place)
    return lambda w: write(
        w, rounding.fused(*(read(w).astype(np.float32) for read in readers)).astype(operands.TYPES[kind])
    )


def _matrix_step(inst: Any, name: str, arch: str) -> Step:
    from tinygrad.runtime.autogen.amd.cdna.ins import VOP3P_MFMA

    if not hasattr(inst, "cbsz"):  # XF32 is decoded without these fields
        inst = VOP3P_MFMA.from_bytes(inst.to_bytes())
    if "F8F6F4" in name:
        sizes = matrix.scaled(name, arch, (inst.cbsz, inst.blgp))
    elif inst.blgp:
        raise Unknown(f"{name} with turned or negative B")
    else:
        sizes = matrix.plain(name, arch, (inst.cbsz, inst.abid))
    a_count, b_count, c_count, function = sizes

    def registers(code: int, count: int, accumulator: int) -> Callable[[Waves], Any]:
        if code < VECTOR:
            read = operands.bits(code, "f64" if "F64" in name else "f32")
            if "F64" in name:
                return lambda w: np.tile(read(w).view(np.uint32).T[:, :, None], (count // 2, len(w), LANES))
            return lambda w: np.broadcast_to(read(w), (count, len(w), LANES))
        start = code - VECTOR + (ACCUMULATORS if accumulator else 0)
        return lambda w: w.v[start : start + count]

    a = registers(inst.src0.offset, a_count, inst.acc & 1)
    b = registers(inst.src1.offset, b_count, inst.acc >> 1 & 1)
    c = registers(inst.src2.offset, c_count, inst.acc_cd)
    into = inst.vdst.offset - VECTOR + (ACCUMULATORS if inst.acc_cd else 0)
    scales: list[Callable[[Waves], Any]] = []
    if "_SCALE_" in name:
        for index, field in enumerate((inst.scale_src0, inst.scale_src1)):
            byte = (inst.opsel >> index & 1) + 2 * (inst.opsel_hi >> index & 1)
            read = operands.sub_word(operands.bits(field, "b32"), byte, False)
            scales.append(lambda w, read=read: np.broadcast_to(read(w), (len(w), LANES)))

    def step(w: Waves) -> None:
        w.v[into : into + c_count] = function(a(w), b(w), np.ascontiguousarray(c(w)), *(scale(w) for scale in scales))

    return step
