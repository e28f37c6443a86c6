"""What a session reads is what later processes read: changes of contents count, and nothing else."""

from __future__ import annotations

import os
import site
from pathlib import Path

import pytest

from benchmarks.coordinator import orders
from benchmarks.coordinator.checkouts import Checkout, kernel_files
from benchmarks.coordinator.orders import Sources
from benchmarks.plan import UsageError


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a package of kernels, and a folder of installed packages."""
    (tmp_path / "tree/toy/parts").mkdir(parents=True)
    (tmp_path / "tree/pyproject.toml").write_text('[tool.ridgeline]\nkernels = ["toy"]\n')
    (tmp_path / "tree/toy/__init__.py").write_text("")
    (tmp_path / "tree/toy/parts/table.csv").write_text("1\n")
    (tmp_path / "installed").mkdir()
    monkeypatch.setattr(orders, "_installed", lambda python: [tmp_path / "installed"])
    return tmp_path / "tree"


def sources_of(tree: Path) -> Sources:
    return Sources(lambda: kernel_files([Checkout("head", tree)]), ["python"])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tree/toy/__init__.py", "x = 1\n"),
        ("tree/toy/parts/table.csv", "2\n"),
        ("tree/toy/parts/new.py", ""),
        ("installed/late.pth", "import os\n"),
        ("installed/sitecustomize.py", ""),
    ],
)
def test_a_file_that_is_written_is_named_with_what_was_measured(tree: Path, path: str, text: str) -> None:
    found = sources_of(tree)
    (tree.parent / path).write_text(text)
    assert found.changed() == [tree.parent / path]
    with pytest.raises(UsageError, match=f"{Path(path).name} changed while gemm was measured"):
        found.refuse_changed("gemm")


def test_several_are_counted_and_one_that_is_gone_is_one(tree: Path) -> None:
    found = sources_of(tree)
    (tree / "toy/parts/table.csv").unlink()
    (tree / "toy/new.py").write_text("")
    with pytest.raises(UsageError, match="new.py and 1 more changed"):
        found.refuse_changed("gemm")


def test_what_says_the_same_or_is_read_by_nobody_is_no_change(tree: Path) -> None:
    found = sources_of(tree)
    (tree / "toy/__pycache__").mkdir()
    (tree / "toy/__pycache__/x.py").write_text("")
    (tree / "toy/parts/built.o").write_text("")
    (tree.parent / "installed/module.py").write_text("")
    os.utime(tree / "toy/__init__.py", ns=(1, 1))
    (tree / "toy/parts/table.csv").write_text("1\n")
    found.refuse_changed("gemm")


def test_the_folders_of_a_python_and_of_our_own_are_looked_at(tmp_path: Path) -> None:
    theirs = tmp_path / "env/lib/python3.12/site-packages"
    theirs.mkdir(parents=True)
    found = set(orders._installed(tmp_path / "env/bin/python"))
    assert {theirs, Path(site.getsitepackages()[0])} <= found
