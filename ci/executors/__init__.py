"""Run commands as jobs: `submit`, `status`, `wait`, `cancel`, `resume`, the same on every executor.

The executors and their names are in EXECUTORS.  Each is a :class:`Scheduler`; adding one means writing that class.
A job's folder says which executor it belongs to, so that all of them can share one list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ci.executors import scheduler
from ci.executors.local import LocalExecutor
from ci.executors.scheduler import (
    ExecutorError,
    JobSpec,
    JobStatus,
    Scheduler,
    Sharding,
    State,
    default_root,
    executor_of,
    script,
)

__all__ = [
    "EXECUTORS",
    "ExecutorError",
    "JobSpec",
    "JobStatus",
    "LocalExecutor",
    "Scheduler",
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


def _slurm(root: Path) -> Scheduler:
    from ci.executors.cluster import SlurmExecutor  # needs more than a node has that only measures

    return SlurmExecutor(root)


EXECUTORS: dict[str, Callable[[Path], Scheduler]] = {"local": LocalExecutor, "slurm": _slurm}
"""Name -> how to open it on a folder."""


def opened(executor: str, root: Path | None) -> Scheduler:
    """The executor of that name."""
    if executor not in EXECUTORS:
        raise ExecutorError(f"no executor {executor!r}; known: {', '.join(sorted(EXECUTORS))}")
    return EXECUTORS[executor](root or default_root())


def _owner(job: str, root: Path | None) -> Scheduler:
    """The executor of a job; the local one for a job that nobody knows, which says so."""
    if job != os.path.basename(job) or job.startswith("."):
        raise ExecutorError(f"{job!r} is not a job id; `ridgeline jobs` lists them")
    return opened(executor_of((root or default_root()) / "jobs" / job) or "local", root)


def submit(argv: Sequence[str], spec: JobSpec, executor: str, root: Path | None = None) -> str:
    """Queue a command with all that is known of it; returns the job's id."""
    return opened(executor, root).submit(script(argv, spec), spec)


def status(ids: Sequence[str] = (), *, root: Path | None = None) -> list[JobStatus]:
    """The status of these jobs (of all jobs where no id is given), oldest first."""
    names = list(ids) or all_jobs(root)
    found: dict[str, JobStatus] = {}
    for executor, mine in _by_executor(names, root).items():
        found |= opened(executor, root).poll(mine)
    return [found[name] for name in sorted(found)]


def all_jobs(root: Path | None = None) -> list[str]:
    """The ids of every executor's jobs in this folder, oldest first."""
    return sorted(path.name for path in ((root or default_root()) / "jobs").glob("*") if executor_of(path))


def _by_executor(names: Sequence[str], root: Path | None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        executor = executor_of((root or default_root()) / "jobs" / name) or "local"
        found.setdefault(executor, []).append(name)
    return found


def wait(
    ids: Sequence[str],
    *,
    timeout_s: float = float("inf"),
    root: Path | None = None,
    report: Callable[[JobStatus], None] = lambda status: None,
) -> list[JobStatus]:
    """Wait until these jobs have ended, at most `timeout_s` seconds; returns their last status."""
    found: dict[str, JobStatus] = {}
    for executor, mine in _by_executor(ids, root).items():
        found |= scheduler.wait(opened(executor, root), mine, timeout_s, report)
    return [found[name] for name in ids]


def cancel(ids: Sequence[str], *, root: Path | None = None) -> None:
    """End these jobs and everything they started.  A job that has ended stays as it is."""
    for name in ids:
        _owner(name, root).cancel(name)


def resume(ids: Sequence[str], *, root: Path | None = None) -> None:
    """Queue jobs again that were lost or failed, under the same ids."""
    for name in ids:
        _owner(name, root).resume(name)


def tail(job: JobStatus, lines: int = 20) -> str:
    """The end of a job's output, for a message about its failure."""
    if not job.log or not os.path.isfile(job.log):
        return ""
    with open(job.log, "rb") as file:
        file.seek(max(0, os.path.getsize(job.log) - 16_384))
        text = file.read().decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-lines:])
