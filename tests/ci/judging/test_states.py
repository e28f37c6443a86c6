"""The table of states: a test of every cell, and the table in ARCHITECTURE is the one that decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.trial_file import FAILED, Status
from ci.isa.judge import CodeVerdict, compare
from ci.isa.rules import IsaPolicy
from ci.judging.judge import judge
from ci.judging.policy import Policy
from ci.judging.types import Open, Verdict, verdict_of_states
from ci.trials.comparisons import Comparison, undeclared
from tests.ci import made_trials
from tests.ci.isa.documents import document, entry

TELL, BROKEN, NEW, GONE, NOTHING = Verdict.CANNOT_TELL, Verdict.BROKEN, Verdict.NEW, Verdict.GONE, Open.NOTHING
CELLS = {
    # base: head does not import, declares nothing, unsupported, not tried, fails, wrong, right and untimed, timed
    Status.UNIMPORTED: (TELL, TELL, TELL, TELL, TELL, TELL, TELL, TELL),
    Status.MISSING: (BROKEN, NOTHING, NOTHING, NOTHING, BROKEN, BROKEN, NEW, NEW),
    Status.UNSUPPORTED: (BROKEN, GONE, NOTHING, NOTHING, BROKEN, BROKEN, TELL, TELL),
    Status.SKIPPED: (BROKEN, GONE, NOTHING, NOTHING, BROKEN, BROKEN, TELL, TELL),
    Status.ERROR: (TELL, GONE, TELL, TELL, TELL, TELL, TELL, TELL),
    Status.WRONG: (TELL, GONE, TELL, TELL, TELL, TELL, TELL, TELL),
    Status.UNTIMED: (BROKEN, GONE, BROKEN, TELL, BROKEN, BROKEN, Open.CODE, TELL),
    Status.OK: (BROKEN, GONE, BROKEN, TELL, BROKEN, BROKEN, TELL, Open.TIMES),
}
STATES = {
    Status.UNIMPORTED: "does not import",
    Status.MISSING: "imports, does not declare it",
    Status.UNSUPPORTED: "declares it, not supported here",
    Status.SKIPPED: "declares it, not tried",
    Status.ERROR: "does not compile, raises, crashes or hangs",
    Status.WRONG: "executes, is wrong",
    Status.UNTIMED: "is right, not timed",
    Status.OK: "is right, timed",
}
EVERY_CELL = [(base, head, cell) for base, row in CELLS.items() for head, cell in zip(STATES, row, strict=True)]


@pytest.mark.parametrize(("base", "head", "cell"), EVERY_CELL)
def test_a_cell(base, head, cell):
    assert verdict_of_states(base, head) is cell
    for other in FAILED:  # a crash, a hang and an error are decided alike
        if base is Status.ERROR:
            assert verdict_of_states(other, head) is cell
        if head is Status.ERROR:
            assert verdict_of_states(base, other) is cell


@pytest.mark.parametrize(("base", "head", "cell"), [one for one in EVERY_CELL if one[2] is not NOTHING])
def test_the_judge_says_what_the_table_says_and_the_exit_code_follows(base, head, cell):
    sides = {"base_why": "why of base", "head_why": "why of head"}
    judgement = judge([Comparison("k/b/c", "k", "b", base_status=base, head_status=head, **sides)], Policy())
    expected = cell if isinstance(cell, Verdict) else Verdict.CANNOT_TELL  # without times, and without known code
    assert [case.verdict for case in judgement.cases] == [expected]
    assert judgement.verdict.exit_code == {BROKEN: 1, NEW: 0}.get(expected, 2)


COMPILED = {
    "": Status.MISSING,
    "unsupported": Status.UNSUPPORTED,
    "failed": Status.ERROR,
    "refused": Status.ERROR,
    "ok": Status.OK,
}


@pytest.mark.parametrize("base", COMPILED)
@pytest.mark.parametrize("head", COMPILED)
def test_compiled_code_goes_by_the_same_cells(base, head):
    sides = (document(*([entry(status=one)] if one else [])) for one in (base, head))
    cell = verdict_of_states(COMPILED[base], COMPILED[head])
    judgement = compare(*sides, IsaPolicy())
    expected = [CodeVerdict.SAME if cell is Open.TIMES else CodeVerdict(cell)] if cell is not NOTHING else []
    assert [one.verdict for one in judgement.differences] == expected
    passes = (base, head) == ("ok", "ok") or cell is NEW
    assert (judgement.exit_code == 0) == passes


def test_a_failure_of_both_sides_is_told_once():
    sides = {"base_status": Status.ERROR, "head_status": Status.ERROR, "base_why": "no GPU", "head_why": "no GPU"}
    [case] = judge([Comparison("k/b/c", "k", "b", **sides)], Policy()).cases
    assert case.evidence == ("both sides fail: each raises an error (no GPU)",)


def test_nothing_passes_but_what_is_new_or_judged_by_times_or_code():
    passing = {cell for _, _, cell in EVERY_CELL if isinstance(cell, Verdict) and cell.exit_code == 0}
    assert passing == {Verdict.NEW}
    assert [base for base, _, cell in EVERY_CELL if cell is NEW] == [Status.MISSING, Status.MISSING]


def test_the_documented_table_is_this_one():
    text = (Path(__file__).parents[3] / ".github" / "ARCHITECTURE.md").read_text()
    rows = [
        f"| **{name}** | " + " | ".join(verdict_of_states(base, head) for head in STATES) + " |"
        for base, name in STATES.items()
    ]
    assert "\n".join(rows) in text


@pytest.mark.parametrize("old", ["k/c", "k", "k/b"])
def test_what_is_gone_passes_where_the_settings_say_so(old):
    gone = Comparison("k/b/c", "k", "b", head_status=Status.MISSING)
    judgement = judge([gone], Policy())
    assert (judgement.cases[0].verdict, judgement.verdict.exit_code) == (Verdict.GONE, 2)
    assert 'renamed = {"k/c" = "k/NEW NAME"}' in judgement.cases[0].evidence[0]
    judgement = judge([gone], Policy(renamed={old: ""}))
    assert (judgement.cases[0].verdict, judgement.verdict.exit_code) == (Verdict.GONE, 0)
    assert "as the settings say" in judgement.cases[0].evidence[0]


def test_a_case_that_moved_to_another_kernel_is_no_pass():
    gone = Comparison("k/b/c", "k", "b", head_status=Status.MISSING)
    new = Comparison("k2/b/c", "k2", "b", base_status=Status.MISSING)
    judgement = judge([gone, new], Policy(renamed={"k/c": "k2/c"}))
    assert (judgement.cases[0].verdict, judgement.cases[1].verdict) == (Verdict.GONE, Verdict.NEW)
    assert "it is k2/b/c now, and these trials have no time of it by that name" in judgement.cases[0].evidence[0]
    assert judgement.verdict.exit_code == 2


def test_a_case_of_a_tier_that_was_not_measured_is_gone_too():
    both = {"triton": (made_trials.ok(), made_trials.ok())}
    line = made_trials.paired({"m16": both})
    line["trees"]["base"]["declaration"] = made_trials.declaration(cases=("m16", "m64", "night"))
    line["trees"]["head"]["declaration"] = made_trials.declaration(cases=("m16", "m64"))
    gone = undeclared([made_trials.parsed(line)])
    assert [one.case for one in gone] == ["gemm/triton/night"], "m64 is there, and was not asked for"
    judgement = judge(gone, Policy())
    assert (judgement.cases[0].verdict, judgement.verdict.exit_code) == (Verdict.GONE, 2)
    del line["cases"]["m16"]["arms"]["head/triton"]
    line["trees"]["head"] |= {
        "declaration": None,
        "broken": [{"module": "k", "reason": "SyntaxError", "declares": None}],
    }
    assert undeclared([made_trials.parsed(line)]) == [], "what head declares is not known"


def test_a_changed_definition_is_named_with_both_values():
    digests = {"base_definition": "a", "head_definition": "b"}
    changes = ("tolerance norm 1e-06, peak 0.0001 → norm 1e-05, peak 0.001",)
    [case] = judge([Comparison("k/b/c", "k", "b", definition_changes=changes, **digests)], Policy()).cases
    assert case.verdict is Verdict.NOT_COMPARABLE
    assert changes[0] in case.evidence[0]
