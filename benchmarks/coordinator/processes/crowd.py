"""How many processes run below a measuring process; cheap as long as there are few.  proc(5)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks import family

MOST_PROCESSES = 1000
"""Below one pool.  A library that compiles itself starts one or two for each of up to 256 cores (ninja, 2026-11)."""


class Crowd:
    """Sees, by one small file, whether the machine has so many more processes and threads that a count is due."""

    def __init__(self) -> None:
        self._before = _all()

    def grown(self) -> bool:
        """Whether there are more than MOST_PROCESSES more than at first."""
        return _all() > self._before + MOST_PROCESSES


def below(roots: Iterable[int]) -> int:
    """Processes whose ancestor is one of these."""
    children, left, count = family.by_parent(), list(roots), 0
    while left:
        found = [child.process for child in children.pop(left.pop(), ())]
        count, left = count + len(found), left + found
    return count


def _all() -> int:
    """Processes and threads of the machine; 0 where nothing says so."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0
