"""Explanations of a judgement: what is examined, what is not and why, and a verdict that stands without them."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ci.bisect.axes import RowPlace
from ci.commands.bisect import neighbours
from ci.commands.common import why
from ci.git.repository import LocalCheckout, Repository
from ci.harness import MEASURED, MeasureError, MeasurePlan
from ci.judging import policy
from ci.judging.live import Interrupted, Outcome
from ci.judging.types import CaseVerdict, Judgement, Verdict
from ci.records.ledger import causes_in
from ci.report import json_report
from ci.stats.bisection import Culprit, FoundSteps
from ci.trials import file as hostile
from ci.trials import file as trial_files
from ci.trials.file import Followed
from ci.why import suspects
from ci.why.experiments import CommitSides, Sides
from ci.why.explain import MOST_GROUPS, explain, explain_handed, not_examined, slower
from tests.ci import made_trials as made
from tests.ci.why import toy
from tests.kit import ROOT, git


def case(name: str, ratio: float = 1.05, low: float = 1.04) -> CaseVerdict:
    return CaseVerdict(f"gemm/triton/{name}", "gemm", "triton", Verdict.SLOWER, ratio, low, ratio + 0.01, trials=4)


def judgement(*cases: CaseVerdict) -> Judgement:
    return Judgement(Verdict.SLOWER, "", cases)


def trial(**knobs: tuple[int, int]):
    """One trial; by case, num_stages of base and head."""
    arms = {
        name: {"triton": [{**made.ok(), "knobs": {"num_stages": value, "block_m": 64}} for value in values]}
        for name, values in knobs.items()
    }
    return made.parsed(made.paired(arms))


def test_cases_with_the_same_changed_knobs_are_one_group_the_slowest_first() -> None:
    found = slower(judgement(case("m16", 1.02, 1.01), case("m64", 1.09, 1.08)), [trial(m16=(3, 2), m64=(3, 2))])
    assert [[one.case for one in group.cases] for group in found] == [["gemm/triton/m16", "gemm/triton/m64"]]
    assert found[0].worst.case == "gemm/triton/m64"
    apart = slower(judgement(case("m16", 1.02, 1.01), case("m64", 1.09, 1.08)), [trial(m16=(3, 2), m64=(3, 3))])
    assert [group.worst.case for group in apart] == ["gemm/triton/m64", "gemm/triton/m16"]


def test_the_trial_of_a_group_is_the_newest_that_has_the_worst_case() -> None:
    later = [trial(m16=(3, 2), m64=(3, 2)), trial(m16=(3, 2))]
    (found,) = slower(judgement(case("m16", 1.02, 1.01), case("m64", 1.09, 1.08)), later)
    assert "m64" in found.trial.cases


def test_a_knob_is_a_suspect_where_both_sides_have_it_with_different_values() -> None:
    arms = trial(m16=(3, 2)).cases["m16"].arms
    (found,) = suspects.of_knobs(arms["base", "triton"], arms["head", "triton"])
    assert (found.name, found.change, found.setting) == ("num_stages", "3 → 2", "num_stages=3")


def test_nothing_is_left_out_in_silence() -> None:
    """A collapse now and then moves no median; and more groups than are examined."""
    (collapsed, more) = reversed(tuple(not_examined(judgement(case("m16", 1.0, 0.99), case("m64")), [])))
    assert collapsed.cases == ("gemm/triton/m16",)
    assert "its median is not slower beyond doubt" in collapsed.sentence
    assert more.cases == ("gemm/triton/m64",)
    assert f"the {MOST_GROUPS} largest slow-downs" in more.sentence
    assert "--case" in more.sentence


@pytest.fixture
def sides(tmp_path: Path):
    folder = toy.repository(tmp_path / "repository")
    toy.changed(folder, toy.COPY)
    repository = Repository(folder)
    return repository.checkout("HEAD", "base"), repository.working_tree()


def test_a_limit_of_time_is_said_and_leaves_no_tree(sides, tmp_path: Path) -> None:
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
def test_a_verdict_stands_without_its_cause(sides, tmp_path, monkeypatch, error, said) -> None:
    def broken(*args, **kwargs):
        raise error

    monkeypatch.setattr(why, "explain", broken)
    console = Console(file=io.StringIO(), width=200)
    outcome = Outcome(judgement(case("m16")), Followed(tmp_path / "t.jsonl").read())
    asked = (outcome, sides, MeasurePlan(), policy.load(), tmp_path / "t.jsonl", tmp_path, console)
    assert why.explained(*asked, 60.0) == ()
    assert said in console.file.getvalue()  # type: ignore[attr-defined]


def test_nothing_is_done_where_it_is_not_wanted(sides, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(why, "explain", None)
    console = Console(file=io.StringIO())
    for verdict, seconds in ((judgement(case("m16")), 0.0), (Judgement(Verdict.SAME, ""), 60.0)):
        outcome = Outcome(verdict, Followed(tmp_path / "t.jsonl").read())
        asked = (outcome, sides, MeasurePlan(), policy.load(), tmp_path / "t.jsonl", tmp_path, console)
        assert why.explained(*asked, seconds) == ()


@pytest.mark.parametrize(
    ("low", "shift", "pair"), [(2, 0.02, ("c2", "c3")), (1, 0.02, None), (2, -0.02, None)], ids=str
)
def test_a_search_is_explained_where_it_found_one_slower_neighbour(low, shift, pair) -> None:
    places = [RowPlace(f"c{n}", f"c{n}") for n in range(5)]
    found = FoundSteps((Culprit(low, 3, 0.99, shift),), 0.99)
    assert neighbours(found, places) == pair
    assert neighbours(None, places) is None


# Why a case is slower, told from the experiments that a leg handed over: the same as where they were measured.


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
        how = ((1.0, 8), (SLOW if slow else 1.0, 64 if self.knob else 8))
        times = [list(1e-3 * factor * np.exp(self.random.normal(0, 0.003, 20))) for factor, _ in how]
        arms = [{**made.ok(own), "knobs": {"ticks": ticks}} for own, (_, ticks) in zip(times, how, strict=True)]
        declared = made.declaration("doze", cases=["n64"], backends=("torch", "blas"))
        trees = {one.role: made.tree(one.commit.hash, one.dirty, declared) for one in sides}
        return made.paired({"n64": {"torch": arms}}, self.written % 60, kernel="doze", trees=trees)


@dataclasses.dataclass
class Leg:
    """A commit that is slower, what measures it, and the trial file of a comparison that found it."""

    repository: Repository
    sides: tuple[LocalCheckout, LocalCheckout]
    measured: Measured
    log: Path

    def explained(self, **more):
        asked = (self.sides, JUDGED, trial_files.read(self.log).trials, MeasurePlan(), RULES, self.log.parent / "why")
        return explain(*asked, measuring=self.measured, log=self.log, **more)

    def handed(self, lines):
        commits = CommitSides(self.repository.root, *(one.commit.hash for one in self.sides))
        return explain_handed(commits, JUDGED, trial_files.read(self.log).trials, lines, RULES)


@pytest.fixture(params=["a knob", "a file"])
def leg(request, tmp_path: Path) -> Leg:
    """Slower by its knob, or by one of its files."""
    folder = toy.repository(tmp_path / "repository")
    toy.changed(folder, toy.KNOB if request.param == "a knob" else toy.COPY)
    toy.committed(folder, "slower")
    repository = Repository(folder)
    sides = (repository.checkout("HEAD^", "base"), repository.checkout("HEAD", "head"))
    measured = Measured(request.param == "a knob")
    return Leg(repository, sides, measured, made.write(tmp_path / "trials.jsonl", measured.trial(sides, True)))


RULES = policy.load()
JUDGED = Judgement(
    Verdict.SLOWER,
    "1 case",
    (CaseVerdict(CASE, "doze", "torch", Verdict.SLOWER, SLOW, SLOW - 0.01, SLOW + 0.01, trials=4),),
)


def test_who_judges_elsewhere_tells_the_same_cause_with_the_same_figures(leg: Leg) -> None:
    said = ("LDS bytes: 1 → 2",)
    (there,) = leg.explained(code=lambda question, trial: said)
    assert there.state == "proven"
    handed = hostile.read_hostile(leg.log)
    assert (len(handed.trials), handed.rejected) == (1, ())
    (here,) = leg.handed(handed.experiments)
    assert (here.state, here.sentence, here.code) == (there.state, there.sentence, said)
    alike = [[dataclasses.replace(one, why="") for one in found.tried] for found in (here, there)]
    assert alike[0] == alike[1], "what a tree that does not run printed is not handed over"
    assert here.experiments == there.experiments


def test_what_was_measured_once_is_kept_once_and_is_no_trial_of_head(leg: Leg) -> None:
    alone = trial_files.read(leg.log).trials
    leg.explained()
    before = leg.log.read_bytes()
    leg.explained()
    assert leg.log.read_bytes() == before
    followed = Followed(leg.log).read()
    assert [one.id for one in followed.trials] == [one.id for one in alone]
    assert followed.experiments


def test_no_line_of_the_log_is_parsed_twice(leg: Leg, monkeypatch: pytest.MonkeyPatch) -> None:
    parse, parsed = trial_files.parse_line, Counter[bytes]()

    def counted(line: bytes, *rest: object) -> object:
        parsed.update([line])
        return parse(line, *rest)

    trials = trial_files.read(leg.log).trials
    monkeypatch.setattr(trial_files, "parse_line", counted)
    explain(
        *(leg.sides, JUDGED, trials, MeasurePlan(), RULES, leg.log.parent / "why"), measuring=leg.measured, log=leg.log
    )
    lines = leg.log.read_bytes().splitlines()
    assert len(lines) > 2, "a trial, and two experiments"
    assert {parsed[line] for line in lines[:-1]} == {1}


def test_nothing_is_told_where_nothing_was_handed_over_and_a_missing_case_is_said(leg: Leg) -> None:
    assert leg.handed(()) == ()
    leg.explained()
    other = leg.log.with_name("other.jsonl")
    other.write_text(leg.log.read_text().replace('"case":"doze/torch/n64"', '"case":"doze/torch/n65"'))
    (left,) = leg.handed(hostile.read_hostile(other).experiments)
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


# `ridgeline ab` says why, on times that are measured: a knob, and an extra copy in one of two changed files.


def ab(folder: Path, *words: str) -> tuple[int, dict]:
    command = [sys.executable, "-m", "ci", "ab", "main", "slow", "--rounds", "8", "--json", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = toy.repository(tmp_path / "repository")
    git(made, "checkout", "--quiet", "-b", "slow")
    return made


@pytest.mark.slow
def test_a_knob_is_named_and_the_idle_one_beside_it_is_not(folder: Path) -> None:
    toy.changed(folder, toy.KNOB)
    toy.committed(folder, "more ticks")
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
def test_the_file_with_the_copy_and_its_two_parts_are_named(folder: Path) -> None:
    toy.changed(folder, toy.COPY)
    toy.committed(folder, "a copy")
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
