"""What launches execute, from the result file to series, comparison, rules and text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from ci.git.repository import Commit, LocalCheckout
from ci.harness import FAULTS, MEASURED, NOTHING, USAGE, ChildExit
from ci.isa import text as check
from ci.isa.compiled import parse
from ci.isa.judge import CodeVerdict, compare
from ci.isa.rules import IsaPolicy, Rule, parse_policy
from ci.isa.text import listing, terminal
from ci.judging.types import Judgement, Verdict
from kernels.project import Layout
from tests.ci.isa.documents import document_json, entry_json

COUNTS = {
    "classes": {"mfma": 64, "load": 40, "valu": 600},
    "matrix": {"v_mfma_f32_16x16x16_f16": 64},
    "matrix_cycles": 1024,
    "bytes": {"load": 20480, "lds": 40960},
    "touched": {"load": 20480},
    "requests": {"load": 400},
    "lines": {"load": 320},
    "lds_passes": 320,
    "lds_cycles": 320,
    "conflicts": {},
    "branches": 8,
    "taken": 4,
    "divergent": 0,
    "vector": 40960,
    "idle": 0,
}


def launch(unit="memory", at="m1_n2", cases=("one",), why="", **counts):
    about = {"kernel": "gemm", "backend": "triton", "arch": "gfx942", "at": at, "cases": list(cases)}
    if why:
        return about | {"status": "failed", "why": why}
    bound = {"unit": unit, "percent": 80.0}
    return about | {"status": "ok", "counts": {**COUNTS, **counts, "coalescing": 0.8}, "bound": bound}


def tree(*launches):
    return parse(json.dumps(document_json(entry_json()) | {"executed": list(launches)}), "a result file")


def compared(base, head, policy=None):
    judgement = compare(tree(base), tree(head), policy or IsaPolicy())
    [found] = [one for one in judgement.differences if one.label.startswith("executed")]
    return judgement, found


def test_bytes_moved_count_where_memory_is_busiest():
    judgement, found = compared(launch(), launch(requests={"load": 424}))
    assert judgement.verdict is found.verdict is CodeVerdict.SLOWER
    assert found.alarms[0].rule == Rule.MEMORY_REQUESTS
    assert found.alarms[0].sentence == "bytes moved +6 % (25600 → 27136): SLOWER is expected of a memory-bound case"
    assert "of the bytes requested from memory are used: 80.0 % → 75.5 %" in {one.sentence for one in found.findings}
    assert "bytes moved +6 %" in terminal(judgement)


@pytest.mark.parametrize(
    ("unit", "changed", "verdict"),
    [
        ("memory", {"requests": {"load": 419}}, CodeVerdict.CHANGED),
        ("MFMA issue", {"requests": {"load": 800}}, CodeVerdict.CHANGED),
        ("memory", {"matrix_cycles": 2048}, CodeVerdict.CHANGED),
        ("MFMA issue", {"matrix_cycles": 1088}, CodeVerdict.SLOWER),
        ("LDS", {"lds_cycles": 640}, CodeVerdict.SLOWER),
        ("LDS", {"lds_cycles": 300, "lds_passes": 300}, CodeVerdict.CHANGED),
        ("memory", {"idle": 1}, CodeVerdict.CHANGED),
        ("memory", {}, CodeVerdict.SAME),
    ],
)
def test_only_more_work_of_the_busiest_unit_is_judged(unit, changed, verdict):
    assert compared(launch(unit), launch(unit, **changed))[1].verdict is verdict


def test_one_step_more_is_told_exactly():
    more = {"classes": {"mfma": 68, "load": 42, "valu": 600}, "matrix": {"v_mfma_f32_16x16x16_f16": 68}}
    _, found = compared(launch(), launch(**more, matrix_cycles=1088))
    assert [one.sentence for one in found.findings] == [
        "cycles of matrix units +6.25 % (1024 → 1088)",
        "instructions executed: 704 → 710 (mfma 64 → 68, load 40 → 42)",
        "MFMA executed: 64 v_mfma_f32_16x16x16_f16 → 68 v_mfma_f32_16x16x16_f16",
    ]


def test_a_person_moves_the_bound():
    policy = parse_policy({"reason": "tried", "date": "2026-11-24", "executed": 2.5})
    assert compared(launch(), launch(requests={"load": 800}), policy)[1].verdict is CodeVerdict.CHANGED


def copying(load_widths, requests=None):
    """A kernel without loops that stores 4 times 16 bytes per lane, with the counts of executing it or without."""
    plain = {"loops": 0, "loop": None, "matrix": {}, "store_widths": {"16": 4}, "load_widths": load_widths}
    entry = entry_json(code=f"c{sum(load_widths.values())}", **plain)
    executed = [launch(requests={"load": requests})] if requests else []
    return parse(json.dumps(document_json(entry) | {"executed": executed}), "a result file")


@pytest.mark.parametrize(
    ("loads", "requests", "verdict"),
    [
        ({"16": 16}, None, CodeVerdict.SLOWER),  # all is read again
        ({"4": 4, "16": 12}, None, CodeVerdict.CHANGED),  # a scalar in each lane
        ({"16": 16}, 400, CodeVerdict.CHANGED),  # it is counted, and no more bytes move
        ({"16": 16}, 800, CodeVerdict.SLOWER),
    ],
)
def test_what_is_read_again_is_judged_by_counts_or_else_by_bytes_loaded_per_byte_stored(loads, requests, verdict):
    judgement = compare(copying({"16": 12}, requests and 400), copying(loads, requests), IsaPolicy())
    assert judgement.verdict is verdict
    sentences = [finding.sentence for one in judgement.differences for finding in one.findings]
    assert any("B loaded per byte stored, +" in sentence for sentence in sentences)


def test_loads_of_loops_are_not_judged_by_how_often_they_stand_in_the_code():
    base, head = (document_json(entry_json(str(n), load_widths={"16": n}, matrix={})) for n in (12, 24))
    judgement = compare(*(parse(json.dumps(one), "a result file") for one in (base, head)), IsaPolicy())
    assert judgement.verdict is not CodeVerdict.SLOWER


def test_what_the_emulator_cannot_execute_is_said_and_never_broken():
    gap = launch(why="V_DOT9 cannot be executed") | {"status": "unsupported"}
    _, found = compared(launch(), gap)
    assert (found.verdict, found.findings[0].sentence) == (
        CodeVerdict.CANNOT_TELL,
        "not executed: V_DOT9 cannot be executed",
    )
    other = gap | {"arch": "gfx950", "cases": ["one", "two"]}
    judgement = compare(tree(gap, other), tree(gap, other), IsaPolicy())
    assert judgement.verdict is CodeVerdict.SAME
    assert judgement.warnings == ("not executed for gfx942, gfx950: gemm/triton (2 cases): V_DOT9 cannot be executed",)
    large = listing(tree(other | {"at": "", "why": "it is too large"}))
    assert "gemm/triton on gfx950 (one, two): not executed: it is too large" in large


def test_what_cannot_be_executed_any_more_is_broken():
    _, found = compared(launch(), launch(why="a jump out of the code"))
    assert found.verdict is CodeVerdict.BROKEN
    assert found.findings[0].sentence == "cannot be executed: a jump out of the code"
    assert compared(launch(why="no"), launch(why="no"))[1].verdict is CodeVerdict.CANNOT_TELL
    assert compared(launch(why="no"), launch())[1].verdict is CodeVerdict.CANNOT_TELL, "head is right beside nothing"
    assert compared(launch(why="no") | {"status": "unsupported"}, launch())[1].verdict is CodeVerdict.CANNOT_TELL
    assert compared(launch(), launch(at="m2_n2"))[1].verdict is CodeVerdict.CHANGED


def test_a_launch_that_base_does_not_declare_is_new_and_one_that_head_does_not_is_gone():
    both = launch(), launch(cases=("two",))
    found = compare(tree(both[0]), tree(*both), IsaPolicy()), compare(tree(*both), tree(both[0]), IsaPolicy())
    assert [[d.verdict for d in one.differences if d.cases == ("two",)] for one in found] == [
        [CodeVerdict.NEW],
        [CodeVerdict.GONE],
    ]


def test_the_listing_says_what_was_executed_and_what_bounds_it():
    text = listing(tree(launch(lds_cycles=330), launch(cases=("two",), why="no memory")))
    assert "gemm/triton [executed, m1_n2] on gfx942 (one): 704 instructions, 1024 matrix cycles" in text
    assert "400 requests of 64 B (80 % used), 330 LDS cycles (10 of bank conflicts)" in text
    assert "at most 80 % of the roofline by memory" in text
    assert "failed: no memory" in text


# What `check` makes of executing the changed operators in an emulator.

BASE, HEAD = (LocalCheckout(role, Path(role), Commit("0" * 40, 0, "")) for role in ("base", "head"))
PASSED = Judgement(Verdict.SAME, "equal code", machine_code=("SAME: equal",))
WRONG = "gemm m21_n88@12 triton on gfx942: wrong: the error is norm 0.1; written by BUFFER_STORE_SHORT"


@pytest.fixture
def program(monkeypatch, tmp_path):
    """How the child ends that looks at head ("exit") and at base ("base"), and head's command line ("argv")."""
    told = {"exit": ChildExit(MEASURED), "base": ChildExit(MEASURED)}

    def follow(argv, *given, **more):
        side = json.loads(argv[argv.index("--tree") + 1].partition("=")[2])
        if side["path"] == "base":
            return told["base"]
        told["argv"] = argv
        return told["exit"]

    monkeypatch.setattr(check, "follow", follow)
    monkeypatch.setattr(check.project, "place", lambda name: tmp_path / name)
    monkeypatch.setattr(check, "find_spec", lambda name: object())
    return told


def of(*kernels):
    return check.executed(PASSED, BASE, HEAD, kernels, Console(quiet=True))


def test_right_operators_leave_the_verdict_and_are_named(program):
    found = of("gemm", "rows")
    assert (found.verdict, found.why) == (Verdict.SAME, "equal code")
    assert found.machine_code[1:] == (
        "executed for gfx942 and gfx950 in an emulator: gemm, rows: every small case is right",
    )
    words = " ".join(program["argv"])
    assert "--kernel gemm --kernel rows" in words
    assert "--arch gfx942 --arch gfx950" in words


def test_a_wrong_output_is_broken_and_says_what_to_run(program):
    program["exit"] = ChildExit(FAULTS, (WRONG, "registers of the wave", "s0=0x1"))
    found = of("gemm")
    assert found.verdict is Verdict.BROKEN
    assert found.why.startswith(WRONG)
    assert "`ridgeline verify --arch gfx942 --arch gfx950 --kernel gemm`" in found.why
    assert found.machine_code[-1] == WRONG


def test_a_fault_that_base_has_too_is_told_and_is_no_pass(program):
    program["exit"] = program["base"] = ChildExit(FAULTS, (WRONG,))
    found = of("gemm")
    assert found.verdict is Verdict.CANNOT_TELL
    assert found.why.startswith(f"not right in base either: {WRONG}")
    assert found.warnings == (f"not right in base either: {WRONG}",)
    on_950 = WRONG.replace("gfx942", "gfx950")
    program["exit"] = ChildExit(FAULTS, (WRONG, on_950))
    assert of("gemm").why.startswith(on_950)


def test_a_fault_that_base_has_under_an_older_name_is_not_head_s(program, monkeypatch):
    monkeypatch.setattr(check.project, "layout", lambda path: Layout((), renamed={"old": "gemm"}))
    program["exit"] = ChildExit(FAULTS, (WRONG,))
    program["base"] = ChildExit(FAULTS, (WRONG.replace("gemm", "old"),))
    assert of("gemm").verdict is Verdict.CANNOT_TELL


def test_what_check_cannot_execute_is_said_and_leaves_the_verdict(program):
    left = "not executed: gemm m1 triton on gfx942: V_DOT9 cannot be executed"
    program["exit"] = ChildExit(MEASURED, (left,))
    found = of("gemm")
    assert found.verdict is Verdict.SAME
    assert found.machine_code[1:] == (
        "executed for gfx942 and gfx950 in an emulator: gemm: what was executed is right",
        left,
    )
    program["exit"] = ChildExit(NOTHING, (left,))
    assert of("gemm").machine_code[1:] == (left,)


@pytest.mark.parametrize(
    ("exit", "warned"),
    [(ChildExit(NOTHING), ()), (ChildExit(USAGE, ("error: no room",)), ("no room",)), (ChildExit(FAULTS), ("broken",))],
)
def test_what_was_not_executed_leaves_the_verdict(program, exit, warned):
    program["exit"] = exit
    found = of("gemm")
    assert found.verdict is Verdict.SAME
    assert len(found.warnings) == len(warned)
    assert all(word in said for word, said in zip(warned, found.warnings, strict=True))


def test_without_the_extra_one_sentence_says_how(program, monkeypatch):
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    assert of("gemm").machine_code[-1].endswith("`pip install 'ridgeline[emulate]'` makes it so")
    assert "argv" not in program
