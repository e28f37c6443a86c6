"""Single instructions of which AMD's pseudocode does not say enough: memory, modes, modifiers."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.emulation.code_object import OVERFLOW_BIT
from benchmarks.emulation.memory import TICKS
from benchmarks.emulation.operands import Unknown
from benchmarks.emulation.waves import LANES, M0, MODE, Memory
from tests.benchmarks.emulation.instructions import machine_of, one_wave

BUFFER = 1 << 32
V10, V20, V40 = 256 + 10, 256 + 20, 256 + 40


def encoded(form, name, **fields):
    """An instruction by the numbers in its fields: vector registers are 256 and more."""
    from tinygrad.renderer.amd.dsl import OPERANDS, Reg
    from tinygrad.runtime.autogen.amd.cdna import ins

    op = getattr(ins, f"{form}Op")[name]
    sizes = {field: max(1, bits // 32) for field, (_, bits, _) in OPERANDS.get(op, {}).items()}
    sizes |= {"addr": 1, "vaddr": 1, "soffset": 1}
    given = {field: Reg(value, sizes[field]) if field in sizes else value for field, value in fields.items()}
    return getattr(ins, form)(op=op, **given)


def run(inst, v, s=None, memory=None, lds=None, late=None):
    """One wave after an instruction: v and s are registers before it; memory and lds change in place.

    late: gets what takes loaded bytes, which do not arrive.
    """
    buffers = Memory()
    if memory is not None:
        buffers.add(BUFFER, memory.view(np.uint8), "a buffer")
    machine = machine_of(inst, "gfx950", memory=buffers, lds_bytes=0 if lds is None else lds.nbytes)
    if late is not None:
        machine.accesses.fetch = lambda addresses, size, use: late.append(use)  # type: ignore[method-assign]
    if lds is not None:
        machine.accesses.lds = lds.reshape(-1).view(np.uint8)
    w = one_wave()
    for register, value in v.items():
        w.v[register, 0] = value
    for register, number in {MODE: 0xF0, **(s or {})}.items():
        w.s[register] = number
    w.mask_changed()
    machine.run(w)
    return w


def buffer_of(memory):
    """Its descriptor, from s16 on."""
    return {16: BUFFER & 0xFFFFFFFF, 17: BUFFER >> 32, 18: memory.nbytes, 19: 0x27000}


PLACES = np.arange(LANES) % 4


def words(values):
    """Values of the lanes as registers from v20 on."""
    raw = np.ascontiguousarray(values).view(np.uint32).reshape(LANES, -1)
    return {20 + index: raw[:, index] for index in range(raw.shape[1])}


@pytest.mark.parametrize(
    ("name", "dtype", "start"),
    [
        ("ADD_F64", np.float64, 0.25), ("MIN_I32", np.int32, 5), ("MAX_I64", np.int64, -5), ("ADD_U32", np.uint32, 7),
        ("PK_ADD_F16", np.float16, 0.5),
    ],
)  # fmt: skip
def test_atomics_of_the_lds(name, dtype, start):
    count = 2 if name.startswith("PK") else 1
    size = count * np.dtype(dtype).itemsize
    lds = np.full((4, count), start, dtype)
    given = (np.arange(LANES * count).reshape(LANES, count) - 60).astype(dtype)
    inst = encoded("DS", f"DS_{name}", addr=V10, data0=V20, offset0=16)
    run(inst, {10: PLACES * size - 16, **words(given)}, lds=lds)  # a sum of 32 bits
    function = {"MIN": np.minimum, "MAX": np.maximum}.get(name[:3], np.add)
    expected = [
        function.reduce(np.concatenate([np.full((1, count), start, dtype), given[place::4]]), dtype=dtype)
        for place in range(4)
    ]
    assert np.array_equal(lds, expected)


@pytest.mark.parametrize("name", ["DS_NOP", "DS_APPEND", "DS_GWS_SEMA_V", "DS_INC_U32"])
def test_what_the_lds_does_not_do_is_told(name):
    with pytest.raises(Unknown, match=f"^{name} cannot be executed"):
        run(encoded("DS", name), {}, lds=np.zeros(4, np.uint32))


def test_half_a_register_is_kept_by_a_load_past_the_end_of_a_buffer():
    memory = np.arange(1, 5, dtype=np.uint16)
    inst = encoded("MUBUF", "BUFFER_LOAD_SHORT_D16_HI", vdata=V20, vaddr=V10, srsrc=16, soffset=128, offen=1)
    w = run(inst, {10: 2 * np.arange(LANES), 20: 0xAAAA5555}, buffer_of(memory), memory)
    assert w.v[20, 0].tolist() == [number << 16 | 0x5555 for number in [1, 2, 3, 4] + [0] * 60]


def test_a_load_to_the_lds_goes_where_m0_was_when_it_was_issued():
    """Schedules let what a wave has loaded arrive when it has gone on."""
    memory, lds, late = np.arange(LANES, dtype=np.uint32), np.zeros(2 * LANES, np.uint32), []
    inst = encoded("MUBUF", "BUFFER_LOAD_DWORD", vdata=256, vaddr=V10, srsrc=16, soffset=128, offen=1, lds=1)
    w = run(inst, {10: 4 * np.arange(LANES)}, {**buffer_of(memory), M0: 4 * LANES}, memory, lds, late)
    w.s[M0] = 0
    late[0](memory[:, None].view(np.uint8))
    assert lds.tolist() == [0] * LANES + memory.tolist()


def test_a_pair_of_which_one_is_too_large_is_not_guessed_where_it_would_be_limited():
    inst = encoded("VOP3P", "V_PK_ADD_F16", vdst=V40, src0=V10, src1=V10, opsel_hi=3)
    v = {10: 0x7BFF3C00}  # the largest number and 1
    assert run(inst, v).v[40, 0, 0] >> 16 == 0x7C00
    with pytest.raises(Unknown, match="an infinite fp16 result with FP16_OVFL set"):
        run(inst, v, {MODE: 0xF0 | 1 << OVERFLOW_BIT})


def test_a_constant_is_both_numbers_of_a_pair_of_32_bits():
    inst = encoded("VOP3P", "V_PK_MUL_F32", vdst=V40, src0=V10, src1=240, opsel_hi=3)
    result = run(inst, {10: 0x40000000, 11: 0x40800000}).v[40:42, 0, 0]  # 2 and 4, by 0.5
    assert result.view(np.float32).tolist() == [1, 2]


@pytest.mark.parametrize(("name", "expected"), [("V_PK_SUB_U16", 0x0000_0004), ("V_PK_SUB_I16", 0xFFFE_0004)])
def test_each_half_of_a_clamped_difference_stays_within_its_type(name, expected):
    inst = encoded("VOP3P", name, vdst=V40, src0=V10, src1=256 + 11, opsel_hi=3, clmp=1)
    assert set(run(inst, {10: 0x0003_0009, 11: 0x0005_0005}).v[40, 0].tolist()) == {expected}


def test_the_sign_of_bf16_is_changed_before_it_is_converted():
    inst = encoded("VOP3", "V_CVT_F32_BF16_E64", vdst=V40, src0=V10, neg=1)
    assert run(inst, {10: 0x3FC0}).v[40, 0].view(np.float32).tolist() == [-1.5] * LANES


def test_a_result_may_be_a_part_of_a_register_and_parts_of_64_bits_are_not_guessed():
    from tinygrad.runtime.autogen.amd.cdna import ins

    def of_parts(name, parts):
        plain = int.from_bytes(encoded("VOP1", name, vdst=V40, src0=V10).to_bytes(), "little")
        return ins.VOP1_SDWA.from_bytes((plain & ~0x1FF | 249 | (10 | parts) << 32).to_bytes(8, "little"))

    with pytest.raises(Unknown, match="V_TRUNC_F64 of parts of registers"):
        run(of_parts("V_TRUNC_F64_E32", 6 << 8 | 4 << 16), {})
    upper = of_parts("V_MOV_B32_E32", 5 << 8 | 6 << 16)  # the rest is zero
    assert set(run(upper, {10: 0xABCD1234}).v[40, 0].tolist()) == {0x12340000}


def test_a_clock_goes_on_with_every_reading():
    assert run(encoded("SMEM", "S_MEMREALTIME", sdata=20), {}).s[20:22].tolist() == [[TICKS], [0]]


def test_a_literal_of_a_signed_operand_of_64_bits_keeps_its_sign():
    from tinygrad.renderer.amd import decode_inst

    inst = encoded("SOP1", "S_FLBIT_I32_I64", sdst=40, ssrc0=20)
    word = int.from_bytes(inst.to_bytes(), "little") & ~0xFF | 255
    literal = decode_inst((word | 0xFFFFFFF0 << 32).to_bytes(8, "little"), "cdna")
    assert run(literal, {}).s[40, 0] == 60
