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


def test_a_pull_request_s_merge_is_compared_with_its_first_parent_however_old_main_is(root: Path, monkeypatch) -> None:
    git(root, "update-ref", "refs/remotes/origin/main", "HEAD")
    others = commit(root, **{"perf/k.py": "a = 1\n"})
    git(root, "switch", "-q", "-c", "topic", "HEAD^")
    commit(root, **{"perf/other.py": "b = 1\n"})
    git(root, "checkout", "-q", "--detach", others)
    git(root, "merge", "-q", "--no-ff", "-m", "Merge topic", "topic")
    git(root, "branch", "-q", "-D", "main")
    assert base() == others[:8] == short(root, "HEAD^1")


@pytest.mark.parametrize("name", ["rocm-7.2+fixes", "a@b", "x#y", "release/v1,2", "ünicode"])
def test_a_base_branch_of_any_name(root: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    left = git(root, "rev-parse", "HEAD")
    git(root, "update-ref", f"refs/remotes/origin/{name}", left)
    git(root, "branch", "-q", name)
    git(root, "switch", "-q", "-c", "topic")
    git(root, "branch", "-q", "-D", "main")
    commit(root, **{"perf/k.py": "a = 1\n"})
    commit(root, **{"perf/k.py": "a = 2\n"})
    assert base() == short(root, "HEAD^"), "this clone knows no main branch"
    assert base("--base", name) == left[:8]
    monkeypatch.setenv("GITHUB_BASE_REF", name)
    assert base() == left[:8]


@pytest.mark.parametrize("revision", ["v1", "HEAD^", "@{1}", ":/one", "HASH", "main~1"])
def test_a_base_by_whatever_git_calls_it(root: Path, revision: str) -> None:
    git(root, "commit", "-q", "--amend", "-m", "one")
    first = git(root, "rev-parse", "HEAD")
    git(root, "tag", "-a", "-m", "one", "v1")
    commit(root, "two", **{"perf/k.py": "a = 1\n"})
    assert base("--base", first[:7] if revision == "HASH" else revision) == first[:8]


def test_a_shallow_clone_says_what_brings_its_base(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(root, **{"perf/k.py": "a = 1\n"})
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{root}", "shallow")
    monkeypatch.chdir(tmp_path / "shallow")
    done = ridgeline("ab", "HEAD^", "HEAD", "--dry-run")
    assert (done.exit_code, "`git fetch --unshallow` brings the history" in said(done)) == (USAGE, True)


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


def test_the_beginning_of_several_hashes_names_them(root: Path) -> None:
    tree = git(root, "rev-parse", "HEAD^{tree}")
    hashes: dict[str, str] = {}
    for number in range(2000):  # two of 300 commits share 4 digits with a chance of one half
        made = git(root, "commit-tree", tree, "-m", number)
        if twin := hashes.get(made[:4]):
            break
        hashes[made[:4]] = made
    done = ridgeline("check", "--dry-run", "--base", made[:4])
    assert done.exit_code == USAGE
    assert all(one[:5] in said(done) for one in (made, twin))
