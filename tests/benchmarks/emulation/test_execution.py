"""Kernels compiled for MI300X and MI355X, executed: what they compute, what they count, what they must not do."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.emulation.code_object import NotExecutable, read
from benchmarks.emulation.launch import execute, launch
from benchmarks.emulation.machine import known
from benchmarks.emulation.memory import Accesses
from benchmarks.emulation.operands import VECTOR, Unknown
from benchmarks.emulation.waves import LANES, Memory
from tests.benchmarks.emulation import kernels
from tests.kit import mostly_nightly

ARCHS = ("gfx942", "gfx950")


@pytest.fixture(params=mostly_nightly(ARCHS, "gfx950"))
def arch(request):
    return str(request.param)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("00105de022000080 0000aed33a550204", ["BUFFER_LOAD_DWORDX4", "V_MFMA_F32_32X32X64_F8F6F4"]),
        ("1a1707bf7fc28cbf 0000aed334490204", ["S_CMP_LG_U32", "S_WAITCNT", "V_MFMA_F32_32X32X64_F8F6F4"]),
        ("0000acd301000000 0000aed334490204", ["V_MFMA_SCALE_F32_32X32X64_F8F6F4"]),
    ],
)
def test_what_stands_before_a_product_of_small_floats_is_an_instruction_of_its_own(words, names):
    image, at, found = bytes.fromhex(words), 0, []
    while at < len(image):
        one = known(image, at, "gfx950")
        found, at = [*found, one.name], at + one.size
    assert found == names


def test_a_function_finds_its_lds_by_a_table_of_the_code_object(arch):
    code = kernels.code(kernels.calling, arch, ("*fp32",), ())
    tile = np.random.default_rng(0).standard_normal((16, 16), np.float32)
    expected = tile @ tile
    execute(code, [tile], (1, 1, 1), 4)
    assert len(read(code).constants) == 1
    assert np.abs(tile - expected).max() < 0.02  # of operands in TF32


def test_workgroups_that_wait_for_all_others_of_the_grid():
    flag = np.zeros(4, np.int32)
    execute(kernels.code(kernels.meeting, "gfx942", ("*i32", "i32"), (), warps=1), [flag, 8], (8, 1, 1), 1)
    assert flag[0] == 8


def test_a_kernel_that_prints_is_refused_with_a_sentence(arch):
    code = kernels.code(kernels.printing, arch, ("*fp32",), ())
    with pytest.raises(NotExecutable, match="a kernel that prints calls the host, which is not emulated"):
        execute(code, [np.zeros(4, np.float32)], (1, 1, 1), 4)


def test_a_kernel_that_does_not_end_is_stopped(arch):
    code = kernels.code(kernels.endless, arch, ("*i32", "*i32"), (), warps=1)
    run, ones, out = partial(execute, code, grid=(1, 1, 1), warps=1), np.ones(4, np.int32), np.zeros(4, np.int32)
    with pytest.raises(
        NotExecutable, match="no end after 2000 instructions; waves stand at 0x.* wave 0 of workgroup 0"
    ):
        run([np.zeros(4, np.int32), out], limit=2000)
    done = run([ones, out])
    assert out[0] == 1
    run([ones, out], limit=done.total)
    with pytest.raises(NotExecutable, match=f"no end after {done.total - 1} instructions; waves stand at 0x"):
        run([ones, out], limit=done.total - 1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"arch": "gfx950"}, "the code object is for gfx942, not for gfx950"),
        ({"kernel": "other"}, "kernel 'other' is not in the code object"),
        ({"grid": (1, 0, 1)}, r"grid \(1, 0, 1\) and 4 warps: each is at least 1"),
        ({"arguments": [np.zeros(4, np.float32)] * 3}, "3 arguments for a kernel of .*: missing is (n|at 24)"),
        ({"arguments": [0] * 9}, "9 arguments for a kernel of"),
        ({"arguments": [np.zeros((4, 4), np.float32).T] * 3 + [4]}, "argument 0 is not contiguous"),
        ({"data": b"no code"}, "not a code object for an AMD GPU"),
    ],
)
def test_what_cannot_be_launched(given, told):
    arguments = [np.zeros(512, np.float32)] * 3 + [512]
    wanted = {"data": kernels.code(), "arguments": arguments, "grid": (1, 1, 1), "warps": 4, **given}
    with pytest.raises(NotExecutable, match=told):
        execute(**wanted)


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (0x00, r"flushes denormals \(FLOAT_MODE 0x0\)"),
        (0xD0, "flushes denormals"),
        (0xF5, "rounds otherwise than to near"),
    ],
)
def test_other_modes_of_rounding_and_denormals_are_refused(mode, told):
    with pytest.raises(NotExecutable, match=told):
        launch(replace(read(kernels.code()), mode=mode), Memory(), b"", (1, 1, 1), 1)


def test_denormals_of_fp32_are_flushed_where_the_code_asks_for_it(monkeypatch):
    """As Triton 3.9 has it do with allow_flush_denorm; with 3.8 that asks for nothing."""
    code = replace(read(kernels.code()), mode=0x3C0)
    monkeypatch.setattr("benchmarks.emulation.launch.read", lambda *_: code)
    small, out = np.full((2, 512), 1e-39, np.float32)
    execute(b"", [small, small, out, 512], (1, 1, 1), 4)
    assert (out.any(), (small + small).all()) == (False, True), "inside alone"


@pytest.mark.parametrize("bit", [16 + 32, 29 + 32, 23 + 96])
def test_a_buffer_of_records_is_refused(bit):
    """A stride (bits 48 to 61 of the resource) or the lane's number added (bit 119): addresses are formed otherwise."""
    inst = SimpleNamespace(
        idxen=0, offen=0, offset=0, op=SimpleNamespace(name="BUFFER_LOAD_DWORD"),
        srsrc=SimpleNamespace(offset=0), vaddr=SimpleNamespace(offset=VECTOR), soffset=SimpleNamespace(offset=128),
    )  # fmt: skip
    words = np.zeros((4, 1), np.uint32)
    waves = SimpleNamespace(s=words, v=np.zeros((1, 1, LANES), np.uint32), active=None)
    words[bit // 32] = 1 << bit % 32
    with pytest.raises(Unknown, match="BUFFER_LOAD_DWORD of a structured buffer"):
        Accesses._buffer(None, inst)(waves)
