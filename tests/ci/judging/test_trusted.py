"""The judgement on a host's trials: what is refused, left out or missing makes no pass, and hides no regression."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ci.judging import claims, policy
from ci.judging.claims import SHOWN, Expected, Sifted, decided
from ci.judging.types import Verdict
from ci.trials import file as hostile
from ci.trials.file import TrialFile
from ci.trials.trial import Declaration, DeclaredCase
from tests.ci import made_trials as made
from tests.ci.judging.test_claims import sealed
from tests.ci.judging.test_live import Player, play

RULES = policy.load()
RUN = Expected(made.HEAD, made.BASE, "H200 SXM", (2,))


def measured(folder: Path, slower: float = 0.0) -> list[dict[str, Any]]:
    """The lines of a leg, as an honest host writes them."""
    out = folder / "live.jsonl"
    play(Player(slower), out)
    return [sealed(json.loads(line)) for line in out.read_text().splitlines()]


def handed_over(folder: Path, *lines: dict[str, Any]) -> TrialFile:
    return hostile.read_hostile(made.write(folder / "trials.jsonl", *lines))


def test_honest_trials_are_judged(tmp_path: Path) -> None:
    outcome = decided([handed_over(tmp_path, *measured(tmp_path))], RUN, RULES)
    assert outcome.judgement.verdict is Verdict.SAME
    assert outcome.remarks == ()


def test_an_operator_that_git_says_nothing_reaches_needs_no_trial_and_is_named(tmp_path: Path) -> None:
    absent = Declaration("softmax", ("triton",), (), {"r1": DeclaredCase("r1", tier="pr")}, "y")
    run = dataclasses.replace(RUN, declared={"softmax": absent})
    lines = measured(tmp_path)
    assert claims.missing(Sifted(()), run, "pr") == ["softmax/r1"]
    unreached = dataclasses.replace(run, unreached=("softmax",))
    assert claims.missing(Sifted(()), unreached, "pr") == []
    outcome = decided([handed_over(tmp_path, *lines)], dataclasses.replace(RUN, unreached=("softmax",)), RULES)
    assert (outcome.judgement.verdict, outcome.judgement.unreached) == (Verdict.SAME, ("softmax",))


def test_without_trials_it_is_same_only_where_git_says_that_nothing_is_reached() -> None:
    nothing = dataclasses.replace(RUN, unreached=("gemm",), reached=False)
    assert decided([], nothing, RULES).judgement.verdict is Verdict.SAME
    assert decided([], dataclasses.replace(nothing, reached=True), RULES).judgement.verdict is Verdict.CANNOT_TELL


def test_a_regression_is_found(tmp_path: Path) -> None:
    outcome = decided([handed_over(tmp_path, *measured(tmp_path, 0.03))], RUN, RULES)
    assert outcome.judgement.verdict is Verdict.SLOWER


def test_one_refused_trial_forbids_a_pass(tmp_path: Path) -> None:
    *lines, last = measured(tmp_path)
    last["trees"]["head"]["commit"] = "c" * 40
    outcome = decided([handed_over(tmp_path, *lines, sealed(last))], RUN, RULES)
    assert outcome.judgement.verdict is Verdict.CANNOT_TELL
    assert "is refused: it says its head" in outcome.judgement.why


def test_a_refused_trial_hides_no_regression(tmp_path: Path) -> None:
    lines = measured(tmp_path, 0.03)
    foreign = sealed({**lines[0], "trial": 99, "trees": {**lines[0]["trees"], "base": made.tree("c" * 40)}})
    outcome = decided([handed_over(tmp_path, *lines, foreign)], RUN, RULES)
    assert outcome.judgement.verdict is Verdict.SLOWER


def test_a_line_that_is_no_trial_forbids_a_pass(tmp_path: Path) -> None:
    file = made.write(tmp_path / "trials.jsonl", *measured(tmp_path))
    file.write_text(file.read_text() + '{"format": "something else"}\n')
    outcome = decided([hostile.read_hostile(file)], RUN, RULES)
    assert outcome.judgement.verdict is Verdict.CANNOT_TELL
    assert "trials.jsonl:" in outcome.judgement.why


def test_an_unwelcome_trial_left_out_forbids_a_pass(tmp_path: Path) -> None:
    lines = measured(tmp_path)
    outcome = decided([handed_over(tmp_path, *lines[:1], *lines[2:])], RUN, RULES)
    assert outcome.judgement.verdict is Verdict.CANNOT_TELL
    assert "are not in the file" in outcome.judgement.why


def test_a_case_that_base_declares_and_nobody_measured_forbids_a_pass(tmp_path: Path) -> None:
    """A head that drops its slow case, or a host that does not hand it over."""
    declared = {"gemm": Declaration.of(made.declaration(cases=("m16", "m64", "slow")))}
    outcome = decided([handed_over(tmp_path, *measured(tmp_path))], dataclasses.replace(RUN, declared=declared), RULES)
    assert outcome.judgement.verdict is Verdict.CANNOT_TELL
    assert "gemm/slow was not measured" in outcome.judgement.warnings


@pytest.mark.parametrize("lines", [0, 1])
def test_nothing_that_fits_is_no_verdict(tmp_path: Path, lines: int) -> None:
    other = Expected("d" * 40, made.BASE, "H200 SXM", (2,))
    outcome = decided([handed_over(tmp_path, *measured(tmp_path)[:lines])], other, RULES)
    assert outcome.judgement.verdict is Verdict.CANNOT_TELL
    assert "no trial fits the run" in outcome.judgement.why
    assert outcome.trials == ()


def test_many_refusals_are_counted(tmp_path: Path) -> None:
    lines = [sealed({**measured(tmp_path)[0], "trial": n}) for n in range(SHOWN + 5)]
    other = Expected("d" * 40, made.BASE, "H200 SXM", (2,))
    outcome = decided([handed_over(tmp_path, *lines)], other, RULES)
    assert len(outcome.remarks) == SHOWN + 1
    assert outcome.remarks[-1] == "and 5 more of this kind"


def test_head_alone_with_the_same_kernels_is_same(tmp_path: Path) -> None:
    (line, *_) = measured(tmp_path)
    del line["trees"]["base"]
    for case in line["cases"].values():
        case["arms"] = {key: arm for key, arm in case["arms"].items() if key.startswith("head")}
    file = handed_over(tmp_path, sealed(line))
    alone = decided([file], dataclasses.replace(RUN, same_kernels=True), RULES)
    assert alone.judgement.verdict is Verdict.SAME
    assert decided([file], RUN, RULES).judgement.verdict is Verdict.CANNOT_TELL
