"""Why a case is slower, told from the experiments that a leg handed over: the same as where they were measured."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ci.git.repository import LocalCheckout, Repository
from ci.harness import MEASURED, MeasurePlan
from ci.judging import policy
from ci.judging.types import CaseVerdict, Judgement, Verdict
from ci.records.ledger import TriedCause
from ci.trials import file as hostile
from ci.trials import file as trial_files
from ci.why.experiments import CommitSides, Sides
from ci.why.explain import explain, explain_handed
from tests.ci import made_trials as made
from tests.ci.why import toy
from tests.one_operator import git

CASE = "doze/torch/n64"
SLOW = 1.3


class Measured:
    """Plays measuring: a tree is slow while it has the copy in it, or the knob."""

    def __init__(self, knob: bool) -> None:
        self.knob, self.random, self.written = knob, np.random.default_rng(3), 0

    def __call__(self, sides: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console) -> int:
        text = (sides[1].path / "toys/doze/layout.py").read_text()
        if "return copied(x)" in text and "def copied" not in text:
            return MEASURED  # it does not run: there is no trial
        put_back = any("ticks=8" in one for one in plan.knobs)
        slow = (self.knob and not put_back) or "return copied(x)" in text
        for _ in range(plan.trials):
            with out.open("a") as file:
                file.write(json.dumps(self.trial(sides, slow)) + "\n")
        return MEASURED

    def trial(self, sides: Sequence[LocalCheckout], slow: bool) -> dict:
        self.written += 1
        factor = {"base": 1.0, "head": SLOW if slow else 1.0}
        times = {role: list(1e-3 * factor[role] * np.exp(self.random.normal(0, 0.003, 20))) for role in factor}
        ticks = {"base": 8, "head": 64 if self.knob else 8}
        arms = {f"{role}/torch": {**made.ok(times[role]), "knobs": {"ticks": ticks[role]}} for role in factor}
        declared = made.declaration("doze", cases=["n64"], backends=("torch", "blas"))
        trees = {one.role: made.tree(one.commit.hash, one.dirty, declared) for one in sides}
        return made.trial({"n64": arms}, number=self.written % 60, kernel="doze", trees=trees)


@pytest.fixture(params=["a knob", "a file"])
def scene(request, tmp_path: Path):
    """(repository, checkouts, what measures) of a commit that is slower by its knob, or by one of its files."""
    folder = toy.repository(tmp_path / "repository")
    toy.changed(folder, toy.KNOB if request.param == "a knob" else toy.COPY)
    toy.committed(folder, "slower")
    repository = Repository(folder)
    sides = (repository.checkout("HEAD^", "base"), repository.checkout("HEAD", "head"))
    return repository, sides, Measured(request.param == "a knob")


def without_why(one: TriedCause) -> TriedCause:
    """What a tree that does not run printed is not handed over."""
    return dataclasses.replace(one, why="")


def judged() -> Judgement:
    one = CaseVerdict(CASE, "doze", "torch", Verdict.SLOWER, SLOW, SLOW - 0.01, SLOW + 0.01, trials=4)
    return Judgement(Verdict.SLOWER, "1 case", (one,))


def test_who_judges_elsewhere_tells_the_same_cause_with_the_same_figures(scene, tmp_path: Path) -> None:
    repository, sides, measured = scene
    log = tmp_path / "trials.jsonl"
    made.write(log, measured.trial(sides, True))
    trials = trial_files.read(log).trials
    asked = (sides, judged(), trials, MeasurePlan(), policy.load(), tmp_path / "why")
    said = ("LDS bytes: 1 → 2",)
    (there,) = explain(*asked, measuring=measured, code=lambda question, trial: said, log=log)
    assert there.state == "proven"

    handed = hostile.read_hostile(log)
    assert (len(handed.trials), handed.rejected) == (1, ())
    commits = CommitSides(repository.root, sides[0].commit.hash, sides[1].commit.hash)
    (here,) = explain_handed(commits, judged(), handed.trials, handed.experiments, policy.load())
    assert (here.state, here.sentence, here.code) == (there.state, there.sentence, said)
    assert [without_why(one) for one in here.tried] == [without_why(one) for one in there.tried]
    assert here.experiments == there.experiments


def test_what_was_measured_once_is_kept_once(scene, tmp_path: Path) -> None:
    _, sides, measured = scene
    log = tmp_path / "trials.jsonl"
    made.write(log, measured.trial(sides, True))
    asked = (sides, judged(), trial_files.read(log).trials, MeasurePlan(), policy.load(), tmp_path / "why")
    explain(*asked, measuring=measured, log=log)
    before = log.read_bytes()
    explain(*asked, measuring=measured, log=log)
    assert log.read_bytes() == before


def test_no_line_of_the_log_is_parsed_twice(scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, sides, measured = scene
    log, parse, parsed = tmp_path / "trials.jsonl", trial_files.parse_line, Counter[bytes]()
    made.write(log, measured.trial(sides, True))
    trials = trial_files.read(log).trials

    def counted(line: bytes, number: int = 0) -> object:
        parsed.update([line])
        return parse(line, number)

    monkeypatch.setattr(trial_files, "parse_line", counted)
    explain(sides, judged(), trials, MeasurePlan(), policy.load(), tmp_path / "why", measuring=measured, log=log)
    lines = log.read_bytes().splitlines()
    assert len(lines) > 2, "a trial, and two experiments"
    assert {parsed[line] for line in lines[:-1]} == {1}


def test_experiments_are_no_trials_of_head(scene, tmp_path: Path) -> None:
    _, sides, measured = scene
    log = tmp_path / "trials.jsonl"
    made.write(log, measured.trial(sides, True))
    alone = trial_files.read(log).trials
    explain(sides, judged(), alone, MeasurePlan(), policy.load(), tmp_path / "why", measuring=measured, log=log)
    followed = trial_files.Followed(log).read()
    assert [one.id for one in followed.trials] == [one.id for one in alone]
    assert followed.experiments


def test_nothing_is_told_where_nothing_was_handed_over_and_a_missing_case_is_said(scene, tmp_path: Path) -> None:
    repository, sides, measured = scene
    log = tmp_path / "trials.jsonl"
    made.write(log, measured.trial(sides, True))
    trials = trial_files.read(log).trials
    commits = CommitSides(repository.root, sides[0].commit.hash, sides[1].commit.hash)
    assert explain_handed(commits, judged(), trials, (), policy.load()) == ()
    explain(sides, judged(), trials, MeasurePlan(), policy.load(), tmp_path / "why", measuring=measured, log=log)
    text = log.read_text().replace('"case":"doze/torch/n64"', '"case":"doze/torch/n65"')
    log.write_text(text)
    (left,) = explain_handed(commits, judged(), trials, hostile.read_hostile(log).experiments, policy.load())
    assert (left.state, left.sentence) == ("not examined", "not examined: no experiment on it was handed over")


def test_both_sides_differ_alike_on_disk_and_in_git(tmp_path: Path) -> None:
    folder = toy.repository(tmp_path / "repository")
    toy.changed(folder, toy.COPY)
    (folder / "toys/doze/table.toml").write_text("rows = 3\n")
    (folder / "toys/doze/comment.py").write_text("# nothing\n")
    toy.committed(folder, "more")
    (folder / "toys/doze/comment.py").write_text("# nothing more\n")
    (folder / "toys/doze/table.toml").write_text("rows = 4\n\n")
    git(folder, "commit", "--quiet", "--all", "--message", "again")
    repository = Repository(folder)
    for ends in (("HEAD~2", "HEAD"), ("HEAD^", "HEAD")):
        base, head = (repository.checkout(one, role) for one, role in zip(ends, ("base", "head"), strict=True))
        disk = Sides(base, head, tmp_path)
        commits = CommitSides(folder, base.commit.hash, head.commit.hash)
        assert commits.changed == disk.changed
        assert [commits.texts(name) for name in disk.changed] == [disk.texts(name) for name in disk.changed]


@pytest.mark.parametrize(
    ("change", "why"),
    [({"put": 3}, "put is 3"), ({"trials": [{}]}, "format is null"), ({"code": ["a\nb"]}, "without control")],
)
def test_a_line_that_is_none_is_refused_with_its_reason(change: dict, why: str) -> None:
    line = {"format": "ridgeline-experiment", "version": 1, "case": CASE, "put": ["knob a=1"], "trials": [], "code": []}
    found = trial_files.parse_line(json.dumps({**line, **change}).encode())
    assert isinstance(found, trial_files.Rejected)
    assert why in found.why
