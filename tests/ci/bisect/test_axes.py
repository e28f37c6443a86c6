"""Rows other than commits, and how two of their places are measured: by a stand-in for the measuring program."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from ci import harness
from ci.bisect.axes import Axis, BisectError, KnobAxis, PythonAxis, SearchRules, settings_of
from ci.bisect.outcomes import LiveTrials, alone
from ci.bisect.search import search
from ci.git.repository import Commit, LocalCheckout
from ci.harness import MeasureError, MeasurePlan
from ci.judging.live import Interrupted
from tests.ci import made_trials

HERE = LocalCheckout("head", Path("/somewhere"), Commit("c" * 40, 0, "what lies here"))
QUIET = Console(file=io.StringIO())
KNOBS = KnobAxis(HERE, settings_of(["num_warps=4,8", "num_stages=2,3", "kpack=1,2"]))
PYTHONS = PythonAxis(HERE, [sys.executable, "/env37/bin/python", "/env38/bin/python"], sys.executable)


def slow_where(bad):
    """A measuring program in which a side is 5 % slower if `bad` holds of (its knobs, its Python)."""

    def measuring(checkouts, plan, out, console) -> int:
        arms, trees = {}, {}
        for side in checkouts:
            given = (knob.removeprefix(f"{side.role}.") for knob in plan.knobs if knob.startswith(f"{side.role}."))
            knobs = dict(one.split("=") for one in given)
            python = plan.pythons.get(side.role, sys.executable)
            times = [t * (1.05 if bad(knobs, python) else 1.0) for t in made_trials.TIMES]
            arms[f"{side.role}/triton"] = {**made_trials.ok(times), "knobs": {k: int(v) for k, v in knobs.items()}}
            executable = None if python == sys.executable else python
            environment = {**made_trials.ENVIRONMENT, "executable": executable}
            trees[side.role] = made_trials.tree(side.commit.hash, environment=environment)
        line = made_trials.trial({"m16": arms}, number=plan.first_trial, trees=trees)
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return harness.MEASURED

    return measuring


def searched(axis: Axis, measuring, out: Path):
    live = LiveTrials(axis, MeasurePlan(kernels=("gemm",)), out, QUIET, measuring)
    return search(axis.places, axis.known, SearchRules(), live, live.before())


def test_the_knob_that_matters_is_found(tmp_path) -> None:
    out = tmp_path / "trials.jsonl"
    ended = searched(KNOBS, slow_where(lambda knobs, python: knobs["num_stages"] == "3"), out)
    assert [(one.low, one.high) for one in ended.answer.culprits] == [(1, 2)]
    assert KNOBS.places[2].name == "num_stages=3"
    again = LiveTrials(KNOBS, MeasurePlan(), out, QUIET)
    assert again.before() == list(ended.outcomes)


def test_the_environment_that_matters_is_found(tmp_path) -> None:
    out = tmp_path / "trials.jsonl"
    ended = searched(PYTHONS, slow_where(lambda knobs, python: "38" in python), out)
    assert [(one.low, one.high) for one in ended.answer.culprits] == [(1, 2)]
    other = PythonAxis(HERE, ["/env1/bin/python", "/env2/bin/python"], "/own/python")
    with pytest.raises(BisectError, match="has trials of other environments than these 2; give another file"):
        LiveTrials(other, MeasurePlan(), out, QUIET).before()


def test_a_place_without_a_result_is_left_out_and_two_in_a_row_end_the_search(tmp_path) -> None:
    fine = slow_where(lambda knobs, python: False)
    codes = iter([harness.MEASURED, harness.USAGE, harness.MEASURED, harness.USAGE, harness.USAGE])

    def measuring(checkouts, plan, out, console) -> int:
        code = next(codes)
        return fine(checkouts, plan, out, console) if code == harness.MEASURED else code

    live = LiveTrials(KNOBS, MeasurePlan(), tmp_path / "trials.jsonl", QUIET, measuring)
    assert live(0, 3).failed == {}
    assert live(0, 2).failed == {2: "measuring it leaves no result"}
    assert live(0, 1).failed == {}
    assert live(0, 2).failed
    with pytest.raises(MeasureError, match="measuring broke off; .* finished trials are in"):
        live(0, 1)


def test_an_interruption_says_that_the_same_command_goes_on(tmp_path) -> None:
    live = LiveTrials(KNOBS, MeasurePlan(), tmp_path / "t.jsonl", QUIET, lambda *_: harness.INTERRUPTED)
    with pytest.raises(Interrupted, match="`ridgeline.*` goes on"):
        live(0, 3)


def test_a_file_is_measured_into_by_one_at_a_time(tmp_path) -> None:
    out = tmp_path / "t.jsonl"
    with alone(out), pytest.raises(BisectError, match="is being measured by another call"), alone(out):
        pass
