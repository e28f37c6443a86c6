"""One call at a time measures into a file.  Standard library only: it is done before pandas is imported."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import lifetime

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
        _kill_marked(token)
        os.environ[MARK] = token
        try:
            yield
        finally:
            os.environ.pop(MARK)
            os.environ.update({MARK: before} if before is not None else {})


def _kill_marked(token: str) -> None:
    """SIGKILL everything that carries the token in the environment it was started with, until nothing does (Linux)."""
    entry = f"{MARK}={token}".encode()
    for _ in range(50):
        alive = [pid for pid in processes_with(entry) if lifetime.lives(pid)]
        if not alive:
            return
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def processes_with(entry: bytes) -> Iterator[int]:
    """Ids of processes that were started with this entry, NAME=VALUE, in their environment."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)
