"""Trials as outcomes of a search."""

from __future__ import annotations

import json
import math

import pytest

from ci.bisect import outcomes
from ci.bisect.axes import BisectError
from ci.bisect.outcomes import outcomes_of
from ci.trials.trial import Trial
from tests.ci import made_trials
from tests.ci.bisect.toys import line, replay_lines

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


def test_a_case_that_no_side_can_run_here_is_said_with_its_reason() -> None:
    skipped = line(COMMITS[0], COMMITS[3], 1.02)
    why = {"status": "skipped", "why": "too large for a CPU", "detail": ""}
    skipped["cases"]["m16"]["arms"] = {"base/triton": why, "head/triton": why}
    (one,) = read_outcomes(skipped)
    assert one.failed == {3: "gemm/triton/m16 is skipped: too large for a CPU"}


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


# Replay files that name their row, and what is refused in them.


NAMES = ["v1", "v2", "v3"]


def written(path, lines):
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def test_a_replay_file_is_a_row_and_its_trials_in_order(tmp_path) -> None:
    file = written(tmp_path / "r.jsonl", replay_lines(NAMES, [("v1", "v3", 1.02), ("v2", "v1", 0.5)]))
    assert outcomes.names_its_places(file)
    found = outcomes.of_file(file)
    assert [place.name for place in found.places] == NAMES
    assert [(one.low, one.high, one.shift) for one in found.outcomes] == [
        (0, 2, pytest.approx(math.log(1.02))),
        (0, 1, pytest.approx(math.log(2))),
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"places": ["v1"]}, 'places is ["v1"]; allowed: a list of at least two different names'),
        ({"places": ["v1", "v1"]}, "allowed: a list of at least two different names"),
        ({"base": "v9"}, 'base is "v9"; allowed: v1, v2, v3'),
        ({"base": "v3"}, "base and head are both 'v3'"),
        ({"cases": {}}, "cases is {}; allowed: an object with a case at least"),
        ({"cases": {"a": {"base": [1.0, 1.0]}}}, "head is None; allowed: a list of times"),
        ({"cases": {"a": {"base": [1.0, -1.0], "head": [1, 1]}}}, "base sample 1 is -1.0; allowed: a finite number"),
        ({"cases": {"a": {"base": [1.0] * 3, "head": [1, 1]}}}, "base has 3 samples and head 2"),
    ],
)
def test_a_wrong_line_is_refused_by_its_value(tmp_path, changed, said) -> None:
    (line,) = replay_lines(NAMES, [("v1", "v3", 1.02)])
    file = written(tmp_path / "r.jsonl", [{**line, **changed}])
    with pytest.raises(BisectError) as error:
        outcomes.of_file(file)
    assert said in str(error.value)
    assert f"{file}:1" in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"), [("", "is empty"), ("{", ":1: not JSON"), ("[]", "must be an object of cases")]
)
def test_a_file_that_is_none_is_refused(tmp_path, content, said) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(content)
    with pytest.raises(BisectError, match=said):
        outcomes.names_its_places(file)
    with pytest.raises(BisectError, match="cannot be read"):
        outcomes.names_its_places(tmp_path / "absent")
