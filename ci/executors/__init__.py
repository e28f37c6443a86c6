"""Run commands as jobs: `submit`, `status`, `wait`, `cancel`, `resume`, the same on every executor.

The executors and their names are in EXECUTORS.  Each is a :class:`Scheduler`; adding one means writing that class.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ci.executors import scheduler
from ci.executors.local import LocalExecutor
from ci.executors.scheduler import ExecutorError, JobSpec, JobStatus, Scheduler, State, default_root, script

__all__ = [
    "EXECUTORS",
    "ExecutorError",
    "JobSpec",
    "JobStatus",
    "LocalExecutor",
    "Scheduler",
    "State",
    "cancel",
    "default_root",
    "resume",
    "script",
    "status",
    "submit",
    "wait",
]

EXECUTORS: dict[str, Callable[[Path], Scheduler]] = {"local": LocalExecutor}
"""Name -> how to open it on a folder."""


def _open(executor: str, root: Path | None) -> Scheduler:
    if executor not in EXECUTORS:
        raise ExecutorError(f"no executor {executor!r}; known: {', '.join(sorted(EXECUTORS))}")
    return EXECUTORS[executor](root or default_root())


def submit(
    argv: Sequence[str],
    *,
    name: str,
    gpus: int = 0,
    timeout_s: float = 3600.0,
    grace_s: float = 5.0,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    executor: str = "local",
    root: Path | None = None,
) -> str:
    """Queue a command and return the job's id.  cwd: where it runs (default: the current folder)."""
    spec = JobSpec(name, gpus, timeout_s, grace_s, str((cwd or Path.cwd()).resolve()), dict(env or {}))
    return _open(executor, root).submit(script(argv, spec), spec)


def status(ids: Sequence[str] = (), *, executor: str = "local", root: Path | None = None) -> list[JobStatus]:
    """The status of these jobs (of all jobs where no id is given), oldest first."""
    opened = _open(executor, root)
    found = opened.poll(list(ids) or opened.jobs())
    return [found[name] for name in sorted(found)]


def wait(
    ids: Sequence[str], *, timeout_s: float = float("inf"), executor: str = "local", root: Path | None = None
) -> list[JobStatus]:
    """Wait until these jobs have ended, at most `timeout_s` seconds; returns their last status."""
    found = scheduler.wait(_open(executor, root), ids, timeout_s)
    return [found[name] for name in ids]


def cancel(ids: Sequence[str], *, executor: str = "local", root: Path | None = None) -> None:
    """End these jobs and everything they started.  A job that has ended stays as it is."""
    opened = _open(executor, root)
    for name in ids:
        opened.cancel(name)


def resume(ids: Sequence[str], *, executor: str = "local", root: Path | None = None) -> None:
    """Queue jobs again that were lost or failed, under the same ids."""
    opened = _open(executor, root)
    for name in ids:
        opened.resume(name)


def tail(job: JobStatus, lines: int = 20) -> str:
    """The end of a job's output, for a message about its failure."""
    if not job.log or not os.path.isfile(job.log):
        return ""
    with open(job.log, "rb") as file:
        file.seek(max(0, os.path.getsize(job.log) - 16_384))
        text = file.read().decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-lines:])
