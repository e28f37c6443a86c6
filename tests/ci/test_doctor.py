"""Each fault the doctor knows, found where it is and only there; and a real examination of this machine."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from ci import doctor
from ci.doctor import Facts

H200 = {"kind": "gpu", "market_name": "H200 SXM", "device": "NVIDIA H200", "arch": "sm_90", "count": 2}
HEALTHY = Facts(
    examination={
        "machine": H200,
        "environment": {"torch": "2.11.0+cu130", "triton": "3.6.0"},
        "broken": [],
        "problems": [],
        "why_no_state": None,
    },
    versions={"python": "3.12.3", "asv": "0.6.6", "asv_runner": "0.3.2"},
    git="a" * 40,
    commits=120,
    results_files=9,
    disk_free=100 << 30,
    shm_size=16 << 30,
    numa_balancing=0,
    slurm="slurm 24.11.5",
)


def examined(**fields: object) -> Facts:
    return dataclasses.replace(HEALTHY, examination={**HEALTHY.examination, **fields})


def versions(**changed: str | None) -> Facts:
    return dataclasses.replace(HEALTHY, versions={**HEALTHY.versions, **changed})


def test_a_healthy_machine() -> None:
    diagnosis = doctor.judge(HEALTHY)
    assert {finding.level for finding in diagnosis.findings} == {"ok"}
    assert diagnosis.worst == "ok"
    assert diagnosis.fingerprint == H200


@pytest.mark.parametrize(
    ("facts", "level", "what", "next_step"),
    [
        (
            dataclasses.replace(HEALTHY, examination={}, examination_error="exit code 1: boom"),
            "error",
            "does not start",
            "python -m benchmarks doctor",
        ),
        (examined(broken=[{"module": "kernels.x", "reason": "SyntaxError: y"}]), "warning", "kernels.x", "correct it"),
        (examined(problems=["/tmp has 3 MiB free; free some"]), "warning", "/tmp has 3 MiB", ""),
        (
            examined(machine={**H200, "market_name": None}),
            "warning",
            "not in the table",
            "kernels/hardware.py: DEVICES",
        ),
        (examined(machine={"kind": "cpu", "cpu": "EPYC"}), "note", "no GPU", "ridgeline run --out FILE"),
        (examined(why_no_state="NVML not found"), "warning", "clocks, power", "nvidia-ml-py"),
        (examined(environment={"torch": "2.9.1", "triton": "3.6.0"}), "warning", "torch 2.9.1 is outside", "2.11"),
        (examined(environment={"torch": "2.13.0", "triton": "3.10.0"}), "warning", "triton 3.10.0 is outside", "3.9"),
        (examined(environment={"torch": "2.13.0"}), "warning", "triton is not installed", "3.6 to 3.9"),
        (versions(asv=None), "warning", "asv is not installed", "0.6.6"),
        (versions(asv="0.7.0"), "warning", "asv 0.7.0", "0.6.6"),
        (dataclasses.replace(HEALTHY, environ={"TRITON_INTERPRET": "1"}), "error", "TRITON_INTERPRET=1", "unset"),
        (dataclasses.replace(HEALTHY, gpu_processes=((77, "python"),)), "warning", "python (pid 77)", "stop them"),
        (dataclasses.replace(HEALTHY, numa_balancing=1), "warning", "NUMA", "numa_balancing"),
        (dataclasses.replace(HEALTHY, shm_size=64 << 20), "warning", "/dev/shm has 64 MiB", "--shm-size"),
        (dataclasses.replace(HEALTHY, disk_free=1 << 30), "warning", "1024 MiB are free", "free space"),
        (dataclasses.replace(HEALTHY, disk_free=1 << 20), "error", "1 MiB are free", "free space"),
        (dataclasses.replace(HEALTHY, git=None), "warning", "no git repository", "--commit HASH"),
        (dataclasses.replace(HEALTHY, shallow=True, commits=1), "warning", "after 1 commit", "--unshallow"),
        (dataclasses.replace(HEALTHY, results_error="denied"), "error", "results cannot be used", "--results"),
        (dataclasses.replace(HEALTHY, results_aside=2), "warning", "2 damaged", "setaside"),
        (dataclasses.replace(HEALTHY, slurm=None), "note", "no Slurm", "--executor local"),
    ],
)
def test_a_fault(facts: Facts, level: str, what: str, next_step: str) -> None:
    """It is the first finding, of its level, says what to do, and nothing else is called amiss."""
    diagnosis = doctor.judge(facts)
    first = diagnosis.findings[0]
    assert (first.level, diagnosis.worst) == (level, level)
    assert what in first.what
    assert next_step in first.next_step
    assert {finding.level for finding in diagnosis.findings[1:]} <= {"ok"}


@pytest.mark.parametrize("value", ["", "0"])
def test_the_interpreter_switched_off_is_fine(value: str) -> None:
    assert doctor.judge(dataclasses.replace(HEALTHY, environ={"TRITON_INTERPRET": value})).worst == "ok"


def test_a_release_candidate_and_a_local_version_are_read() -> None:
    assert doctor.judge(examined(environment={"torch": "2.12.0a0+git9f", "triton": "3.8.0+rocm7.14"})).worst == "ok"


# ---- collecting ----


@pytest.fixture
def measuring(tmp_path: Path) -> Path:
    """A folder whose `benchmarks` program is ours to write."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("")
    return tmp_path


def program(folder: Path, text: str) -> Path:
    (folder / "benchmarks" / "__main__.py").write_text(text)
    return folder


def test_the_examination_is_read_after_other_output(measuring: Path) -> None:
    folder = program(measuring, 'print(\'a library says hello\'); print(\'{"machine": {"kind": "cpu"}}\')')
    assert doctor._examine(folder) == ({"machine": {"kind": "cpu"}}, "")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("raise SystemExit('no torch here')", "exit code 1: no torch here"),
        ("", "it said nothing"),
        ("import os; os.abort()", "exit code -6"),
        ("print('{broken')", "exit code 0"),
        ("import time; time.sleep(60)", "did not answer within 1 s"),
    ],
)
def test_an_examination_that_fails_is_a_finding(
    measuring: Path, monkeypatch: pytest.MonkeyPatch, text: str, wanted: str
) -> None:
    monkeypatch.setattr(doctor, "EXAMINE_S", 1.0 if "sleep" in text else 60.0)
    found, error = doctor._examine(program(measuring, text))
    assert found == {}
    assert wanted in error


def test_a_clone_of_depth_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_examine", lambda root: ({}, ""))

    def git(*argv: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *argv], cwd=tmp_path, check=True, capture_output=True
        )

    git("init", "--quiet", "full")
    for message in ("one", "two"):
        git("-C", "full", "commit", "--quiet", "--allow-empty", "-m", message)
    git("clone", "--quiet", "--depth=1", f"file://{tmp_path}/full", "cut")
    facts = doctor.collect(tmp_path / "cut", tmp_path / "cut" / "results")
    assert (facts.shallow, facts.commits) == (True, 1)
    assert not doctor.collect(tmp_path / "full", tmp_path / "none").shallow


def test_results_that_are_damaged_or_closed(tmp_path: Path) -> None:
    results = tmp_path / "results"
    (results / "m").mkdir(parents=True)
    for name in ("a.json", "a.notes.jsonl", "machine.json", "b.json.setaside"):
        (results / "m" / name).touch()
    assert doctor._look_at(results) == (1, 1, "")
    assert doctor._look_at(tmp_path / "absent") == (0, 0, "")
    (tmp_path / "file").touch()
    assert "Not a directory" in doctor._look_at(tmp_path / "file")[2]
    if os.getuid():
        (results / "m").chmod(0)
        assert "not readable" in doctor._look_at(results)[2]


def test_processes_on_amd_gpus(tmp_path: Path) -> None:
    for pid in (12, 34, os.getpid()):
        (tmp_path / f"sys/class/kfd/kfd/proc/{pid}").mkdir(parents=True)
    (tmp_path / "proc/12").mkdir(parents=True)
    (tmp_path / "proc/12/comm").write_text("vllm\n")
    assert list(doctor._gpu_processes(tmp_path)) == [(12, "vllm"), (34, "process of another container")]


def test_shown(golden: object) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    faults = dataclasses.replace(HEALTHY, shallow=True, commits=1, environ={"TRITON_INTERPRET": "1"}, slurm=None)
    doctor.show(doctor.judge(faults), console)
    golden("doctor.txt", "\n".join(line.rstrip() for line in console.export_text().splitlines()) + "\n")  # type: ignore


def test_as_json() -> None:
    document = doctor.judge(dataclasses.replace(HEALTHY, slurm=None)).document()
    assert document["worst"] == "note"
    assert set(document["findings"][0]) == {"level", "what", "why", "next_step"}
    assert document["machine"]["market_name"] == "H200 SXM"


def test_python_here_is_a_tested_one() -> None:
    assert doctor.judge(versions(python=".".join(map(str, sys.version_info[:3])))).worst == "ok"
