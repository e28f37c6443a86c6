"""A stand-in GitHub, time that passes only when somebody sleeps, and a client that has both."""

from __future__ import annotations

import pytest

from ci.github.client import GitHub
from tests.standins.github import Clock, StandIn


@pytest.fixture
def github():
    with StandIn() as standing:
        yield standing


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def client(github, clock):
    return GitHub(github.repository, "secret", github.url, clock.sleep, clock.now, timeout_s=0.3)


@pytest.fixture
def environ(github, monkeypatch):
    """The variables of a workflow's step."""
    for name, value in {"REPOSITORY": github.repository, "TOKEN": "secret", "API_URL": github.url}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
