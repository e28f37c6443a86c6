"""Trials as outcomes of a search."""

from __future__ import annotations

import math

import pytest

from ci.bisect.axes import outcomes_of
from ci.trials.trial import Trial
from tests.ci import made_trials
from tests.ci.bisect.toys import line

COMMITS = [f"{n:040x}" for n in range(1, 5)]


def position(trial: Trial, role: str) -> int | None:
    commit = trial.checkouts[role].commit if role in trial.checkouts else None
    return COMMITS.index(commit) if commit in COMMITS else None


def read_outcomes(*lines):
    return outcomes_of([made_trials.parsed(one) for one in lines], position)


@pytest.mark.parametrize("turn", [1, -1], ids=["base first", "head first"])
def test_a_trial_is_the_log_ratio_of_its_two_commits(turn: int) -> None:
    (one,) = read_outcomes(line(*(COMMITS[0], COMMITS[3])[::turn], 1.02**turn))
    assert (one.low, one.high, one.failed) == (0, 3, {})
    assert one.shift == pytest.approx(math.log(1.02), abs=1e-3)
    assert one.seconds == 12.5


def test_a_trial_of_something_else_says_nothing() -> None:
    assert read_outcomes(line("f" * 40, COMMITS[3], 1.02), line(COMMITS[1], COMMITS[1], 1.0)) == []


@pytest.mark.parametrize(("role", "place"), [("base", 0), ("head", 3)])
def test_an_arm_that_fails_rules_out_its_commit(role: str, place: int) -> None:
    (one,) = read_outcomes(line(COMMITS[0], COMMITS[3], 1.02, failed=role))
    assert one.shift is None
    assert one.failed == {place: "gemm/triton/m16 gives a wrong result: one sentence"}


def test_another_benchmark_definition_is_other_work() -> None:
    changed = line(COMMITS[0], COMMITS[3], 1.02)
    changed["trees"]["head"]["declaration"] = made_trials.declaration(yardstick="2" * 16)
    (one,) = read_outcomes(changed)
    assert list(one.failed) == [3]
    assert "another benchmark definition" in one.failed[3]


def test_operators_of_one_trial_count_together() -> None:
    lines = [line(COMMITS[0], COMMITS[3], ratio, kernel=name) for name, ratio in (("gemm", 1.02), ("rows", 1.0))]
    (one,) = read_outcomes(*lines)
    assert one.shift == pytest.approx(math.log(1.02) / 2, abs=1e-3)
    assert one.seconds == 25.0


def test_equal_code_and_knobs_have_one_label() -> None:
    lines = [line(COMMITS[0], COMMITS[n], 1.0, number=n) for n in (1, 2, 3)]
    for one, code in zip(lines, "xxy", strict=True):
        one["cases"]["m16"]["arms"]["base/triton"]["code_hash"] = "x" * 16
        one["cases"]["m16"]["arms"]["head/triton"]["code_hash"] = code * 16
    lines[1]["cases"]["m16"]["arms"]["head/triton"]["knobs"] = {"BLOCK_M": 64}
    first, knob, code = read_outcomes(*lines)
    assert first.labels[0] == first.labels[1] == knob.labels[0]
    assert len({first.labels[0], knob.labels[2], code.labels[3]}) == 3


def test_code_that_is_not_known_has_no_label() -> None:
    (one,) = read_outcomes(line(COMMITS[0], COMMITS[3], 1.0))
    assert one.labels == {}
