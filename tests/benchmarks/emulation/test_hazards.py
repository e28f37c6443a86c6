"""Races within a workgroup: what is found, and what is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.emulation import hazards
from benchmarks.emulation.code_object import read
from benchmarks.emulation.hazards import Race, early_uses
from benchmarks.emulation.launch import launch, segment
from benchmarks.emulation.machine import known
from benchmarks.emulation.waves import Memory
from tests.benchmarks.emulation import kernels
from tests.benchmarks.emulation.test_instructions import encoded

VGPR, END = 256, (0xBF810000).to_bytes(4, "little")


def waited(vm=63, lgkm=15):
    """S_WAITCNT for no more than these to be outstanding."""
    return (0xBF8C0000 | vm & 15 | vm >> 4 << 14 | 7 << 4 | lgkm << 8).to_bytes(4, "little")


def load(register):
    return bytes(encoded("GLOBAL", "GLOBAL_LOAD_DWORD", addr=VGPR, saddr=14, vdst=VGPR + register).to_bytes())


def read_lds(register):
    return bytes(encoded("DS", "DS_READ_B32", addr=VGPR, vdst=VGPR + register).to_bytes())


def used(register):
    return bytes(encoded("VOP1", "V_MOV_B32_E32", vdst=VGPR + 200, src0=VGPR + register).to_bytes())


SCALAR_OF_SDWA = bytes.fromhex("f906102604060586")
"""v_and_b32_sdwa v8, v4, s3, as LLVM emits it: its second operand is no vector register."""


ADDED = bytes.fromhex("0080 48dd 2629 7f00")
"""global_atomic_pk_add_bf16 v[38:39], v41, off, which gives nothing back: its field of a result is no register."""


def scratch(register):
    """Of an address without a vector register."""
    return bytes(encoded("SCRATCH", "SCRATCH_LOAD_DWORD", addr=VGPR, saddr=127, vdst=VGPR + register).to_bytes())


def buffer(register):
    """The same of a buffer."""
    return bytes(encoded("MUBUF", "BUFFER_LOAD_DWORD", vaddr=VGPR, soffset=128, vdata=VGPR + register).to_bytes())


def early(*code):
    image, at, found = b"".join([*code, END]), 0, []
    while at < len(image):
        one = known(image, at, "gfx942")
        found.append(replace(one, at=at))
        at += one.size
    return early_uses(found, {one.at: number for number, one in enumerate(found)})


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ([load(1), used(1)], ((0, 1),)),
        ([load(1), waited(vm=0), used(1)], ()),
        ([load(1), load(2), waited(vm=1), used(1)], ()),
        ([load(1), load(2), waited(vm=1), used(2)], ((1, 3),)),
        ([read_lds(1), waited(vm=0), used(1)], ((0, 2),)),
        ([read_lds(1), load(2), waited(lgkm=0), used(1)], ()),
        ([read_lds(0), ADDED], ()),
        ([scratch(0), scratch(1)], ()),
        ([buffer(0), buffer(1)], ()),
        ([load(3), SCALAR_OF_SDWA], ()),
        ([load(4), SCALAR_OF_SDWA], ((0, 1),)),
    ],
)
def test_a_register_that_is_used_before_its_wait(code, expected):
    assert early(*code) == expected


@pytest.mark.parametrize(("access", "most"), [(load, 63), (read_lds, 15)])
def test_a_full_counter_holds_accesses_back_so_older_ones_are_complete(access, most):
    younger = [access(2 + number) for number in range(most)]
    assert early(access(1), *younger, used(1)) == ()
    assert early(access(1), *younger[1:], used(1)) == ((0, most),)


def softmax_of(arch):
    return read(kernels.code(kernels.softmax, arch, ("*fp32", "*fp32", "i32"), (512,)))


def launched(arch, change, warps=4):
    """A softmax, whose waves exchange what they found through the LDS, after a change of its code."""
    code = softmax_of(arch)
    x, out, memory = np.ones((3, 496), np.float32), np.zeros((3, 496), np.float32), Memory()
    for place, array in enumerate((x, out), 1):
        memory.add(place << 32, array.view(np.uint8).reshape(-1), f"argument {place}")
    arguments = segment(code, [np.uint64(1 << 32), np.uint64(2 << 32), np.int32(496)])
    return launch(replace(code, image=change(code.image)), memory, arguments, (3, 1, 1), warps, 4096)


def multiplied(change):
    """A product by one wave, which loads from memory to the LDS, after a change of its code."""
    made = kernels.compiled(kernels.product, "gfx950", ("*fp16", "*fp16", "*fp32", "i32", "i32"), (64, 64, 32), warps=1)
    code = read(made.asm["hsaco"])
    a, b = np.random.default_rng(0).standard_normal((2, 64, 96)).astype(np.float16)
    c, memory = np.zeros((64, 64), np.float32), Memory()
    for place, array in enumerate((a, b, c), 1):
        memory.add(place << 32, array.view(np.uint8).reshape(-1), f"argument {place}")
    values = [np.uint64(1 << 32), np.uint64(2 << 32), np.uint64(3 << 32), np.int32(64), np.int32(96)]
    image = change(code.image)
    launch(replace(code, image=image), memory, segment(code, values), (1, 1, 1), 1, made.metadata.shared)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32).T, atol=1e-3)


BARRIER, NOTHING = (0xBF8A0000).to_bytes(4, "little"), (0xBF800000).to_bytes(4, "little")


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_the_lds_between_waves_without_a_barrier(arch, monkeypatch):
    launched(arch, lambda image: image)
    told = r"nothing orders DS_\w+ at 0x\w+, wave \d, before DS_\w+ at 0x\w+, wave \d, of workgroup 0 of softmax"
    with pytest.raises(Race, match=told):
        launched(arch, lambda image: image.replace(BARRIER, NOTHING))
    monkeypatch.setenv(hazards.OFF, "1")
    launched(arch, lambda image: image.replace(BARRIER, NOTHING))


def test_what_a_wave_loads_to_the_lds_and_reads_before_its_wait():
    multiplied(lambda image: image)
    told = r"BUFFER_LOAD_DWORDX4 at 0x\w+ is not waited for: DS_READ_B128 at 0x\w+, wave 0, of workgroup 0 of product"
    with pytest.raises(Race, match=told):
        multiplied(lambda image: image.replace(waited(vm=0), NOTHING))


def written(*instructions):
    return b"".join(bytes(encoded(form, name, **fields).to_bytes()) for form, name, fields in instructions)


def begun(*code):
    """A change by which the softmax is this code and ends."""
    at, text = softmax_of("gfx942").entry, b"".join([*code, END])
    return lambda image: image[:at] + text + image[at + len(text) :]


def test_a_store_races_with_a_load_of_another_wave_though_its_own_wave_has_loaded_there_since():
    read = written(
        ("VOP1", "V_READFIRSTLANE_B32_E32", {"vdst": VGPR, "src0": VGPR}),  # s0: its first lane in the workgroup
        ("VOP1", "V_MOV_B32_E32", {"vdst": VGPR + 2, "src0": 128}),
        ("DS", "DS_READ_B32", {"addr": VGPR + 2, "vdst": VGPR + 3}),
    )
    store = written(
        ("VOP1", "V_MOV_B32_E32", {"vdst": VGPR + 4, "src0": 129}),
        ("DS", "DS_WRITE_B32", {"addr": VGPR + 2, "data0": VGPR + 4}),
    )
    over = written(("SOPC", "S_CMP_LT_U32", {"ssrc0": 0, "ssrc1": 192})) + (0xBF850000 | len(store) // 4).to_bytes(
        4, "little"
    )

    launched("gfx942", begun(read, waited(lgkm=0), BARRIER, over, store), warps=2)  # by wave 1 alone
    with pytest.raises(Race, match="DS_READ_B32 at 0x8, wave 0, before DS_WRITE_B32 at 0x20, wave 1"):
        launched("gfx942", begun(read, waited(lgkm=0), over, store), warps=2)


def test_waves_whose_lanes_leave_the_same_value_at_a_place_need_no_order():
    at_once = written(  # 64 values to one place: lane 63's stays
        ("VOP1", "V_MOV_B32_E32", {"vdst": VGPR + 2, "src0": 128}),
        ("VOP2", "V_AND_B32_E32", {"vdst": VGPR + 4, "src0": 191, "vsrc1": VGPR}),
    )
    store = written(("DS", "DS_WRITE_B32", {"addr": VGPR + 2, "data0": VGPR + 4}))
    launched("gfx942", begun(at_once, store), warps=2)
    own = written(("VOP1", "V_MOV_B32_E32", {"vdst": VGPR + 4, "src0": VGPR}))
    with pytest.raises(Race, match="DS_WRITE_B32 at 0xc, wave 0, before DS_WRITE_B32 at 0xc, wave 1"):
        launched("gfx942", begun(at_once, own, store), warps=2)
