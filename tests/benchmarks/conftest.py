"""Trees of small kernels to measure, and the log of their calls."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.coordinator import trial

TOY = Path(__file__).parent / "toytree"


@pytest.fixture(scope="session", autouse=True)
def small_caches() -> Iterator[None]:
    """A host with 32 MB of cache: where there are 480 MB, the flush before every sample on the CPU takes 0.1 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "host_cache_bytes", lambda: 32 << 20)
        yield


@pytest.fixture
def toy_tree(tmp_path: Path) -> Callable[..., Path]:
    """toy_tree("a", {"toy/new.py": source}, {"old": "new"}): a copy of the toy tree, with files and replacements."""

    def make(name: str, files: dict[str, str] | None = None, replace: dict[str, str] | None = None) -> Path:
        tree = tmp_path / name
        shutil.copytree(TOY, tree, ignore=shutil.ignore_patterns("__pycache__"))
        for path, source in (files or {}).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(source)
        for path in tree.rglob("*.py"):
            source = path.read_text()
            for old, new in (replace or {}).items():
                source = source.replace(old, new)
            path.write_text(source)
        return tree

    return make


@pytest.fixture
def toy_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the toy kernels log their calls."""
    path = tmp_path / "calls.log"
    path.touch()
    monkeypatch.setenv("TOY_LOG", str(path))
    return path
