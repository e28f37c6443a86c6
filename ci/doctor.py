"""What is wrong on this machine, why it matters, and what to do about it.

Facts are collected first (:func:`collect`: files, commands, the measuring program's own examination), then judged by
pure functions.  A fact that cannot be had is itself a finding, never an exception.  What torch, the devices and the
disks are good for is judged by `benchmarks.doctor`, with its limits; its problems are findings here as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ci.bars import printable
from ci.git.command import GitError
from ci.git.repository import Repository
from ci.harness import MeasureError, query

Level = Literal["ok", "note", "warning", "error"]
STYLE: dict[Level, str] = {"error": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}
"""How each level looks, worst first."""

TESTED = {"asv": ((0, 6, 6), (0, 6)), "asv_runner": ((0, 2), (0, 3))}
"""Oldest and newest version that Ridgeline is tested with (2026-11)."""
EXAMINED = ("python", "torch", "triton")
"""Versions that the measuring program judges."""
VERSION_PROBLEMS = {"library_missing", "untested_version"}
"""Kinds of its problems that are about versions."""
EXAMINE_S = 180.0
"""Seconds for the measuring program's own examination: importing torch on a cold disk takes a minute."""
SET_ASIDE = re.compile(r"\.setaside(-[0-9a-f]+)?$")
"""How the name of a file ends that was set aside (ci.trials.file.set_aside)."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at: how bad, what it is, why it matters, what to do (both "" for ok)."""

    level: Level
    what: str
    why: str = ""
    next_step: str = ""


@dataclasses.dataclass(frozen=True)
class Examination:
    """What the measuring program says: the machine's fingerprint, versions by library, its problems and their kinds."""

    machine: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    problems: tuple[Finding, ...] = ()
    kinds: frozenset[str] = frozenset()

    @property
    def has_gpu(self) -> bool:
        """Whether kernels run on a GPU here."""
        return self.machine.get("kind") == "gpu"


@dataclasses.dataclass(frozen=True)
class Clone:
    """The git repository: HEAD, the number of commits up to it, and whether older ones were cut off."""

    commit: str
    commits: int
    shallow: bool = False


@dataclasses.dataclass(frozen=True)
class ResultsFolder:
    """The folder of records: record files, files set aside, and what keeps it from being used ("": nothing)."""

    path: Path = Path("results")
    files: int = 0
    aside: int = 0
    error: str = ""


@dataclasses.dataclass(frozen=True)
class HostFacts:
    """What was found on this machine; None where it could not be asked.

    examination_error: why there is no examination.  versions: of asv and asv_runner.  interpret: TRITON_INTERPRET.
    clone: None outside a git repository, or without git.  gpu_processes: (pid, command) of processes on the GPUs.
    """

    examination: Examination = Examination()
    examination_error: str = ""
    versions: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    interpret: str = ""
    clone: Clone | None = None
    results: ResultsFolder = ResultsFolder()
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
        return min((finding.level for finding in self.findings), key=_rank, default="ok")

    def document(self) -> dict[str, Any]:
        """For --json."""
        findings = [dataclasses.asdict(finding) for finding in self.findings]
        return {"worst": self.worst, "findings": findings, "machine": dict(self.fingerprint)}


def diagnose(root: Path, results: Path) -> Diagnosis:
    """Examine this machine for the repository at `root` with its records in `results`; takes some seconds."""
    return judge(collect(root, results))


def judge(facts: HostFacts) -> Diagnosis:
    """The findings on the facts, worst first.  Pure."""
    checks = (_examined, _devices, _versions, _interpreter, _foreign, _numa, _clone, _results, _slurm)
    found = [finding for check in checks for finding in check(facts)]
    return Diagnosis(tuple(sorted(found, key=lambda finding: _rank(finding.level))), facts.examination.machine)


def _rank(level: Level) -> int:
    return list(STYLE).index(level)


# ---- judging ----


def _examined(facts: HostFacts) -> Iterator[Finding]:
    if facts.examination_error:
        next_step = "run `python -m benchmarks doctor` and correct what it reports"
        yield Finding("error", "the measuring program does not start", facts.examination_error, next_step)
    yield from facts.examination.problems


def _devices(facts: HostFacts) -> Iterator[Finding]:
    machine = facts.examination.machine
    if machine and not facts.examination.has_gpu:
        yield Finding(
            "note",
            f"no GPU: only CPU backends are timed ({machine.get('cpu') or machine.get('device')})",
            "Triton kernels are checked in its interpreter at most, never timed",
            "for GPU times `ridgeline run --out trials.jsonl` on a GPU, `ridgeline records add trials.jsonl` here",
        )
    elif machine.get("market_name"):
        yield Finding("ok", f"{machine.get('count', 1)} x {machine['market_name']} ({machine.get('arch')})")


def _versions(facts: HostFacts) -> Iterator[Finding]:
    if not facts.examination.kinds & VERSION_PROBLEMS:
        for name, version in facts.examination.versions.items():
            yield Finding("ok", f"{name} {version}")
    for name, (oldest, newest) in TESTED.items():
        yield _version(name, facts.versions.get(name), oldest, newest)


def _version(name: str, version: str | None, oldest: tuple[int, ...], newest: tuple[int, ...]) -> Finding:
    """Whether a library's version is a tested one; local parts ("+cu130") do not count."""
    tested = f"{_dotted(oldest)} to {_dotted(newest)}"
    if version is None:
        return Finding(
            "warning", f"{name} is not installed", "what needs it cannot be measured", f"install {name} {tested}"
        )
    numbers = tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
    if oldest <= numbers and numbers[: len(newest)] <= newest:
        return Finding("ok", f"{name} {version}")
    why, next_step = "Ridgeline was not tested with it", f"install {name} {tested}, or tell us how it went"
    return Finding("warning", f"{name} {version} is outside {tested}", why, next_step)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version)) + (".x" if len(version) < 3 else "")


def _interpreter(facts: HostFacts) -> Iterator[Finding]:
    if facts.interpret not in ("", "0"):
        yield Finding(
            "error",
            f"TRITON_INTERPRET={printable(facts.interpret)} is set",
            "Triton then interprets kernels on the CPU: no time would mean anything",
            "unset TRITON_INTERPRET",
        )


def _foreign(facts: HostFacts) -> Iterator[Finding]:
    if facts.gpu_processes:
        listed = ", ".join(f"{printable(command)} (pid {pid})" for pid, command in facts.gpu_processes[:5])
        yield Finding(
            "warning",
            f"{len(facts.gpu_processes)} foreign process(es) on the GPUs: {listed}",
            "they share compute, bandwidth and power with what is measured",
            "stop them, or wait",
        )


def _numa(facts: HostFacts) -> Iterator[Finding]:
    if facts.numa_balancing:
        yield Finding(
            "warning" if facts.examination.has_gpu else "note",
            "automatic NUMA balancing is on",
            "the operating system moves pages while a kernel launches; ROCm advises against it",
            "as root: echo 0 > /proc/sys/kernel/numa_balancing",
        )


def _clone(facts: HostFacts) -> Iterator[Finding]:
    clone = facts.clone
    if clone is None:
        yield Finding(
            "warning",
            "this is not a git repository, or git is missing",
            "commits cannot be compared",
            "on a node without git name the commit and a file (`ridgeline run --help`), and record the file in a clone",
        )
    elif clone.shallow:
        yield Finding(
            "warning",
            f"the history is cut off after {clone.commits} commit(s)",
            "a base to compare with may be missing",
            "git fetch --unshallow (in a workflow: fetch-depth: 0)",
        )
    else:
        yield Finding("ok", f"git: {clone.commits} commits up to {clone.commit[:12]}")


def _results(facts: HostFacts) -> Iterator[Finding]:
    results = facts.results
    if results.error:
        next_step = "give this user read and write access, or another folder with --results"
        yield Finding("error", f"{results.path} cannot be used", results.error, next_step)
        return
    if results.aside:
        yield Finding(
            "warning",
            f"{results.aside} damaged or foreign file(s) were set aside in {results.path}",
            "what they hold is not shown",
            f"look at {results.path}/**/*.setaside*, correct or remove them",
        )
    yield Finding("ok", f"{results.files} record file(s) in {results.path}")


def _slurm(facts: HostFacts) -> Iterator[Finding]:
    if facts.slurm:
        yield Finding("ok", f"Slurm: {facts.slurm}")
        return
    next_step = "`ridgeline jobs submit -- verify` queues one; on a cluster use its login node"
    yield Finding("note", "no Slurm client here", "jobs run on this machine only", next_step)


# ---- collecting ----


def collect(root: Path, results: Path) -> HostFacts:
    """Look at everything; see :class:`HostFacts`."""
    examination, error = _examine(root, results)
    return HostFacts(
        examination,
        error,
        versions={name: _installed(name) for name in TESTED},
        interpret=os.environ.get("TRITON_INTERPRET", ""),
        clone=_look_at_clone(root),
        results=_look_at(results),
        numa_balancing=_number(Path("/proc/sys/kernel/numa_balancing")),
        gpu_processes=tuple(_gpu_processes()),
        slurm=_slurm_version(),
    )


def _examine(root: Path, results: Path) -> tuple[Examination, str]:
    """What the measuring program says about this machine, or why it says nothing."""
    try:
        answer = query("doctor", "--tree", str(root), "--folder", str(results.absolute()), limit_s=EXAMINE_S)
    except MeasureError as error:
        return Examination(), str(error)
    try:
        return _read(answer), ""
    except (KeyError, TypeError, AttributeError) as error:
        return Examination(), f"its answer cannot be read ({type(error).__name__}: {error})"


def _read(answer: Mapping[str, Any]) -> Examination:
    """The answer of `python -m benchmarks doctor --json`."""
    problems = answer["problems"]
    versions = {name: str(answer["environment"][name]) for name in EXAMINED if answer["environment"].get(name)}
    kinds = frozenset(str(problem["kind"]) for problem in problems)
    return Examination(answer["machine"], versions, tuple(map(_problem, problems)), kinds)


def _problem(problem: Mapping[str, str]) -> Finding:
    level: Level = "error" if problem["level"] == "error" else "warning"
    return Finding(level, *(printable(problem[key]) for key in ("text", "why", "next_step")))


def _installed(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _look_at_clone(root: Path) -> Clone | None:
    try:
        repository = Repository(root)
        return Clone(repository.resolve("HEAD").hash, repository.length(), repository.is_shallow())
    except GitError:
        return None


def _slurm_version() -> str | None:
    """What `sbatch --version` prints, None if it is missing or fails."""
    try:
        asked = subprocess.run(
            ["sbatch", "--version"], text=True, capture_output=True, timeout=30, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


def _look_at(results: Path) -> ResultsFolder:
    """What is in the folder of records; an absent one is not a fault."""
    if not results.exists():
        return ResultsFolder(results)
    try:
        names = [path.name for path in results.rglob("*") if path.is_file()]
        for path in (results, *(path for path in results.iterdir() if path.is_dir())):
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                return ResultsFolder(results, error=f"{path} is not readable and writable for this user")
    except OSError as error:
        return ResultsFolder(results, error=str(error))
    records = [name for name in names if name.endswith(".json") and name not in ("machine.json", "benchmarks.json")]
    return ResultsFolder(results, len(records), sum(bool(SET_ASIDE.search(name)) for name in names))


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _gpu_processes(root: Path = Path("/")) -> Iterator[tuple[int, str]]:
    """Processes on GPUs, from the KFD (AMD) or NVML (NVIDIA); those of other containers are known by number only."""
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
    """One line for what is right; what, why and the next step for everything else."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for finding in diagnosis.findings:
        text = Text(finding.what, style="" if finding.level == "ok" else "bold")
        text.append(f"\n{finding.why}" if finding.why else "", style="not bold dim")
        text.append(f"\n-> {finding.next_step}" if finding.next_step else "", style="not bold cyan")
        table.add_row(Text(finding.level, style=STYLE[finding.level]), text)
    console.print(table, highlight=False)
