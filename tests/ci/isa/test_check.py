"""What the code alone makes of the verdict on a pull request."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from ci.isa.check import decided, joined
from ci.isa.judge import CodeVerdict, Difference, IsaJudgement, compare
from ci.isa.rules import CodeFinding, IsaPolicy
from ci.judging.types import CaseVerdict, Judgement, Verdict, to_json
from ci.report import markdown, terminal
from ci.report.json_report import dumps, loads
from ci.report.model import Report
from tests.ci import made_trials
from tests.ci.isa.documents import METRICS, document, entry

FINDING = CodeFinding("store_width", "stores to remote ranks went from 16 B to 2 B per lane", judged=True)


def code(verdict: CodeVerdict, finding: CodeFinding = FINDING) -> IsaJudgement:
    difference = Difference("all_gather", "triton", "push", "gfx942", ("w2_fp16_2MB",), verdict, (finding,))
    return IsaJudgement(verdict, "1 configuration is expected to be slower", (difference,))


def test_a_regression_of_the_code_is_the_verdict_and_is_told() -> None:
    found = joined(Judgement(Verdict.SAME, "5 cases compared: 5 SAME"), code(CodeVerdict.SLOWER))
    assert found.verdict is Verdict.SLOWER
    assert found.machine_code[0].startswith("SLOWER expected: ")
    assert "all_gather/triton [push] on gfx942 (w2_fp16_2MB): SLOWER: stores" in found.machine_code[1]
    assert "5 SAME" in found.why


@pytest.mark.parametrize("verdict", [CodeVerdict.SAME, CodeVerdict.CHANGED, CodeVerdict.NEW, CodeVerdict.CANNOT_TELL])
@pytest.mark.parametrize("timed", [Verdict.FASTER, Verdict.SAME])
def test_other_code_leaves_the_verdict_to_the_clock(verdict: CodeVerdict, timed: Verdict) -> None:
    assert joined(Judgement(timed, "by the clock"), code(verdict)).verdict is timed


def test_code_that_no_rule_judges_is_in_report_and_comment_with_classes_registers_and_bytes() -> None:
    twice = {"code_bytes": 2232, "instructions": 1064, "vgpr": 90, "mix": METRICS["mix"] | {"valu": 756}}
    isa = compare(document(entry("rms", "a", code_bytes=1160)), document(entry("rms", "b", **twice)), IsaPolicy())
    found = joined(Judgement(Verdict.SAME, "8 cases compared: 8 SAME"), isa)
    assert (found.verdict, isa.exit_code) == (Verdict.SAME, 2)
    for told in (terminal.render(Report(found), width=400), markdown.render(loads(dumps(Report(found)).encode()))):
        assert "1 of 1 configuration has other code that no rule calls worse: rms" in told
        assert "instructions: 532 → 1064 (valu 224 → 756); VGPRs: 86 → 90; code bytes: 1160 → 2232" in told
    assert to_json(found)["machine_code"] == list(found.machine_code)


def test_broken_stays_broken() -> None:
    assert joined(Judgement(Verdict.BROKEN, "wrong"), code(CodeVerdict.SLOWER)).verdict is Verdict.BROKEN


# ---- without a GPU ---------------------------------------------------------------------------------------------------


def compiled(verdict: CodeVerdict, kernel: str = "all_gather") -> IsaJudgement:
    """One configuration with code on both sides."""
    side: Any = SimpleNamespace(code=object())
    (difference,) = code(verdict).differences
    return IsaJudgement(verdict, "It says so.", (dataclasses.replace(difference, kernel=kernel, base=side, head=side),))


def timed(*verdicts: Verdict) -> Judgement:
    """Times of a CPU backend of all_gather."""
    cases = (
        CaseVerdict(f"all_gather/torch/{n}", "all_gather", "torch", v, 1.1, trials=3) for n, v in enumerate(verdicts)
    )
    return Judgement(Verdict.worst(verdicts), "by the clock", tuple(cases))


def ran(status: str = "ok") -> list[Any]:
    """A trial in which two arms of head were right, and one is `status`."""
    arms = {f"{role}/{name}": made_trials.ok() for role in ("base", "head") for name in ("torch", "gluon")}
    arms["head/triton"] = {"status": status, "why": "GPUs are needed"} if status != "ok" else made_trials.ok()
    declared = made_trials.declaration("all_gather", cases=["w2"], backends=["torch", "gluon", "triton", "blas"])
    commits = {"base": made_trials.BASE, "head": made_trials.HEAD}
    sides = {role: made_trials.tree(commit, declared=declared) for role, commit in commits.items()}
    return [made_trials.parsed(made_trials.trial({"w2": arms}, kernel="all_gather", trees=sides))]


@pytest.mark.parametrize(
    ("verdict", "clock", "expected"),
    [
        (CodeVerdict.SAME, Verdict.CANNOT_TELL, Verdict.SAME),
        (CodeVerdict.SAME, Verdict.FASTER, Verdict.SAME),
        (CodeVerdict.SAME, Verdict.SLOWER, Verdict.SLOWER),
        (CodeVerdict.SAME, Verdict.BROKEN, Verdict.BROKEN),
        (CodeVerdict.CHANGED, Verdict.SAME, Verdict.CANNOT_TELL),
        (CodeVerdict.SLOWER, Verdict.SAME, Verdict.SLOWER),
        (CodeVerdict.BROKEN, Verdict.SAME, Verdict.BROKEN),
    ],
)
def test_without_a_gpu_the_code_decides_and_the_clock_only_where_it_is_certain(verdict, clock, expected) -> None:
    found = decided(timed(Verdict.SAME, clock), compiled(verdict), ran())
    assert found.verdict is expected
    same = int(verdict is CodeVerdict.SAME)
    assert f"machine code of gfx942, gfx950, sm_90 equal in {same} of 1 configurations; 3 cases right" in found.why


def test_an_operator_without_code_for_gpus_is_judged_by_the_clock() -> None:
    found = decided(timed(Verdict.SAME, Verdict.CANNOT_TELL), compiled(CodeVerdict.SAME, "gemm"), ran())
    assert found.verdict is Verdict.CANNOT_TELL
    nothing_compiled = IsaJudgement(CodeVerdict.CANNOT_TELL, "Nothing could be compared.", ())
    assert decided(timed(Verdict.SAME), nothing_compiled, ran()).verdict is Verdict.SAME


def test_a_machine_without_a_compiler_says_so_and_passes_nothing_that_needs_a_gpu() -> None:
    without = IsaJudgement(CodeVerdict.CANNOT_TELL, "Nothing could be compared.", (), ("no triton here",))
    found = decided(timed(Verdict.SAME), without, ran("unsupported"))
    assert found.verdict is Verdict.CANNOT_TELL
    assert "machine code was not compared: no triton here" in found.why
    assert decided(timed(Verdict.SAME), without, ran()).verdict is Verdict.SAME, "all backends run here"


def test_what_nobody_looked_at_is_named() -> None:
    found = decided(timed(Verdict.SAME), compiled(CodeVerdict.SAME, "gemm"), ran("unsupported"))
    assert "not looked at, for want of a GPU and of declared code: all_gather/triton" in found.why


def test_a_case_that_fails_on_both_sides_is_not_right() -> None:
    failed = CaseVerdict("all_gather/torch/w2", "all_gather", "torch", Verdict.CANNOT_TELL)
    found = decided(Judgement(Verdict.CANNOT_TELL, "both sides fail", (failed,)), compiled(CodeVerdict.SAME), ran())
    assert found.verdict is Verdict.CANNOT_TELL


def test_equal_files_are_the_reason_where_there_are_no_others() -> None:
    found = decided(timed(Verdict.SAME), None, ran("unsupported"))
    assert found.verdict is Verdict.SAME
    assert found.why.startswith("the same kernel files on both sides; 2 cases right")
