"""Who gets the token of a push: its own server, over https, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ci.git import push
from ci.git.push import PushError, push_records
from tests.ci.git.test_push import git, write
from tests.standins import git_server
from tests.standins.git_server import GitServer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bare repository, one clone of it with something to push."""
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", "shared")
    git(tmp_path / "shared", "config", "http.receivepack", "true")
    git(tmp_path, "clone", "--quiet", "shared", "one")
    git(tmp_path / "one", "checkout", "--quiet", "-B", "main")
    git(tmp_path / "one", "commit", "--quiet", "--allow-empty", "-m", "start")
    git(tmp_path / "one", "push", "--quiet", "origin", "main")
    write(tmp_path / "one", "results/m/a.json", "1")
    return tmp_path


@pytest.fixture
def other(folder: Path) -> Iterator[GitServer]:
    with git_server.serving(folder) as server:
        yield server


@pytest.fixture
def own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    """The server that the token belongs to."""
    pem = git_server.certificate(folder)
    monkeypatch.setenv("GIT_SSL_CAINFO", str(pem))
    with git_server.serving(folder, pem) as server:
        yield server


def pushed(folder: Path, remote: str, server: str) -> str:
    git(folder / "one", "remote", "set-url", "origin", remote)
    return push_records(folder / "one/results", "main", "m", token="s3cret", server=server, sleep=lambda seconds: None)


def test_its_own_server_gets_the_token(folder: Path, own: GitServer) -> None:
    commit = pushed(folder, f"{own.url}/shared", own.url)
    assert git(folder / "shared", "rev-parse", "main") == commit
    assert own.authorizations
    assert all(one and one.startswith("Basic ") for one in own.authorizations)


def test_another_host_gets_none(folder: Path, own: GitServer, other: GitServer) -> None:
    commit = pushed(folder, f"{other.url}/shared", own.url)
    assert git(folder / "shared", "rev-parse", "main") == commit, "the push itself needs no token here"
    assert set(other.authorizations) == {None}


def test_another_port_is_another_server(folder: Path, own: GitServer) -> None:
    pushed(folder, f"{own.url}/shared", "https://127.0.0.1")
    assert set(own.authorizations) == {None}


def test_a_redirection_is_not_followed(folder: Path, own: GitServer, other: GitServer) -> None:
    own.redirect = other.url
    with pytest.raises(PushError):
        pushed(folder, f"{own.url}/shared", own.url)
    assert own.authorizations
    assert other.authorizations == []


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1", "https://a b", "https://user@host", "github.com", "https://h/p"]
)
def test_a_token_needs_a_server_with_https(folder: Path, server: str) -> None:
    with pytest.raises(PushError, match="a token is sent to https://HOST only"):
        pushed(folder, str(folder / "shared"), server)


def test_the_server_is_the_one_that_the_platform_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(push, "push_records", lambda *_, **how: asked.append(how["server"]) or "")
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    push.pushed(folder / "one/results", "main", "m")
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example.org")
    push.pushed(folder / "one/results", "main", "m")
    assert asked == ["https://github.com", "https://git.example.org"]
