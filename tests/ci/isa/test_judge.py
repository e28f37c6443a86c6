"""Which configurations are compared, and what verdict a comparison gets."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ci.isa.compiled import IsaError, read
from ci.isa.judge import CodeVerdict, as_json, compare, pairs
from ci.isa.rules import IsaPolicy
from tests.ci.isa.documents import document, entry


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
    assert verdicts([], [entry(code="a"), entry("other", status="failed")])[0].exit_code == 2


def test_code_that_changes_without_any_metric_says_so():
    judgement, _ = verdicts([entry(code="a")], [entry(code="b")])
    assert judgement.differences[0].findings[0].sentence == "the instructions differ, every metric is the same"


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
    assert (
        judgement.why == "Modules with kernels can no longer be imported: kernels.gemm (ModuleNotFoundError: no iris)."
    )
    assert compare(dataclasses.replace(base, broken=head.broken), head, IsaPolicy()).verdict is CodeVerdict.SAME, (
        "it was broken before"
    )
    both = compare(base, document(entry("gather", status="failed"), broken=broken), IsaPolicy())
    assert both.why.endswith("1 of 2 configurations no longer compiles: gather.")


def test_a_kernel_that_never_compiled_is_no_regression():
    judgement, each = verdicts([entry("a", status="failed"), entry("b")], [entry("a", status="failed"), entry("b")])
    assert sorted(each) == [CodeVerdict.CANNOT_TELL, CodeVerdict.SAME]
    assert (judgement.verdict, judgement.exit_code) == (CodeVerdict.SAME, 0)


def test_a_new_kernel_that_does_not_compile_leaves_no_verdict():
    judgement, _ = verdicts([entry("b")], [entry("a", status="failed"), entry("b")])
    assert (judgement.verdict, judgement.exit_code) == (CodeVerdict.CANNOT_TELL, 2)


def test_new_gone_and_unsupported_are_told_and_pass():
    judgement, _ = verdicts(
        [entry("old"), entry("same"), entry("dropped")],
        [entry("new"), entry("same"), entry("dropped", status="unsupported")],
    )
    assert {d.kernel: d.verdict for d in judgement.differences} == {
        "old": CodeVerdict.GONE,
        "new": CodeVerdict.NEW,
        "same": CodeVerdict.SAME,
        "dropped": CodeVerdict.GONE,
    }
    assert judgement.exit_code == 0


def test_a_kernel_that_compiles_at_last_is_new():
    _, each = verdicts([entry(status="failed")], [entry()])
    assert each == [CodeVerdict.NEW]


def test_nothing_compared_is_no_verdict():
    assert verdicts([], [])[0].exit_code == 2
    assert verdicts([entry("a")], [entry("b")])[0].exit_code == 2


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
    found = [(one.code.hash, two.code.hash, cases) for (one, two), cases in pairs(base, head)]
    assert found == [("a", "a", ("one",)), ("a", "b", ("two",))]


def test_a_label_that_names_the_changed_tile_is_still_the_same_configuration():
    base = document(entry(code="a", label="128x128"), entry(code="c", label="reduce"))
    head = document(entry(code="c", label="reduce"), entry(code="b", label="256x256"))
    assert [(one.label, two.label) for (one, two), _ in pairs(base, head)] == [
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
