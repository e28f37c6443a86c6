"""The small cases that are executed for a target, what is kept of them, and what is told of a wrong output."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from benchmarks import trial_file
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.emulation import cases
from benchmarks.emulation import verify as emulated
from benchmarks.emulation.launch import FIRST_ADDRESS, GAP, execute
from benchmarks.emulation.watching import LastWrite, Trace, source_line
from benchmarks.plan import UsageError
from ci.__main__ import main
from kernels.all_gather import all_gather
from kernels.gemm import gemm
from kernels.grouped_gemm import grouped_gemm_dgrad, grouped_gemm_forward, grouped_gemm_wgrad, routing
from kernels.moe_gemm2_mxfp4 import moe_gemm2_mxfp4
from kernels.spec import Tolerance
from tests.benchmarks.emulation import kernels
from tests.kit import ROOT

ARCHS = ("gfx942", "gfx950")
DECLARED = (gemm, grouped_gemm_forward, grouped_gemm_dgrad, grouped_gemm_wgrad, moe_gemm2_mxfp4)
OPERATORS = {one.name: one for one in DECLARED}


@pytest.fixture(scope="module")
def small():
    return cases.small_cases(OPERATORS, ARCHS)


def test_every_backend_that_compiles_has_small_cases_for_every_target(small):
    wanted = {
        (name, backend, arch) for name, one in OPERATORS.items() for backend in one.compilations for arch in ARCHS
    }
    assert {(one.operator, one.backend, one.arch) for one in small} == wanted
    named = [(one.operator, one.backend, one.arch, one.name) for one in small]
    assert len(set(named)) == len(named)


def test_every_set_of_knobs_of_a_launch_is_executed(small):
    for arch in ARCHS:
        launched = [gemm.backends["triton"].knobs(one, arch) for one in gemm.cases]
        executed = [one.knobs for one in small if (one.operator, one.arch) == ("gemm", arch)]
        assert all(knobs in executed for knobs in launched)


@pytest.mark.parametrize("name", ["grouped_gemm_forward", "grouped_gemm_wgrad"])
def test_each_program_of_a_grouped_product_has_two_tiles(small, name):
    for one in (one for one in small if one.operator == name and one.case.routing == "mild"):
        of = one.knobs
        rows = [-(-count // of["block_m"]) for count in routing.lens("mild", one.case.G, one.case.M)]
        by_group = one.case.G * (one.case.N // of["block_m"]) * -(-one.case.K // of["block_n"])
        tiles = by_group if name.endswith("wgrad") else sum(rows) * (one.case.N // of["block_n"])
        assert tiles >= 2 * one.units * of["groups_per_cu"]
        if name.endswith("forward"):  # the last step reads the buffer into which the next tile's first step is copied
            assert one.case.K // of["block_k"] % of["num_stages"] == 1


@pytest.fixture
def undeclared(monkeypatch):
    """An operator without small cases of its own, as a declaration before them."""
    monkeypatch.setattr(grouped_gemm_forward, "small_cases", None)
    monkeypatch.setattr(grouped_gemm_forward, "counted_dims", {})
    return {"mine": grouped_gemm_forward}


def test_an_operator_without_small_cases_is_executed_in_its_small_declared_cases(undeclared):
    found = cases.small_cases(undeclared, ["gfx942"])
    assert [(one.name, one.knobs, one.units) for one in found] == [("tiny_extreme", {}, cases.FEW_UNITS)]


def test_every_declared_case_is_counted_or_says_why_not(undeclared):
    counted, others = cases.counted_cases(undeclared, ["gfx942"])
    assert [(one.case.name, one.units) for one in counted] == [("tiny_extreme", None)]
    assert {one["declared"] for one in others} == {one.name for one in grouped_gemm_forward.cases} - {"tiny_extreme"}
    assert {one["why"].partition(":")[0] for one in others} == {
        "an emulator takes at most 50,000,000 FLOP and 4,000,000 bytes"
    }
    gathers = {"all_gather": all_gather}
    assert cases.counted_cases(gathers, ["gfx942"])[0] == []
    assert {one["why"] for one in cases.counted_cases(gathers, ["gfx942"])[1]} == {
        "an emulator takes cases of several ranks only where @all_gather.small declares them"
    }


def test_an_entry_of_a_table_is_executed(monkeypatch):
    from kernels._shared import tuning
    from kernels.gemm.config import TABLE

    winner = {"variant": "split", "block_m": 32, "block_n": 32, "block_k": 64, "split_k": 2, "xcds": 8}
    monkeypatch.setitem(tuning._tables(TABLE.file), "gfx942", {"n4096_k4096_m64": winner})
    assert winner in [one.knobs for one in cases.small_cases({"gemm": gemm}, ["gfx942"])]


@pytest.mark.parametrize(
    ("changed", "place"),
    [({(1, 2): 9.0, (2, 0): 50.0}, (1, 2)), ({(2, 3): float("nan")}, (2, 3)), ({(0, 1): 1.1}, (0, 1)), ({}, None)],
)
def test_the_first_wrong_element(changed, place):
    expected = torch.ones(3, 4)
    out = expected.clone()
    for where, value in changed.items():
        out[where] = value
    assert cases.first_wrong(out, expected, Tolerance(norm=1e-3, peak=0.5)) == place


def test_outputs_of_other_shapes_have_no_first_wrong_element():
    assert cases.first_wrong(torch.ones(3), torch.ones(4), Tolerance(norm=1e-3, peak=0.5)) is None


@pytest.fixture
def sums():
    code = kernels.code()
    buffers = [np.ones(1008, np.float32), np.ones(1008, np.float32), np.zeros(1008, np.float32)]
    return {"data": code, "arguments": [*buffers, np.int32(1008)], "grid": (2, 1, 1), "warps": 4}


def test_who_wrote_an_element(sums):
    room = 1008 * 4 + 2 * GAP & -GAP
    watch = LastWrite(FIRST_ADDRESS + 2 * room + 4 * 700, 4)
    execute(**sums, watch=watch)
    assert watch.times == 1
    assert "STORE" in watch.found.instruction.name
    assert (watch.found.workgroup, watch.found.launch) == (1, 0)
    first = 512 + 64 * 2 * watch.found.wave
    assert first <= 700 < first + 512, "a wave stores two elements a lane, or one in each half of the block"
    assert any(line.startswith("s") and "exec_lo=0xffffffff" in line for line in watch.found.registers())


def test_the_line_of_source_that_wrote_it(sums):
    watch = LastWrite(FIRST_ADDRESS + 2 * (1008 * 4 + 2 * GAP & -GAP), 4)
    execute(**sums, watch=watch)
    line = source_line(watch.found.code, watch.found.instruction.at)
    assert "kernels.py:" in line
    assert "tl.store(out + i" in line


def test_nobody_wrote_behind_the_mask(sums):
    watch = LastWrite(FIRST_ADDRESS, 4)
    execute(**sums, watch=watch)
    assert (watch.found, watch.times) == (None, 0)


def test_a_trace_has_every_instruction_of_one_wave(sums):
    trace = Trace(1, 2)
    done = execute(**sums, watch=trace)
    assert len(trace.lines) < done.total / 4
    assert trace.lines[0].lstrip().startswith("0x0 ")
    assert "s_endpgm" in trace.lines[-1]
    loads = [line for line in trace.lines if "s_load_dword" in line]
    assert loads
    assert "-> s" in loads[0], "what it wrote stands behind the instruction"


def test_other_targets_are_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match="--arch sm_90: executed are gfx942, gfx950"):
        next(emulated.verify(["gemm"], Checkout("head", ROOT), tmp_path / "checks.jsonl", ["sm_90"]))


@pytest.mark.slow
def test_what_is_right_is_kept_and_not_executed_again(tmp_path):
    out, asked = tmp_path / "checks.jsonl", (["gemm"], Checkout("head", ROOT))
    for expected in (True, False):
        told = list(emulated.verify(*asked, out, ["gfx942"], ["m1_*"]))
        assert [new for _, new in told] == [expected] * 2
        for line, new in told:
            if new:
                trial_file.append(out, line)
    [first, _] = [json.loads(line) for line in out.read_text().splitlines()]
    assert (first["emulated"], first["holds_for"]["machine"]) == ("gfx942", "emulated-gfx942")
    arm = first["arms"]["triton"]
    assert arm["status"] == "ok"
    assert arm["instructions"] == sum(arm["counts"]["classes"].values()) > 1000
    assert arm["bounds"]["memory"]["unit"] == "memory"


@pytest.mark.nightly
def test_registers_that_were_spilled_come_back(small):
    chosen = [one for one in small if one.operator == "grouped_gemm_dgrad" and one.case.N % 128 and one.knobs]
    done = []
    for one in chosen:
        large = dataclasses.replace(one, knobs={**one.knobs, "block_m": 256, "block_n": 256, "block_k": 64})
        cases.execute(grouped_gemm_dgrad, large, done.append)
    executed = [one.instructions for one in done if any(name.startswith("scratch_store") for name in one.instructions)]
    assert executed, "no case spills any more: look for another one"
    assert all(any(name.startswith("scratch_load") for name in one) for one in executed)


@pytest.mark.slow
def test_a_wrong_output_is_told_with_instruction_and_registers(monkeypatch, small):
    right = gemm.function("reference")

    def changed(case, inputs):
        expected = right(case, inputs).clone()
        expected[0, 5] += 100
        return expected

    monkeypatch.setitem(gemm._functions, "reference", changed)
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    one = next(one for one in small if one.operator == "gemm" and one.case.M == 1)
    told = r"the first wrong element is \[0, 5\]: .*; written by .*STORE.* of vector, .*, kernels/gemm/device.py:\d+: "
    with pytest.raises(cases.WrongOutput, match=told) as caught:
        cases.execute(gemm, one)
    assert caught.value.lines[0].startswith("registers")
    assert "store" in caught.value.lines[-1]


def test_the_commands_of_the_guide(tmp_path, monkeypatch, sums):
    guide = (ROOT / ".github/guides/emulation.md").read_text(encoding="utf-8")
    told = re.findall(r"^ridgeline (.+)$", guide, re.MULTILINE)
    verifying = [shlex.split(words) for words in told if words.startswith("verify")]
    assert len(verifying) == 2
    for words in verifying:
        done = CliRunner().invoke(main, [*words, "--dry-run"])
        assert done.exit_code == 0, done.output
        assert "small cases for gfx942" in done.output
    [words] = [shlex.split(words) for words in told if words.startswith("emulate softmax.hsaco")]
    code = kernels.code(kernels.softmax, "gfx942", ("*fp32", "*fp32", "i32"), (512,))
    (tmp_path / "softmax.hsaco").write_bytes(code)
    np.savez(
        tmp_path / "in.npz",
        **{"00_x": np.ones((5, 496), np.float32), "01_out": np.zeros((5, 496), np.float32), "02": 496},
    )
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert re.search(r"^ +0x\w+ +s_load_dword.* -> s", done.output, re.MULTILINE)
    wrong = CliRunner().invoke(main, [*words[:-1], "5,0"])
    assert wrong.exit_code == 3
    assert "the last are workgroup 4 and wave 3" in wrong.output
