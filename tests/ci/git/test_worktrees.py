"""Worktrees: made, reused, switched in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.git import repository
from ci.git.command import GitError, git
from tests.ci.git.test_repository import commit


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    git(tmp_path / "repo", "init", "--quiet")
    return tmp_path / "repo"


def test_in_place_a_worktree_is_switched_and_cleaned(repo: Path, tmp_path: Path) -> None:
    first = commit(repo, a="one", _gitignore="")
    (repo / ".gitignore").write_text("*.o\n")
    second = commit(repo, a="two")
    folder = tmp_path / "side"
    repository.check_out(repo, folder, second, in_place=True)
    inode = folder.stat().st_ino
    for name in ("a", "left.txt", "left.o"):
        (folder / name).write_text("edited")
    repository.check_out(repo, folder, first, in_place=True)
    assert sorted(path.name for path in folder.iterdir()) == [".git", "_gitignore", "a"]
    assert (folder / "a").read_text() == "one"
    assert folder.stat().st_ino == inode
    assert repository.is_clean(folder, first)
    assert not repository.is_clean(folder, second)


def test_a_changed_worktree_is_made_again(repo: Path, tmp_path: Path) -> None:
    first = commit(repo, a="one")
    folder = tmp_path / "side"
    repository.check_out(repo, folder, first)
    (folder / "a").write_text("edited")
    repository.check_out(repo, folder, first)
    assert (folder / "a").read_text() == "one"


def test_a_folder_inside_a_repository_is_not_a_worktree(repo: Path) -> None:
    commit(repo, sub__a="one")
    assert not repository.is_worktree(repo / "sub")
    (repo / "sub" / ".git").write_text("gitdir: /gone\n")
    assert not repository.is_worktree(repo / "sub")


def test_an_unknown_commit_is_an_error(repo: Path, tmp_path: Path) -> None:
    commit(repo, a="one")
    with pytest.raises(GitError, match="worktree add"):
        repository.check_out(repo, tmp_path / "side", "1" * 40)
