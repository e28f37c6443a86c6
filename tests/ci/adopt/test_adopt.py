"""`ridgeline adopt` in a repository of one's own, from the command line to the verdict."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.adopted.__main__ import main as measure
from benchmarks.adopted.survey import ScriptRun
from benchmarks.shapes import built
from ci import adopt
from ci.adopt import ScriptRequest, import_paths
from ci.git.repository import Commit, LocalCheckout
from ci.harness import ChildExit, MeasurePlan
from tests.kit import commit, ridgeline
from tests.kit import repository as repository_of

SCRIPT = """
import json, sys
import torch, mylib
from triton.testing import do_bench

for size in (64, 96):
    x = torch.randn(size, size)
    for provider in ("mine", "torch"):
        fn = {"mine": mylib.double, "torch": torch.relu}[provider]
        print(json.dumps({"ms": do_bench(lambda: fn(x))}))
print("arguments:", sys.argv[1:])
"""

FAST = "def double(x):\n    return x * 2\n"
SLOW = "def double(x):\n    for _ in range(600):\n        y = x * 2\n    return y\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Two commits: the second is slower."""
    files = {
        "bench/speed.py": SCRIPT,
        "bench/old.py": "print('no timer')\n",
        "bench/own.py": "import timeit\ntimeit.timeit(int)\n",
        "bench/remark.py": "print()\n",
        "mylib/__init__.py": FAST,
        ".gitignore": ".ridgeline\n__pycache__\n",
    }
    folder = repository_of(tmp_path_factory.mktemp("theirs"), **files)
    (folder / "bench/old.py").unlink()
    files = {
        "bench/speed.py": SCRIPT + "print()\n",
        "bench/own.py": "import timeit\ntimeit.timeit(str)\n",
        "bench/remark.py": "print()  # nothing\n",
        "mylib/__init__.py": SLOW,
    }
    commit(folder, **files)
    return folder


@pytest.fixture
def inside(repository, monkeypatch):
    """In the repository; the measuring program runs in this process, so that all share a fork server."""
    monkeypatch.chdir(repository)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setattr(adopt, "follow", in_this_process)
    return repository


def in_this_process(argv, *_, told=None, **__):
    """What ci.harness.follow makes of the program."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", SimpleNamespace(readline=told))
        code = measure(argv[argv.index("benchmarks.adopted") + 1 :])
    return ChildExit(code, tuple(line for line in said.getvalue().splitlines() if '"asks"' not in line))


run = functools.partial(ridgeline, "adopt")


@pytest.mark.slow
def test_a_slower_commit_is_found_by_a_script_that_knows_nothing_of_us(inside, tmp_path):
    out = tmp_path / "t.jsonl"
    found = run("bench/speed.py", "HEAD^", "HEAD", "--json", "--rounds", "8", "--out", str(out), "--", "--json", "x")
    assert found.exit_code == 1, found.output
    said = json.loads(found.stdout)  # the script's own JSON is not in it
    assert said["verdict"] == "SLOWER"
    assert {case["case"] for case in said["cases"] if case["verdict"] == "SLOWER"} == {
        "speed/mine/size=64",
        "speed/mine/size=96",
    }
    assert "speed.py differs between base and head: both sides run the text of head" in said["warnings"][0]
    assert said["warnings"][0] in found.stderr
    assert "arguments: ['--json', 'x']" in Path(f"{out}.head.txt").read_text()
    assert "arguments" not in found.stdout
    assert json.loads(ridgeline("ab", "--replay", str(out), "--json").stdout)["verdict"] == "SLOWER"


@pytest.mark.slow
def test_what_a_script_times_can_be_listed(inside, tmp_path):
    out = tmp_path / "t.jsonl"
    listed = run("bench/speed.py", "HEAD^", "HEAD", "--list", "--out", str(out))
    assert listed.exit_code == 0, listed.stderr
    assert len(re.findall(r" us, by do_bench$", listed.stdout, re.M)) == 2
    assert len(re.findall(r" us, by .*; not timed: both sides run the same code$", listed.stdout, re.M)) == 2
    assert "2 of 4 closures" in listed.stdout
    assert not out.exists()


@pytest.mark.slow
def test_a_script_of_one_commit_and_one_that_times_nothing(inside):
    missing = run("bench/old.py", "HEAD^", "HEAD")
    assert missing.exit_code == 3
    assert "there is no script bench/old.py in head; it is in base: --script-from base" in missing.stderr
    nothing = run("bench/old.py", "HEAD^", "HEAD", "--script-from", "base")
    assert nothing.exit_code == 2
    assert nothing.stdout.startswith("CANNOT TELL: bench/old.py (base) ended without a timer")
    assert run("bench/never.py", "HEAD^", "HEAD").exit_code == 3
    own = run("bench/own.py", "HEAD^", "HEAD")
    assert own.exit_code == 2
    assert "what differs in it is not compared; all else that it times runs the same code" in own.stdout


def test_a_dry_run_does_nothing(inside):
    said = run("bench/remark.py", "HEAD^", "HEAD", "--dry-run")
    assert (said.exit_code, said.stderr) == (0, "")
    assert "would run bench/remark.py on" in said.stdout


def test_paths_inside_the_repository_are_those_of_each_checkout(inside, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{inside}/mylib::/elsewhere:../mylib:lib")
    monkeypatch.chdir(inside / "bench")
    found = import_paths(inside.resolve(), ("bench", "/far"))
    assert found == ("bench", "/far", "mylib", "/elsewhere", "bench/lib"), "PYTHONPATH is read from the current folder"
    monkeypatch.setenv("PYTHONPATH", f"{inside}/.site")
    (inside / ".site" / "yaml").mkdir(parents=True)
    assert import_paths(inside.resolve(), ()) == (str(inside.resolve() / ".site"),), "git knows nothing of it"


def test_a_script_is_told_as_the_measuring_program_reads_it(tmp_path):
    sides = [LocalCheckout(role, tmp_path, Commit("a" * 40, 0, "")) for role in ("base", "head")]
    asked = ScriptRequest(Path("b.py"), tmp_path / "b.py", ("--rounds", "1"), budget_min=2.0)
    words = asked.options(sides, MeasurePlan(rounds=9), tmp_path / "t.jsonl")
    script = built(ScriptRun, json.loads(words[words.index("--script") + 1]), closed=True)
    assert (script.arguments, script.budget_s) == (("--rounds", "1"), 120.0)
