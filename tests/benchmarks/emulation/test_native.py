"""Native code against the executor that it is derived from: registers, memory, SCC and counts to the last bit.

Which of two NaN operands gives its payload is the CPU's choice: a NaN is as good as another.
"""

from __future__ import annotations

import ctypes
import signal
import threading

import numpy as np
import pytest

from benchmarks.emulation import code_object, forms, library, translation
from benchmarks.emulation import launch as launches
from benchmarks.emulation.code_object import NotExecutable
from benchmarks.emulation.layout import ASK, FUNCTION, PARAMETERS, RECORD, SCC, WAVE_BYTES, V
from benchmarks.emulation.machine import known
from benchmarks.emulation.native import NativeMachine
from benchmarks.emulation.waves import EXEC, LANES, Memory, Waves, zeros
from tests.benchmarks.emulation import instructions, kernels
from tests.benchmarks.emulation.instructions import TARGET
from tests.kit import mostly_nightly

SPECIAL = np.array(instructions.edges(), np.uint32)


def before(case, seed):
    """A wave's registers: random ones (even seeds), special ones."""
    state = instructions.before(case, 1, seed)
    random = np.random.default_rng(seed)
    if seed % 2:
        for register in (10, 11, 20, 21, 30, 31):
            state.v[register] = random.choice(SPECIAL, LANES)
            state.s[register] = random.choice(SPECIAL)
        if seed % 4 == 3:
            state.s[EXEC : EXEC + 2] = 0xFFFFFFFF
    return Waves(0, state.s.copy(), state.v.copy(), state.scc.copy(), np.zeros((1, 2), np.int64))


def in_native_code(name, parameters, given):
    """Why one instruction stopped, and scalar and vector registers and SCC after it."""
    block, records = zeros(WAVE_BYTES), zeros(2 * RECORD).view(np.uint64)
    block[:512] = given.s[:, 0].copy().view(np.uint8)
    block[V:SCC] = np.ascontiguousarray(given.v[:, 0]).view(np.uint8).reshape(-1)
    block[SCC] = given.scc[0]
    records[FUNCTION // 8], records[RECORD // 8] = library.address(name), library.address("stop_end")
    records[PARAMETERS // 8 : PARAMETERS // 8 + len(parameters)] = np.array(parameters, np.uint64)
    run = library.callable_of("run", ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    stopped = run(block.ctypes.data, records.ctypes.data)
    return stopped, block[:512].view(np.uint32), block[V:SCC].view(np.uint32).reshape(512, LANES), bool(block[SCC])


def no_number(words):
    """Registers that may hold a NaN."""
    parts = (words & 0x7FFF, words >> 16 & 0x7FFF)
    return (words & 0x7FFFFFFF > 0x7F800000) | (parts[0] > 0x7C00) | (parts[1] > 0x7C00)


def differences(cases, arch, seeds):
    """What native code does otherwise than the executor."""
    texts, made, wrong = {}, [], []
    for case in cases:
        alike = known(forms.with_registers(case.inst, forms.places(case.inst), [28] * 9), 0, arch)
        assert translation._by_form(alike, arch) in (None, translation._traced(alike)), case
        one = known(case.inst.to_bytes(), 0, arch)
        how = translation._by_form(one, arch) or translation._traced(one)
        texts[name := library.name_of(how.text)] = how.text
        made.append((case, one.do, name, how.parameters))
    library.provide(list(texts), texts)
    for case, step, name, parameters in made:
        for seed in seeds:
            expected = before(case, seed)
            stopped, s, v, scc = in_native_code(name, parameters, expected)
            if stopped == ASK:
                continue
            with np.errstate(all="ignore"):
                step(expected)
            apart = v != expected.v[:, 0]
            both = no_number(v) & no_number(expected.v[:, 0])
            apart &= ~both
            if case.format("vdst") == "F64":  # the lower half of a NaN is its payload too
                apart[TARGET] &= ~both[TARGET + 1]
            if apart.any() or not np.array_equal(s, expected.s[:, 0]) or scc != expected.scc[0]:
                wrong.append(f"{case}, seed {seed}: {v[apart][:2]} for {expected.v[:, 0][apart][:2]}")
    return wrong


def test_some_operations_are_equal_in_native_code():
    cases = instructions.known("gfx950")[0]
    assert not differences(cases[::97], "gfx950", range(1, 5))


@pytest.mark.slow
@pytest.mark.parametrize("arch", mostly_nightly(["gfx942", "gfx950"], "gfx950"))
def test_every_operation_is_equal_in_native_code(arch):
    cases = instructions.known(arch)[0]
    assert len(cases) > 1000
    assert not differences(cases, arch, range(2, 4))


def test_lanes_read_each_other_by_the_offset_of_a_swizzle():
    state = before(instructions.known("gfx942")[0][0], 2)
    state.v[0, 0] = np.arange(LANES)
    for offset in (0x401F, 0x80B1):  # lane ^ 16, lane ^ 1
        swizzle = known((0xD87A0000 | offset).to_bytes(8, "little"), 0, "gfx942")
        translation._accesses.step(swizzle.inst)(state)
    assert np.array_equal(state.v[0, 0], np.arange(LANES) ^ 17)


def machines(monkeypatch):
    """What executes launches, in turn: native code, the executor."""
    for machine in (NativeMachine, None):
        monkeypatch.setattr(launches, "_native", lambda machine=machine: machine)
        yield


def both(monkeypatch, data, arguments, grid):
    """What a launch did, and its buffers afterwards: in native code, by the executor."""
    found = []
    for _ in machines(monkeypatch):
        given = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
        done = launches.execute(data, given, grid, 4)
        found.append((done, [one.tobytes() for one in given if isinstance(one, np.ndarray)]))
    return found


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["added", "softmax", "counted", "product"])
def test_memory_and_counts_of_a_launch_are_equal(monkeypatch, arch, name):
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 5 * 496)).astype(np.float32)
    half = random.standard_normal((128, 192)).astype(np.float16)
    values = random.integers(0, 5, 1000).astype(np.int32)
    types, constants, arguments, grid = {
        "added": (("*fp32", "*fp32", "*fp32", "i32"), (512,), [x, y, x * 0, 2403], (5, 1, 1)),
        "softmax": (("*fp32", "*fp32", "i32"), (512,), [x, x * 0, 496], (5, 1, 1)),
        "counted": (("*i32", "*i32", "i32"), (256,), [values, np.zeros(5, np.int32), 1000], (4, 1, 1)),
        "product": (("*fp16", "*fp16", "*fp16", "i32", "i32"), (64,) * 3, [half, half, half * 0, 128, 192], (2, 2, 1)),
    }[name]
    data = kernels.code(getattr(kernels, name), arch, types, constants)
    native, executor = both(monkeypatch, data, arguments, grid)
    assert native == executor


def test_native_code_learns_of_buffers_that_lie_beyond_its_arguments(monkeypatch):
    x, y = np.random.default_rng(0).standard_normal((2, 5 * 512)).astype(np.float32)
    code = code_object.read(kernels.code())
    asked, found, out = [], [], np.zeros_like(x)
    ask = NativeMachine._ask
    monkeypatch.setattr(NativeMachine, "_ask", lambda self, wave: [asked.append(wave), ask(self, wave)])
    for _ in machines(monkeypatch):
        memory, out[:] = Memory(), 0
        known, *others = ((one.ctypes.data, one.view(np.uint8), "") for one in (out, x, y))
        memory.add(*known)
        memory.beyond = lambda address, others=others: next(
            (one for one in others if one[0] <= address < one[0] + len(one[1])), None
        )
        arguments = launches.segment(code, [np.uint64(one.ctypes.data) for one in (x, y, out)] + [np.asarray(x.size)])
        found.append((launches.launch(code, memory, arguments, (5, 1, 1), 4, 0), out.tobytes()))
    assert found[0] == found[1]
    assert found[0][1] == (x + y).tobytes()
    assert len(asked) == 2  # once for each


def test_a_fault_is_told_as_the_executor_tells_it(monkeypatch):
    data = kernels.code(kernels.counted, "gfx942", ("*i32", "*i32", "i32"), (256,))
    values = np.zeros(256, np.int32)
    values[64 + 5] = 1 << 24
    told = []
    for _ in machines(monkeypatch):
        with pytest.raises(NotExecutable, match="workgroup 0, wave 1, lane 5") as caught:
            launches.execute(data, [values, np.zeros(4, np.int32), 256], (1, 1, 1), 4)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_a_launch_ends_at_an_interrupt():
    data = kernels.code(kernels.numbered, "gfx942", ("*i32",), (), warps=1)
    out = np.full(1, -1, np.int32)
    launches.execute(data, [out], (1, 1, 1), 1)
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        launches.execute(data, [out], (1 << 23, 1, 1), 1, lds_bytes=0)
    timer.join()
    assert 0 < out[0] < (1 << 23) - 1


def test_without_llvm_the_executor_does_it_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(launches, "find_spec", lambda name: None)
    launches._native.cache_clear()
    try:
        assert launches._native() is None
    finally:
        launches._native.cache_clear()
    assert "pip install 'ridgeline[emulate]'" in capsys.readouterr().err
