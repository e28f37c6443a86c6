"""Packages that stand in for a vendor's, and a bring-up of this checkout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """stand_in("aiter", "source", distribution="amd-aiter"): a package that measuring processes import."""
    folder = tmp_path / "site"
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def make(name: str, source: str, distribution: str = "", version: str = "1.0") -> None:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(source)
        if distribution:
            info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
            (info / "top_level.txt").write_text(f"{name}\n")

    return make
