"""Explanations of a judgement: what is examined, what is not and why, and a verdict that stands without them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest
from rich.console import Console

from ci.commands import outcome as why
from ci.commands.outcome import hand_over
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import MeasureError, MeasurePlan
from ci.judging import policy
from ci.judging.live import Interrupted, Outcome
from ci.judging.types import CaseVerdict, Judgement, Verdict
from ci.records.ledger import CAUSES, Explanation, RecordedCause, causes_in
from ci.report import json_report
from ci.trials import file as trial_files
from ci.trials.file import Followed
from ci.why import suspects
from ci.why.explain import MOST_GROUPS, explain, not_examined, slower_groups, worst_of
from tests.ci import made_trials as made
from tests.ci.why import toy
from tests.kit import ROOT, commit, git


def case(name, ratio=1.05, low=1.04):
    return CaseVerdict(f"gemm/triton/{name}", "gemm", "triton", Verdict.SLOWER, ratio, low, ratio + 0.01, trials=4)


def judgement(*cases):
    return Judgement(Verdict.SLOWER, "", cases)


def trial(**knobs):
    """One trial; by case, num_stages of base and head."""
    arms = {
        name: {"triton": [{**made.ok(), "knobs": {"num_stages": value, "block_m": 64}} for value in values]}
        for name, values in knobs.items()
    }
    return made.parsed(made.paired(arms))


def test_cases_with_the_same_changed_knobs_are_one_group_the_slowest_first():
    both = judgement(case("m16", 1.02, 1.01), case("m64", 1.09, 1.08))
    (group,) = slower_groups(both, [trial(m16=(3, 2), m64=(3, 2))])
    assert [one.case for one, _ in group] == ["gemm/triton/m16", "gemm/triton/m64"]
    assert worst_of(group)[0].case == "gemm/triton/m64"
    groups = slower_groups(both, [trial(m16=(3, 2), m64=(3, 3))])
    assert [worst_of(group)[0].case for group in groups] == ["gemm/triton/m64", "gemm/triton/m16"]


def test_a_knob_is_a_suspect_where_both_sides_have_it_with_different_values():
    arms = trial(m16=(3, 2)).cases["m16"].arms
    (found,) = suspects.of_knobs(arms["base", "triton"], arms["head", "triton"])
    assert (found.name, found.change, found.setting) == ("num_stages", "3 → 2", "num_stages=3")


def test_nothing_is_left_out_in_silence():
    """A collapse now and then moves no median; and more groups than are examined."""
    (found,) = not_examined(judgement(case("m16", 1.0, 0.99), case("m64")), [])
    assert found.cases == ("gemm/triton/m16", "gemm/triton/m64")
    assert f"only the {MOST_GROUPS} largest slow-downs whose median is slower beyond doubt" in found.sentence
    assert "--case" in found.sentence


@pytest.fixture
def sides(tmp_path):
    folder = toy.repository(tmp_path / "repository")
    toy.changed(folder, toy.COPY)
    repository = Repository(folder)
    return repository.checkout("HEAD", "base"), repository.working_tree()


@pytest.mark.slow  # asks both sides what they declare
def test_a_limit_of_time_is_said_and_leaves_no_tree(sides, tmp_path):
    asked = (sides, judgement(case("m16")), [trial(m16=(3, 2))], MeasurePlan(), policy.load(), tmp_path / "why")
    (found,) = explain(*asked, seconds=0.0)
    assert (found.state, found.experiments) == ("not found", 0)
    assert "the experiments ended before a cause was found" in found.sentence
    assert not list((tmp_path / "why").glob("tree-*"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Interrupted("ctrl-c"), "why: interrupted; the verdict stands without it"),
        (MeasureError("no space left"), "why: broken off: no space left"),
    ],
)
def test_a_verdict_stands_without_its_cause(sides, tmp_path, monkeypatch, error, said):
    def broken(*args, **kwargs):
        raise error

    monkeypatch.setattr(why, "explain", broken)
    console = Console(file=io.StringIO(), width=200)
    outcome = Outcome(judgement(case("m16")), Followed(tmp_path / "t.jsonl").read())
    asked = (outcome, sides, MeasurePlan(), policy.load(), tmp_path / "t.jsonl", console)
    assert why.explained(*asked, 60.0) == ()
    assert said in console.file.getvalue()  # type: ignore[attr-defined]


# What is handed over with the trials: one line for each explanation, once.


def test_an_explanation_is_a_line_of_the_trial_file_once_and_no_trial(tmp_path):
    log = made.write(tmp_path / "trials.jsonl", made.paired(None, 0))
    trials = trial_files.read(log).trials
    cause = Explanation(("gemm/triton/m16",), "gemm/triton/m16", "proven", "knob num_stages 3 → 2: proven")
    sides = [LocalCheckout(role, tmp_path, Commit(role[0] * 40, 0, "")) for role in ("base", "head")]
    for _ in range(2):
        hand_over([cause], sides, trials, log)
    handed = trial_files.read_hostile(log)
    assert (len(handed.trials), handed.rejected) == (len(trials), ())
    (line,) = handed.causes
    (recorded,) = CAUSES.parsed(line)
    assert recorded == RecordedCause(trials[-1].machine.name, "b" * 40, "h" * 40, cause)


# `ridgeline ab` says why, on times that are measured: a knob, and an extra copy in one of two changed files.


def ab(folder, *words):
    command = [sys.executable, "-m", "ci", "ab", "main", "slow", "--rounds", "8", "--json", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path):
    made = toy.repository(tmp_path / "repository")
    git(made, "checkout", "--quiet", "-b", "slow")
    return made


@pytest.mark.slow
def test_a_knob_is_named_and_the_idle_one_beside_it_is_not(folder):
    toy.changed(folder, toy.KNOB)
    commit(folder, "more ticks")
    code, said = ab(folder, "--record")
    assert (code, said["verdict"]) == (1, "SLOWER")
    (why,) = said["explanations"]
    assert why["state"] == "proven"
    assert why["sentence"].startswith("knob ticks 8 → 64: putting it back leaves ")
    assert [one["name"] for one in why["tried"] if one["answer"].startswith("explains")] == ["ticks"]
    assert subprocess.check_output(["git", "status", "--porcelain"], cwd=folder) == b""
    (kept,), problems = causes_in(folder / "results")
    assert (kept.explanation.sentence, problems) == (why["sentence"], [])
    command = [sys.executable, "-m", "ci", "gate", "main", "slow", "--report", "gated"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)
    assert [one.sentence for one in json_report.read(folder / "gated.json").explanations] == [why["sentence"]]


@pytest.mark.slow
def test_the_file_with_the_copy_and_its_two_parts_are_named(folder):
    toy.changed(folder, toy.COPY)
    commit(folder, "a copy")
    code, said = ab(folder)
    assert (code, said["verdict"]) == (1, "SLOWER")
    (why,) = said["explanations"]
    assert why["state"] == "proven"
    named = {one["name"] for one in why["tried"] if one["answer"] == "explains all"}
    assert "toys/doze/layout.py" in named
    assert not any("work.py" in one for one in named)
    parts = " ".join(one["name"] for one in why["tried"] if one["part_of"] and one["answer"] == "explains all")
    assert "laid_out" in parts
    assert "name" not in parts.replace("layout.py", "").split(", ")
