"""Each fault that the doctor knows, found where it is and only there; and how a diagnosis is shown."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from ci.commands import doctor
from ci.harness import MeasureError
from tests.kit import commit, git

WHOLE = "c01c27fe9749.notes.jsonl"
"""Of notes that are `{}`: the digest of their lines."""

H200 = {"kind": "gpu", "market_name": "H200 SXM", "device": "NVIDIA H200", "arch": "sm_90", "count": 2}
ENVIRONMENT = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "cuda": "13.0", "variables": {}}
OLD_TORCH = {
    "kind": "untested_version",
    "level": "warning",
    "text": "torch 2.9.1 is outside 2.11 to 2.13",
    "why": "not tested",
    "next_step": "install torch 2.11",
}


class Machine:
    """A healthy machine, whose parts a test changes.  answer: of the measuring program."""

    def __init__(self, folder, monkeypatch):
        self.root, self.results = folder / "repository", folder / "repository/results"
        self.answer = {"machine": H200, "environment": ENVIRONMENT, "problems": []}
        self.set = monkeypatch.setenv
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
        monkeypatch.setattr(doctor, "query", self.query)
        self.root.mkdir()
        git(self.root, "init", "-q")
        for name in ("a.json", f"a.{WHOLE}", "machine.json"):
            commit(self.root, **{f"results__m__{name}": "{}\n"})

    def query(self, *_, limit_s):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def examined(self, *problems, **machine):
        self.answer = {"machine": H200 | machine, "environment": ENVIRONMENT, "problems": list(problems)}

    @property
    def diagnosis(self):
        return doctor.diagnose(self.root, self.results)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def test_a_healthy_machine(machine):
    found, fingerprint = machine.diagnosis
    assert {finding.level for finding in found} == {"ok"}
    whats = {finding.what for finding in found}
    assert "2 x H200 SXM (sm_90), python 3.12.3, torch 2.11.0+cu130, triton 3.6.0, cuda 13.0" in whats
    assert f"1 record file in {machine.results}" in whats
    assert fingerprint == H200


def shallow(machine):
    git(machine.root.parent, "clone", "-q", "--depth=1", f"file://{machine.root}", "cut")
    machine.root = machine.root.parent / "cut"


def without_commit(machine):
    machine.root = machine.root.parent / "bare"
    machine.root.mkdir()
    git(machine.root, "init", "-q")


def torn(machine):
    (machine.results / f"m/a.{WHOLE}").write_text('{"format": "rid')


FAULTS = {
    "gives no answer": (lambda m: setattr(m, "answer", MeasureError("boom")), "error", "python -m benchmarks"),
    "torch 2.9.1": (lambda m: m.examined(OLD_TORCH), "warning", "install torch 2.11"),
    r"\x1b[2Jgone": (
        lambda m: m.examined({**OLD_TORCH, "level": "error", "text": "\x1b[2Jgone"}),
        "error",
        "install torch 2.11",
    ),
    "no GPU": (lambda m: m.examined(kind="cpu", cpu="EPYC"), "note", "`ridgeline run --out trials.jsonl`"),
    "TRITON_INTERPRET=1": (lambda m: m.set("TRITON_INTERPRET", "1"), "error", "unset"),
    "is not inside a git repository": (lambda m: setattr(m, "root", m.root.parent), "warning", ""),
    "has no commit yet": (without_commit, "warning", ""),
    "is cut off": (shallow, "warning", "--unshallow"),
    "the line is torn": (torn, "error", "restore it"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault(machine, what):
    """It is the first finding, of its level, names the next step, and everything else is ok."""
    change, level, next_step = FAULTS[what]
    change(machine)
    first, *others = machine.diagnosis[0]
    assert first.level == level
    assert what in first.what
    assert next_step in first.next_step
    assert {finding.level for finding in others} <= {"ok"}


def test_records_that_nobody_may_read(machine, monkeypatch):
    """Root may read everything, so the answer of the system is played."""
    monkeypatch.setattr(os, "access", lambda path, mode: path != machine.results)
    assert "cannot be used" in machine.diagnosis[0][0].what


def test_shown(machine, monkeypatch, golden):
    shallow(machine)
    machine.set("TRITON_INTERPRET", "1")
    monkeypatch.chdir(machine.root.parent)
    machine.results = Path("results")
    machine.results.mkdir()
    for number in range(9):
        (machine.results / "m").mkdir(exist_ok=True)
        (machine.results / "m" / f"{number}.{WHOLE}").write_text("{}\n")
    console = Console(width=100, record=True, file=io.StringIO())
    doctor.show(machine.diagnosis[0], console)
    golden("doctor.txt", "\n".join(line.rstrip() for line in console.export_text().splitlines()) + "\n")
