"""The comment of a pull request has a section on best configurations that moved, and no verdict of it."""

from __future__ import annotations

import dataclasses

from ci.commands.common.leg import moved_configurations
from ci.judging.types import Judgement, Verdict
from ci.report import json_report, markdown, terminal
from ci.report.model import Report
from ci.trials.file import read
from tests.ci.sweeps.tuned.made_tables import FAST, OTHER, sweep_file

REPORT = Report(Judgement(Verdict.SAME, "nothing is slower"))


def test_knobs_that_lost_are_named_with_what_is_better(tmp_path):
    trials = read(sweep_file(tmp_path, {"m16_fp16": [(FAST, 0.9), (OTHER, 1.1)]})).trials
    [sentence] = moved_configurations(trials)
    assert sentence.startswith("gemm/triton/m16_fp16: the knobs in use take 1.1")
    assert "warps 4 -> 8" in sentence


def test_nothing_is_said_where_the_knobs_in_use_are_the_best(tmp_path):
    trials = read(sweep_file(tmp_path, {"m16_fp16": [(FAST, 0.999), (OTHER, 1.1)]})).trials
    assert moved_configurations(trials) == ()
    assert moved_configurations(()) == ()


def test_a_section_of_its_own_and_no_verdict():
    made = dataclasses.replace(REPORT, configurations=("gemm/triton/m16: warps 4 -> 8 <b>",))
    told = markdown.render(made)
    assert "### Best configuration moved" in told
    assert "<b>" not in told
    assert "SLOWER" not in told
    assert "best configuration moved" in terminal.render(made, 100)
    assert made.verdict is Verdict.SAME
    assert json_report.loads(json_report.dumps(made).encode()) == made
    assert "configuration" not in markdown.render(REPORT)
    assert "configurations" not in json_report.document(REPORT)
