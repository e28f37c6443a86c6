"""Pushing records to a shared branch, with real repositories."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ci.git import command
from ci.git.push import PushError, push_records


def git(where: Path, *argv: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *argv],
        cwd=where,
        check=True,
        text=True,
        capture_output=True,
    ).stdout.strip()


@pytest.fixture
def clones(tmp_path: Path) -> tuple[Path, Path]:
    """Two clones of one repository with a results folder."""
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", "shared")
    git(tmp_path, "clone", "--quiet", "shared", "one")
    write(tmp_path / "one", "results/machine.json", "{}")
    git(tmp_path / "one", "checkout", "--quiet", "-B", "main")
    git(tmp_path / "one", "add", ".")
    git(tmp_path / "one", "commit", "--quiet", "-m", "start")
    git(tmp_path / "one", "push", "--quiet", "origin", "main")
    git(tmp_path, "clone", "--quiet", "--branch=main", "shared", "two")
    return tmp_path / "one", tmp_path / "two"


def write(repo: Path, name: str, text: str) -> None:
    (repo / name).parent.mkdir(parents=True, exist_ok=True)
    (repo / name).write_text(text)


def test_new_records_arrive_and_nothing_else(clones: tuple[Path, Path]) -> None:
    one, two = clones
    write(one, "results/m/a.json", "1")
    write(one, "scratch.txt", "mine")
    commit = push_records(one / "results", "main", "Record a night")
    git(two, "pull", "--quiet")
    assert git(two, "rev-parse", "HEAD") == commit
    assert (two / "results/m/a.json").read_text() == "1"
    assert not (two / "scratch.txt").exists()
    assert git(two, "log", "-1", "--format=%an|%s") == "ridgeline|Record a night"


def test_nothing_new_is_no_commit(clones: tuple[Path, Path]) -> None:
    assert push_records(clones[0] / "results", "main", "again") == ""


def test_two_writers_lose_nothing(clones: tuple[Path, Path]) -> None:
    one, two = clones
    write(one, "results/m1/a.json", "1")
    write(two, "results/m2/b.json", "2")
    push_records(one / "results", "main", "first")
    slept: list[float] = []
    push_records(two / "results", "main", "second", sleep=slept.append)
    git(one, "pull", "--quiet")
    assert (one / "results/m1/a.json").exists()
    assert (one / "results/m2/b.json").exists()
    assert slept == [1.0]


def test_the_same_file_from_two_writers_is_said(clones: tuple[Path, Path]) -> None:
    one, two = clones
    write(one, "results/m/a.json", "1")
    write(two, "results/m/a.json", "2")
    push_records(one / "results", "main", "first")
    with pytest.raises(PushError, match="recorded the same commit"):
        push_records(two / "results", "main", "second", sleep=lambda s: None)
    assert (two / "results/m/a.json").read_text() == "2"
    assert "rebase" not in git(two, "status")


def test_a_remote_that_is_gone(clones: tuple[Path, Path]) -> None:
    one, _ = clones
    write(one, "results/m/a.json", "1")
    git(one, "remote", "set-url", "origin", str(one / "gone"))
    with pytest.raises(PushError, match="git fetch --quiet origin main failed"):
        push_records(one / "results", "main", "m", sleep=lambda s: None)


@pytest.mark.parametrize("branch", ["", "-x", "a b", "a;b"])
def test_bad_branches(clones: tuple[Path, Path], branch: str) -> None:
    with pytest.raises(PushError, match="name of a branch"):
        push_records(clones[0] / "results", branch, "m")


def test_the_token_is_neither_in_arguments_nor_in_the_configuration(
    clones: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = clones
    write(one, "results/m/a.json", "1")
    seen: list[str] = []
    secret: list[str] = []
    real = subprocess.run

    def run(argv: list[str], **how: Any) -> Any:
        seen.extend(argv)
        secret.append(how["env"].get("GIT_CONFIG_VALUE_0", ""))
        return real(argv, **how)

    monkeypatch.setattr(command.subprocess, "run", run)
    push_records(one / "results", "main", "m", token="s3cret")
    assert not any("s3cret" in word or "czNjcmV0" in word for word in seen)
    assert "push" in seen
    assert any(value.startswith("Authorization: Basic ") for value in secret)
    assert "xtraheader" not in (one / ".git/config").read_text()
