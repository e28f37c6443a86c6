"""What `ridgeline check` compares with, in clones of all kinds; nothing is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.git.repository import Repository
from ci.harness import MeasurePlan
from ci.judging import reach
from ci.options import PASS, USAGE
from tests.kit import commit, git, repository, ridgeline, said


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"ridgeline.toml": 'kernels = ["perf"]\n', "perf/__init__.py": "", "perf/k.py": "a = 0\n"}
    folder = repository(tmp_path / "mine", **files)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GITHUB_BASE_REF", raising=False)
    return folder


def base(*words: str) -> str:
    """The commit that HEAD would be compared with, as `check` names it."""
    done = ridgeline("check", "--dry-run", *words)
    assert done.exit_code == PASS, done.output
    return said(done).partition(" against ")[2].partition(",")[0]


def short(folder: Path, revision: str) -> str:
    return git(folder, "rev-parse", revision)[:8]


def test_pointers_of_lfs_are_named_with_the_command_that_fetches_them(root: Path) -> None:
    def pointer(digit: str) -> str:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digit * 64}\nsize 1\n"

    def doubts(revision: str) -> list[str]:
        repository = Repository(root)
        sides = repository.checkout(revision, "base"), repository.working_tree()
        return reach.doubts(MeasurePlan(), reach.of_checkouts(*sides), sides, ())

    declared = "from ridgeline.spec import Kernel\nk = Kernel('k')\n"
    commit(root, **{".gitattributes": "*.bin filter=lfs\n", "perf/w.bin": "weights\n", "perf/k.py": declared})
    commit(root, **{"perf/w.bin": pointer("a")})
    commit(root, **{"perf/w.bin": pointer("b")})
    for revision, begins in (
        ("HEAD~2", "head lacks what base has"),
        ("HEAD^", "what changed in perf/w.bin was not run"),
    ):
        [why] = doubts(revision)
        assert why.startswith(begins)
        assert "git lfs pull" in why
    commit(root, **{"perf/k.py": f"{declared}a = 1\n"})
    assert doubts("HEAD^") == [], "it is the same on both sides"


def test_an_operator_that_neither_side_declares_is_refused_before_anything_is_compiled(root: Path) -> None:
    commit(root, **{"perf/k.py": "from ridgeline.spec import Kernel\nk = Kernel('k')\n"})
    done = ridgeline("check", "--kernel", "kk")
    assert (done.exit_code, "no kernel 'kk'; known: k" in said(done)) == (USAGE, True)
    assert "code of" not in done.output
    commit(root, **{"ridgeline.toml": 'kernels = ["perf"]\nrenamed = {"old" = "kk"}\n'})
    done = ridgeline("check")
    assert (done.exit_code, 'new name "kk", which head does not declare (there are k)' in said(done)) == (USAGE, True)


def test_a_name_that_is_two_things_is_refused_with_both(root: Path) -> None:
    git(root, "tag", "topic")
    commit(root, **{"perf/k.py": "a = 1\n"})
    git(root, "branch", "-q", "topic")
    done = ridgeline("check", "--dry-run", "--base", "topic")
    assert (done.exit_code, "'topic' is a branch and a tag: name heads/topic or tags/topic" in said(done)) == (
        USAGE,
        True,
    )
    assert base("--base", "tags/topic") == short(root, "HEAD^")
