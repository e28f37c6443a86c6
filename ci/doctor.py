"""What is amiss on this machine, why it matters, and what to do about it.

Facts are collected first (:func:`collect`: files, commands, the measuring program's own examination), then judged by
pure functions.  A fact that cannot be had is itself a finding, never an exception.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

Level = Literal["ok", "note", "warning", "error"]
STYLE: dict[Level, str] = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}

TESTED = {
    "python": ((3, 11), (3, 12)),
    "torch": ((2, 11), (2, 13)),
    "triton": ((3, 6), (3, 9)),
    "asv": ((0, 6, 6), (0, 6)),
    "asv_runner": ((0, 2), (0, 3)),
}
"""Oldest and newest version that Ridgeline is tested with (2026-11)."""
LEAST_DISK = 2 << 30
"""Bytes: a nightly run writes some 100 MB of trials, Triton's cache up to 1 GB."""
LEAST_SHM = 1 << 30
"""Bytes: the largest all_gather of the pr tier on two CPU ranks fills 512 MB."""
EXAMINE_S = 180.0
"""Seconds for the measuring program's own examination: importing torch on a cold disk takes a minute."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at: how bad, what it is, why it matters, what to do (both "" for ok)."""

    level: Level
    what: str
    why: str = ""
    next_step: str = ""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What was found on this machine; None where it could not be asked.

    examination: the output of `python -m benchmarks doctor --json`, {} with `examination_error` if it failed.
    versions: of Python, asv and asv_runner here; the measuring program adds torch and triton.
    disk_free, shm_size: bytes.  commits: of HEAD's history.  gpu_processes: (pid, command) of processes on the GPUs.
    """

    examination: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    examination_error: str = ""
    versions: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)
    git: str | None = None
    shallow: bool = False
    commits: int = 0
    results: Path = Path("results")
    results_error: str = ""
    results_files: int = 0
    results_aside: int = 0
    disk_free: int | None = None
    shm_size: int | None = None
    numa_balancing: int | None = None
    gpu_processes: Sequence[tuple[int, str]] = ()
    slurm: str | None = None


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """All findings, worst first, and the machine's fingerprint ({} if it could not be had)."""

    findings: tuple[Finding, ...]
    fingerprint: Mapping[str, Any]

    @property
    def worst(self) -> Level:
        """The worst level found."""
        return min((finding.level for finding in self.findings), key=_badness, default="ok")

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            "worst": self.worst,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "machine": dict(self.fingerprint),
        }


def diagnose(root: Path, results: Path) -> Diagnosis:
    """Examine this machine for the repository at `root` with its records in `results`; takes some seconds."""
    return judge(collect(root, results))


def judge(facts: Facts) -> Diagnosis:
    """The findings on the facts, worst first.  Pure."""
    checks = (_examined, _devices, _versions, _interpreter, _foreign, _numa, _memory, _disk, _git, _results, _slurm)
    found = [finding for check in checks for finding in check(facts)]
    return Diagnosis(tuple(sorted(found, key=lambda f: _badness(f.level))), facts.examination.get("machine", {}))


def _badness(level: Level) -> int:
    return ["error", "warning", "note", "ok"].index(level)


# ---- judging ----


def _examined(facts: Facts) -> Iterator[Finding]:
    if facts.examination_error:
        yield Finding(
            "error",
            "the measuring program does not start",
            facts.examination_error,
            "run `python -m benchmarks doctor` and correct what it says",
        )
    for module in facts.examination.get("broken", []):
        yield Finding(
            "warning",
            f"module {module['module']} cannot be imported",
            module["reason"],
            "correct it; its kernels are missing from every run until then",
        )
    elsewhere = ("does not import", "cannot be imported", "cannot be read", "hardware.py")  # said by other checks
    for problem in facts.examination.get("problems", []):
        if not any(part in problem for part in elsewhere):
            yield Finding("warning", problem)


def _devices(facts: Facts) -> Iterator[Finding]:
    machine = facts.examination.get("machine")
    if not machine:
        return
    if machine.get("kind") != "gpu":
        yield Finding(
            "note",
            f"no GPU: only CPU backends are timed ({machine.get('cpu') or machine.get('device')})",
            "Triton kernels are checked in its interpreter at most, never timed",
            "for GPU times run on a GPU machine, `ridgeline run --out FILE`, and record FILE here",
        )
    elif not machine.get("market_name"):
        yield Finding(
            "warning",
            f"{machine.get('device')} ({machine.get('arch')}) is not in the table of hardware",
            "times are right, but shares of the peak cannot be shown",
            "add it to kernels/hardware.py: DEVICES, with its source and date",
        )
    else:
        yield Finding("ok", f"{machine.get('count', 1)} x {machine['market_name']} ({machine.get('arch')})")
    if facts.examination.get("why_no_state") and machine.get("kind") == "gpu":
        yield Finding(
            "warning",
            "clocks, power and throttling cannot be read",
            str(facts.examination["why_no_state"]),
            "install nvidia-ml-py, or ROCm's amdsmi, so that a verdict can blame the machine",
        )


def _versions(facts: Facts) -> Iterator[Finding]:
    environment = facts.examination.get("environment", {})
    found = {**{name: environment.get(name) for name in ("torch", "triton")}, **facts.versions}
    for name, (oldest, newest) in TESTED.items():
        version = found.get(name)
        if version is None:
            if name not in ("torch", "triton") or facts.examination:
                yield Finding(
                    "warning",
                    f"{name} is not installed",
                    "what needs it cannot be measured",
                    f"install {name} {_dotted(oldest)} to {_dotted(newest)}",
                )
        elif not oldest <= _numbers(version) or _numbers(version)[: len(newest)] > newest:
            yield Finding(
                "warning",
                f"{name} {version} is outside {_dotted(oldest)} to {_dotted(newest)}",
                "Ridgeline was not tested with it",
                f"install {name} {_dotted(oldest)} to {_dotted(newest)}, or tell us how it went",
            )
        else:
            yield Finding("ok", f"{name} {version}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _interpreter(facts: Facts) -> Iterator[Finding]:
    if facts.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        yield Finding(
            "error",
            f"TRITON_INTERPRET={facts.environ['TRITON_INTERPRET']} is set",
            "Triton then interprets kernels on the CPU: no time would mean anything",
            "unset TRITON_INTERPRET",
        )


def _foreign(facts: Facts) -> Iterator[Finding]:
    if facts.gpu_processes:
        listed = ", ".join(f"{command} (pid {pid})" for pid, command in facts.gpu_processes[:5])
        yield Finding(
            "warning",
            f"{len(facts.gpu_processes)} foreign process(es) on the GPUs: {listed}",
            "they share compute, bandwidth and power with what is measured",
            "stop them, or wait",
        )


def _numa(facts: Facts) -> Iterator[Finding]:
    if facts.numa_balancing:
        yield Finding(
            "note" if not _has_gpu(facts) else "warning",
            "automatic NUMA balancing is on",
            "the kernel moves pages while a kernel launches; ROCm advises against it",
            "as root: echo 0 > /proc/sys/kernel/numa_balancing",
        )


def _has_gpu(facts: Facts) -> bool:
    return bool(facts.examination.get("machine", {}).get("kind") == "gpu")


def _memory(facts: Facts) -> Iterator[Finding]:
    if facts.shm_size is not None and facts.shm_size < LEAST_SHM:
        yield Finding(
            "warning",
            f"/dev/shm has {_mib(facts.shm_size)}",
            "ranks share their buffers there",
            "start the container with --shm-size=16G or --ipc=host",
        )


def _disk(facts: Facts) -> Iterator[Finding]:
    if facts.disk_free is not None and facts.disk_free < LEAST_DISK:
        yield Finding(
            "error" if facts.disk_free < LEAST_DISK // 20 else "warning",
            f"{_mib(facts.disk_free)} are free where {facts.results} lives",
            "records and compiled kernels are written there",
            f"free space, {_mib(LEAST_DISK)} at least",
        )


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


def _git(facts: Facts) -> Iterator[Finding]:
    if facts.git is None:
        yield Finding(
            "warning",
            "this is no git repository, or git is missing",
            "commits cannot be compared",
            "on a node without git use `ridgeline run --commit HASH --out FILE` and record FILE at home",
        )
    elif facts.shallow:
        yield Finding(
            "warning",
            f"the history is cut off after {facts.commits} commit(s)",
            "a base to compare with may be missing",
            "git fetch --unshallow (in a workflow: fetch-depth: 0)",
        )
    else:
        yield Finding("ok", f"git: {facts.commits} commits at {facts.git[:12]}")


def _results(facts: Facts) -> Iterator[Finding]:
    if facts.results_error:
        yield Finding(
            "error",
            f"{facts.results} cannot be used",
            facts.results_error,
            "give this user read and write access, or another folder with --results",
        )
    elif facts.results_aside:
        yield Finding(
            "warning",
            f"{facts.results_aside} damaged or foreign file(s) were set aside in {facts.results}",
            "what they hold is not shown",
            f"look at {facts.results}/**/*.setaside, correct or remove them",
        )
    else:
        yield Finding("ok", f"{facts.results_files} record file(s) in {facts.results}")


def _slurm(facts: Facts) -> Iterator[Finding]:
    if facts.slurm:
        yield Finding("ok", f"Slurm: {facts.slurm}")
    else:
        yield Finding(
            "note",
            "no Slurm client here",
            "jobs run on this machine only",
            "`ridgeline submit --executor local` queues them; on a cluster use its login node",
        )


# ---- collecting ----


def collect(root: Path, results: Path) -> Facts:
    """Look at everything; see :class:`Facts`."""
    examination, error = _examine(root)
    commit = _said("git", "-C", str(root), "rev-parse", "HEAD")
    files, aside, results_error = _look_at(results)
    return Facts(
        examination,
        error,
        {"python": platform.python_version(), "asv": _installed("asv"), "asv_runner": _installed("asv_runner")},
        {key: value for key, value in os.environ.items() if key == "TRITON_INTERPRET"},
        commit,
        _said("git", "-C", str(root), "rev-parse", "--is-shallow-repository") == "true",
        int(_said("git", "-C", str(root), "rev-list", "--count", "HEAD") or 0),
        results,
        results_error,
        files,
        aside,
        _free(results),
        _shm(),
        _number(Path("/proc/sys/kernel/numa_balancing")),
        tuple(_gpu_processes()),
        _said("sbatch", "--version"),
    )


def _examine(root: Path) -> tuple[dict[str, Any], str]:
    """What the measuring program says of this machine, or why it says nothing."""
    try:
        run = subprocess.run(
            [sys.executable, "-m", "benchmarks", "doctor", "--json"],
            cwd=root,
            text=True,
            capture_output=True,
            timeout=EXAMINE_S,
            stdin=subprocess.DEVNULL,
        )
        found = json.loads(run.stdout[run.stdout.find("{") :] if "{" in run.stdout else "")
    except subprocess.TimeoutExpired:
        return {}, f"it did not answer within {EXAMINE_S:.0f} s: a GPU or its driver may hang"
    except ValueError:
        last = (run.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {}, f"exit code {run.returncode}: {last[:300]}"
    return (found, "") if isinstance(found, dict) else ({}, "it did not answer with an object")


def _installed(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _said(*argv: str) -> str | None:
    """What a command prints, None if it is missing or fails."""
    try:
        run = subprocess.run(argv, text=True, capture_output=True, timeout=30, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() if run.returncode == 0 else None


def _look_at(results: Path) -> tuple[int, int, str]:
    """Record files, files set aside, and what keeps the folder from being used ("": nothing; absent is no fault)."""
    if not results.exists():
        return 0, 0, ""
    try:
        names = [path.name for path in results.rglob("*") if path.is_file()]
        for path in (results, *(path for path in results.iterdir() if path.is_dir())):
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                return 0, 0, f"{path} is not readable and writable for this user"
    except OSError as error:
        return 0, 0, str(error)
    aside = sum(name.endswith(".setaside") for name in names)
    return sum(name.endswith(".json") and name not in ("machine.json", "benchmarks.json") for name in names), aside, ""


def _free(folder: Path) -> int | None:
    """Bytes free on the disk that holds the folder, or would hold it."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(place).free


def _shm() -> int | None:
    return shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else None


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _gpu_processes(root: Path = Path("/")) -> Iterator[tuple[int, str]]:
    """Processes that hold a GPU: AMD's in the KFD's list, NVIDIA's by NVML.  Of other containers only numbers show."""
    pids = [int(path.name) for path in (root / "sys/class/kfd/kfd/proc").glob("[0-9]*")] or _nvml_pids()
    for pid in sorted(set(pids) - {os.getpid()}):
        command = root / "proc" / str(pid) / "comm"
        yield pid, command.read_text().strip() if command.is_file() else "process of another container"


def _nvml_pids() -> list[int]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    pids: list[int] = []
    for handle in handles:
        with contextlib.suppress(pynvml.NVMLError):
            pids += [int(process.pid) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    return pids


# ---- showing ----


def show(diagnosis: Diagnosis, console: Console) -> None:
    """One line for what is well; what, why and the next step for everything else."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for finding in diagnosis.findings:
        text = Text(finding.what, style="" if finding.level == "ok" else "bold")
        text.append(f"\n{finding.why}" if finding.why else "", style="not bold dim")
        text.append(f"\n-> {finding.next_step}" if finding.next_step else "", style="not bold cyan")
        table.add_row(Text(finding.level, style=STYLE[finding.level]), text)
    console.print(table, highlight=False)
