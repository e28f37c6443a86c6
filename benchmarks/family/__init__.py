"""Who is whose child: what a kernel leaves running is found, whoever has died in between, and ended.

prctl(2), PR_SET_CHILD_SUBREAPER (Linux): the orphans below a process become its children.  Every measuring process, its
server and the program that measures keep their orphans, so that each finds what the one below it left.  Standard
library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..lifetime import prctl
from .standing import ProcessStanding as ProcessStanding

PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37
"""linux/prctl.h."""

PATIENCE_S = 0.5
"""What was left running has this long to end by itself: a helper whose pipe has just closed takes milliseconds."""

LONGEST_END_S = 5.0
"""Then it is given up: processes that start others faster than they can be ended must not stop the run."""

MOST_NAMES = 10


class Child(NamedTuple):
    """A child process: its id, its name, its session, and whether it has ended and can be reaped."""

    process: int
    name: str
    session: int
    ended: bool


def keep_orphans() -> None:
    """Become the parent of all that is started below (Linux), when its own parent dies."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def keeps_orphans() -> bool:
    """Whether this process does so."""
    kept = ctypes.c_int(0)
    prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(kept))
    return bool(kept.value)


def by_parent() -> dict[int, list[Child]]:
    """Every process of the machine, by the id of its parent; proc(5), stat."""
    found: dict[int, list[Child]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError):
                before, _, after = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(") ")
                state, parent, _, session = after.split()[:4]
                child = Child(int(entry), before.partition("(")[2], int(session), state in "ZX")
                found.setdefault(int(parent), []).append(child)
    return found


def children() -> list[Child]:
    """Every child of this process."""
    return by_parent().get(os.getpid(), [])


def end_strays(is_stray: Callable[[Child], bool], patience_s: float = PATIENCE_S) -> list[str]:
    """End the strays among the children, and what becomes a child by that; the names of what did not end by itself."""
    begin, names = time.monotonic(), {}
    while (left := _running(is_stray)) and (waited := time.monotonic() - begin) < LONGEST_END_S:
        for child in left if waited >= patience_s else ():
            names[child.process] = child.name
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.process, signal.SIGKILL)
        time.sleep(0.01)
    found = list(names.values())
    return [*found[:MOST_NAMES], *([f"{len(found) - MOST_NAMES} more"] if len(found) > MOST_NAMES else ())]


def _running(is_stray: Callable[[Child], bool]) -> list[Child]:
    """The strays that run; those that have ended are reaped."""
    strays = list(filter(is_stray, children()))
    for child in strays:
        if child.ended:
            with contextlib.suppress(ChildProcessError):  # another thread of ours was first
                os.waitpid(child.process, 0)
    return [child for child in strays if not child.ended]
