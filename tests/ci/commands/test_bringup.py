"""The verb: it shows the report of the measuring program, and passes on its exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.__main__ import main
from ci.commands import verify as bringup
from ci.harness import ChildExit


def invoke(folder: Path, *arguments: str):
    files = ("--out", str(folder / "report.json"), "--state", str(folder / "state.jsonl"))
    return CliRunner().invoke(main, ["bringup", *files, *arguments])


@pytest.mark.slow
def test_a_bring_up_of_this_machine(tmp_path: Path) -> None:
    done = invoke(tmp_path, "--only", "shm", "--only", "package/flydsl")
    assert done.exit_code == 0, done.output
    assert "1 pass, 1 not here, 0 fail" in done.stdout
    assert "package/flydsl" in done.stdout
    again = invoke(tmp_path, "--only", "shm", "--json")
    assert json.loads(again.stdout)["resumed"] == ["shm"]


@pytest.mark.parametrize(("ended", "code"), [(1, 1), (0, 0), (3, 3), (-6, 3), (2, 3)])
def test_the_exit_code_is_that_of_the_steps(tmp_path: Path, monkeypatch, ended: int, code: int) -> None:
    empty = {"machine": {"kind": "cpu", "count": 1, "market_name": None, "device": "x", "arch": "cpu"}, "steps": []}
    (tmp_path / "report.json").write_text(json.dumps({**empty, "environment": {}, "seconds": 1.0, "resumed": []}))
    monkeypatch.setattr(bringup, "follow", lambda *_: ChildExit(ended, ("why",)))
    assert invoke(tmp_path).exit_code == code


def test_an_interruption_says_that_nothing_is_lost(tmp_path: Path, monkeypatch) -> None:
    def interrupted(*_: object) -> ChildExit:
        raise KeyboardInterrupt

    monkeypatch.setattr(bringup, "follow", interrupted)
    done = invoke(tmp_path)
    assert done.exit_code == 130
    assert re.search("`ridgeline[^`]*` goes on from there", done.stderr)
