"""Trials that are prepared side by side, of which one at a time is timed, and then nothing else of ours is at work.

What a trial does around its samples (processes, inputs, references, set-up, checks) takes several times as long as the
samples, and leaves device and host waiting for each other.  So trials of a session prepare themselves in lanes.  One
that has come to its samples waits until no other is at work, and then all that have come to theirs take them, one after
the other, while the rest stays where it is: a sample sees what it sees when trials follow each other, other processes
with an idle context.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from benchmarks.coordinator.orders import PlannedTrial
from benchmarks.plan import UsageError
from benchmarks.shapes import Json, JsonObject

PATIENCE_S = 0.3
"""How long a lane that has come to its samples lets others prepare; then they stop at their next request.  Played back
with the requests of `run --tier pr` on an H200, 4 lanes take 75 s with 1 s, 66 s with 0.05 to 0.3 s (2026-11)."""

LONG_S, MOST_PATIENCE_S = 0.1, 2.0
"""A lane goes on beside a request that has been at work for longer than LONG_S, such as inputs of 700 MB: nobody can be
timed before it ends.  After MOST_PATIENCE_S it stops all the same."""

BY_ITSELF = math.inf
"""What a trial needs that nothing else may run beside."""


class Stopped(Exception):
    """The session ends; a lane is left wherever it is."""


@dataclasses.dataclass
class TrialLane:
    """A trial that has begun.  needs: bytes of the device's memory.  beside: whether another one ever ran meanwhile."""

    needs: float = 0.0
    beside: bool = False


class Quiet:
    """Who may work.  A thread that is in no lane never waits here.

    room: bytes of device memory that the lanes may use together; a trial that needs more runs alone.
    lanes: how many there are at most.
    """

    def __init__(self, room: float = BY_ITSELF) -> None:
        self.room, self.lanes = room, 1
        self._change = threading.Condition()
        self._queue: list[TrialLane] = []
        self._lanes: list[TrialLane] = []
        self._at_work: dict[int, float] = {}
        self._wanting, self._wanted_since = 0, 0.0
        self._timing = self._stopped = False

    @contextlib.contextmanager
    def lane(self, needs: Callable[[], float]) -> Iterator[TrialLane]:
        """Be a lane, once there is room; who came first goes first.  needs: asked when it is the first."""
        mine = TrialLane()
        with self._change:
            self._queue.append(mine)
            try:
                self._wait(lambda: self._queue[0] is mine and self._fits(mine, needs) and not self._wanting)
            finally:
                self._queue.remove(mine)
                self._change.notify_all()
            self._lanes.append(mine)
            for lane in self._lanes:
                lane.beside |= len(self._lanes) > 1
            self._works()
        try:
            yield mine
        finally:
            with self._change:
                self._lanes.remove(mine)
                self._rests()

    def in_lane(self) -> bool:
        """Whether the calling thread is a lane, and not alone."""
        return threading.get_ident() in self._at_work

    def pause(self) -> None:
        """Between two requests of a lane: let those be timed that want to.  Raises Stopped."""
        with self._change:
            self.refuse()
            goes_on = not self._timing and not self._late()
            if goes_on and self.in_lane():
                self._works()
        if not goes_on:
            with self.resting():
                pass

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """While a lane waits for something else: others are timed."""
        if not self.in_lane():
            yield
            return
        with self._change:
            self._rests()
        yield
        with self._change:
            self._wait(lambda: not self._wanting)
            self._works()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Have all other lanes at rest; inside of another such block, or in no lane, nothing is waited for."""
        if not self.in_lane():
            yield
            return
        with self._change:
            self._wanted_since = self._wanted_since if self._wanting else time.monotonic()
            self._wanting += 1
            self._rests()
            try:
                self._wait(lambda: not self._timing and not self._at_work)
            except Stopped:
                self._wanting -= 1
                raise
            self._timing = True
        try:
            yield
        finally:
            with self._change:
                self._wanting, self._timing = self._wanting - 1, False
                self._change.notify_all()
                self._wait(lambda: not self._wanting)
                self._works()

    def stop(self) -> None:
        """Have every lane left with Stopped, at its next request or while it waits for an answer."""
        with self._change:
            self._stopped = True
            self._change.notify_all()

    def refuse(self) -> None:
        """Stopped if a lane is not to go on."""
        if self._stopped:
            raise Stopped("the session ends")

    def _late(self) -> bool:
        """Whether who wants to be timed has waited for long enough."""
        now, me = time.monotonic(), threading.get_ident()
        waited_s = now - self._wanted_since
        if not self._wanting or waited_s <= PATIENCE_S:
            return False
        long = any(now - begun > LONG_S for thread, begun in self._at_work.items() if thread != me)
        return not long or waited_s > MOST_PATIENCE_S

    def _works(self) -> None:
        """A request of the calling thread begins."""
        self._at_work[threading.get_ident()] = time.monotonic()

    def _fits(self, mine: TrialLane, needs: Callable[[], float]) -> bool:
        mine.needs = needs()
        return not self._lanes or sum(lane.needs for lane in [*self._lanes, mine]) <= self.room

    def _rests(self) -> None:
        self._at_work.pop(threading.get_ident(), None)
        self._change.notify_all()

    def _wait(self, until: Callable[[], bool]) -> None:
        self._change.wait_for(lambda: self._stopped or until())
        self.refuse()


# Where the wall time of a trial goes: each second is that of the request that the processes were then doing.
#
# The coordinator drives the processes of a trial in lock-step, so at any moment its requests in flight are of one kind.
# Time in which none is in flight is the coordinator's own, and that of starting and ending processes.  Trials that are
# prepared side by side, each by a thread, share the seconds in which several wait for an answer, so that the seconds of
# all trials add up to those of the clock.


PHASES = {
    "join": "start",
    "meet": "start",
    "case": "inputs",
    "build": "set-up",
    "tune": "set-up",
    "call": "first calls",
    "poison": "checks",
    "check": "checks",
    "trace": "checks",
    "capture": "set-up",
    "samples": "rounds",
    "burst": "rounds",
    "whole": "whole calls",
    "drop": "set-up",
    "serve": "compiling",
    "quit": "end",
    "resume": "script",
    "examine": "first calls",
    "bundle": "set-up",
    **dict.fromkeys(("keep_outputs", "compare", "check_after"), "checks"),
}
"""The phase of each request of benchmarks.worker.requests.  start: the processes take their place, open their device,
and import the operator; inputs: with the reference; capture: of a graph; script: its own work between two timers."""

WARM_UP, COMPILING, BETWEEN = "warm-up", "compiling", "between"
"""Phases that no request has to itself: samples that are not kept; the part of first calls that Triton says it needed;
what is left."""


def phase(op: str, fields: Json) -> str:
    """The phase of a request; one that is not known is its own."""
    return WARM_UP if fields.get("warm_up") else PHASES.get(op, op)


class SecondsLedger:
    """Wall seconds by phase, of the trial that the calling thread has opened; others are ahead of the next trial.

    Requests of a trial that overlap count once, for the phase of the first of them.  Who waits for what is compiled
    ahead has no share in seconds in which others are at work.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._since, self._ahead = clock, clock(), 0.0
        self._lock = threading.Lock()
        self._open: dict[int, Counter[str]] = {}
        self._flying: dict[object, tuple[int, str]] = {}

    def open(self) -> float:
        """Begin a trial; returns the seconds without any since the last one."""
        with self._lock:
            self._count()
            self._open[threading.get_ident()] = Counter()
            ahead, self._ahead = self._ahead, 0.0
            return ahead

    def close(self, compiling_s: float = 0.0) -> tuple[float, dict[str, float]]:
        """End the trial: its seconds in all, and by phase.  compiling_s: of them, within first calls."""
        with self._lock:
            self._count()
            spent = self._open.pop(threading.get_ident())
        compiling = min(compiling_s, spent["first calls"])
        spent.update({"first calls": -compiling, COMPILING: compiling})
        return spent.total(), {name: round(seconds, 4) for name, seconds in spent.items() if seconds >= LEAST_S}

    def lost(self, seconds: float) -> None:
        """Count seconds of a trial that is measured again as ahead of the next one."""
        with self._lock:
            self._ahead += seconds

    def sent(self, pool: object, op: str, fields: Json) -> None:
        """A request to some processes is in flight from now on."""
        with self._lock:
            self._count()
            self._flying[pool] = threading.get_ident(), phase(op, fields)

    def answered(self, pool: object) -> None:
        """It is answered, or the processes have ended."""
        with self._lock:
            self._count()
            self._flying.pop(pool, None)

    def _count(self) -> None:
        """Share out the seconds since the last event."""
        since, self._since = self._since, self._clock()
        seconds = self._since - since
        asked: dict[int, str] = {}
        for thread, what in self._flying.values():
            if thread in self._open:
                asked.setdefault(thread, what)
        at_work = {thread: what for thread, what in asked.items() if what != COMPILING}
        share = at_work or asked or dict.fromkeys(self._open, BETWEEN)
        for thread, what in share.items():
            self._open[thread][what] += seconds / len(share)
        self._ahead += 0.0 if share else seconds


LEAST_S = 5e-5
"""A phase of less is not written: it rounds to nothing."""


# How many trials of a session are prepared side by side, and running them.


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


def how_many(kind: str, cores: int, processes: int) -> int:
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
    lost: told the seconds of a line that does not count.  undecided: whether a trial has yet to find out in which home
    its symmetric heap works, in which a fault can end its processes; all trials after it have theirs there.

    A line that is not sound is measured again by itself, and from then on so is its kernel: a fault of one trial
    (memory that it takes, a parent that it kills) is never told of another one.
    """

    def __init__(
        self,
        quiet: Quiet,
        known: dict[str, Any],
        sound: Callable[[JsonObject], bool],
        lost: Callable[[float], None],
        undecided: Callable[[PlannedTrial], bool],
    ) -> None:
        self._quiet, self._known, self._sound, self._lost, self._undecided = quiet, known, sound, lost, undecided
        self._by_itself: set[str] = set()
        self._begun: set[str] = set()
        self._choosing, self._seconds = threading.Lock(), dict[str, float]()

    def lines(
        self, trial: Callable[[PlannedTrial], JsonObject], wanted: Sequence[PlannedTrial], count: int
    ) -> Iterator[JsonObject]:
        """The lines of trials, `count` at a time."""
        left = list(wanted)
        return run([functools.partial(self._line, trial, left) for _ in wanted], count, self._quiet)

    def _next(self, left: list[PlannedTrial]) -> PlannedTrial:
        """A trial of the turn that is under way, the longest first: the last lane then ends soon after the others."""
        with self._choosing:
            turns = Counter(one.kernel for one in left)
            latest = max(turns.values())
            found = max(
                (one for one in left if turns[one.kernel] == latest), key=lambda one: self._seconds.get(one.kernel, 0.0)
            )
            left.remove(found)
            return found

    def _line(self, trial: Callable[[PlannedTrial], JsonObject], left: list[PlannedTrial]) -> JsonObject:
        one = self._next(left)
        known = dict(self._known.get(one.kernel, {}))
        with self._quiet.lane(lambda: self._needs(one)) as lane:
            self._begun.add(one.kernel)
            line = trial(one)
        self._seconds[one.kernel] = line["duration_s"]
        if not lane.beside or self._sound(line):
            return line
        self._by_itself.add(one.kernel)
        self._known[one.kernel] = known
        with self._quiet.lane(lambda: BY_ITSELF):
            self._lost(line["ahead_s"] + line["duration_s"])
            return trial(one)

    def _needs(self, one: PlannedTrial) -> float:
        """Bytes of each device; what would keep others waiting has it for itself, such as a library that compiles
        itself on first use: one step takes up to minutes.
        """
        measured, first = [case for case in one.cases if not case.skip], one.kernel not in self._begun
        builds = first and any(arm.libraries and arm.first_call_s > 0 for case in measured for arm in case.arms)
        if one.kernel in self._by_itself or self._undecided(one) or builds:
            return BY_ITSELF
        heaps = max((case.heap_bytes * len({arm.role for arm in case.arms}) for case in measured), default=0)
        return max((case.memory_bytes for case in measured), default=0) + heaps


def run(tasks: Sequence[Callable[[], JsonObject]], count: int, quiet: Quiet) -> Iterator[JsonObject]:
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
