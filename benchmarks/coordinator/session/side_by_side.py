"""How many trials of a session are prepared side by side, and running them."""

from __future__ import annotations

import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from benchmarks.coordinator.session.orders import PlannedTrial
from benchmarks.coordinator.session.quiet import BY_ITSELF, Quiet
from benchmarks.plan import PlannedCase, UsageError

LANES_VARIABLE = "RIDGELINE_SIDE_BY_SIDE"
"""Environment variable: how many trials are prepared side by side; 1: one after the other.  Without it: by cores."""

MOST_LANES = 16
"""More lanes have more ready when it is time for samples, and take longer to prepare, as they share the device:
`run --tier pr`, 15 trials with something to measure, takes 57.0 s with 8 of them, 54.1 s with 16 (H200, 2026-11)."""

CORES_OF_A_PROCESS = 2
"""A process that prepares is busy with one core, its compiler or library now and then with another."""

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of CPU that this container gets in a period, and the period; cgroup v2, kernel documentation."""

LOOK_S = 0.5
"""How long at most until a signal is seen that another thread got."""

SHARE = 0.5
"""Share of the device's memory that trials under way together may need by what their cases declare; libraries take more
(work buffers, weights in a layout of their own), so half of it is left to them."""

Line = dict[str, Any]


def lanes(kind: str, cores: int, processes: int) -> int:
    """How many trials, each of so many processes, are prepared side by side on a machine of kind "gpu" or "cpu".

    On a CPU one: preparing would take the cores that are timed.  On a GPU what the free cores of the host can drive.
    UsageError for a LANES_VARIABLE that is no such number.
    """
    asked = os.environ.get(LANES_VARIABLE, "")
    if asked and not (asked.isdigit() and 1 <= int(asked) <= 16):
        raise UsageError(f"{LANES_VARIABLE}={asked!r}: it is a number of trials from 1 to 16; unset it for the default")
    if asked:
        return int(asked)
    if kind == "cpu":
        return 1
    return max(1, min(MOST_LANES, int(free_cores(cores) / (CORES_OF_A_PROCESS * processes))))


def free_cores(cores: int) -> float:
    """Of the cores that this process may use, as many as are idle: by its quota, and by the load of the whole host."""
    load, host = os.getloadavg()[0], os.cpu_count() or cores
    return min(cores, _quota()) * max(0.0, 1.0 - load / host)


def _quota() -> float:
    try:
        limit, period = QUOTA.read_text().split()
        return float(limit) / float(period)
    except (OSError, ValueError):  # no such file, or "max"
        return float("inf")


class SideBySide:
    """The lanes of a session.  known: what hung, by kernel.  sound: whether no fault in a line can be another trial's.
    lost: told the seconds of a line that does not count.

    A line that is not sound is measured again by itself, and from then on so is its kernel: a fault of one trial
    (memory that it takes, a parent that it kills) is never told of another one.
    """

    def __init__(
        self, quiet: Quiet, known: dict[str, Any], sound: Callable[[Line], bool], lost: Callable[[float], None]
    ) -> None:
        self._quiet, self._known, self._sound, self._lost = quiet, known, sound, lost
        self._by_itself: set[str] = set()
        self._begun: frozenset[str] = frozenset()
        self._choosing, self._seconds = threading.Lock(), dict[str, float]()

    def lines(
        self, trial: Callable[[PlannedTrial], Line], wanted: Sequence[PlannedTrial], count: int
    ) -> Iterator[Line]:
        """The lines of trials, `count` at a time."""
        left = list(wanted)
        return run([functools.partial(self._line, trial, left) for _ in wanted], count, self._quiet)

    def _next(self, left: list[PlannedTrial]) -> PlannedTrial:
        """A trial of the turn that is under way, the longest first: the last lane then ends soon after the others."""
        with self._choosing:
            turns = Counter(one.kernel for one in left)
            latest = max(turns.values())
            found = max((one for one in left if turns[one.kernel] == latest), key=self._took)
            left.remove(found)
            return found

    def _took(self, one: PlannedTrial) -> float:
        return self._seconds.get(one.kernel, 0.0)

    def _line(self, trial: Callable[[PlannedTrial], Line], left: list[PlannedTrial]) -> Line:
        one = self._next(left)
        known = dict(self._known.get(one.kernel, {}))
        with self._quiet.lane(self._needs(one)) as lane:
            line = trial(one)
        self._seconds[one.kernel] = line["duration_s"]
        if not lane.beside or self._sound(line):
            return line
        self._by_itself.add(one.kernel)
        self._known[one.kernel] = known
        with self._quiet.lane(BY_ITSELF):
            self._lost(line["ahead_s"] + line["duration_s"])
            return trial(one)

    def _needs(self, one: PlannedTrial) -> float:
        """Bytes of the device; what would keep others waiting has it for itself."""
        measured = [case for case in one.cases if not case.skip]
        first, self._begun = one.kernel not in self._begun, self._begun | {one.kernel}
        if one.kernel in self._by_itself or any(case.world > 1 or (first and _builds(case)) for case in measured):
            return BY_ITSELF
        return max((case.memory_bytes for case in measured), default=0)


def _builds(case: PlannedCase) -> bool:
    """Whether a library that is installed compiles itself for the case, on first use: one step takes up to minutes."""
    return any(arm.libraries and arm.first_call_s > 0 for arm in case.arms)


def run(tasks: Sequence[Callable[[], Line]], count: int, quiet: Quiet) -> Iterator[Line]:
    """The lines of tasks, as they are done, `count` tasks at a time in the order given.

    However it is left, no thread stays; what a task raises is raised, and the others are stopped.
    """
    executor = ThreadPoolExecutor(count, thread_name_prefix="lane")
    try:
        left = {executor.submit(task) for task in tasks}
        while left:
            done, left = wait(left, LOOK_S, FIRST_COMPLETED)
            yield from (one.result() for one in done)
    except BaseException:
        quiet.stop()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
