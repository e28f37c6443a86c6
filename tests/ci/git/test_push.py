"""Pushing records to a shared branch, with real repositories."""

from __future__ import annotations

import subprocess

import pytest

from ci.git import command
from ci.git.command import PushError, push_records
from tests.kit import git, repository
from tests.standins import git_server


@pytest.fixture
def clones(tmp_path):
    """Two clones of one repository with a results folder."""
    one = shared(tmp_path)
    git(tmp_path, "clone", "--quiet", "--branch=main", "shared", "two")
    return one, tmp_path / "two"


def shared(folder):
    """A bare repository, and a clone of it with one commit, which is pushed."""
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main", "shared")
    one = repository(folder / "one", **{"results/machine.json": "{}"})
    git(one, "remote", "add", "origin", folder / "shared")
    git(one, "push", "--quiet", "-u", "origin", "main")
    return one


def write(repo, name, text):
    (repo / name).parent.mkdir(parents=True, exist_ok=True)
    (repo / name).write_text(text)


def test_new_records_arrive_and_nothing_else(clones):
    one, two = clones
    write(one, "results/m/a.json", "1")
    write(one, "scratch.txt", "mine")
    commit = push_records(one / "results", "main", "Record a night")
    git(two, "pull", "--quiet")
    assert git(two, "rev-parse", "HEAD") == commit
    assert (two / "results/m/a.json").read_text() == "1"
    assert not (two / "scratch.txt").exists()
    assert git(two, "log", "-1", "--format=%an|%s") == "ridgeline|Record a night"


def test_nothing_new_is_no_commit(clones):
    assert push_records(clones[0] / "results", "main", "again") == ""


def test_two_writers_lose_nothing(clones):
    one, two = clones
    write(one, "results/m1/a.json", "1")
    write(two, "results/m2/b.json", "2")
    push_records(one / "results", "main", "first")
    slept = []
    push_records(two / "results", "main", "second", sleep=slept.append)
    git(one, "pull", "--quiet")
    assert (one / "results/m1/a.json").exists()
    assert (one / "results/m2/b.json").exists()
    assert slept == [1.0]


def test_the_same_file_from_two_writers_is_said(clones):
    one, two = clones
    write(one, "results/m/a.json", "1")
    write(two, "results/m/a.json", "2")
    push_records(one / "results", "main", "first")
    with pytest.raises(PushError, match="recorded the same commit"):
        push_records(two / "results", "main", "second", sleep=lambda s: None)
    assert (two / "results/m/a.json").read_text() == "2"
    assert "rebase" not in git(two, "status")


@pytest.mark.parametrize("branch", ["", "-x", "a b", "a..b"])
def test_bad_branches(clones, branch):
    with pytest.raises(PushError, match="name of a branch"):
        push_records(clones[0] / "results", branch, "m")


def test_the_token_is_neither_in_arguments_nor_in_the_configuration(clones, monkeypatch):
    one, _ = clones
    write(one, "results/m/a.json", "1")
    seen = []
    secret = []
    real = subprocess.run

    def run(argv, **how):
        seen.extend(argv)
        secret.append(how["env"].get("GIT_CONFIG_VALUE_0", ""))
        return real(argv, **how)

    monkeypatch.setattr(command.subprocess, "run", run)
    push_records(one / "results", "main", "m", token="s3cret")
    assert not any("s3cret" in word or "czNjcmV0" in word for word in seen)
    assert "push" in seen
    assert any(value.startswith("Authorization: Basic ") for value in secret)
    assert "xtraheader" not in (one / ".git/config").read_text()


# Who gets the token of a push: its own server, over https, and nobody else.


@pytest.fixture
def folder(tmp_path):
    """A bare repository, one clone of it with something to push."""
    write(shared(tmp_path), "results/m/a.json", "1")
    git(tmp_path / "shared", "config", "http.receivepack", "true")
    return tmp_path


@pytest.fixture
def other(folder):
    with git_server.serving(folder) as server:
        yield server


@pytest.fixture
def own(folder, monkeypatch):
    """The server that the token belongs to."""
    pem = git_server.certificate(folder)
    monkeypatch.setenv("GIT_SSL_CAINFO", str(pem))
    with git_server.serving(folder, pem) as server:
        yield server


def pushed(folder, remote, server):
    git(folder / "one", "remote", "set-url", "origin", remote)
    return push_records(folder / "one/results", "main", "m", token="s3cret", server=server, sleep=lambda seconds: None)


def test_its_own_server_gets_the_token(folder, own):
    commit = pushed(folder, f"{own.url}/shared", own.url)
    assert git(folder / "shared", "rev-parse", "main") == commit
    assert own.authorizations
    assert all(one and one.startswith("Basic ") for one in own.authorizations)


def test_another_host_gets_none(folder, own, other):
    commit = pushed(folder, f"{other.url}/shared", own.url)
    assert git(folder / "shared", "rev-parse", "main") == commit, "the push itself needs no token here"
    assert set(other.authorizations) == {None}


def test_another_port_is_another_server(folder, own):
    pushed(folder, f"{own.url}/shared", "https://127.0.0.1")
    assert set(own.authorizations) == {None}


def test_a_redirection_is_not_followed(folder, own, other):
    own.redirect = other.url
    with pytest.raises(PushError):
        pushed(folder, f"{own.url}/shared", own.url)
    assert own.authorizations
    assert other.authorizations == []


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1", "https://a b", "https://user@host", "github.com", "https://h/p"]
)
def test_a_token_needs_a_server_with_https(folder, server):
    with pytest.raises(PushError, match="a token is sent to https://HOST only"):
        pushed(folder, str(folder / "shared"), server)


def test_the_server_is_the_one_that_the_platform_names(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(command, "push_records", lambda *_, **how: asked.append(how["server"]) or "")
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    command.pushed(folder / "one/results", "main", "m")
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example.org")
    command.pushed(folder / "one/results", "main", "m")
    assert asked == ["https://github.com", "https://git.example.org"]
