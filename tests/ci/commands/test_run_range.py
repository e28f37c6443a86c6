"""A range of commits measured: their order, what they share, what cannot be measured, and a run that goes on."""

from __future__ import annotations

import json
import re

import pytest

from ci import harness
from ci.commands.run_range import RangeRun, codes_of, steps_of
from ci.git.repository import Commit, Repository
from ci.harness import INTERRUPTED, USAGE, MeasurePlan
from tests.ci.made_trials import MACHINE, declaration, ok, tree, trial, write
from tests.kit import commit, repository, ridgeline, said

SOURCE = 'from kernels.spec import Kernel\n{name} = Kernel("{name}")\nSTEP = {step}\n'


def made(folder, steps):
    """A repository with a commit for each entry, {operator: what its file says}; their hashes."""
    repository(folder, README="")
    files = [{f"kernels/{name}.py": SOURCE.format(name=name, step=step) for name, step in one.items()} for one in steps]
    return [commit(folder, f"commit {n}", **one) for n, one in enumerate(files)]


def line(hash_, speed=1.0, number=0, name="gemm", code=""):
    """A trial of a commit; code: what it launched."""
    own = ok([1e-3 / speed] * 8) | {"code_hash": code or None}
    arms = {"m16": {"head/triton": own, "head/blas": ok([2e-3] * 8)}}

    return trial(arms, number, hash_[:16], kernel=name, trees={"head": tree(hash_, declared=declaration(name))})


def places(labels, steps=None):
    """Which commits of a range with these labels are measured, in order."""
    codes = [(Commit(f"{n:040x}", n, f"commit {n}"), {"gemm": label}) for n, label in enumerate(labels)]
    return [commit.date_ms for commit, _ in steps_of(codes, steps)]


def test_the_newest_come_first_and_steps_are_even():
    assert places("abcde") == [4, 3, 2, 1, 0]
    assert [places("abcdefghi", steps) for steps in (1, 2, 3, 20)] == [[8], [8, 0], [8, 4, 0], [*range(8, -1, -1)]]


def test_equal_files_are_measured_once():
    assert places("aabba") == [2, 0]
    assert places("", 3) == []


def ranging(folder, out):
    here = Repository(folder)
    of = codes_of(here, "..HEAD", None, ())
    return RangeRun(here, of, MeasurePlan(trials=1), out)


def test_a_run_that_was_interrupted_goes_on_and_says_what_is_not_measured(tmp_path, monkeypatch, capsys):
    hashes = made(
        tmp_path / "repo", [{"gemm": 0}, {"gemm": 1}, {"gemm": 2}, {"gemm": 1}, {"gemm": 3, "norm": 0}, {"gemm": 0}]
    )
    calls = []

    def measuring(sides, plan, out, console):
        [checkout] = sides
        if len(calls) == 1:
            return INTERRUPTED
        calls.append(checkout.commit.hash)
        assert "STEP" in (checkout.path / "kernels/gemm.py").read_text()
        if checkout.commit.hash == hashes[1]:
            return USAGE
        with out.open("a") as stream:
            stream.writelines(json.dumps(line(checkout.commit.hash, name=name)) + "\n" for name in plan.kernels)
        return 0

    out = tmp_path / "trials.jsonl"
    monkeypatch.setattr(harness, "measure", measuring)
    assert ranging(tmp_path / "repo", out).run() == INTERRUPTED
    (first,) = calls
    with out.open("a") as stream:
        stream.write('{"format": "ridgel\n')  # what a kill leaves, ended by the next writer
    calls.append("")
    capsys.readouterr()
    again = ranging(tmp_path / "repo", out)
    assert again.run() == 0
    assert [first, *calls[2:]] == [hashes[n] for n in (4, 2, 1, 0)]
    assert [one.hash for one in again.failed] == [hashes[1]]
    lines = [re.sub(r"^\d+ s", "T", one) for one in capsys.readouterr().err.splitlines()]
    assert lines[0] == f"T, 3 commits to go; now {hashes[2][:8]} commit 2: gemm"
    assert f"not measured: {hashes[1][:8]}: the lines above say why" in lines


def test_operators_that_a_commit_leaves_alone_are_not_measured_there(tmp_path):
    made(tmp_path / "repo", [{"gemm": 0, "norm": 0}, {"gemm": 1, "norm": 0}])
    left = ranging(tmp_path / "repo", tmp_path / "t.jsonl").remaining()
    assert [(commit.subject, operators) for commit, operators in left.items()] == [
        ("commit 1", ("gemm", "norm")),
        ("commit 0", ("gemm",)),
    ]


def test_what_is_recorded_of_this_machine_and_environment_is_not_measured_again(tmp_path, monkeypatch):
    """Which machine it is says the first trial; another machine's record, or one without all cases, counts nothing."""
    hashes = made(tmp_path / "repo", [{"gemm": n} for n in range(5)])
    whole = {case: {"head/triton": ok(), "head/blas": ok()} for case in ("m16", "m64")}

    def of(number, **more):
        cases = more.pop("cases", whole)
        own = tree(hashes[number], declared=declaration("gemm"), date_ms=1_790_000_000_000 + number)
        return trial(cases, 0, hashes[number][:16], trees={"head": own}, **more)

    records = [of(1), of(2, machine={**MACHINE, "name": "h200x2-5e6f7a8b"}), of(3, cases={"m16": whole["m16"]})]
    assert ridgeline("records", "add", write(tmp_path / "r.jsonl", *records), "--results", tmp_path).exit_code == 0
    out, calls = tmp_path / "trials.jsonl", list[str]()

    def measuring(sides, plan, out, console):
        calls.append(sides[0].commit.hash)
        with out.open("a") as stream:
            stream.write(json.dumps(of(hashes.index(calls[-1]))) + "\n")
        return 0

    monkeypatch.setattr(harness, "measure", measuring)
    run = ranging(tmp_path / "repo", out)
    run.results = tmp_path
    assert run.run() == 0
    assert calls == [hashes[n] for n in (4, 3, 2, 0)]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["HEAD"], "is not a range"),
        (["..HEAD", "--kernel", "gone"], "declares 'gone'; declared are: gemm"),
        (["--minutes", "3"], "--minutes is for a range of commits"),
        (["..HEAD", "--resume"], "are for one commit"),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path, monkeypatch, words, why):
    made(tmp_path / "repo", [{"gemm": 0}])
    monkeypatch.chdir(tmp_path / "repo")
    done = ridgeline("run", *words)
    assert done.exit_code == 3
    assert why in said(done)
