"""Each fault that the doctor knows, found where it is and only there; and a real examination of this machine."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from ci import doctor
from ci.doctor import Clone, Examination, Finding, HostFacts, ResultsFolder
from ci.harness import MeasureError
from ci.trials.file import set_aside

H200 = {"kind": "gpu", "market_name": "H200 SXM", "device": "NVIDIA H200", "arch": "sm_90", "count": 2}
VERSIONS = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0"}
HEALTHY = HostFacts(
    examination=Examination(H200, VERSIONS),
    versions={"asv": "0.6.6", "asv_runner": "0.3.2"},
    clone=Clone("a" * 40, 120),
    results=ResultsFolder(files=9),
    numa_balancing=0,
    slurm="slurm 24.11.5",
)
OLD_TORCH = {
    "kind": "untested_version",
    "level": "warning",
    "text": "torch 2.9.1 is outside 2.11 to 2.13",
    "why": "not tested",
    "next_step": "install torch 2.11",
}


def facts(**changed: object) -> HostFacts:
    return dataclasses.replace(HEALTHY, **changed)


def examined(**changed: object) -> HostFacts:
    return facts(examination=dataclasses.replace(HEALTHY.examination, **changed))


def versions(**changed: str | None) -> HostFacts:
    return facts(versions={**HEALTHY.versions, **changed})


def test_a_healthy_machine() -> None:
    diagnosis = doctor.judge(HEALTHY)
    assert {finding.level for finding in diagnosis.findings} == {"ok"}
    assert {"torch 2.11.0+cu130", "2 x H200 SXM (sm_90)"} <= {finding.what for finding in diagnosis.findings}
    assert diagnosis.worst == "ok"
    assert diagnosis.fingerprint == H200


CPU = Examination({"kind": "cpu", "cpu": "EPYC"}, VERSIONS)
FAULTS = [
    (facts(examination=Examination(), examination_error="boom"), "error", "does not start", "python -m benchmarks"),
    (examined(problems=(Finding("error", "/tmp is full", "no room", "free some"),)), "error", "/tmp is full", "free"),
    (facts(examination=CPU), "note", "no GPU", "`ridgeline run --out trials.jsonl`"),
    (versions(asv=None), "warning", "asv is not installed", "0.6.6"),
    (versions(asv="0.7.0"), "warning", "asv 0.7.0", "0.6.6"),
    (facts(interpret="1"), "error", "TRITON_INTERPRET=1", "unset"),
    (facts(gpu_processes=((77, "python"),)), "warning", "python (pid 77)", "stop them"),
    (facts(numa_balancing=1), "warning", "NUMA", "numa_balancing"),
    (facts(clone=None), "warning", "not a git repository", "`ridgeline run --help`"),
    (facts(clone=Clone("a" * 40, 1, shallow=True)), "warning", "after 1 commit", "--unshallow"),
    (facts(results=ResultsFolder(error="denied")), "error", "results cannot be used", "--results"),
    (facts(results=ResultsFolder(aside=2)), "warning", "2 damaged", "setaside"),
    (facts(slurm=None), "note", "no Slurm", "`ridgeline jobs submit -- verify`"),
]


@pytest.mark.parametrize(("found", "level", "what", "next_step"), FAULTS, ids=[what for _, _, what, _ in FAULTS])
def test_a_fault(found: HostFacts, level: str, what: str, next_step: str) -> None:
    """It is the first finding, of its level, names the next step, and everything else is ok."""
    diagnosis = doctor.judge(found)
    first = diagnosis.findings[0]
    assert (first.level, diagnosis.worst) == (level, level)
    assert what in first.what
    assert next_step in first.next_step
    assert {finding.level for finding in diagnosis.findings[1:]} <= {"ok"}


def test_automatic_numa_balancing_matters_less_without_a_gpu() -> None:
    assert doctor.judge(facts(examination=CPU, numa_balancing=1)).worst == "note"


def test_hardware_that_is_unknown_is_not_called_right() -> None:
    diagnosis = doctor.judge(examined(machine={**H200, "market_name": None}))
    assert not any("H200" in finding.what for finding in diagnosis.findings)


@pytest.mark.parametrize("value", ["", "0"])
def test_the_interpreter_switched_off_is_fine(value: str) -> None:
    assert doctor.judge(facts(interpret=value)).worst == "ok"


def test_a_release_candidate_and_a_local_version_are_read() -> None:
    assert doctor.judge(versions(asv="0.6.7rc1", asv_runner="0.3.0+local1")).worst == "ok"


# ---- collecting ----


def answering(monkeypatch: pytest.MonkeyPatch, *problems: dict[str, str], **other: object) -> None:
    environment = {**VERSIONS, "cuda": "13.0", "torch": None, "variables": {}}
    answer = {"machine": H200, "environment": environment, "problems": list(problems), **other}
    monkeypatch.setattr(doctor, "query", lambda *arguments, limit_s: answer)


def test_the_problems_of_the_measuring_program_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, OLD_TORCH, {**OLD_TORCH, "level": "error", "text": "\x1b[2Jgone"})
    found, error = doctor._examine(Path(), Path())
    assert error == ""
    assert found.problems == (
        Finding("warning", OLD_TORCH["text"], "not tested", "install torch 2.11"),
        Finding("error", r"\x1b[2Jgone", "not tested", "install torch 2.11"),
    )
    assert found.versions == {"python": "3.12.3", "triton": "3.6.0"}
    whats = {finding.what for finding in doctor.judge(facts(examination=found)).findings}
    assert OLD_TORCH["text"] in whats
    assert not any(what.startswith("triton") for what in whats), "the program judges versions, and one is wrong"


def test_an_examination_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: str, limit_s: float) -> None:
        raise MeasureError("no answer")

    monkeypatch.setattr(doctor, "query", fail)
    assert doctor._examine(Path(), Path()) == (Examination(), "no answer")
    answering(monkeypatch, problems=["a sentence"])
    assert "cannot be read" in doctor._examine(Path(), Path())[1]


def test_a_clone_of_depth_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_examine", lambda root, results: (Examination(), ""))

    def git(*argv: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *argv], cwd=tmp_path, check=True, capture_output=True
        )

    git("init", "--quiet", "full")
    for message in ("one", "two"):
        git("-C", "full", "commit", "--quiet", "--allow-empty", "-m", message)
    git("clone", "--quiet", "--depth=1", f"file://{tmp_path}/full", "cut")
    clone = doctor.collect(tmp_path / "cut", tmp_path / "cut" / "results").clone
    assert clone is not None
    assert (clone.shallow, clone.commits) == (True, 1)
    clone = doctor.collect(tmp_path / "full", tmp_path / "none").clone
    assert clone is not None
    assert (clone.shallow, clone.commits) == (False, 2)
    (tmp_path / "bare").mkdir()
    assert doctor.collect(tmp_path / "bare", tmp_path / "none").clone is None


def test_results_that_are_damaged_or_closed(tmp_path: Path) -> None:
    results = tmp_path / "results"
    (results / "m").mkdir(parents=True)
    for name in ("a.json", "a.notes.jsonl", "machine.json", "b.json.setaside"):
        (results / "m" / name).touch()
    assert set_aside(results / "m" / "a.notes.jsonl", b"a torn line")
    assert set_aside(results / "m" / "a.json", b"not JSON")
    assert doctor._look_at(results) == ResultsFolder(results, 1, 3)
    assert doctor._look_at(tmp_path / "absent") == ResultsFolder(tmp_path / "absent")
    (tmp_path / "file").touch()
    assert "Not a directory" in doctor._look_at(tmp_path / "file").error
    if os.getuid():
        (results / "m").chmod(0)
        assert "not readable" in doctor._look_at(results).error


def test_processes_on_amd_gpus(tmp_path: Path) -> None:
    for pid in (12, 34, os.getpid()):
        (tmp_path / f"sys/class/kfd/kfd/proc/{pid}").mkdir(parents=True)
    (tmp_path / "proc/12").mkdir(parents=True)
    (tmp_path / "proc/12/comm").write_text("vllm\n")
    assert list(doctor._gpu_processes(tmp_path)) == [(12, "vllm"), (34, "process of another container")]


def test_shown(golden: object) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    faults = facts(clone=Clone("a" * 40, 1, shallow=True), interpret="1", slurm=None)
    doctor.show(doctor.judge(faults), console)
    golden("doctor.txt", "\n".join(line.rstrip() for line in console.export_text().splitlines()) + "\n")  # type: ignore


def test_as_json() -> None:
    document = doctor.judge(facts(slurm=None)).document()
    assert document["worst"] == "note"
    assert set(document["findings"][0]) == {"level", "what", "why", "next_step"}
    assert document["machine"]["market_name"] == "H200 SXM"
