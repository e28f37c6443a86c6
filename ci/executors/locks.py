"""The lock files of this machine's GPUs: one folder for all clones and all users, so that no two jobs share a GPU.

The folder can be written by everybody and emptied by nobody else (as /tmp); its files can be read by everybody, which
is all that flock(2) needs.  Whoever can log in can hold a lock, as he could use the GPU.  Containers of one host share
the folder only if it is mounted: RIDGELINE_LOCKS names it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from ci.executors.scheduler import ExecutorError

FOLDER = Path("/tmp/ridgeline-locks")
"""/tmp is there on every machine, is one for all users, and is empty after a start."""

VARIABLE = "RIDGELINE_LOCKS"


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder, made if it is not there.  ExecutorError if it is something else, or somebody's own."""
    place = Path(environ.get(VARIABLE) or FOLDER)
    try:
        place.mkdir(parents=True)
        place.chmod(0o1777)
    except FileExistsError:
        pass
    except OSError as error:
        raise _unusable(place, error.strerror or str(error)) from error
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _unusable(place, "it is not a folder")
    if found.st_uid not in (0, os.getuid()) and not found.st_mode & stat.S_ISVTX:
        raise _unusable(place, "it belongs to another user, who could replace the locks")
    return place


def path(place: Path, device: str) -> Path:
    """The lock file of a device, as `ci.executors.devices` names it."""
    return place / re.sub(r"[^A-Za-z0-9._-]", "_", device)


def opened(file: Path) -> BinaryIO:
    """A lock file, open for reading; made first if it is not there.  ExecutorError."""
    try:
        if not file.exists():
            _make(file)
        return os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from error


def _make(file: Path) -> None:
    """Make a lock file, unless somebody does so at the same moment; others can open it, whatever the umask is."""
    with contextlib.suppress(FileExistsError):
        made = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.fchmod(made, 0o644)
        os.close(made)


def _unusable(place: Path, why: str) -> ExecutorError:
    return ExecutorError(f"{place} cannot hold the locks of this machine's GPUs: {why}; name a folder in {VARIABLE}")
