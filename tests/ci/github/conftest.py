"""A stand-in GitHub, time that passes only when somebody sleeps, and a client that has both."""

from __future__ import annotations

import pytest

from ci.github import client
from tests.standins.github import Clock, StandIn


@pytest.fixture
def github():
    with StandIn() as standing:
        yield standing


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(client, "time", clock)
    return clock


@pytest.fixture(name="client")
def client_of_github(github, clock, monkeypatch):
    monkeypatch.setattr(client, "TIMEOUT_S", 0.3)
    return client.GitHub(github.repository, "secret", github.url)


@pytest.fixture
def environ(github, monkeypatch):
    """The variables of a workflow's step."""
    for name, value in {"REPOSITORY": github.repository, "TOKEN": "secret", "API_URL": github.url}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
