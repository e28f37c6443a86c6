"""One instruction by itself, for the tests: encoded, and run by the executor.

Registers: sources in 10, 20 and 30 (scalar ones in s, vector ones in v), the result in 40, a second scalar result in
s[50:51], a mask in s[60:61].
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.emulation.code_object import KernelCode
from benchmarks.emulation.machine import CALLS, Machine
from benchmarks.emulation.operands import Unknown
from benchmarks.emulation.waves import EXEC, LANES, VCC, Memory, Waves

SOURCES = {"src0": 10, "vsrc0": 10, "ssrc0": 10, "src1": 20, "vsrc1": 20, "ssrc1": 20, "src2": 30}
TARGET, SECOND, MASK, SCALAR, VECTOR = 40, 50, 60, 0, 256
MASKED = ("V_CNDMASK_B32", "V_ADDC_CO_U32", "V_SUBB_CO_U32", "V_SUBBREV_CO_U32")
"""Third operand: a mask with a bit per lane."""


@dataclass(frozen=True)
class Case:
    """An instruction in one encoding, with the modifiers that were set."""

    name: str
    form: str
    inst: Any
    neg: int = 0
    absolute: int = 0
    opsel: int = 0
    clamp: int = 0

    def __str__(self):
        changed = [
            f"{what}={value}"
            for what, value in (("neg", self.neg), ("abs", self.absolute), ("opsel", self.opsel), ("clamp", self.clamp))
            if value
        ]
        return " ".join([self.name, self.form, *changed])

    def format(self, field):
        """Format of an operand: F32, I16, B64 ...; empty for a mask."""
        return str(self.inst.operands[field][0].name.removeprefix("FMT_NUM_")) if field in self.inst.operands else ""

    def words(self, field):
        return int(self.inst.op_regs.get(field, 1))


def _register(op, field, name, arguments):
    from tinygrad.renderer.amd.dsl import Reg

    known = arguments.get(field) or arguments.get(field.removeprefix("v"))
    size = max(1, known[1] // 32) if known else 1
    scalar = known is not None and known[2].name in (
        "OPR_SREG",
        "OPR_SSRC",
        "OPR_SSRC_LANESEL",
        "OPR_SSRC_NOLIT",
        "OPR_SDST",
        "OPR_VCC",
    )
    if field in ("vdst", "sdst"):
        if field == "sdst" and "vdst" in arguments:
            return Reg(SECOND, 2)
        scalar = field == "sdst" or scalar or name.startswith(("V_CMP", "V_READ"))
        return Reg(TARGET + (SCALAR if scalar and not name.startswith("V_READ") else VECTOR), size)
    if field == "src2" and name in MASKED:
        return Reg(MASK, 2)
    return Reg(SOURCES[field] + (SCALAR if field.startswith("s") and field[1] == "s" or scalar else VECTOR), size)


def encoded(op, form, **modifiers):
    """The instruction as tinygrad encodes it; TypeError or RuntimeError where there is no such form."""
    from tinygrad.renderer.amd.dsl import OPERANDS, BitField, SrcField
    from tinygrad.runtime.autogen.amd.cdna import ins

    name = op.name.removesuffix("_E32").removesuffix("_E64")
    arguments = OPERANDS.get(op, {})
    fields = {}
    if form == "VOP3" and op in (ins.VOP3_SDST.op.allowed or ()):
        form = "VOP3_SDST"
    other = {"VOP2": "VOP2_LIT", "SOPK": "SOPK_LIT"}.get(form)
    if other and op not in (getattr(ins, form).op.allowed or [op]):
        form = other
    if form.endswith("_LIT"):
        modifiers = {**modifiers, "literal": 0x40490FDB}
    for field, kind in getattr(ins, form)._fields:
        if field in modifiers:
            fields[field] = modifiers[field]
        elif isinstance(kind, (SrcField,)) and (field in SOURCES or field in ("vdst", "sdst")):
            if field in arguments or field.removeprefix("v") in arguments or field in ("vdst", "sdst"):
                fields[field] = _register(op, field, name, arguments)
        elif field == "opsel_hi":
            fields[field] = 3
        elif field == "opsel_hi2":
            fields[field] = 1
        elif field == "simm16":
            fields[field] = 0x8005
        elif not isinstance(kind, BitField):
            raise TypeError(field)
    return getattr(ins, form)(op=op, **fields)


@functools.cache
def known(arch):
    """(every case of an operation that has pseudocode and that the executor knows, names that it does not know)."""
    from tinygrad.runtime.autogen.amd.cdna.str_pcode import PCODE

    cases = []
    unknown = []
    for op in PCODE:
        form = type(op).__name__.removesuffix("Op")
        name = op.name.removesuffix("_E32").removesuffix("_E64")
        if not form.startswith(("SOP", "VOP")) or form == "SOPP" or "MFMA" in name or "SMFMAC" in name:
            continue
        if name == "V_CLREXCP" and form == "VOP3" or name in CALLS:  # calls go elsewhere, which one instruction cannot
            continue
        for modifiers in _modifiers(form, name):
            fields = {{"absolute": "abs", "clamp": "clmp"}.get(key, key): value for key, value in modifiers.items()}
            case = Case(name, form, encoded(op, form, **fields), **modifiers)
            if is_known(case, arch):
                cases.append(case)
            elif not modifiers:
                unknown.append(str(case))
    return tuple(cases), tuple(unknown)


def _modifiers(form, name):
    yield {}
    if form == "VOP3" and "BITOP3" in name:
        yield {"neg": 5, "absolute": 3}
        return
    if form == "VOP3" and name.endswith(("F32", "F16", "F64")) and not name.startswith(("V_CVT_", "V_READ")):
        yield {"neg": 5, "absolute": 2}
        if "CMP" not in name:
            yield {"clamp": 1}
    wide = ("V_CVT_", "V_PACK", "V_MAD_U32", "V_MAD_I32", "V_SAD", "V_DOT", "V_CMP_CLASS", "V_CMPX_CLASS")
    if form == "VOP3" and name.endswith("16") and not name.startswith(wide):
        yield {"opsel": 5 if "CMP" in name else 13}
    if form == "VOP3" and re.match(r"V_CVT_(SCALEF32_)?PK_(FP8|BF8|FP4)", name):
        yield {"opsel": 8}
    if form == "VOP3" and re.match(r"V_CVT_SCALEF32_.*_(FP8|BF8|FP4)$", name):
        yield {"opsel": 1}
    if form == "VOP3P" and name.startswith("V_PK_") and name.endswith(("F16", "F32")):
        yield {"neg": 2}


def is_known(case, arch):
    """Whether the executor knows what it does."""
    try:
        machine_of(case.inst, arch)._decoded(0)
    except Unknown:
        return False
    return True


def machine_of(inst, arch, waves=1, memory=None, lds_bytes=0):
    """A machine whose kernel is one instruction."""
    image = inst.to_bytes() + (0xBF810000).to_bytes(4, "little")
    code = KernelCode("one", arch, image, 0, (), 0, 0, 0, (), 0, (False, False, False), 0xF0)
    return Machine(code, memory or Memory(), waves, lds_bytes, 100)


def one_wave():
    """A wave whose lanes are all active and whose registers are 0."""
    s, v = np.zeros((128, 1), np.uint32), np.zeros((512, 1, LANES), np.uint32)
    s[EXEC : EXEC + 2] = 0xFFFFFFFF
    return Waves(0, s, v, np.zeros(1, np.bool_), np.zeros((1, 2), np.int64))


def edges():
    """32-bit operands at which something changes, as integers, fp32, two fp16 or bytes."""
    floats = np.array(
        [
            0.0,
            -0.0,
            1,
            -1,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            0.49999997,
            0.9999999,
            65504,
            65520,
            1e38,
            -3.4e38,
            2**31,
            2**32,
            -(2.0**31),
            2**-14,
            2**-24,
            2**-25,
            448,
            464,
            240,
            57344,
            2**23 + 0.5,
            1e-38,
            3e-39,
            1e-45,
            -1e-45,
            np.inf,
            -np.inf,
        ],
        np.float32,
    )
    halves = [
        0x0000,
        0x8000,
        0x3C00,
        0xBC00,
        0x0001,
        0x83FF,
        0x0400,
        0x7BFF,
        0xFBFF,
        0x7C00,
        0xFC00,
        0x7E00,
        0x7C01,
        0x3801,
        0xFFFF,
        0x7FFF,
    ]
    integers = [
        1,
        2,
        3,
        7,
        15,
        16,
        23,
        24,
        31,
        32,
        33,
        63,
        64,
        0x7F,
        0x80,
        0xFF,
        0xFFFFFF,
        0x800000,
        0x7FFFFFFF,
        0x80000001,
        0xFFFFFFFF,
        0xFFFFFFFE,
        0x0C0D0E0F,
        0x08090A0B,
        0x00100004,
        0x00200000,
    ]
    nans = [0x7FC00000, 0xFFC00001, 0x7F800001, 0xFFBFFFFF]
    return [
        *floats.view(np.uint32).tolist(),
        *integers,
        *nans,
        *(half << 16 | halves[i - 3] for i, half in enumerate(halves)),
    ]


def operands(random, count, words, kind=""):
    """Random registers [words, count]: a quarter edges, the others numbers of all sizes, small integers and bits."""
    choose = random.randint(0, 4, count)
    result = random.randint(0, 1 << 32, (words, count), np.uint32)
    result[:, choose == 0] = random.choice(np.array(edges(), np.uint32), (words, int((choose == 0).sum())))
    some = choose == 1
    numbers = random.standard_normal(int(some.sum())) * 2.0 ** random.randint(-12, 13, int(some.sum()))
    if words == 2 and kind == "F64":
        special = np.array(
            [
                0.0,
                -0.0,
                1,
                -1,
                0.5,
                1e308,
                5e-324,
                2e-308,
                np.inf,
                -np.inf,
                np.nan,
                2**31,
                2**32,
                -(2.0**31) - 1,
                2.5,
                3e-39,
                1e-45,
                3.4028235e38,
                3.4028236e38,
                65520,
            ]
        )
        numbers = np.where(random.randint(0, 2, len(numbers)), numbers, random.choice(special, len(numbers)))
        result[:, some] = numbers.view(np.uint32).reshape(-1, 2).T
    elif kind.endswith("16") or kind == "":
        result[:, some] = numbers.astype(np.float16).view(np.uint16).astype(np.uint32) * np.uint32(0x10001)
    else:
        result[:, some] = numbers.astype(np.float32).view(np.uint32)
    small = choose == 2
    result[:, small] &= np.uint32(63)
    return result


@dataclass
class State:
    """Registers of some waves before or after an instruction: s [128, waves], v [512, waves, 64], scc [waves]."""

    s: Any
    v: Any
    scc: Any


def before(case, waves, seed):
    """Registers with operands for an instruction; some lanes of every other wave are inactive."""
    random = np.random.RandomState([seed, *case.name.encode()])  # whose numbers no version of numpy changes
    s, v = np.zeros((128, waves), np.uint32), np.zeros((512, waves, LANES), np.uint32)
    for field, first in SOURCES.items():
        if field in case.inst.operands or field.removeprefix("v") in case.inst.operands:
            words, kind = case.words(field), case.format(field)
            v[first : first + words] = operands(random, waves * LANES, words, kind).reshape(words, waves, LANES)
            s[first : first + words] = operands(random, waves, words, kind)
    if case.name.startswith("V_DIV_") and case.name[6:11] != "FMAS_":
        related = random.randint(1, 3, (waves, LANES)) * 10 + 10  # a numerator or denominator, as in a division
        for word in range(case.words("src0")):
            v[10 + word] = np.where(related == 20, v[20 + word], v[30 + word])
    v[TARGET : TARGET + 4] = operands(random, waves * LANES, 4).reshape(4, waves, LANES)
    for first in (TARGET, TARGET + 1, SECOND, SECOND + 1, MASK, MASK + 1, VCC, VCC + 1):
        s[first] = operands(random, waves, 1)[0] if first < MASK else random.randint(0, 1 << 32, waves, np.uint32)
    s[EXEC : EXEC + 2] = 0xFFFFFFFF
    s[EXEC : EXEC + 2, 1::2] = random.randint(0, 1 << 32, (2, waves // 2), np.uint32)
    return State(s, v, random.randint(0, 2, waves).astype(np.bool_))


CHANGED = (*range(TARGET, TARGET + 4), SECOND, SECOND + 1, VCC, VCC + 1, EXEC, EXEC + 1)
"""Scalar registers that some instruction changes."""


@functools.cache
def answers(arch):
    """What the pseudocode changes, by the case; of gfx950 only what gfx942 lacks, or what differs there."""
    with np.load(Path(__file__).with_name("pseudocode.npz")) as written:
        words = np.split(written[f"{arch} words"], np.cumsum(written[f"{arch} lengths"])[:-1])
        return dict(zip(written[f"{arch} cases"].tolist(), words, strict=True))


def after_pseudocode(case, given, words):
    """Registers after an instruction, from its words in `answers`: result, first source, scalar registers and SCC, each
    by exclusive or with what it was."""
    after = State(given.s.copy(), given.v.copy(), given.scc.copy())
    places, waves = [*range(TARGET, TARGET + case.words("vdst")), 10], len(given.scc)
    vector, scalar = len(places) * waves * LANES, len(CHANGED) * waves
    after.v[places] ^= words[:vector].reshape(len(places), waves, LANES)
    after.s[list(CHANGED)] ^= words[vector : vector + scalar].reshape(len(CHANGED), waves)
    after.scc ^= words[vector + scalar :].astype(np.bool_)
    return after


def moved(case, place):
    """The same with its result in other vector registers."""
    from tinygrad.renderer.amd.dsl import Reg

    inst = type(case.inst).from_bytes(case.inst.to_bytes())
    inst.vdst = Reg(VECTOR + place, case.words("vdst"))
    return replace(case, inst=inst)


def by_executor(case, given, arch):
    """What the executor makes of it."""
    waves = len(given.scc)
    ids = np.stack([np.arange(waves), np.zeros(waves, np.int64)], axis=1)
    state = Waves(0, given.s.copy(), given.v.copy(), given.scc.copy(), ids)
    machine_of(case.inst, arch, waves).run(state)
    return State(state.s, state.v, state.scc)


def distance(case, ours, theirs):
    """Per register, how far two results are apart: 0 equal (or both NaN), else in units in the last place."""
    kind = case.format("vdst")
    if case.name.startswith("V_PK_") or case.name.startswith("V_CVT_PK") and "F16" in case.name[6:14]:
        kind = case.name.rsplit("_", 1)[1] if case.name.startswith("V_PK_") else "F16"
    kinds = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
    if kind in kinds:
        dtype = np.dtype(kinds[kind])
        a, b = (np.ascontiguousarray(np.moveaxis(one, 0, -1)).view(dtype) for one in (ours, theirs))
        if case.name.startswith(("V_SIN_", "V_COS_")):  # whose error is one of the result's largest values
            with np.errstate(invalid="ignore"):
                apart = np.abs(a.astype(np.float64) - b) / np.finfo(dtype).eps
            return np.where((a == b) | np.isnan(a) & np.isnan(b), 0, np.where(np.isnan(apart), np.inf, apart))
        integer = np.dtype(f"i{dtype.itemsize}")
        x, y = (one.view(integer).astype(np.float64) for one in (a, b))
        low = float(np.iinfo(integer).min)
        x, y = (np.where(one < 0, low - one, one) for one in (x, y))
        signs = np.where((np.signbit(a) != np.signbit(b)) & (a == 0) & (b == 0), 0.5, 0)
        return np.where(
            np.isnan(a) & np.isnan(b), 0, np.where(np.isnan(a) ^ np.isnan(b), np.inf, np.abs(x - y) + signs)
        )
    return np.moveaxis(np.where(ours == theirs, 0.0, np.inf), 0, -1)
