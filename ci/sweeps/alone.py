"""One call at a time measures into a file.  Standard library only: it is done before pandas is imported."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from ci.executors import job

MARK = "RIDGELINE_SWEEP"
"""Variable that every process of a sweep has: what a killed call left behind is found by it."""


class SweepError(Exception):
    """A sweep cannot be read, planned or measured; the text says why and what to do."""


@contextlib.contextmanager
def alone(out: Path) -> Iterator[None]:
    """Nobody else measures into this file meanwhile, and nothing that a killed call left behind does.  SweepError."""
    out.parent.mkdir(parents=True, exist_ok=True)
    lock = out.with_name(f".{out.name}.lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SweepError(f"{out} is being measured by another call; wait for it, or give another --out") from None
        token, before = str(out.resolve()), os.environ.get(MARK)
        job.kill_marked(token, MARK)
        os.environ[MARK] = token
        try:
            yield
        finally:
            os.environ.pop(MARK)
            os.environ.update({MARK: before} if before is not None else {})
