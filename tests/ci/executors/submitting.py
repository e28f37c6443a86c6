"""A job with what a test says of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ci import executors
from ci.executors import JobSpec


def submit(
    argv: Sequence[str], *, root: Path | None = None, executor: str = "local", cwd: Path | None = None, **spec: object
) -> str:
    """Queue a command and return the job's id.  cwd: where it runs (default: the current folder)."""
    known = JobSpec(cwd=str((cwd or Path.cwd()).resolve()), **spec)  # type: ignore[arg-type]
    return executors.submit(argv, known, executor, root)
