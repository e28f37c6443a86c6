"""Why cases are slower, in the terminal, in the comment, and in the JSON and back."""

from __future__ import annotations

import dataclasses

import pytest

from ci.judging.types import CaseVerdict, Judgement, Verdict
from ci.records.ledger import Explanation, TriedCause
from ci.report import json_report, markdown, terminal
from ci.report.model import Report

CASE = "gemm/triton/m64"
SENTENCE = (
    "kernels/gemm/device.py:95, split `cg` → `<wt>`: putting it back leaves +0.02 % [-0.05, +0.09] of +1.02 %: proven"
)
EXPLANATION = Explanation(
    (CASE, "gemm/triton/m256"),
    CASE,
    "proven",
    SENTENCE,
    (
        TriedCause("knob", "group_m", "8 → 4", "no effect", 0.01, 1.0101, 1.0090, 1.0112, 3),
        TriedCause("file", "kernels/gemm/config.py", "", "does not build alone", why="raises an error: @ImportError"),
        TriedCause("file", "kernels/gemm/device.py", "", "explains all", 0.98, 1.0002, 0.9995, 1.0009, 3),
    ),
    ("cache modifiers: store nt 0 → 1", "vector registers spilled: 0 → 2"),
    3,
    9,
    61.0,
)
REPORT = Report(
    Judgement(Verdict.SLOWER, "1 case", (CaseVerdict(CASE, "gemm", "triton", Verdict.SLOWER, 1.0102, 1.0095, 1.0109),)),
    explanations=(EXPLANATION,),
)


def test_the_terminal_says_the_cause_first_and_then_what_else_was_tried() -> None:
    text = " ".join(terminal.render(REPORT, width=200).split())
    why = text[text.index("why 2 cases (gemm/triton/m64, gemm/triton/m256)") :]
    places = [
        why.index(part) for part in ("proven", "knob group_m (8 → 4): no effect", "machine code: cache modifiers")
    ]
    assert places == sorted(places)
    assert "file kernels/gemm/config.py: does not build alone: raises an error" in why
    assert "file kernels/gemm/device.py: explains all, 98 %; +0.02 % [-0.05, +0.09] is left" in why
    assert "measured on gemm/triton/m64: 3 experiments, 9 trials, 61 s" in why


def test_one_cause_alone_is_said_once() -> None:
    alone = dataclasses.replace(EXPLANATION, tried=EXPLANATION.tried[2:])
    assert "explains all" not in terminal.render(dataclasses.replace(REPORT, explanations=(alone,)), width=200)


def test_the_comment_has_it_as_inert_text() -> None:
    text = markdown.render(REPORT)
    assert "### Why: 2 cases (gemm/triton/m64, gemm/triton/m256)" in text
    assert "proven**" in text
    assert "<wt>" not in text
    assert "@ImportError" not in text


def test_the_json_gives_the_same_report_back() -> None:
    assert json_report.loads(json_report.dumps(REPORT).encode()) == REPORT


def test_a_report_without_causes_is_what_it_was() -> None:
    assert "explanations" not in json_report.document(dataclasses.replace(REPORT, explanations=()))


def test_a_strangers_causes_are_held_to_the_schema() -> None:
    text = json_report.dumps(REPORT).replace('"experiments": 3', '"experiments": "three"')
    with pytest.raises(json_report.ReportError, match="experiments"):
        json_report.loads(text.encode())
