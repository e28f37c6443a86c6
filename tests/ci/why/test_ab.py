"""`ridgeline ab` says why, on times that are measured: a knob, and an extra copy in one of two changed files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci.records.ledger import causes_in
from ci.report import json_report
from tests.ci.why import toy
from tests.one_operator import ROOT, git


def ab(folder: Path, *words: str) -> tuple[int, dict]:
    command = [sys.executable, "-m", "ci", "ab", "main", "slow", "--rounds", "8", "--json", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = toy.repository(tmp_path / "repository")
    git(made, "checkout", "--quiet", "-b", "slow")
    return made


@pytest.mark.slow
def test_a_knob_is_named_and_the_idle_one_beside_it_is_not(folder: Path) -> None:
    toy.changed(folder, toy.KNOB)
    toy.committed(folder, "more ticks")
    code, said = ab(folder)
    assert (code, said["verdict"]) == (1, "SLOWER")
    (why,) = said["explanations"]
    assert why["state"] == "proven"
    assert why["sentence"].startswith("knob ticks 8 → 64: putting it back leaves ")
    assert [one["name"] for one in why["tried"] if one["answer"].startswith("explains")] == ["ticks"]
    assert subprocess.check_output(["git", "status", "--porcelain"], cwd=folder) == b""
    (kept,), problems = causes_in(folder / "results")
    assert (kept.explanation.sentence, problems) == (why["sentence"], [])
    command = [sys.executable, "-m", "ci", "gate", "main", "slow", "--report", "gated"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)
    assert [one.sentence for one in json_report.read(folder / "gated.json").explanations] == [why["sentence"]]


@pytest.mark.slow
def test_the_file_with_the_copy_and_its_two_parts_are_named(folder: Path) -> None:
    toy.changed(folder, toy.COPY)
    toy.committed(folder, "a copy")
    code, said = ab(folder)
    assert (code, said["verdict"]) == (1, "SLOWER")
    (why,) = said["explanations"]
    assert why["state"] == "proven"
    named = {one["name"] for one in why["tried"] if one["answer"] == "explains all"}
    assert "toys/doze/layout.py" in named
    assert not any("work.py" in one for one in named)
    parts = " ".join(one["name"] for one in why["tried"] if one["part_of"] and one["answer"] == "explains all")
    assert "laid_out" in parts
    assert "name" not in parts.replace("layout.py", "").split(", ")
