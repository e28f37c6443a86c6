"""Rows other than commits, and how two of their places are measured: by a stand-in for the measuring program."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path

import pytest
from rich.console import Console

from ci import harness
from ci.bisect.axes import LiveTrials, commit_axis, knob_axis, outcomes_of, python_axis
from ci.bisect.search import OTHER_CAUSE, BisectError, SearchRules, same_code, search, weights
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import MeasureError, MeasurePlan
from ci.judging.reach import file_labels
from tests.ci import made_trials
from tests.ci.bisect.toys import line
from tests.kit import commit, repository

HERE = LocalCheckout("head", Path("/somewhere"), Commit("c" * 40, 0, "what lies here"))
QUIET = Console(file=io.StringIO())
KNOBS = knob_axis(HERE, ["num_warps=4,8", "num_stages=2,3", "kpack=1,2"])
PYTHONS = python_axis(HERE, [sys.executable, "/env37/bin/python", "/env38/bin/python"], sys.executable)


def slow_where(bad):
    """A measuring program in which a side is 5 % slower if `bad` holds of (its knobs, its Python)."""

    def measuring(checkouts, plan, out, console):
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


def searched(axis, measuring, out):
    live = LiveTrials(axis, MeasurePlan(kernels=("gemm",)), out, QUIET, measuring)
    return search(axis.places, axis.known, SearchRules(), live, live.before())


def test_the_knob_that_matters_is_found(tmp_path):
    out = tmp_path / "trials.jsonl"
    ended = searched(KNOBS, slow_where(lambda knobs, python: knobs["num_stages"] == "3"), out)
    assert (ended.answer.low, ended.answer.high) == (1, 2)
    assert KNOBS.places[2].name == "num_stages=3"
    again = LiveTrials(KNOBS, MeasurePlan(), out, QUIET)
    assert again.before() == list(ended.outcomes)


def test_the_environment_that_matters_is_found(tmp_path):
    out = tmp_path / "trials.jsonl"
    ended = searched(PYTHONS, slow_where(lambda knobs, python: "38" in python), out)
    assert (ended.answer.low, ended.answer.high) == (1, 2)
    other = python_axis(HERE, ["/env1/bin/python", "/env2/bin/python"], "/own/python")
    with pytest.raises(BisectError, match="has trials of other environments than these 2; give another file"):
        LiveTrials(other, MeasurePlan(), out, QUIET).before()


def test_a_place_without_a_result_is_left_out_and_two_in_a_row_end_the_search(tmp_path):
    fine = slow_where(lambda knobs, python: False)
    codes = iter([harness.MEASURED, harness.USAGE, harness.MEASURED, harness.USAGE, harness.USAGE])

    def measuring(checkouts, plan, out, console):
        code = next(codes)
        return fine(checkouts, plan, out, console) if code == harness.MEASURED else code

    live = LiveTrials(KNOBS, MeasurePlan(), tmp_path / "trials.jsonl", QUIET, measuring)
    assert live(0, 3).failed == {}
    assert live(0, 2).failed == {2: "measuring it leaves no result"}
    assert live(0, 1).failed == {}
    assert live(0, 2).failed
    with pytest.raises(MeasureError, match="measuring broke off; .* finished trials are in"):
        live(0, 1)


# Which commits leave a kernel's files as they were: by what its modules import, in any package, read from git.


DECLARED = {
    "pyproject.toml": '[tool.ridgeline]\nkernels = ["lib"]\n',
    "lib/__init__.py": "",
    "lib/limits.toml": "lds = 65536\n",
    "lib/shared.py": "",
    "lib/gemm.py": 'from kernels.spec import Kernel\nfrom lib import shared\ngemm = Kernel("gemm")\n',
    "lib/rows.py": 'from kernels.spec import Kernel\nimport outside.sums\nrows = Kernel(name="rows")\n',
    "outside/__init__.py": "",
    "outside/sums.py": "",
    "outside/alone.py": "",
    "README.md": "words\n",
}


@pytest.fixture
def folder(tmp_path):
    return repository(tmp_path, **DECLARED)


def moved(folder, *kernels):
    """Whether the last commit has another label than the one before it."""
    clone = Repository(folder)
    before, after = file_labels(clone, [clone.resolve(name) for name in ("HEAD^", "HEAD")], kernels)
    return before != after


@pytest.mark.parametrize(
    ("changed", "kernels"),
    [
        ("lib/shared.py", {"gemm"}),
        ("lib/gemm.py", {"gemm"}),
        ("lib/rows.py", {"rows"}),
        ("outside/sums.py", {"rows"}),
        ("lib/__init__.py", {"gemm", "rows"}),
        ("lib/limits.toml", {"gemm", "rows"}),
        ("lib/new.py", set()),
        ("outside/alone.py", set()),
        ("README.md", set()),
    ],
)
def test_a_commit_moves_the_kernels_that_its_files_reach(folder, changed, kernels):
    commit(folder, **{changed: DECLARED.get(changed, "") + "# changed\n"})
    assert {name for name in ("gemm", "rows") if moved(folder, name)} == kernels
    assert moved(folder, "gemm", "rows") == moved(folder) == bool(kernels)
    assert moved(folder, "nobody") == (changed != "README.md"), "of what nobody declares, all code counts"


def test_an_axis_has_a_label_for_each_of_its_commits(folder):
    for number in range(3):
        commit(folder, **{"lib/gemm.py": DECLARED["lib/gemm.py"] + "# a\n" * (number // 2), "README.md": f"{number}\n"})
    axis = commit_axis(
        Repository(folder), "HEAD~3", "HEAD", lambda commits: file_labels(Repository(folder), commits, ["gemm"])
    )
    assert len(axis.places) == len(axis.known) == 4
    assert [a == b for a, b in zip(axis.known, axis.known[1:], strict=False)] == [True, True, False]


# Equal code makes no suspects.


def test_a_change_between_equal_labels_is_no_suspect_and_what_is_not_known_is_one():
    assert same_code(["a", "a", "b", "b", "a"], {}) == [True, False, True, False]
    assert same_code([None, None, None], {}) == [False, False]


def test_what_trials_launched_makes_equals_of_different_files():
    files = ["1", "1", "2", "3", "3", "4"]
    assert same_code(files, {0: "x", 4: "x"}) == [True, True, True, True, False]
    assert same_code(files, {0: "x", 2: "", 5: "y"}) == [True, False, False, True, False]


def test_the_prior_adds_up_and_keeps_a_little_for_another_cause():
    found = weights([True, False, True, False])
    assert found.sum() == pytest.approx(1.0)
    assert found[[0, 2]].sum() == pytest.approx(OTHER_CAUSE)
    assert found[1] == found[3]


# Trials as outcomes of a search.


COMMITS = [f"{n:040x}" for n in range(1, 5)]


def position(trial, role):
    commit = trial.checkouts[role].commit if role in trial.checkouts else None
    return COMMITS.index(commit) if commit in COMMITS else None


def read_outcomes(*lines):
    return outcomes_of([made_trials.parsed(one) for one in lines], position)


@pytest.mark.parametrize("turn", [1, -1])
def test_a_trial_is_the_log_ratio_of_its_two_commits(turn):
    (one,) = read_outcomes(line(*(COMMITS[0], COMMITS[3])[::turn], 1.02**turn))
    assert (one.low, one.high, one.failed) == (0, 3, {})
    assert one.shift == pytest.approx(math.log(1.02), abs=1e-3)
    assert one.seconds == 12.5


def test_a_trial_of_something_else_says_nothing():
    assert read_outcomes(line("f" * 40, COMMITS[3], 1.02), line(COMMITS[1], COMMITS[1], 1.0)) == []


@pytest.mark.parametrize(("role", "place"), [("base", 0), ("head", 3)])
def test_an_arm_that_fails_rules_out_its_commit(role, place):
    (one,) = read_outcomes(line(COMMITS[0], COMMITS[3], 1.02, failed=role))
    assert one.shift is None
    assert one.failed == {place: "gemm/triton/m16 gives a wrong result: one sentence"}


def test_another_benchmark_definition_is_other_work():
    changed = line(COMMITS[0], COMMITS[3], 1.02)
    changed["trees"]["head"]["declaration"] = made_trials.declaration(yardstick="2" * 16)
    (one,) = read_outcomes(changed)
    assert list(one.failed) == [3]
    assert "the benchmark definition changed" in one.failed[3]


def test_operators_of_one_trial_count_together():
    lines = [line(COMMITS[0], COMMITS[3], ratio, kernel=name) for name, ratio in (("gemm", 1.02), ("rows", 1.0))]
    (one,) = read_outcomes(*lines)
    assert one.shift == pytest.approx(math.log(1.02) / 2, abs=1e-3)
    assert one.seconds == 25.0


def test_equal_code_and_knobs_have_one_label():
    lines = [line(COMMITS[0], COMMITS[n], 1.0, number=n) for n in (1, 2, 3)]
    for one, code in zip(lines, "xxy", strict=True):
        one["cases"]["m16"]["arms"]["base/triton"]["code_hash"] = "x" * 16
        one["cases"]["m16"]["arms"]["head/triton"]["code_hash"] = code * 16
    lines[1]["cases"]["m16"]["arms"]["head/triton"]["knobs"] = {"BLOCK_M": 64}
    first, knob, code = read_outcomes(*lines)
    assert first.labels[0] == first.labels[1] == knob.labels[0]
    assert len({first.labels[0], knob.labels[2], code.labels[3]}) == 3
    lines[0]["trees"]["head"]["environment"]["HSA_XNACK"] = "1"
    assert len(set(read_outcomes(lines[0])[0].labels.values())) == 2  # the same code in another environment
    (unknown,) = read_outcomes(line(COMMITS[0], COMMITS[3], 1.0))
    assert set(unknown.labels.values()) == {""}
