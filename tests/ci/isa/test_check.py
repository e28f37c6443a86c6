"""What the code alone makes of the verdict on a pull request."""

from __future__ import annotations

import pytest

from ci.isa.check import joined
from ci.isa.judge import CodeVerdict, Difference, IsaJudgement
from ci.isa.rules import CodeFinding
from ci.judging.types import Judgement, Verdict

FINDING = CodeFinding("store_width", "stores to remote ranks went from 16 B to 2 B per lane", judged=True)


def code(verdict: CodeVerdict, finding: CodeFinding = FINDING) -> IsaJudgement:
    difference = Difference("all_gather", "triton", "push", "gfx942", ("w2_fp16_2MB",), verdict, (finding,))
    return IsaJudgement(verdict, "1 configuration is expected to be slower", (difference,))


def test_a_regression_of_the_code_is_the_verdict_and_is_a_warning() -> None:
    found = joined(Judgement(Verdict.SAME, "5 cases compared: 5 SAME"), code(CodeVerdict.SLOWER))
    assert found.verdict is Verdict.SLOWER
    assert any("16 B to 2 B" in warning and "gfx942" in warning for warning in found.warnings)
    assert "5 SAME" in found.why


@pytest.mark.parametrize("verdict", [CodeVerdict.SAME, CodeVerdict.CHANGED, CodeVerdict.NEW, CodeVerdict.CANNOT_TELL])
def test_other_code_leaves_the_verdict_to_the_clock(verdict: CodeVerdict) -> None:
    timed = Judgement(Verdict.FASTER, "faster")
    assert joined(timed, code(verdict)).verdict is Verdict.FASTER


def test_broken_stays_broken() -> None:
    assert joined(Judgement(Verdict.BROKEN, "wrong"), code(CodeVerdict.SLOWER)).verdict is Verdict.BROKEN
