"""What a launch is counted to have executed: against numbers that follow from the documents, and from the kernel."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.emulation import launch, native
from benchmarks.emulation.code_object import read
from benchmarks.emulation.counts import Counts, Observer, bound, lds_cycles, matrix_cycles
from benchmarks.emulation.launch import execute, segment
from benchmarks.emulation.waves import EXEC, Memory, Waves
from kernels.hardware import by_market_name
from tests.benchmarks.emulation import kernels

LANE = np.arange(64)[None]
ALL = np.ones((1, 64), np.bool_)


def product(arch, k, more=0, tiles=(2, 1)):
    shape = (64, 64, 32)
    code = kernels.code(kernels.stepped, arch, ("*fp16", "*fp16", "*fp16", "i32", "i32"), (*shape, more))
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((64 * count, k)).astype(np.float16) for count in tiles)
    c = np.zeros((64 * tiles[0], 64 * tiles[1]), np.float16)
    done = execute(code, [a, b, c, c.shape[1], k], (*tiles, 1), 4)
    assert np.allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, atol=0.05, rtol=2e-3)
    return done.counts


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_one_step_over_k_too_many_is_exactly_its_instructions(arch):
    """The result is right, and the code is as long: only what is executed tells."""
    for k, tiles in ((96, (2, 1)), (160, (1, 1))):
        right, wrong = product(arch, k, 0, tiles), product(arch, k, 1, tiles)
        programs = tiles[0] * tiles[1]
        depth = {"gfx942": 16, "gfx950": 32}[arch]
        assert wrong.classes["mfma"] - right.classes["mfma"] == programs * (64 // 16) * (64 // 16) * (32 // depth)
        assert wrong.matrix_cycles - right.matrix_cycles == 16 * (wrong.classes["mfma"] - right.classes["mfma"])
        loads = programs * 4 * (64 * 32 + 64 * 32) * 2 // (4 * 64 * 16)  # waves, of 64 lanes, each 16 bytes
        assert wrong.classes["load"] - right.classes["load"] == loads
        assert wrong.bytes["load"] == right.bytes["load"], "masked lanes ask for nothing"
        assert wrong.classes["store"] == right.classes["store"]


def test_branches_that_only_some_lanes_need():
    """Three waves: all lanes on, four on, none."""
    scalars = np.zeros((128, 3), np.uint32)
    scalars[EXEC : EXEC + 2, 0], scalars[EXEC, 1] = 0xFFFFFFFF, 0xF
    w = Waves(0, scalars, np.zeros((1, 3, 64), np.uint32), np.zeros(3, np.bool_), np.zeros((3, 2), np.int64))
    observer = Observer()
    for name, goes in (("S_CBRANCH_EXECZ", ~w.active.any(1)), ("S_CBRANCH_EXECNZ", w.active.any(1))):
        observer.name = name
        observer.branch(w, goes)
    observer.name = "S_BRANCH"
    observer.branch(w, np.ones(3, np.bool_))
    observer.name = "V_ADD_U32"
    observer.partly(w)
    observer.name = "S_ADD_U32"
    observer.partly(w)
    found = observer.counts([("V_ADD_U32", 0, 3), ("S_ADD_U32", 0, 3)])
    assert (found.branches, found.taken, found.divergent) == (6, 3, 2)
    assert (found.vector, found.idle) == (3 * 64, 60 + 64)


@pytest.mark.parametrize(
    ("addresses", "size", "lines", "touched"),
    [
        (4 * LANE, 4, 4, 256),
        (4 * LANE + 32, 4, 5, 256),
        (64 * LANE, 4, 64, 256),
        (64 * LANE + 60, 8, 65, 512),
        (0 * LANE, 16, 1, 16),
        (16 * LANE[:, ::-1], 16, 16, 1024),
    ],
)
def test_requests_are_the_lines_of_a_wave(addresses, size, lines, touched):
    observer = Observer()
    for _ in range(2):
        observer.memory("load", addresses.astype(np.uint64) + np.uint64(1 << 32), ALL, size)
    found = observer.counts([])
    assert found.requests == {"load": 2 * lines}
    assert found.lines == {"load": lines}
    assert found.touched == {"load": 2 * touched}
    assert found.coalescing == touched / (64 * lines)


def test_lanes_that_are_off_ask_for_nothing():
    observer, some = Observer(), LANE < 16
    observer.memory("store", 4 * LANE.astype(np.uint64), some, 4)
    observer.local(4 * LANE, some, 4, reads=False)
    found = observer.counts([])
    assert (found.requests, found.bytes) == ({"store": 1}, {"store": 64, "lds": 64})
    assert (found.lds_passes, found.lds_cycles) == (1, 1)


ROWS_OF_A_TILE = (LANE % 16) * 128 + (LANE // 16) * 16
"""Lanes read 16 bytes each down a tile of 128 bytes a row, as an operand of a matrix instruction lies."""


@pytest.mark.parametrize(
    ("addresses", "size", "reads", "passes", "cycles"),
    [
        (4 * LANE, 4, True, 2, 2),
        (8 * LANE, 4, True, 2, 4),
        (128 * LANE, 4, True, 2, 64),
        (2 * LANE, 2, False, 2, 2),
        (8 * LANE, 8, True, 4, 4),
        (128 * LANE, 8, True, 4, 64),
        (16 * LANE, 16, False, 8, 8),
        (ROWS_OF_A_TILE, 16, True, 8, 32),
        (ROWS_OF_A_TILE ^ (LANE % 8) * 16, 16, True, 8, 8),
    ],
)
def test_the_fullest_bank_of_each_pass_is_what_an_access_takes(addresses, size, reads, passes, cycles):
    assert lds_cycles(addresses, ALL, size, reads) == (cycles, passes)
    twice = np.concatenate([addresses, addresses + 256]), np.concatenate([ALL, ALL])
    assert lds_cycles(*twice, size, reads) == (2 * cycles, 2 * passes)


def test_passes_of_wide_reads_take_lanes_of_two_places():
    """Rows of 64 bytes, lanes l and l + 4 of a half at the same banks: they conflict where they go together."""
    addresses = 16 * (LANE // 4 * 8 + LANE % 4)
    assert lds_cycles(addresses, ALL, 16, reads=False) == (16, 8)
    swapped = addresses ^ 64 * ((LANE // 16) % 2)
    assert lds_cycles(swapped, ALL, 16, reads=True) == (8, 8)
    assert lds_cycles(swapped, ALL, 16, reads=False) == (16, 8)


@pytest.mark.parametrize(
    ("device", "name", "formats", "dtype"),
    [
        ("MI300X", "V_MFMA_F32_16X16X16_F16", (0, 0), "fp16"),
        ("MI300X", "V_MFMA_F32_32X32X8_BF16_1K", (0, 0), "bf16"),
        ("MI300X", "V_MFMA_F32_32X32X16_BF8_FP8", (0, 0), "fp8"),
        ("MI300X", "V_MFMA_F32_16X16X4_F32", (0, 0), "fp32"),
        ("MI355X", "V_MFMA_F32_16X16X32_F16", (0, 0), "fp16"),
        ("MI355X", "V_MFMA_SCALE_F32_32X32X64_F8F6F4", (0, 1), "fp8"),
        ("MI355X", "V_MFMA_SCALE_F32_16X16X128_F8F6F4", (4, 4), "mxfp4"),
    ],
)
def test_the_passes_of_matrix_instructions_make_the_peaks_of_the_data_sheets(device, name, formats, dtype):
    hardware = by_market_name(device)
    size, _, depth = (int(part) for part in name.split("F32_")[1].split("_")[0].split("X"))
    flops = 2 * size * size * depth / matrix_cycles(name, formats)
    peak = flops * hardware.compute_units * hardware.simds * hardware.clock_mhz * 1e6
    assert peak == pytest.approx(hardware.peak(dtype), rel=0.01)


def test_a_matrix_instruction_of_no_table_has_no_cycles():
    assert matrix_cycles("V_FMA_F32") == 0
    assert matrix_cycles("V_MFMA_F64_16X16X4_F64") is None
    assert (Counts() + Counts(matrix_cycles=None)).matrix_cycles is None


def test_launches_add_up():
    four, once = Counter({"load": 4}), Counter({"load": 1})
    one = Counts(Counter({"valu": 2}), Counter(), 3, four, four, once, once, 1, 2, Counter({"ds at 0x4": 1}), 1, 1)
    both = one + Counts(Counter({"valu": 1, "lds": 1}), matrix_cycles=1)
    assert (both.classes, both.matrix_cycles, both.total) == ({"valu": 3, "lds": 1}, 4, 4)
    assert (both.coalescing, Counts().coalescing) == (4 / 64, None)
    assert both.as_json()["coalescing"] == 0.0625


def test_the_busiest_unit_bounds_the_share_of_the_roofline():
    mi300x = by_market_name("MI300X")
    second = mi300x.compute_units * mi300x.clock_mhz * 1_000_000
    found = bound(Counts(matrix_cycles=4 * second, lds_cycles=2 * second), mi300x, 0.5)
    assert found == {"percent": 25.0, "unit": "LDS"}
    memory = Counts(lines=Counter({"load": int(mi300x.hbm_bandwidth) // 64}))
    assert bound(memory, mi300x, 2.0) == {"percent": 100.0, "unit": "memory"}
    assert bound(Counts(), mi300x, 1.0) is None
    mi355x = by_market_name("MI355X")
    cycles = Counts(lds_cycles=mi355x.compute_units * mi355x.clock_mhz * 1_000_000)
    assert bound(cycles, mi355x, 0.25) == {"percent": 50.0, "unit": "LDS"}, "twice the banks"


def added(sampled, count=100):
    """A sum in blocks of 256, all of them alike, and what of it was computed."""
    code = read(kernels.code(constants=(256,)))
    x, memory = np.ones((3, 256 * count), np.float32), Memory()
    for place, row in enumerate(x, 1):
        memory.add(place << 32, row.view(np.uint8), f"argument {place}")
    values = [*(np.uint64(place << 32) for place in (1, 2, 3)), np.int32(256 * count)]
    done = launch.launch(code, memory, segment(code, values), (count, 1, 1), 4, 4096, sampled=sampled)
    return done, (x[2].reshape(count, 256) == 2).all(1)


def test_some_workgroups_of_a_large_grid_stand_for_all(monkeypatch):
    """The first, the last and others: counts are those of the grid, and what was not executed was not."""
    whole, written = added(sampled=True)
    assert (whole.sampled, written.all()) == (None, True)  # few instructions: all are executed
    monkeypatch.setattr(native, "WHOLE", whole.total - 1)
    part, written = added(sampled=True)
    assert part.sampled == (native.SAMPLE, 100)
    assert (written.sum(), written[0], written[-1]) == (native.SAMPLE, True, True)
    assert part.instructions == whole.instructions
    assert part.counts.as_json() == whole.counts.as_json()
    assert added(sampled=False)[0].sampled is None
    assert added(sampled=True, count=native.SAMPLE)[0].sampled is None
