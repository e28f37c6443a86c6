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
import math
import threading
import time
from collections.abc import Callable, Iterator

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

    needs: float
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
    def lane(self, needs: float) -> Iterator[TrialLane]:
        """Be a lane, once there is room; who came first goes first."""
        mine = TrialLane(needs)
        with self._change:
            self._queue.append(mine)
            try:
                self._wait(lambda: self._queue[0] is mine and self._fits(needs) and not self._wanting)
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
            self._refuse()
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
        with self._change:
            self._refuse()

    def _refuse(self) -> None:
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

    def _fits(self, needs: float) -> bool:
        return not self._lanes or sum(lane.needs for lane in self._lanes) + needs <= self.room

    def _rests(self) -> None:
        self._at_work.pop(threading.get_ident(), None)
        self._change.notify_all()

    def _wait(self, until: Callable[[], bool]) -> None:
        self._change.wait_for(lambda: self._stopped or until())
        self._refuse()
