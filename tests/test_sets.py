"""The sets of tests, what a test does that lacks a program, and which nightly ones a change reaches."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.reach import Reach
from tests import reached
from tests.kit import ROOT
from tests.reached import Change

LONG = """
import subprocess, sys, pytest
from tests import conftest
conftest.CPU_LIMIT_S = 0.3
BURN = "import time\\nwhile time.process_time() < 0.5: pass"

def test_its_process(): subprocess.run([sys.executable, "-c", BURN])
def test_what_its_process_started():
    below = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"
    subprocess.run([sys.executable, "-c", below])
def test_one_that_still_runs():
    text = BURN + "\\nprint(flush=True)\\ntime.sleep(60)"
    child.append(subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE))
    child[0].stdout.readline()
def test_what_another_one_started_costs_this_one_nothing(): child[0].kill(); child[0].wait()
@pytest.mark.slow
def test_of_the_slow_set(): subprocess.run([sys.executable, "-c", BURN])
def test_quick(): pass
child = []
"""

LACKS = """
import pytest
from tests.needed import needed

@pytest.fixture(scope="module")
def browser(): return needed("Chromium")
def test_one(browser): pass
def test_two(browser): pass
def test_three(): needed("npm")
def test_four(): needed("Slurm")
"""


def run(folder, text, *options, **variables):
    """A file of tests under our conftest, where there is none of the programs."""
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q\nmarkers = slow: ...\n")
    kept = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST")}
    env = {**kept, "PYTHONPATH": str(ROOT), "PATH": str(folder), **variables}
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", *options, "test_it.py"]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.nightly
@pytest.mark.parametrize("variables", [{}, {"CI": "true"}])
def test_under_ci_a_long_test_without_the_mark_fails(tmp_path, variables):
    done = run(tmp_path, LONG, "--cpu", "2", **variables)
    failed = {line.split("::")[1].split()[0] for line in done.stdout.splitlines() if line.startswith("ERROR ")}
    long = {"test_its_process", "test_what_its_process_started", "test_one_that_still_runs"}
    assert failed == (long if variables else set()), done.stdout
    assert ("make it faster, or mark it `slow` (limit 0.3 s)" in done.stdout) == bool(variables)
    assert "the longest 2" in done.stdout


@pytest.mark.nightly
def test_under_ci_nothing_is_skipped(tmp_path):
    done = run(tmp_path, LACKS, CI="true")
    ends = [line.split()[0] for line in done.stdout.splitlines() if " is not here" in line and "::" in line]
    assert sorted(ends) == ["ERROR", "ERROR", "FAILED", "FAILED"], done.stdout
    assert "SKIPPED" not in done.stdout


SHARED = """
import os, time, pytest
@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_of_one_file(number):
    open("workers", "a").write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
    time.sleep(0.2)
"""


@pytest.mark.nightly
def test_one_worker_runs_the_slow_tests_of_a_file(tmp_path):
    """They share what they set up, a cluster or a browser; pytest-xdist 3.8 beside pytest 9.2 knew no groups."""
    done = run(tmp_path, SHARED, "-n", "2", "--dist", "loadgroup")
    assert "6 passed" in done.stdout, done.stdout + done.stderr
    assert len(set((tmp_path / "workers").read_text().split())) == 1


# Which nightly tests a change of files reaches.


GEMM = Reach(("all_gather",), {"gemm": ("kernels/gemm/launch.py",)})
OPERATORS = "tests/kernels/test_operators.py"


@pytest.mark.parametrize(
    ("path", "file", "name", "runs"),
    [
        ("ci/stats/interval.py", "tests/ci/stats/test_interval.py", "test_a", True),
        ("ci/stats/interval.py", "tests/ci/judging/test_judge.py", "test_a", True),
        ("ci/judging/judge.py", "tests/ci/stats/test_interval.py", "test_a", False),
        ("benchmarks/worker/clocks.py", "tests/benchmarks/test_hostile_kernels.py", "test_a", True),
        ("benchmarks/worker/clocks.py", "tests/ci/stats/test_interval.py", "test_a", False),
        ("kernels/gemm/launch.py", OPERATORS, "test_a[gemm-gfx942]", True),
        ("kernels/gemm/launch.py", OPERATORS, "test_a[all_gather-gfx942]", False),
        ("kernels/gemm/launch.py", OPERATORS, "test_of_all", True),
        ("tests/kernels/ranks.py", OPERATORS, "test_a", True),
        ("tests/kit.py", "tests/ci/stats/test_interval.py", "test_a", False),
        (".github/guides/compare.md", "tests/github/test_guides.py", "test_a", True),
        (".github/guides/compare.md", "tests/ci/stats/test_interval.py", "test_a", False),
        ("constraints.txt", "tests/ci/stats/test_interval.py", "test_a", True),
    ],
)
def test_a_change_reaches(path, file, name, runs):
    assert Change((path,), GEMM).reaches(file, name) is runs


def test_an_operator_that_cannot_be_told_counts_as_every_one():
    assert Change(("kernels/gemm/launch.py",), Reach(unknown="no source")).reaches(OPERATORS, "test_a[all_gather]")


def test_a_commit_that_git_does_not_have_leaves_all_tests(request):
    assert reached.left([request.node], "0" * 40) == [request.node]
    assert reached.left([request.node], "HEAD") == []
