"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from pathlib import Path

ABANDONED_S = 600.0
"""A draft of this age is that of a writer that was killed: writing takes seconds, and no writer waits longer for
another (ci.records.store.LOCK_SECONDS)."""


class WriteError(Exception):
    """A file cannot be written; the text names it, says what is safe and what to do."""


def replace(
    path: Path, text: str | bytes, next_step: str = "make room or give another folder, and run it again"
) -> None:
    """Write the whole file through a temporary one beside it; an unchanged file is not touched.  Raises WriteError."""
    content = text.encode() if isinstance(text, str) else text
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        _remove_abandoned(path)
        if path.is_file() and path.read_bytes() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        why = error.strerror or error
        raise WriteError(f"{path} cannot be written: {why}.  What was there is as before; {next_step}") from error


def _remove_abandoned(path: Path) -> None:
    """Remove the drafts of this file that nobody writes any more."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*.draft"):
        with contextlib.suppress(OSError):  # another writer has removed it
            if time.time() - draft.stat().st_mtime > ABANDONED_S:
                draft.unlink()


def check_parent(path: Path) -> None:
    """Raise WriteError for a path outside of the repository that we stand in, in a folder that is not there.

    Inside of it folders are made; elsewhere a missing one is a slip of the pen.
    """
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    folder = path.absolute().parent
    if not folder.is_dir() and not folder.resolve().is_relative_to(root.resolve()):
        raise WriteError(f"{path}: there is no folder {folder}, and outside of {root} none is made; make it first")


def check_writable(path: Path) -> None:
    """Raise WriteError now rather than after an hour of measuring."""
    if path.is_dir():
        raise WriteError(f"{path} is a folder; name a file in it")
    check_parent(path)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    target = path if path.exists() else folder
    if not folder.is_dir() or not os.access(target, os.W_OK):
        raise WriteError(f"{path} cannot be written: {target} is not writable for this user; name another file")
