"""Run commands as jobs: `submit`, `status`, `wait`, `cancel`, `resume`, the same on every executor.

The executors and their names are in EXECUTORS.  Each is an :class:`Executor`; adding one means writing that class.
A job's folder says which executor it belongs to, so that all of them can share one list.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ci.executors.job import (
    Executor,
    ExecutorError,
    JobSpec,
    JobStatus,
    Sharding,
    State,
    default_root,
    read_json,
    script,
)
from ci.executors.local import LocalExecutor

__all__ = [
    "EXECUTORS",
    "Executor",
    "ExecutorError",
    "JobSpec",
    "JobStatus",
    "LocalExecutor",
    "Sharding",
    "State",
    "cancel",
    "default_root",
    "resume",
    "script",
    "status",
    "submit",
    "wait",
]


def _slurm(root: Path) -> Executor:
    from ci.executors.cluster import SlurmExecutor  # needs more than a node has that only measures

    return SlurmExecutor(root)


EXECUTORS: dict[str, Callable[[Path], Executor]] = {"local": LocalExecutor, "slurm": _slurm}
"""Name -> how to open it on a folder."""


def submit(argv: Sequence[str], spec: JobSpec, executor: str, root: Path | None = None) -> str:
    """Queue a command with all that is known of it; returns the job's id."""
    if executor not in EXECUTORS:
        raise ExecutorError(f"no executor {executor!r}; known: {', '.join(sorted(EXECUTORS))}")
    return EXECUTORS[executor](root or default_root()).submit(script(argv, spec), spec)


def all_jobs(root: Path | None = None) -> list[str]:
    """The ids of every executor's jobs in this folder, oldest first."""
    return sorted(path.name for path in ((root or default_root()) / "jobs").glob("*") if _executor_of(path))


def status(ids: Sequence[str] = (), *, root: Path | None = None) -> list[JobStatus]:
    """The status of these jobs (of all jobs where no id is given), oldest first."""
    return wait(sorted({*(ids or all_jobs(root))}), timeout_s=0, root=root)


def wait(
    ids: Sequence[str],
    *,
    timeout_s: float = float("inf"),
    root: Path | None = None,
    report: Callable[[JobStatus], None] = lambda status: None,
) -> list[JobStatus]:
    """Wait until these jobs have ended, at most `timeout_s` seconds; returns their last status.

    report: called with every status that is seen.
    """
    place, mine = root or default_root(), dict[str, list[str]]()
    for name in ids:
        mine.setdefault(_executor_of(place / "jobs" / name) or "local", []).append(name)  # who knows it not, says so
    asked = [(EXECUTORS[executor](place), names) for executor, names in mine.items()]
    deadline = time.monotonic() + timeout_s
    while True:
        found = {job: status for executor, names in asked for job, status in executor.poll(names).items()}
        for one in found.values():
            report(one)
        left = deadline - time.monotonic()
        if left <= 0 or all(one.state.final for one in found.values()):
            return [found[name] for name in ids]
        time.sleep(min(left, *(executor.poll_s for executor, _ in asked)))


def cancel(ids: Sequence[str], *, root: Path | None = None) -> None:
    """End these jobs and everything they started.  A job that has ended stays as it is."""
    for name in ids:
        _owner(name, root).cancel(name)


def resume(ids: Sequence[str], *, root: Path | None = None) -> None:
    """Queue jobs again that were lost or failed, under the same ids."""
    for name in ids:
        _owner(name, root).resume(name)


def _owner(job: str, root: Path | None) -> Executor:
    """The executor of a job."""
    place = root or default_root()
    executor = _executor_of(place / "jobs" / job) if job == os.path.basename(job) and not job.startswith(".") else ""
    if not executor:
        raise ExecutorError(f"no job {job!r} under {place}; `ridgeline jobs` lists them")
    return EXECUTORS[executor](place)


def _executor_of(folder: Path) -> str:
    """The executor of the job in a folder, "" where there is none."""
    try:
        described = read_json(folder / "job.json")
    except (ExecutorError, OSError):
        return ""
    return str(described.get("executor", "local")) if described else ""


def tail(job: JobStatus, lines: int = 20) -> str:
    """The end of a job's output, for a message about its failure."""
    if not job.log or not os.path.isfile(job.log):
        return ""
    with open(job.log, "rb") as file:
        file.seek(max(0, os.path.getsize(job.log) - 16_384))
        text = file.read().decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-lines:])
