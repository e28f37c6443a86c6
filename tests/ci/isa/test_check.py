"""What the code alone makes of the verdict on a pull request."""

from __future__ import annotations

import pytest

from ci.isa.check import joined
from ci.isa.judge import Difference, IsaJudgement
from ci.isa.judge import Verdict as IsaVerdict
from ci.isa.rules import Finding
from ci.judging.types import Judgement, Verdict

FINDING = Finding("store_width", "stores to remote ranks went from 16 B to 2 B a lane", judged=True)


def code(verdict: IsaVerdict, finding: Finding = FINDING) -> IsaJudgement:
    difference = Difference("all_gather", "triton", "push", "gfx942", ("w2_fp16_2MB",), verdict, (finding,))
    return IsaJudgement(verdict, "1 configuration is expected to be slower", (difference,))


def test_a_regression_of_the_code_is_the_verdict_and_is_told() -> None:
    found = joined(Judgement(Verdict.SAME, "5 cases compared: 5 SAME"), code(IsaVerdict.SLOWER))
    assert found.verdict is Verdict.SLOWER
    assert any("16 B to 2 B" in warning and "gfx942" in warning for warning in found.warnings)
    assert "5 SAME" in found.why


@pytest.mark.parametrize("verdict", [IsaVerdict.SAME, IsaVerdict.CHANGED, IsaVerdict.NEW, IsaVerdict.CANNOT_TELL])
def test_other_code_leaves_the_verdict_to_the_clock(verdict: IsaVerdict) -> None:
    timed = Judgement(Verdict.FASTER, "faster")
    assert joined(timed, code(verdict)).verdict is Verdict.FASTER


def test_broken_stays_broken() -> None:
    assert joined(Judgement(Verdict.BROKEN, "wrong"), code(IsaVerdict.SLOWER)).verdict is Verdict.BROKEN
