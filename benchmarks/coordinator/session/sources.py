"""Whether the files that a session measures are unchanged: the kernels, and what a Python runs as it starts.

A kernel can write into the tree of either side, or leave a file that every Python runs from then on; and people edit
the tree that they measure.  What is measured after that is not what was asked for, and its record would name the
wrong commit.

Not looked at: what compilers keep (Triton's cache, `__pycache__`), and the rest of the installed packages.
"""

from __future__ import annotations

import hashlib
import site
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks.plan import UsageError

AT_START = ("*.pth", "sitecustomize.py", "usercustomize.py")
"""What CPython's module `site` runs, in a folder of installed packages."""

NEW = (".py", ".toml", ".pth")
"""Of these a new file counts too; others may be what a kernel builds as it is used."""

Stamp = tuple[int, int, int] | None
"""Moment of the last change, ns; size, bytes; inode.  None: there is no such file."""


class Sources:
    """Their contents when the session began.  kernels: lists the files of the kernels; pythons: that run them."""

    def __init__(self, kernels: Callable[[], Iterable[Path]], pythons: Iterable[str]) -> None:
        self._kernels = kernels
        self._installed = {folder for python in pythons for folder in _installed(Path(python))}
        self._kept = {path: (_stamp(path), _content(path)) for path in self._present()}

    def changed(self) -> list[Path]:
        """The files that have other contents now, are new, or are gone."""
        new = [path for path in self._present() if path not in self._kept and path.suffix in NEW]
        return sorted([*new, *filter(self._differs, self._kept)])

    def refuse_changed(self, kernel: str) -> None:
        """UsageError if something has changed.  kernel: what was measured meanwhile."""
        found = self.changed()
        if not found:
            return
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise UsageError(
            f"{found[0]}{more} changed while {kernel} was measured: by a kernel, or by somebody who works in the tree; "
            "what is measured after that is not what was asked for.  Look at it, put it back and run again; what was "
            "finished before is kept"
        )

    def _present(self) -> Iterator[Path]:
        yield from self._kernels()
        for folder in self._installed:
            for pattern in AT_START:
                yield from folder.glob(pattern)

    def _differs(self, path: Path) -> bool:
        """Whether its contents are others; read only where its stamp is another."""
        stamp, content = self._kept[path]
        if (now := _stamp(path)) == stamp:
            return False
        if _content(path) != content:
            return True
        self._kept[path] = (now, content)
        return False


def _installed(python: Path) -> Iterator[Path]:
    """Folders of installed packages of a Python, and those of this one, which runs the rest of the command."""
    yield from python.absolute().parent.parent.glob("lib/python3*/site-packages")
    yield from map(Path, (*site.getsitepackages(), site.getusersitepackages()))


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _content(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
