"""What a process has run or read of a repository: files of modules, files that were opened, files that are mapped.

Watching begins before anything of a checkout is imported.  What the process itself wrote does not count.
Standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..naming import HARNESS, repository

WRITES = frozenset("wax")
HIDDEN = (".git", "__pycache__", "node_modules", "venv", "site-packages")
TREES = f"{os.sep}.ridgeline{os.sep}trees{os.sep}"
"""Where worktrees of a repository lie, in one of its hidden folders."""


class RanFiles:
    """Watches from its making on; a process has one, since what watches cannot be taken away again.

    ours: folders in which the process keeps what it makes itself.
    """

    def __init__(self, checkout: Path, *ours: Path) -> None:
        places = {checkout, repository(checkout)}
        self._roots = tuple(f"{place}{os.sep}" for one in places for place in {one.absolute(), one.resolve()})
        self._checkout = tuple(f"{place}{os.sep}" for place in {checkout.absolute(), checkout.resolve()})
        self._ours = tuple(f"{one.absolute()}{os.sep}" for one in ours)
        self._opened: set[str] = set()
        self._written: set[str] = set()
        self._told: set[str] = set()
        roots, opened, written = self._roots, self._opened, self._written
        absolute, exists = os.path.abspath, os.path.exists

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event != "open" and event != "ctypes.dlopen":
                return
            try:
                path = absolute(os.fsdecode(arguments[0]))
                if path.startswith(roots):
                    mode = str(arguments[1] or "") if event == "open" else ""
                    writes = not WRITES.isdisjoint(mode) or (len(arguments) > 2 and not mode and arguments[2] & 3)
                    if writes or exists(path):  # not a name that only stands in sys.path, as those of finders do
                        (written if writes else opened).add(path)
            except (TypeError, ValueError, OSError):  # a descriptor, or no path
                return

        sys.addaudithook(hook)

    def new(self, tops: Iterable[str] = ()) -> dict[str, list[Any]]:
        """What is new since the last time.  files: of the repository; foreign: (module, file) of modules that come from
        somewhere else, though the checkout has one of their first name, which is in `tops`."""
        wanted, foreign, ours = set(tops), [], set()
        found: set[str] = set()
        for name, file in _modules():
            if name.partition(".")[0] == "ridgeline":
                ours.add(file)
            elif file.startswith(self._roots):
                found.add(file)
            if name.partition(".")[0] in wanted and not file.startswith(self._checkout) and name not in self._told:
                self._told.add(name)
                foreign.append([name, file])
        found |= {_source(path) for path in self._opened - self._written} | set(mapped(self._roots))
        house = (*self._ours, *(f"{HARNESS / room}{os.sep}" for room in ("benchmarks", "ci", "dashboards")))
        files = {path for path in found - ours - self._told if not path.startswith(house) and self._counts(path)}
        self._told |= files
        return {"files": sorted(files), "foreign": foreign}

    def _counts(self, path: str) -> bool:
        """Whether a file is one that a commit could have: not hidden, nor of an environment of installed packages."""
        root = max((root for root in self._roots if path.startswith(root)), key=len)
        inside = path[len(root) :]
        if not os.path.isfile(path):
            return False
        if path.startswith((f"{sys.prefix}{os.sep}", f"{sys.base_prefix}{os.sep}")) or ".egg-info" in inside:
            return False
        if TREES in f"{os.sep}{inside}":
            inside = inside.partition(TREES[1:])[2]
        return not any(part in HIDDEN or part.startswith(".") for part in inside.split(os.sep))


def _modules() -> Iterator[tuple[str, str]]:
    """Name and file of every module; nothing of a module runs for it."""
    for name, module in list(sys.modules.items()):
        try:
            file = object.__getattribute__(module, "__dict__").get("__file__")
        except (AttributeError, TypeError):
            continue
        if isinstance(file, str):
            yield str(name), os.path.abspath(file)


def _source(path: str) -> str:
    """The source that a compiled module was made of."""
    try:
        return importlib.util.source_from_cache(path) if path.endswith(".pyc") else path
    except ValueError:
        return path


def mapped(roots: tuple[str, ...]) -> Iterator[str]:
    """Files below some folders that are mapped into this process: shared libraries, and data.

    Read line by line: a kernel may have set a limit that leaves no memory for the whole.
    """
    wanted = tuple(os.fsencode(root) for root in roots)
    try:
        with open("/proc/self/maps", "rb") as maps:
            for line in maps:
                path = b"/" + line.rstrip(b"\n").partition(b"/")[2]
                if path.startswith(wanted):
                    yield os.fsdecode(path)
    except OSError:
        return
