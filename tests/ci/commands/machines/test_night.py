"""A night on one machine: what is run, in which order, and whose exit code counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.__main__ import main
from ci.commands.leg import night_steps as steps
from ci.commands.leg import through


def names(*arguments: object) -> list[str]:
    return [words[words[0] == "ci"] for words in steps(*arguments)]  # type: ignore[arg-type]


def test_a_full_night_looks_measures_and_asks_the_gate() -> None:
    assert names("nightly", [], Path("t"), Path("known")) == ["doctor", "run", "canary", "tune"]
    assert names("sweep", [], Path("t"), Path("known")) == ["doctor", "run"]
    assert names("nightly", ["gemm"], Path("t"), Path("known")) == ["doctor", "run"]


@pytest.mark.parametrize(("doctor", "run", "canary"), [(3, 0, 0), (0, 1, 0), (0, 0, 1), (3, 3, 3)])
def test_the_exit_code_is_that_of_measuring(doctor: int, run: int, canary: int) -> None:
    ran: list[str] = []

    def play(words: Sequence[str]) -> int:
        ran.append(words[words[0] == "ci"])
        return {"doctor": doctor, "run": run, "canary": canary, "tune": 1}[ran[-1]]

    assert through(steps("nightly", [], Path("t"), Path("k")), play) == run
    assert ran == ["doctor", "run", "canary", "tune"]


def test_names_of_operators_are_words_and_nothing_else(tmp_path: Path) -> None:
    """What an input of a workflow holds is never a piece of a shell's line, nor an option."""
    asked = ["night", "--kernels", "gemm --out=elsewhere $(id)", "--out", str(tmp_path / "t"), "--dry-run"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0
    assert "--kernel=gemm --kernel=--out=elsewhere --kernel=$(id)" in done.output
