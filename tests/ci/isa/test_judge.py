"""Which configurations are compared, and what verdict a comparison gets."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import pytest

from ci.isa.compiled import IsaError, read
from ci.isa.judge import CodeVerdict, Difference, IsaJudgement, as_json, compare, pairs
from ci.isa.rules import CodeFinding, IsaPolicy
from ci.isa.text import decided, declaring_code, joined
from ci.judging.types import CaseVerdict, Judgement, Verdict, to_json
from ci.report import markdown, terminal
from ci.report.json_report import dumps, loads
from ci.report.model import Report
from tests.ci import made_trials
from tests.ci.isa.documents import METRICS, document, entry


def verdicts(base, head, policy=None):
    judgement = compare(document(*base), document(*head), policy or IsaPolicy())
    return judgement, [d.verdict for d in judgement.differences]


def test_equal_code_is_the_same_whatever_the_metrics_say():
    judgement, each = verdicts([entry(code="a", vgpr=1)], [entry(code="a", vgpr=2)])
    assert each == [CodeVerdict.SAME]
    assert (judgement.verdict, judgement.exit_code) == (CodeVerdict.SAME, 0)
    assert judgement.why == "1 of 1 configuration has the same code on both sides, none has other code."


def test_a_change_that_no_rule_judges_is_shown_and_is_no_verdict():
    judgement, each = verdicts([entry(code="a")], [entry(code="b", code_bytes=3600)])
    assert each == [CodeVerdict.CHANGED]
    assert judgement.exit_code == 2
    assert [f.sentence for f in judgement.differences[0].findings] == ["code bytes: 3400 → 3600"]


def test_only_new_code_passes_as_new_and_not_where_other_code_is_gone():
    judgement, _ = verdicts([], [entry(code="a")])
    assert (judgement.verdict, judgement.exit_code) == (CodeVerdict.NEW, 0)
    assert judgement.why == "1 of 1 configuration is new: gemm."
    assert verdicts([entry("old")], [entry(code="a")])[0].exit_code == 2
    assert verdicts([], [entry(code="a"), entry("other", status="failed")])[0].exit_code == 1


def test_a_judged_finding_is_a_regression():
    judgement, each = verdicts([entry(code="a")], [entry(code="b", vgpr_spills=65, scratch_bytes=260)])
    assert each == [CodeVerdict.SLOWER]
    assert judgement.exit_code == 1
    assert judgement.why == "1 of 1 configuration is expected to be slower, by what the compiler emits: gemm."


def test_a_kernel_that_no_longer_compiles_is_broken():
    judgement, each = verdicts([entry()], [entry(status="failed", why="LLVM died")])
    assert each == [CodeVerdict.BROKEN]
    assert judgement.exit_code == 1
    assert judgement.differences[0].alarms[0].sentence == "does not compile: LLVM died"


def test_a_module_that_no_longer_imports_is_broken_although_its_kernels_only_seem_gone():
    broken = {"kernels.gemm": "ModuleNotFoundError: no iris"}
    base, head = document(entry("gemm"), entry("gather")), document(entry("gather"), broken=broken)
    judgement = compare(base, head, IsaPolicy())
    assert (judgement.verdict, judgement.exit_code) == (CodeVerdict.BROKEN, 1)
    assert [d.verdict for d in judgement.differences] == [CodeVerdict.BROKEN, CodeVerdict.SAME], "nobody took it away"
    assert judgement.why.startswith("Modules with kernels can no longer be imported: kernels.gemm. 1 of 2")
    assert compare(dataclasses.replace(base, broken=head.broken), head, IsaPolicy()).verdict is CodeVerdict.SAME, (
        "it was broken before"
    )
    both = compare(base, document(entry("gather", status="failed"), broken=broken), IsaPolicy())
    assert both.why.endswith("2 of 2 configurations no longer compile: gather, gemm.")


def test_what_a_base_that_does_not_import_declares_is_not_known():
    base = document(broken={"perf.norm": "ModuleNotFoundError"})
    judgement = compare(base, document(entry()), IsaPolicy())
    assert [d.verdict for d in judgement.differences] == [CodeVerdict.CANNOT_TELL]
    assert judgement.exit_code == 2


def test_a_failed_listing_of_head_leaves_no_verdict():
    head = document(entry(), failures={"gfx950": "it died"})
    judgement = compare(document(entry()), head, IsaPolicy())
    assert judgement.exit_code == 2
    assert "head: it died" in judgement.warnings


def test_the_worst_comes_first():
    judgement, each = verdicts(
        [entry("a"), entry("b"), entry("c"), entry("d")],
        [entry("a"), entry("b", "x", code_bytes=1), entry("c", "x", vgpr_spills=1), entry("d", status="failed")],
    )
    assert each == [CodeVerdict.BROKEN, CodeVerdict.SLOWER, CodeVerdict.CHANGED, CodeVerdict.SAME]
    assert judgement.verdict is CodeVerdict.BROKEN


def test_cases_are_matched_even_if_they_merge_differently():
    base = document(entry(code="a", cases=["one", "two"]))
    head = document(entry(code="a", cases=["one"]), entry(code="b", cases=["two"]))
    found = [(one.code.hash, two.code.hash, cases) for (one, two), cases in pairs(base.entries, head.entries)]
    assert found == [("a", "a", ("one",)), ("a", "b", ("two",))]


def test_a_label_that_names_the_changed_tile_is_still_the_same_configuration():
    base = document(entry(code="a", label="128x128"), entry(code="c", label="reduce"))
    head = document(entry(code="c", label="reduce"), entry(code="b", label="256x256"))
    assert [(one.label, two.label) for (one, two), _ in pairs(base.entries, head.entries)] == [
        ("reduce", "reduce"),
        ("128x128", "256x256"),
    ]


def test_warnings_name_broken_modules_notes_and_another_compiler():
    base = document(entry(), triton="3.7.1", broken={"kernels.x": "ImportError: y"})
    head = document(entry(notes=["kpack is 1 there"]))
    assert compare(base, head, IsaPolicy()).warnings == (
        "base was compiled with Triton 3.7.1, head with 3.8.0",
        "base: module kernels.x cannot be imported: ImportError: y",
        "head: gemm/triton on gfx942: kpack is 1 there",
    )


def test_json_has_every_configuration_and_finding():
    judgement, _ = verdicts([entry(code="a")], [entry(code="b", vgpr_spills=1)])
    told = json.loads(json.dumps(as_json(judgement)))
    assert told["verdict"] == "SLOWER"
    assert told["configurations"][0]["findings"][0]["judged"] is True
    assert (told["configurations"][0]["base_hash"], told["configurations"][0]["head_hash"]) == ("a", "b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not written by"),
        ('{"format": "ridgeline-isa", "version": 2}', "has version 2"),
        ('{"format": "other"}', "is not written by"),
    ],
)
def test_files_that_are_not_results_are_refused(tmp_path, text, said):
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(IsaError, match=said):
        read(tmp_path / "f.json")
    with pytest.raises(IsaError, match="cannot be read"):
        read(tmp_path / "none.json")


# What the code alone makes of the verdict on a pull request.


FINDING = CodeFinding("store_width", "stores to remote ranks went from 16 B to 2 B per lane", judged=True)


def code(verdict, finding=FINDING):
    difference = Difference("all_gather", "triton", "push", "gfx942", ("w2_fp16_2MB",), verdict, (finding,))
    return IsaJudgement(verdict, "1 configuration is expected to be slower", (difference,))


def test_a_regression_of_the_code_is_the_verdict_and_is_told():
    found = joined(Judgement(Verdict.SAME, "5 cases compared: 5 SAME"), code(CodeVerdict.SLOWER))
    assert found.verdict is Verdict.SLOWER
    assert found.machine_code[0].startswith("SLOWER expected: ")
    assert "all_gather/triton [push] on gfx942 (w2_fp16_2MB): SLOWER: stores" in found.machine_code[1]
    assert "5 SAME" in found.why


@pytest.mark.parametrize("verdict", [CodeVerdict.SAME, CodeVerdict.CHANGED, CodeVerdict.NEW, CodeVerdict.CANNOT_TELL])
@pytest.mark.parametrize("timed", [Verdict.FASTER, Verdict.SAME])
def test_other_code_leaves_the_verdict_to_the_clock(verdict, timed):
    assert joined(Judgement(timed, "by the clock"), code(verdict)).verdict is timed


def test_code_that_no_rule_judges_is_in_report_and_comment_with_classes_registers_and_bytes():
    twice = {"code_bytes": 2232, "instructions": 1064, "vgpr": 90, "mix": METRICS["mix"] | {"valu": 756}}
    isa = compare(document(entry("rms", "a", code_bytes=1160)), document(entry("rms", "b", **twice)), IsaPolicy())
    found = joined(Judgement(Verdict.SAME, "8 cases compared: 8 SAME"), isa)
    assert (found.verdict, isa.exit_code) == (Verdict.SAME, 2)
    for told in (terminal.render(Report(found), width=400), markdown.render(loads(dumps(Report(found)).encode()))):
        assert "1 of 1 configuration has other code that no rule calls worse: rms" in told
        assert "instructions: 532 → 1064 (valu 224 → 756); VGPRs: 86 → 90; code bytes: 1160 → 2232" in told
    assert to_json(found)["machine_code"] == found.machine_code


# ---- without a GPU ---------------------------------------------------------------------------------------------------


def made(verdict, kernel="all_gather"):
    """One configuration with code on both sides."""
    side = SimpleNamespace(code=object())
    (difference,) = code(verdict).differences
    return IsaJudgement(verdict, "It says so.", (dataclasses.replace(difference, kernel=kernel, base=side, head=side),))


def timed(*verdicts):
    """Times of a CPU backend of all_gather."""
    cases = (
        CaseVerdict(f"all_gather/torch/{n}", "all_gather", "torch", v, 1.1, trials=3) for n, v in enumerate(verdicts)
    )
    return Judgement(Verdict.worst(verdicts), "by the clock", tuple(cases))


def ran(status="ok"):
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
        (CodeVerdict.SAME, Verdict.CANNOT_TELL, Verdict.CANNOT_TELL),
        (CodeVerdict.SAME, Verdict.FASTER, Verdict.FASTER),
        (CodeVerdict.SAME, Verdict.SLOWER, Verdict.SLOWER),
        (CodeVerdict.SAME, Verdict.BROKEN, Verdict.BROKEN),
        (CodeVerdict.CHANGED, Verdict.SAME, Verdict.CANNOT_TELL),
        (CodeVerdict.SLOWER, Verdict.SAME, Verdict.SLOWER),
        (CodeVerdict.BROKEN, Verdict.SAME, Verdict.BROKEN),
    ],
)
def test_without_a_gpu_the_worst_of_the_clock_and_the_code_decides(verdict, clock, expected):
    found = decided(timed(Verdict.SAME, clock), made(verdict), ran())
    assert found.verdict is expected
    same = int(verdict is CodeVerdict.SAME)
    assert f"machine code of gfx942, gfx950, sm_90 equal in {same} of 1 configurations" in found.why
    assert "3 cases right" in found.why


def test_an_operator_without_code_for_gpus_is_judged_by_the_clock():
    found = decided(timed(Verdict.SAME, Verdict.CANNOT_TELL), made(CodeVerdict.SAME, "gemm"), ran())
    assert found.verdict is Verdict.CANNOT_TELL
    nothing_compiled = IsaJudgement(CodeVerdict.CANNOT_TELL, "Nothing could be compared.", ())
    assert decided(timed(Verdict.SAME), nothing_compiled, ran()).verdict is Verdict.SAME


def test_what_is_executed_is_all_that_head_declares_code_of():
    head = document(entry("same"), entry("new"), entry("tuned", status="refused"))
    found = compare(document(entry("same"), entry("gone")), head, IsaPolicy())
    assert declaring_code(found) == {"same", "new", "tuned"}


def test_code_of_base_that_is_gone_is_no_pass_beside_equal_code():
    found = compare(document(entry("gemm"), entry("gemm", label="b")), document(entry("gemm")), IsaPolicy())
    assert found.verdict is CodeVerdict.SAME
    judgement = decided(timed(Verdict.SAME), found, ran())
    assert (judgement.verdict, "1 of base gone" in judgement.why) == (Verdict.CANNOT_TELL, True)


def test_a_machine_without_a_compiler_says_so_and_passes_nothing_that_needs_a_gpu():
    without = IsaJudgement(CodeVerdict.CANNOT_TELL, "Nothing could be compared.", (), ("no triton here",))
    found = decided(timed(Verdict.SAME), without, ran("unsupported"))
    assert found.verdict is Verdict.CANNOT_TELL
    assert "machine code was not compared: no triton here" in found.why
    assert decided(timed(Verdict.SAME), without, ran()).verdict is Verdict.SAME, "all backends run here"


def test_what_nobody_looked_at_is_named():
    found = decided(timed(Verdict.SAME), made(CodeVerdict.SAME, "gemm"), ran("unsupported"))
    assert "not looked at, for want of a GPU and of declared code: all_gather/triton" in found.why
    assert found.verdict is Verdict.CANNOT_TELL


def test_equal_files_leave_nothing_to_compile():
    found = decided(timed(Verdict.SAME), None, ran("unsupported"))
    assert (found.verdict, found.why) == (Verdict.SAME, "by the clock; 2 cases right")


def test_code_that_head_gave_another_name_is_compared_and_what_it_deleted_is_not_missed():
    base = document(entry("old", cases=("one", "two")), entry("dead"))
    head = document(entry("new", cases=("one",)), entry("new", cases=("second",)))
    assert compare(base, head, IsaPolicy()).exit_code == 2
    renamed = {"old": "new", "new/two": "new/second", "dead": ""}
    judgement = compare(base, head, IsaPolicy(), renamed)
    assert (judgement.verdict, judgement.exit_code) == (CodeVerdict.SAME, 0)
    head = document(entry("new", code="b", cases=("one", "second"), vgpr_spills=65, scratch_bytes=260))
    assert compare(base, head, IsaPolicy(), renamed).verdict is CodeVerdict.SLOWER
