"""Trial lines: their identity, their JSON, and appending them to a file so that nothing written is ever lost."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import gzip
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FORMAT, VERSION = "ridgeline-trial", 1

ROLES = ("base", "head")
"""Sides of a comparison; a plain run has only "head"."""

EARLIEST_MS, LATEST_MS = 0, 4_102_444_800_000
"""Dates, milliseconds since 1970 UTC: up to 2100.  Beyond 2262 pandas cannot hold them."""


class Status(enum.StrEnum):
    """How one arm of a case ended; `missing`: that checkout does not have it (never written to a file)."""

    OK = "ok"
    WRONG = "wrong"
    ERROR = "error"
    HANG = "hang"
    CRASH = "crash"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"
    MISSING = "missing"


FAILED = (Status.WRONG, Status.CRASH, Status.HANG, Status.ERROR)
"""Worst first."""


class OutputError(Exception):
    """The trial file cannot be written; the text says why and what is safe."""


def finished(line: Mapping[str, Any]) -> dict[str, Any]:
    """The line with format, version and id; not-finite numbers become null."""
    body = clean({"format": FORMAT, "version": VERSION, **line})
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()[:16]
    return {
        "format": FORMAT,
        "version": VERSION,
        "id": digest,
        **{k: v for k, v in body.items() if k not in ("format", "version")},
    }


def clean(value: Any) -> Any:
    """The same JSON value without NaN and Infinity, which are not JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Append one line, whole or not at all, safe against other writers.  Raises OutputError.

    A line torn by a crash before is closed with a newline first.  `.gz`: one member per line, which readers join.
    """
    text = json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    zipped = path.suffix == ".gz"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as descriptor:
            size = os.fstat(descriptor).st_size
            if not zipped and size and os.pread(descriptor, 1, size - 1) != b"\n":
                text = b"\n" + text
            _write_all(descriptor, gzip.compress(text) if zipped else text, size)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}; trials written before are safe in it. "
            "Free space or choose another --out, then run again"
        ) from error


def check_writable(path: Path) -> None:
    """Raise OutputError now rather than after the first trial."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            pass
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}; choose another --out") from error


def remove_if_empty(path: Path) -> None:
    """Leave no file behind that holds no trial."""
    with contextlib.suppress(OSError):
        if path.stat().st_size == 0:
            path.unlink()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes, size_before: int) -> None:
    """Write everything, or cut the file back to what it was."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size_before)
        raise
