"""Which nightly tests a change of files reaches."""

from __future__ import annotations

import pytest

from benchmarks.reach.operators import Reach
from tests import reached
from tests.reached import Change

GEMM = Reach(("all_gather",), {"gemm": ("kernels/gemm/launch.py",)})
OPERATORS = "tests/kernels/test_operators.py"


@pytest.mark.parametrize(
    ("path", "file", "name", "runs"),
    [
        ("ci/stats/interval.py", "tests/ci/stats/test_interval.py", "test_a", True),
        ("ci/stats/interval.py", "tests/ci/judging/test_judge.py", "test_a", True),
        ("ci/judging/judge.py", "tests/ci/stats/test_interval.py", "test_a", False),
        ("benchmarks/worker/clocks.py", "tests/benchmarks/hostile/test_hostile_kernels.py", "test_a", True),
        ("benchmarks/worker/clocks.py", "tests/ci/stats/test_interval.py", "test_a", False),
        ("kernels/gemm/launch.py", OPERATORS, "test_a[gemm-gfx942]", True),
        ("kernels/gemm/launch.py", OPERATORS, "test_a[all_gather-gfx942]", False),
        ("kernels/gemm/launch.py", OPERATORS, "test_of_all", True),
        ("tests/kernels/fake_ranks.py", OPERATORS, "test_a", True),
        ("tests/kit.py", "tests/ci/stats/test_interval.py", "test_a", False),
        (".github/guides/compare.md", "tests/github/test_guides.py", "test_a", True),
        (".github/guides/compare.md", "tests/ci/stats/test_interval.py", "test_a", False),
        ("constraints.txt", "tests/ci/stats/test_interval.py", "test_a", True),
    ],
)
def test_a_change_reaches(path: str, file: str, name: str, runs: bool) -> None:
    assert Change((path,), GEMM).reaches(file, name) is runs


def test_an_operator_that_cannot_be_told_counts_as_every_one() -> None:
    assert Change(("kernels/gemm/launch.py",), Reach(unknown="no source")).reaches(OPERATORS, "test_a[all_gather]")


def test_a_commit_that_git_does_not_have_leaves_all_tests(request: pytest.FixtureRequest) -> None:
    assert reached.left([request.node], "0" * 40) == [request.node]
    assert reached.left([request.node], "HEAD") == []
