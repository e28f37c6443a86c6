"""Packages that stand in for those of a measuring process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """stand_in("torch", "source"): a package that measuring processes import."""
    folder = tmp_path / "site"
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def make(name: str, source: str) -> None:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(source)

    return make
