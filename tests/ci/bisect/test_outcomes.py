"""Trials as outcomes of a search."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ci.__main__ import USAGE, main
from ci.bisect import outcomes
from ci.bisect import outcomes as drivers
from ci.bisect.axes import BisectError
from ci.bisect.outcomes import outcomes_of
from ci.harness import MeasurePlan
from ci.options import NO_VERDICT, PASS
from ci.trials.trial import Trial
from tests.ci import made_trials
from tests.ci.bisect.toys import line, replay_lines
from tests.ci.history import made

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


# Which driver, from records: paired by the code that they ran, the newest ones held back to see a step again.


OLD, MIDDLE, NEW = "580.159.04", "580.65.06", "595.3.1"
IN_ORDER = [MIDDLE, OLD, NEW]
SAME = {"kind": "gpu", "torch": "2.11", "triton": "3.6", "library": "", "method": "events", "case_yardstick": "1"}
PLAN = MeasurePlan(kernels=("gemm",), cases=("gemm/m64",))


def lines(slower: float, codes: Sequence[str] = ("c1", "c1", "c1"), count: int = 6) -> list[made.Line]:
    """`count` records of gemm under each driver, at times that are not in the order of the drivers."""
    rng = np.random.default_rng(3)
    return [
        made.Line(
            "gemm", "m64",
            [5e-5 * (slower if driver == NEW else 1.0) * float(np.exp(0.003 * rng.normal())) for _ in range(count)],
            at=[3 * n + (1, 0, 2)[place] for n in range(count)],
            more={**SAME, "driver": driver, "code": codes[place]},
        )
        for place, driver in enumerate(IN_ORDER)
    ]  # fmt: skip


@pytest.fixture
def recorded(monkeypatch):
    """What the records are."""
    return lambda some: monkeypatch.setattr(drivers.store, "load", lambda results: made.frame(some))


def run(*words: object):
    return CliRunner().invoke(main, ["bisect", "--axis", "driver", "--case", "gemm/m64", *map(str, words)])


def test_the_driver_is_found_and_the_versions_are_in_the_order_of_their_numbers(recorded) -> None:
    recorded(lines(1.06))
    done = run("--json")
    assert done.exit_code == PASS, done.output
    found = json.loads(done.stdout)
    assert (found["verdict"], found["first_bad"], found["axis"]) == ("FOUND", NEW, "driver")
    assert (found["good"], found["bad"]) == (MIDDLE, NEW)
    assert found["culprits"][0]["ratio"] == pytest.approx(1.06, abs=0.01)
    assert found["trials"] == 6 + 5 + 1, "the newest record of the last driver is against that of the one before it"
    shown = run().stdout
    assert f"first bad driver: {NEW}: +6" in shown
    assert "after 12 records" in shown


def test_the_drivers_that_are_named_are_compared_in_their_order(recorded) -> None:
    recorded(lines(1.06))
    done = run(NEW, OLD, "--json")
    assert done.exit_code == PASS, done.output
    assert json.loads(done.stdout)["culprits"][0]["ratio"] == pytest.approx(1 / 1.06, abs=0.01)
    unknown = run(OLD, "590.1")
    assert unknown.exit_code == USAGE
    said = " ".join(unknown.stderr.split())
    assert f"is of driver '590.1'; recorded are {MIDDLE}, {OLD}, {NEW}" in said


def test_one_record_of_each_decides_nothing(recorded) -> None:
    recorded(lines(1.06, count=1))
    done = run()
    assert done.exit_code == NO_VERDICT
    assert "it takes more records of these drivers" in done.stdout


def test_no_step_is_an_answer(recorded) -> None:
    recorded(lines(1.0, count=30))
    done = run()
    assert done.exit_code == PASS, done.output
    assert done.stdout.startswith(f"no step of 2 % or more between {MIDDLE} and {NEW}")


def test_records_of_other_code_are_not_compared(recorded) -> None:
    recorded(lines(1.06, codes=("c1", "c1", "c2")))
    with pytest.raises(BisectError, match=f"{NEW} has no record of the code, torch and Triton that {MIDDLE} has"):
        drivers.of_records(Path("results"), PLAN)
    other = made.Line("gemm", "m16", [1e-5], more={**SAME, "driver": "1.0", "code": "c1"})
    recorded([*lines(1.06)[:1], other])
    with pytest.raises(BisectError, match=f"are of {MIDDLE} alone; two drivers are compared"):
        drivers.of_records(Path("results"), PLAN)
    recorded([made.Line("gemm", "m64", [1e-5], more={**SAME, "driver": "", "code": "c1"})])
    with pytest.raises(BisectError, match="no record of it has a driver"):
        drivers.of_records(Path("results"), PLAN)
