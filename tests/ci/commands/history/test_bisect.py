"""`ridgeline bisect` as somebody runs it: on real commits on a CPU, over recorded trials, and with wrong words."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.__main__ import USAGE, main
from ci.options import NO_VERDICT, PASS
from tests.ci.bisect import toys
from tests.ci.bisect.test_outcomes import written

CASE = ("--case", "rows/r4")
FAST = ("--rounds", "11", "--smallest", "0.5")
"""Other work on the machine moves a trial by tens of percent; the planted step is a factor of eight, of a call that is
short and of one thread, so that most rounds are undisturbed."""


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("toy") / "repository"
    return folder, toys.made(folder)


@pytest.fixture
def inside(toy, monkeypatch) -> tuple[Path, list[str]]:
    monkeypatch.chdir(toy[0])
    return toy


def run(*words: object):
    return CliRunner().invoke(main, ["bisect", *map(str, words)])


@pytest.mark.slow
def test_it_finds_the_commit_among_twenty_and_goes_on_where_it_was(inside, tmp_path) -> None:
    _, commits = inside
    out = tmp_path / "trials.jsonl"
    asked = ("v0", "v20", *CASE, *FAST, "--out", out, "--json", "--no-why")
    few = run(*asked, "--trials", "3")
    assert few.exit_code == NO_VERDICT, few.output
    stopped = json.loads(few.stdout)
    assert (stopped["verdict"], stopped["first_bad"], stopped["trials"]) == ("NOT DECIDED", None, 3)

    done = run(*asked)
    assert done.exit_code == PASS, done.output
    assert "going on with the 3 trials" in done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "FOUND"
    assert found["first_bad"] == commits[toys.SLOWER]
    assert found["probability"] >= 0.99
    assert found["culprits"][0]["ratio"] > 2
    assert found["trials"] == len(found["steps"]) <= 20
    assert found["steps"][:3] == stopped["steps"]
    assert found["classes"] <= 7
    assert {one["name"] for one in found["skipped"]} <= {commits[toys.BROKEN]}
    last = found["steps"][-1]
    assert (last["base"], last["head"]) == (commits[toys.SLOWER - 1], commits[toys.SLOWER])

    again = run("v0", "v20", *CASE, *FAST, "--replay", out)
    assert again.exit_code == PASS, again.output
    assert f"first bad commit: {commits[toys.SLOWER][:8]} change {toys.SLOWER}: +" in again.stdout
    other = run("v0", "v3", *CASE, "--out", out)
    assert other.exit_code == USAGE
    assert "has trials of other commits than these 4; give another file with --out" in other.stderr


def test_a_dry_run_says_which_commits_which_code_and_how_long(inside) -> None:
    before = sorted(inside[0].rglob("*.jsonl"))
    done = run("v0", "v20", *CASE, "--dry-run", "--json")
    assert done.exit_code == PASS, done.output
    told = json.loads(done.stdout)
    assert told["classes"] == 7
    assert [one["name"] for one in told["places"]] == inside[1]
    assert 5 <= told["trials"] <= 40
    assert told["minutes"] > 0
    code = [one["code"] for one in told["places"]]
    changed = [n for n in range(1, len(code)) if code[n] != code[n - 1]]
    assert changed == sorted({*toys.REWRITTEN, toys.SLOWER, toys.BROKEN} - {0})
    shown = run("v0", "v20", *CASE, "--dry-run").stdout
    assert "20 commits, 7 with code that may differ" in shown
    assert sorted(inside[0].rglob("*.jsonl")) == before


def test_which_environment_is_asked_of_pythons_in_their_order(inside, tmp_path) -> None:
    """The same Python twice under two names: no step."""
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    done = run("--axis", "env", sys.executable, link, *CASE, *FAST, "--dry-run", "--json")
    assert done.exit_code == PASS, done.output
    assert [one["name"] for one in json.loads(done.stdout)["places"]] == [sys.executable, str(link)]


NAMES = [f"v{n}" for n in range(9)]


def test_recorded_trials_are_judged_in_their_order_without_a_repository(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = [(8, 1.021), (4, 1.0), (6, 1.02), (5, 1.001), (6, 1.019), (5, 0.999), (8, 1.0195), (6, 1.02), (5, 1.0)]
    lines = [("v0", NAMES[at], ratio) for at, ratio in pairs]
    file = written(tmp_path / "r.jsonl", toys.replay_lines(NAMES, [*lines, ("v5", "v6", 1.02), ("v5", "v6", 1.02)]))
    done = run("--replay", file, "--json")
    assert done.exit_code == PASS, done.output
    found = json.loads(done.stdout)
    assert {"first_bad", "probability", "trials", "steps"} <= set(found)
    assert (found["first_bad"], found["good"], found["bad"]) == ("v6", "v0", "v8")
    assert found["trials"] == len(found["steps"]) == 10
    half = run("--replay", written(tmp_path / "h.jsonl", toys.replay_lines(NAMES, lines[:2])))
    assert half.exit_code == NO_VERDICT
    assert "not decided after 2 trials" in half.stdout
    flat = toys.replay_lines(NAMES, [("v0", "v8", 1 + n * 1e-4) for n in range(8)])
    done = run("--replay", written(tmp_path / "f.jsonl", flat), "--smallest", "0.05")
    assert done.exit_code == PASS
    assert done.stdout.startswith("no step of 5 % or more between v0 and v8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("v0", *CASE), "1 commits given; name two, the good one first"),
        (("v0", "v20"), "say what became slower: --case KERNEL/CASE"),
        (("v20", "v0", *CASE), "name the older one first: v0 v20"),
        (("v3", "v3", *CASE), "name two different commits"),
        (("v0", "gone", *CASE), "'gone' names no commit"),
        (("--axis", "knob", *CASE), "needs the knobs that differ, such as num_warps=4,8"),
        (("--axis", "knob", "num_warps=4", *CASE), "'num_warps=4': NAME=GOOD,BAD with two different values"),
        (("--axis", "knob", "a=1,2", "a=2,3", *CASE), "a knob is named twice"),
        (("--axis", "triton", sys.executable, *CASE), "needs two Pythons or more"),
        (("--axis", "knob", "a=1,2", "--arch", "gfx942", *CASE), "leave it out with --axis knob"),
        (("--axis", "driver", *CASE), "no record of it has a driver; two drivers are compared"),
        (("--axis", "env", sys.executable, "/nowhere/python", *CASE), "'/nowhere/python' is no program"),
        (("--axis", "env", sys.executable, sys.executable, *CASE), "a Python is named twice"),
        (("v0", "v20", "--event", "3f2a"), "--event names the ends itself; leave out v0 v20"),
        (("--event", "3f2a"), "no event has the id '3f2a'"),
        (("--replay", "absent.jsonl"), "absent.jsonl: cannot be read"),
    ],
)
def test_wrong_words_are_refused_in_one_sentence(inside, words, said) -> None:
    done = run(*words)
    assert done.exit_code == USAGE, done.output
    assert said in " ".join(done.stderr.replace("│", " ").split())
