"""The one call of git: what it adds to the environment and takes from it, and how it fails."""

from __future__ import annotations

import pytest

from ci.git import checkout, command
from ci.git.command import GitError, GitFailed, git, git_or_none, succeeds
from tests.kit import commit


@pytest.fixture
def repo(tmp_path):
    git(tmp_path, "init", "--quiet", "repo")
    return tmp_path / "repo"


def program(folder, monkeypatch, script):
    """A git of our own, in front of the real one."""
    (folder / "git").write_text(f"#!/bin/bash\n{script}\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_command_answers_stripped(repo):
    assert git(repo, "rev-parse", "--show-toplevel") == str(repo)
    assert git(repo, "hash-object", "--stdin", stdin="x\n") == "587be6b4c3f93f93c489c0111bba5596147a26cb"


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"])
def test_a_hook_does_not_redirect_us(repo, tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    (repo / "file").touch()
    git(repo, "add", "file")
    assert git(repo, "status", "--porcelain") == "A  file"


def test_a_refusal_names_the_command_the_folder_and_the_reason(repo):
    with pytest.raises(GitFailed, match=rf"git rev-parse --verify nothing failed in {repo}: fatal: Needed"):
        git(repo, "rev-parse", "--verify", "nothing")
    assert git_or_none(repo, "rev-parse", "--verify", "nothing") is None
    assert not succeeds(repo, "rev-parse", "--verify", "nothing")
    assert succeeds(repo, "status")
    with pytest.raises(GitFailed, match="does not exist"):
        git(repo / "gone", "status")


def test_a_long_output_is_quoted_from_its_end(repo, tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, "for i in {1..999}; do echo number $i >&2; done; exit 1")
    with pytest.raises(GitFailed, match="number 999") as error:
        git(repo, "status")
    assert len(str(error.value)) < 2300


def test_what_is_not_utf8_is_read(repo, tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, r"printf 'caf\xe9\n'")
    assert git(repo, "log") == r"caf\xe9"


def test_git_is_never_waited_for_without_end(repo, tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(command, "TIMEOUT_S", 0.2)
    with pytest.raises(GitError, match="did not end within 0.2 s"):
        git_or_none(repo, "status")


def test_a_missing_git_is_never_a_refusal(repo, monkeypatch):
    monkeypatch.setenv("PATH", str(repo))
    with pytest.raises(GitError, match="not installed"):
        git_or_none(repo, "status")


# Worktrees: made, reused, switched in place.


def test_in_place_a_worktree_is_switched_and_cleaned(repo, tmp_path):
    first = commit(repo, a="one", _gitignore="")
    (repo / ".gitignore").write_text("*.o\n")
    second = commit(repo, a="two")
    folder = tmp_path / "side"
    checkout.check_out(repo, folder, second, in_place=True)
    inode = folder.stat().st_ino
    for name in ("a", "left.txt", "left.o"):
        (folder / name).write_text("edited")
    checkout.check_out(repo, folder, first, in_place=True)
    assert sorted(path.name for path in folder.iterdir()) == [".git", "_gitignore", "a"]
    assert (folder / "a").read_text() == "one"
    assert folder.stat().st_ino == inode
    assert checkout.is_clean(folder, first)
    assert not checkout.is_clean(folder, second)


def test_a_changed_worktree_is_made_again(repo, tmp_path):
    first = commit(repo, a="one")
    folder = tmp_path / "side"
    checkout.check_out(repo, folder, first)
    (folder / "a").write_text("edited")
    checkout.check_out(repo, folder, first)
    assert (folder / "a").read_text() == "one"


def test_a_folder_inside_a_repository_is_not_a_worktree(repo):
    commit(repo, sub__a="one")
    assert not checkout.is_worktree(repo / "sub")
    (repo / "sub" / ".git").write_text("gitdir: /gone\n")
    assert not checkout.is_worktree(repo / "sub")


def test_an_unknown_commit_is_an_error(repo, tmp_path):
    commit(repo, a="one")
    with pytest.raises(GitError, match="worktree add"):
        checkout.check_out(repo, tmp_path / "side", "1" * 40)
