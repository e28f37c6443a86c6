"""What a pool does for a pull request: two commands on one trial file, and the exit code of the comparison."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from ci.commands.pools import comparison, night_steps, through
from ci.git.repository import Commit
from ci.trials import file
from tests.ci import made_trials as made
from tests.ci.commands.test_gate import MACHINE
from tests.ci.commands.test_gate import scene as scene
from tests.ci.judging.test_claims import sealed, times
from tests.kit import git, ridgeline

HEAD = Commit("0123456789abcdef0123456789abcdef01234567", 1_700_000_000_000, "head")


def test_a_leg_compares_the_two_commits():
    words = comparison("HEAD...x", HEAD, Path("t.jsonl"))
    assert words == ("ab", "HEAD...x", HEAD.hash, "--out=t.jsonl", "--why-seconds=180")


def test_an_unknown_commit_is_named_and_a_dry_run_checks_nothing_out(tmp_path):
    out = str(tmp_path / "t.jsonl")
    done = ridgeline("leg", "HEAD", "HEAD", "--out", out, "--dry-run")
    assert done.exit_code == 0
    assert "would run: ridgeline ab " in done.output
    failed = ridgeline("leg", "HEAD", "nowhere", "--out", out)
    assert failed.exit_code == 3
    assert "'nowhere'" in failed.output


# A night on one machine: what is run, in which order, and whose exit code counts.


T = Path("t")


@pytest.mark.parametrize(
    ("planned", "ran"),
    [
        ([comparison("b", HEAD, T)], ["ab"]),
        (night_steps("nightly", [], T), ["doctor", "run", "..HEAD"]),
        (night_steps("nightly", [], T, ["bench"]), ["doctor", "run", "run", "..HEAD"]),
        (night_steps("sweep", [], T), ["doctor", "run"]),
        (night_steps("nightly", ["gemm"], T), ["doctor", "run"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("measuring", [0, 1])
def test_all_steps_run_and_the_exit_code_is_that_of_measuring(planned, ran, others, measuring):
    seen = []

    def play(words):
        seen.append(words[words[0] == "ci" or words[1:2] == ("..HEAD",)])
        return measuring if seen[-1] in ("ab", "run") else others

    assert (through(planned, play), seen) == (measuring, ran)


def test_names_of_operators_are_words_and_nothing_else(tmp_path):
    """What an input of a workflow holds is never a piece of a shell's line, nor an option."""
    asked = ["night", "--kernels", "gemm --out=elsewhere $(id)", "--out", str(tmp_path / "t"), "--dry-run"]
    done = ridgeline(*asked)
    assert done.exit_code == 0
    assert "--kernel=gemm --kernel=--out=elsewhere --kernel=$(id)" in done.output


# `ridgeline ci pools`, as it is called.


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    return tmp_path


invoke = functools.partial(ridgeline, "pools")


def test_show_prints_how_a_pool_is_reached_and_what_runs():
    shown = invoke("--show", "mi300x", "--gpus", "8", "--", "echo", "a b").output
    assert "# GitHub: ['linux', 'mi300x', 'mi300x-8'].  Slurm: site cluster, partition mi300x, gpu:mi300x:8" in shown
    assert "command=(echo 'a b')" in shown
    document = json.loads(invoke("--show", "mi300x", "--json").stdout)
    assert [job["gpus"] for job in document["jobs"]] == [1, 8]


# What a night's record job does with a trial file: what fits is kept, what does not is told, the rest is pushed.


def night(head, number=0, **changes):
    line = made.trial(
        {"m16": {"head/triton": made.ok(times())}}, number, trees={"head": made.tree(head)}, machine=MACHINE
    )
    return sealed({**line, **changes})


def sift(scene, *lines, more=""):
    folder = scene.clone / "incoming"
    folder.mkdir()
    path = made.write(folder / "trials.jsonl", *lines)
    path.write_text(path.read_text() + more)
    asked = ["sift", str(folder), "--head", scene.base, "--pool", "h200", "--out", "fit.jsonl"]
    return ridgeline(*asked)


def kept(scene):
    return [trial.number for trial in file.read(scene.clone / "fit.jsonl").trials]


def test_what_fits_is_kept(scene):
    assert sift(scene, night(scene.base), night(scene.base, 1)).exit_code == 0
    assert kept(scene) == [0, 1]


def test_what_earlier_nights_missed_fits_where_it_is_of_the_main_branch(scene):
    """A commit that only a fork has does not; nor does another head beside a base."""
    earlier = git(scene.clone, "rev-list", "--max-parents=0", "HEAD")
    done = sift(scene, night(scene.base), night(earlier, 1), night(scene.head, 2))
    assert (done.exit_code, kept(scene)) == (3, [0, 1])
    assert f"it says its head is {scene.head}" in done.output


@pytest.mark.parametrize(
    "change", [{"machine": {**MACHINE, "market_name": "MI300X"}}, {"trees": {"head": made.tree()}}]
)
def test_what_does_not_fit_is_told_and_stops_nothing(scene, change):
    done = sift(scene, night(scene.base), night(scene.base, 1, **change), more="a bad line\n")
    assert done.exit_code == 3
    assert done.output.count("left out: ") == 2
    assert kept(scene) == [0]


def test_push_says_what_it_would_do_and_does_it(scene):
    (scene.clone / "results").mkdir()
    (scene.clone / "results/a.json").write_text("1")
    git(scene.hub, "checkout", "-q", "--detach")
    asked = ("push", "results", "main")
    assert ridgeline(*asked, "--dry-run").exit_code == 0
    assert git(scene.clone, "status", "--porcelain") == "?? results/"
    assert "to main" in ridgeline(*asked).output
    assert git(scene.hub, "show", "main:results/a.json") == "1"
    assert "nothing new" in ridgeline(*asked).output
