"""Executes the instructions of a launch: decodes each once, runs it for all waves that stand there.

Waves that branch apart go on as groups of their own and join again where they meet: the group at the lowest address
goes first, and after PATIENCE instructions the others have their turn, so that a wave that waits for another's store
gets it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import matrix, operands, scalar, vector
from .code_object import KernelCode
from .memory import Accesses, signed
from .operands import LITERAL, VECTOR, Unknown
from .waves import ACCUMULATORS, EXEC, LANES, VCC, Fault, Memory, Waves, joined, lanes_of, mask_of

PATIENCE = 50_000
"""Instructions that one group of waves executes at most before another has its turn."""

NOTHING = {"S_NOP", "S_WAITCNT", "S_SLEEP", "S_SETPRIO", "S_ICACHE_INV", "S_SETHALT", "S_SENDMSG", "S_INST_PREFETCH"}
"""Instructions that change nothing but time, as every access is complete when the next instruction begins."""

Step = Callable[[Waves], None]


@dataclass(frozen=True)
class Instruction:
    """One instruction: where it is, what it is, and what it does.

    kind: "plain" (do only), "branch" (do gives which waves go to `target`), "barrier" or "end".
    """

    at: int
    size: int
    name: str
    kind: str
    do: Callable[[Waves], Any]
    target: int = 0


class Machine:
    """One launch of a kernel: `run` ends when every wave has ended."""

    def __init__(self, code: KernelCode, memory: Memory, workgroups: int, lds_bytes: int, limit: int) -> None:
        self.code, self.limit = code, limit
        self.watch: Callable[[Machine, Instruction, Waves], None] | None = None
        self.accesses = Accesses(memory, np.zeros(max(8, workgroups * lds_bytes), np.uint8), lds_bytes)
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
                spent += self._turn()
                if spent > self.limit:
                    raise Fault(f"no end after {self.limit} instructions; waves stand at {self._places()}")
        if self._parked:
            raise Fault(f"a barrier that not all waves of a workgroup reach: {self._places()}")

    def _places(self) -> str:
        groups = [*self._ready, *self._parked]
        return ", ".join(f"{group.pc - self.code.entry:#x} ({len(group)} waves)" for group in groups[:8])

    def _turn(self) -> int:
        """Let the group at the lowest address go on; how many instructions it executed."""
        w = min(self._ready, key=lambda group: (group.turns, group.pc))
        self._ready.remove(w)
        others = {group.pc for group in self._ready}
        steps = 0
        while steps < PATIENCE:
            if steps and w.pc in others:
                break
            steps += 1
            instruction = self.instructions.get(w.pc) or self._decoded(w.pc)
            self.executed[w.pc] += len(w)
            if self.watch:
                self.watch(self, instruction, w)
            try:
                result = instruction.do(w)
            except (Fault, Unknown) as error:
                raise type(error)(f"{error}; {self._where(instruction, w)}") from error
            w.pc = instruction.at + instruction.size
            if instruction.kind == "plain":
                continue
            if instruction.kind == "branch":
                if result.all():
                    w.pc = instruction.target
                elif result.any():
                    self._split(w, result, instruction.target)
                    return steps
                continue
            if instruction.kind == "end":
                np.subtract.at(self._alive, w.own(), 1)
                self._release()
                return steps
            self._parked.append(w)
            self._release()
            return steps
        w.turns += steps >= PATIENCE
        self._meet(w)
        return steps

    def _where(self, instruction: Instruction, w: Waves) -> str:
        workgroup, wave = w.ids[0]
        offset = instruction.at - self.code.entry
        return f"{instruction.name} at {offset:#x} of {self.code.name}, workgroup {workgroup}, wave {wave}"

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
        inst = decoded(self.code.image[at : at + 16])
        size = inst.size()
        name = inst.op.name.removesuffix("_E32").removesuffix("_E64")
        try:
            kind, do, target = self._compiled(inst, name, at + size)
        except Unknown as error:
            raise Unknown(
                f"{error} cannot be executed: {inst} at {at - self.code.entry:#x} of {self.code.name}"
            ) from error
        self.instructions[at] = instruction = Instruction(at, size, name, kind, do, target)
        return instruction

    def _compiled(self, inst: Any, name: str, after: int) -> tuple[str, Callable[[Waves], Any], int]:
        form = type(inst).__name__.split("_")[0]
        if form == "SOPP":
            return _program(name, inst.simm16, after)
        if form in ("SOP1", "SOP2", "SOPC", "SOPK"):
            return "plain", _scalar_step(inst, name, form), 0
        if form == "SMEM":
            return "plain", self.accesses.scalar_load(inst), 0
        if form == "DS":
            return "plain", self.accesses.local(inst), 0
        if form in ("GLOBAL", "FLAT", "MUBUF", "SCRATCH"):
            return "plain", self.accesses.vector(inst), 0
        if name.startswith("V_MFMA"):
            return "plain", _matrix_step(inst, name, self.code.arch), 0
        if name.startswith("V_"):
            return "plain", _vector_step(inst, name), 0
        raise Unknown(name)


@functools.lru_cache(maxsize=1 << 16)
def decoded(image: bytes) -> Any:
    """The instruction that these bytes begin with; kernels of one operator share most of theirs."""
    from tinygrad.renderer.amd import decode_inst

    return decode_inst(image.ljust(16, b"\0"), "cdna")


def _program(name: str, field: int, after: int) -> tuple[str, Callable[[Waves], Any], int]:
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
    return "branch", tests[name], after + 4 * signed(field, 16)


def _write_scalar(register: int, kind: str) -> Callable[[Waves, Any], None]:
    if operands.is_wide(kind):
        return lambda w, value: w.set_s64(register, np.broadcast_to(value, len(w)).view(np.uint64))

    def write(w: Waves, value: Any) -> None:
        w.s[register] = value.view(np.uint32)
        if register in (EXEC, EXEC + 1):
            w.mask_changed()

    return write


def _scalar_step(inst: Any, name: str, form: str) -> Step:
    literal = getattr(inst, "literal", None)
    if form == "SOPK":
        return _constant_step(inst, name)
    first = inst.ssrc0.offset
    if name.endswith("_SAVEEXEC_B64"):
        function = scalar.SAVING[name.removeprefix("S_").removesuffix("_SAVEEXEC_B64")]
        read, into = operands.scalar(first, "u64", literal), inst.sdst.offset

        def save(w: Waves) -> None:
            before, given = w.s64(EXEC), np.broadcast_to(read(w), len(w)).copy()
            w.set_s64(into, before)
            w.set_s64(EXEC, function(given, before))
            w.scc = w.s64(EXEC) != 0

        return save
    if name in ("S_CSELECT_B32", "S_CSELECT_B64"):
        kind = "u64" if name.endswith("64") else "u32"
        a, b = operands.scalar(first, kind, literal), operands.scalar(inst.ssrc1.offset, kind, literal)
        put = _write_scalar(inst.sdst.offset, kind)
        return lambda w: put(w, np.where(w.scc, a(w), b(w)))
    if name in ("S_ADDC_U32", "S_SUBB_U32"):
        a, b = operands.scalar(first, "u32", literal), operands.scalar(inst.ssrc1.offset, "u32", literal)
        put, sign = _write_scalar(inst.sdst.offset, "u32"), 1 if "ADD" in name else -1

        def carry(w: Waves) -> None:
            total = a(w).astype(np.int64) + sign * (b(w).astype(np.int64) + w.scc)
            put(w, total.astype(np.uint32))
            w.scc = np.broadcast_to((total < 0) | (total >> 32 != 0), len(w)).copy()

        return carry
    if name not in scalar.SALU:
        raise Unknown(name)
    result, kinds, function = scalar.SALU[name]
    codes = [first] if len(kinds) == 1 else [first, inst.ssrc1.offset]
    readers = [operands.scalar(code, kind, literal) for code, kind in zip(codes, kinds, strict=True)]
    write = _write_scalar(inst.sdst.offset, result) if result else None

    def step(w: Waves) -> None:
        value, flag = function(*(read(w) for read in readers))
        if flag is not None:
            w.scc = np.array(np.broadcast_to(flag, len(w)))
        if write:
            write(w, np.ascontiguousarray(value))

    return step


def _constant_step(inst: Any, name: str) -> Step:
    """SOPK: an immediate of 16 bits."""
    value, register = signed(inst.simm16, 16), inst.sdst.offset
    if name == "S_MOVK_I32":
        return lambda w: w.s.__setitem__(register, np.uint32(value & 0xFFFFFFFF))
    if name in ("S_ADDK_I32", "S_MULK_I32"):
        operation = scalar.SALU["S_ADD_I32" if "ADD" in name else "S_MUL_I32"][2]
        given = np.array([value], np.int32)

        def step(w: Waves) -> None:
            result, flag = operation(w.s[register].view(np.int32), given)
            w.s[register] = result.view(np.uint32)
            if flag is not None:
                w.scc = flag

        return step
    if name.startswith("S_CMPK_"):
        kind = name.rsplit("_", 1)[1]
        test = scalar.SALU[f"S_CMP_{name.removeprefix('S_CMPK_')}"][2]
        fixed = np.array([value if kind == "I32" else inst.simm16]).astype(operands.TYPES[kind.lower()])
        read = operands.scalar(register, kind.lower())

        def compare(w: Waves) -> None:
            w.scc = np.array(np.broadcast_to(test(read(w), fixed)[1], len(w)))

        return compare
    raise Unknown(name)


def _sources(inst: Any, kinds: tuple[str, ...]) -> tuple[list[Any], Callable[[Waves], Any] | None, Any]:
    """Readers of a vector instruction's operands with all their modifiers; which lanes are written (None: the active
    ones); and how the result is placed into its register (None: as it is)."""
    form, literal = type(inst).__name__, getattr(inst, "literal", None)
    where, place, readers = None, None, []
    for index, kind in enumerate(kinds):
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
    value = np.ascontiguousarray(np.asarray(value, operands.TYPES[kind]))
    if kind.endswith("16"):
        return value.view(np.uint16).astype(np.uint32)
    return value.view(np.uint64 if operands.is_wide(kind) else np.uint32)


def _writer(inst: Any, kind: str, register: int, where: Any, place: Any) -> Callable[[Waves, Any], None]:
    clamp = bool(getattr(inst, "clmp", 0)) and kind in ("f32", "f16")

    def write(w: Waves, value: Any) -> None:
        if clamp:
            value = np.clip(np.nan_to_num(value, nan=0.0), 0, 1)
        raw = _raw(value, kind)
        lanes = where(w) if where else None
        if operands.is_wide(kind):
            w.set_v(register, raw.astype(np.uint32), lanes)
            w.set_v(register + 1, (raw >> np.uint64(32)).astype(np.uint32), lanes)
        else:
            w.set_v(register, place(raw, w.v[register]) if place else raw, lanes)

    return write


def _vector_step(inst: Any, name: str) -> Step:
    form = type(inst).__name__
    if name in ("V_NOP", "V_CLREXCP"):
        return lambda w: None
    if name.startswith(("V_CMP_", "V_CMPX_")):
        return _comparison(inst, name, form)
    if "_CO_U32" in name or name.startswith("V_MAD_U64_U32"):
        return _carrying(inst, name, form)
    if name.startswith(("V_READFIRSTLANE", "V_READLANE", "V_WRITELANE", "V_MBCNT", "V_PERMLANE", "V_SWAP")):
        return _across_lanes(inst, name)
    if name.startswith("V_PK_"):
        return _packed(inst, name)
    register = inst.vdst.offset - VECTOR + (ACCUMULATORS if name == "V_ACCVGPR_WRITE" else 0)
    if name in ("V_ACCVGPR_READ", "V_ACCVGPR_WRITE"):
        code = inst.src0.offset
        if name == "V_ACCVGPR_READ":
            source = code - VECTOR + ACCUMULATORS
            return lambda w: w.set_v(register, w.v[source])
        read = operands.bits(code, "b32")
        return lambda w: w.set_v(register, read(w))
    if name == "V_CNDMASK_B32":
        readers, where, place = _sources(inst, ("b32", "b32"))
        mask = inst.src2.offset if form.startswith("VOP3") else VCC
        write = _writer(inst, "b32", register, where, place)
        return lambda w: write(w, np.where(lanes_of(w.s64(mask)), readers[1](w), readers[0](w)))
    if name.startswith(("V_DIV_SCALE_F32", "V_DIV_FMAS_F32")):
        return _division(inst, name)
    if name == "V_BITOP3_B32":
        return _any_logic(inst, register)
    if name in vector.ACCUMULATING:
        kind, function = vector.ACCUMULATING[name]
        readers, where, place = _sources(inst, (kind, kind))
        third = operands.typed(operands.bits(register + VECTOR, kind), kind)
        write = _writer(inst, kind, register, where, place)
        return lambda w: write(w, function(readers[0](w), readers[1](w), third(w)))
    if name in ("V_FMAMK_F32", "V_FMAAK_F32"):
        a, b = (
            operands.typed(operands.bits(one.offset, "f32", inst.literal), "f32") for one in (inst.src0, inst.vsrc1)
        )
        fixed = operands.typed(operands.bits(LITERAL, "f32", inst.literal), "f32")
        write = _writer(inst, "f32", register, None, None)
        if name == "V_FMAMK_F32":
            return lambda w: write(w, vector.fused(a(w), fixed(w), b(w)))
        return lambda w: write(w, vector.fused(a(w), b(w), fixed(w)))
    if name not in vector.ALU:
        raise Unknown(name)
    kind, kinds, function = vector.ALU[name]
    if getattr(inst, "clmp", 0) and kind not in ("f32", "f16"):
        function = vector.saturated(name, kind)
    readers, where, place = _sources(inst, kinds)
    write = _writer(inst, kind, register, where, place)
    return lambda w: write(w, function(*(read(w) for read in readers)))


def _division(inst: Any, name: str) -> Step:
    """The two steps of a division that set or read VCC."""
    readers, _, _ = _sources(inst, ("f32", "f32", "f32"))
    write = _writer(inst, "f32", inst.vdst.offset - VECTOR, None, None)

    def scale(w: Waves) -> None:
        value, flags = vector.division_scale(*(read(w) for read in readers))
        write(w, np.broadcast_to(value, (len(w), LANES)))
        w.set_s64(inst.sdst.offset, mask_of(np.broadcast_to(flags, (len(w), LANES)) & w.active))

    def add(w: Waves) -> None:
        value = vector.fused(*(read(w) for read in readers))
        write(w, np.where(lanes_of(w.s64(VCC)), np.float32(2.0**32) * value, value))

    return scale if name == "V_DIV_SCALE_F32" else add


def _any_logic(inst: Any, register: int) -> Step:
    """V_BITOP3: any function of three bits; its table is in the modifiers: omod, abs, neg hold 8 bits."""
    table = inst.omod << 6 | inst.abs << 3 | inst.neg
    readers = [operands.bits(getattr(inst, f"src{index}").offset, "b32") for index in range(3)]

    def step(w: Waves) -> None:
        a, b, c = (read(w) for read in readers)
        result = np.zeros((len(w), LANES), np.uint32)
        for index in range(8):
            if table >> index & 1:
                result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        w.set_v(register, result)

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
    readers, _, _ = _sources(inst, (kind, kind))
    into, sets_exec = _mask_destination(inst, form), "CMPX" in name

    def compare(w: Waves) -> None:
        result = np.broadcast_to(test(readers[0](w), readers[1](w)), (len(w), LANES)) & w.active
        w.set_s64(into, mask_of(result))
        if sets_exec:
            w.set_s64(EXEC, mask_of(result))

    return compare


def _carrying(inst: Any, name: str, form: str) -> Step:
    """Sums with a carry out per lane, some with one in; and the multiply-add of 64 bits."""
    register = inst.vdst.offset - VECTOR
    into = inst.sdst.offset if form == "VOP3SD" else VCC
    if name == "V_MAD_U64_U32":
        a, b, c = (
            operands.bits(getattr(inst, f"src{index}").offset, kind) for index, kind in enumerate(("u32", "u32", "u64"))
        )

        def multiply(w: Waves) -> None:
            product = a(w).astype(np.uint64) * b(w).astype(np.uint64)
            total = np.broadcast_to(product + c(w), (len(w), LANES))
            over = mask_of(np.broadcast_to(total < product, total.shape) & w.active)
            w.set_v(register, total.astype(np.uint32))
            w.set_v(register + 1, (total >> np.uint64(32)).astype(np.uint32))
            w.set_s64(into, over)

        return multiply
    readers, where, _ = _sources(inst, ("u32", "u32"))
    if where is not None:
        raise Unknown(f"{name} of other lanes")
    reverse = "REV" in name
    carries = any(part in name for part in ("ADDC", "SUBB"))
    carry = (inst.src2.offset if form == "VOP3SD" else VCC) if carries else None
    sign = 1 if "ADD" in name else -1

    def step(w: Waves) -> None:
        a, b = (read(w).astype(np.int64) for read in (reversed(readers) if reverse else readers))
        extra = lanes_of(w.s64(carry)) if carry is not None else np.int64(0)
        total = np.broadcast_to(a + sign * (b + extra), (len(w), LANES))
        w.set_v(register, total.astype(np.uint32))
        w.set_s64(into, mask_of(((total < 0) | (total > 0xFFFFFFFF)) & w.active))

    return step


def _across_lanes(inst: Any, name: str) -> Step:
    if name.startswith("V_READFIRSTLANE"):
        read, into = operands.bits(inst.src0.offset, "b32"), inst.vdst.offset % VECTOR

        def first(w: Waves) -> None:
            lane = np.where(w.active.any(1), w.active.argmax(1), 0)
            w.s[into] = np.broadcast_to(read(w), (len(w), LANES))[np.arange(len(w)), lane]

        return first
    if name.startswith(("V_READLANE", "V_WRITELANE")):
        lane = operands.scalar(inst.src1.offset, "u32")
        reads, into = name.startswith("V_READLANE"), inst.vdst.offset % VECTOR
        source = operands.bits(inst.src0.offset, "b32")

        def one(w: Waves) -> None:
            chosen = np.broadcast_to(lane(w) & np.uint32(63), len(w)).astype(np.int64)
            if reads:
                w.s[into] = np.broadcast_to(source(w), (len(w), LANES))[np.arange(len(w)), chosen]
            else:
                w.v[into][np.arange(len(w)), chosen] = np.broadcast_to(source(w), (len(w), 1))[:, 0]

        return one
    register = inst.vdst.offset - VECTOR
    if name.startswith("V_MBCNT"):
        mask, start = operands.bits(inst.src0.offset, "b32"), operands.bits(inst.src1.offset, "b32")
        lanes = np.arange(LANES) if "_LO_" in name else np.arange(LANES) - 32
        below = ((np.uint64(1) << np.clip(lanes, 0, 32).astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
        return lambda w: w.set_v(register, np.bitwise_count(mask(w) & below).astype(np.uint32) + start(w))
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
    """Two results at once: of 16-bit halves of registers, or of pairs of registers."""
    if name not in vector.PACKED:
        raise Unknown(name)
    kind, function = vector.PACKED[name]
    register = inst.vdst.offset - VECTOR
    count = 3 if "_FMA_" in name else 2
    high_select = inst.opsel_hi | inst.opsel_hi2 << 2
    readers: list[list[Any]] = [[], []]
    for index in range(count):
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
    if name == "V_PK_MOV_B32":
        readers[1].reverse()
    clamp = bool(inst.clmp)
    if clamp:
        raise Unknown("a clamped packed result")

    def step(w: Waves) -> None:
        low, high = (_raw(function(*(read(w) for read in part)), kind) for part in readers)
        if kind.endswith("32"):
            w.set_v(register, low)
            w.set_v(register + 1, high)
        else:
            w.set_v(register, low | high << np.uint32(16))

    return step


def _matrix_step(inst: Any, name: str, arch: str) -> Step:
    scaled = "F8F6F4" in name
    formats = (inst.cbsz, inst.blgp) if scaled else (0, 0)
    if not scaled and (inst.cbsz or inst.blgp or inst.abid):
        raise Unknown(f"{name} with broadcast or negation")
    sizes = matrix.scaled(name, arch, formats) if scaled else matrix.plain(name, arch)
    a_count, b_count, c_count, function = sizes

    def registers(code: int, count: int, accumulator: int) -> Callable[[Waves], Any]:
        if code < VECTOR:
            read = operands.bits(code, "f32")
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
