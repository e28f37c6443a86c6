"""A pin that the environment does not follow is named; one that changes nothing here is not."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from ci.judging.pins import pins_not_installed
from tests.kit import repository


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("requirements.txt", "numpy==1.0", "numpy==2.0", "numpy ==1.0 → ==2.0"),
        ("requirements.txt", "numpy>=1.0", "numpy>=1.1", ""),
        ("requirements.txt", "no-such-package==1.0", "no-such-package==2.0", ""),
        ("requirements.lock", "numpy==1.0 \\\n --hash=sha256:ab", "numpy==2.0 \\\n --hash=sha256:cd", "numpy ==1.0"),
        ("pyproject.toml", '[project]\ndependencies = ["numpy==1.0"]', "[project]\ndependencies = []", "==1.0 → none"),
        (
            "uv.lock",
            '[[package]]\nname = "numpy"\nversion = "1.0"',
            '[[package]]\nname = "numpy"\nversion = "2.0"',
            "1.0",
        ),
        ("requirements.txt", "numpy==1.0\ntorch>=99", "numpy==1.0\ntorch>=99\nno such line\nnumpy>=1.0", ""),
        ("requirements.txt", "-r other.txt\nnumpy==1.0", "-e .\nnumpy==2.0  # newer", "numpy ==1.0 → ==2.0"),
        ("notes.txt", "numpy==1.0", "numpy==2.0", ""),
    ],
)
def test_a_pin(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    for side, text in (("base", old), ("head", new)):
        (tmp_path / side).mkdir()
        (tmp_path / side / file).write_text(text)
    found = pins_not_installed(tmp_path / "base", tmp_path / "head")
    assert len(found) == bool(said)
    for sentence in found:
        assert said in sentence
        assert f"{metadata.version('numpy')} is installed" in sentence
        assert "--env-base" in sentence


def test_a_file_that_git_ignores_pins_nothing(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    repository(tmp_path / "head", **{".gitignore": "*.lock\n"})
    (tmp_path / "head" / "uv.lock").write_text('[[package]]\nname = "numpy"\nversion = "1.0"\n')
    assert pins_not_installed(tmp_path / "base", tmp_path / "head") == []
    (tmp_path / "head" / ".gitignore").write_text("")
    assert "numpy none → ==1.0" in pins_not_installed(tmp_path / "base", tmp_path / "head")[0]
