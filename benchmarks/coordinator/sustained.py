"""Joules from the energy counters of the devices, and how long a span must be for 1 %.

A counter moves in steps: NVML's every 100 ms on an H200.  Read at the two ends of a span it is late by up to a step U
at each, so the span is known to a difference of two uniform errors: 95 % of them are below 0.776 U.  1 % so needs a
span of 78 U (7.8 s), and 0.5 s gives 16 %.

So the counter is not read at the ends of a span.  It is asked often, and only the moments at which it moved count:
between the first and the last step within the span the energy is exact, and the time is known to the interval w between
two askings in place of U.  The same 1 % needs 78 w: 0.65 s for 8.2 ms, in one burst or in several together.

That is for a steady power, which a power limit does not give.  On an H200 at its limit of 700 W (2026-11-22, four
large GEMMs, two backends each) joules per call differed by 2.4 % (standard deviation) over spans of 0.2 s, which
bursts of 0.5 s have, and by 1.1 % over 0.5 s, which bursts of 1 s have.  The median of 35 bursts of 0.5 s (7 s counted)
or of 7 bursts of 1 s (3.5 s) is known to 1 % in 95 of 100 cases.  The interval says how sure the joules at hand are.
Sensors of some products look at a part of the time only (25 % on A100 and H100: Yang, Adamek and Armour, "Part-time
power measurements", arXiv 2312.02741); what that does is in the differences between bursts too.

What no counter says: with which delay the driver takes a watt into account.  A constant delay shifts the span by as
much; that is why only the second half of a burst counts, which an arm of the same power has filled before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from benchmarks.machine.recorder import following
from benchmarks.shapes import Json

POLL_S = 5e-3
"""Pause between two askings of a counter, which take 3.4 ms each on an H200 (2026-11-22)."""

QUIET = 0.8
"""For this share of the shortest time between two of its steps a counter is not asked again after a step: it cannot
have moved, and every asking takes time in the driver that others wait for."""

TRIANGLE_95 = 0.776
"""95 % of the differences of two independent uniform errors are below this share of their width: 1 - sqrt(0.05)."""


@dataclasses.dataclass(frozen=True)
class CounterStep:
    """A counter moved between two askings.  after_s, seen_s: those, by time.monotonic(); joules: what it says since."""

    after_s: float
    seen_s: float
    joules: float

    @property
    def at_s(self) -> float:
        """When it moved, as far as that is known."""
        return (self.after_s + self.seen_s) / 2


@dataclasses.dataclass(frozen=True)
class EnergySpan:
    """joules that the devices took in `seconds`, between steps of their counters.  doubt: share of it, 95 %."""

    joules: float
    seconds: float
    doubt: float

    @property
    def watts(self) -> float:
        """Mean power."""
        return self.joules / self.seconds


def within(steps: Sequence[CounterStep], from_s: float, to_s: float) -> EnergySpan | None:
    """What one counter says of the time between two moments; None with fewer than two steps between them."""
    inside = [step for step in steps if from_s <= step.after_s and step.seen_s <= to_s]
    if len(inside) < 2:
        return None
    first, last = inside[0], inside[-1]
    seconds = last.at_s - first.at_s
    unsure_s = max(last.seen_s - last.after_s, first.seen_s - first.after_s)
    return EnergySpan(last.joules - first.joules, seconds, TRIANGLE_95 * unsure_s / seconds)


def of_all(spans: Sequence[EnergySpan | None]) -> EnergySpan | None:
    """All devices of a collective together, by their powers; None if one of them is not known."""
    known = [one for one in spans if one]
    if not known or len(known) < len(spans):
        return None
    seconds = min(one.seconds for one in known)
    return EnergySpan(sum(one.watts for one in known) * seconds, seconds, max(one.doubt for one in known))


class EnergyMeter:
    """Asks the counters of some devices while it is running.

    read: joules of a device since some moment, None where it does not count.  why_absent: why there is nothing to ask.
    """

    def __init__(self, read: Callable[[int], float | None] | None, devices: int, why_absent: str | None) -> None:
        self._read, self._devices = read, devices
        self._steps: list[list[CounterStep]] = [[] for _ in range(devices)]
        self.why_absent = why_absent
        if read and not why_absent and any(read(device) is None for device in range(devices)):
            self.why_absent = "the driver of a device counts no energy"

    @contextlib.contextmanager
    def running(self) -> Iterator[EnergyMeter]:
        """Ask in the background while inside."""
        with following(self._follow, not self.why_absent):
            yield self

    def between(self, from_s: float, to_s: float) -> EnergySpan | None:
        """What all devices took between two moments."""
        return of_all([within(steps, from_s, to_s) for steps in self._steps])

    def facts(self) -> dict[str, float | str | None]:
        """The `energy` of a case: seconds between steps of the counter and between askings, or why there are none."""
        gaps = [b.at_s - a.at_s for steps in self._steps for a, b in pairwise(steps)]
        asked = [step.seen_s - step.after_s for steps in self._steps for step in steps]
        if not gaps:
            said = self.why_absent or "no counter moved twice while it was asked"
            return {"step_s": None, "poll_s": None, "why_absent": said}
        return {"step_s": statistics.median(gaps), "poll_s": statistics.median(asked), "why_absent": None}

    def _follow(self, over: threading.Event) -> None:
        """Note when each counter moves; the first reading says nothing about when."""
        assert self._read
        last: list[float | None] = [None] * self._devices
        asked = [time.monotonic()] * self._devices
        while not over.wait(POLL_S):
            for device in range(self._devices):
                now = time.monotonic()
                if now < self._quiet_until(device):
                    asked[device] = now
                    continue
                joules = self._read(device)
                if joules is not None and last[device] is not None and joules != last[device]:
                    self._steps[device].append(CounterStep(asked[device], now, joules))
                asked[device], last[device] = now, joules

    def _quiet_until(self, device: int) -> float:
        """When a counter may move again."""
        steps = self._steps[device][-3:]
        gaps = [later.after_s - earlier.seen_s for earlier, later in pairwise(steps)]
        return steps[-1].seen_s + QUIET * min(gaps) if gaps else 0.0


# In which order bursts follow each other: the clock and the heat that an arm leaves are the next one's beginning.


Arm = TypeVar("Arm", bound=Hashable)

DRAWN = 120
"""Orders of a round that are tried; the one that balances best is taken.  With two arms the balance is exact; with 3 to
8 arms and 8 or 12 rounds the most and the least frequent neighbours differ by 3 at most, those of plain shuffling by 5
or 6 (tests/benchmarks/coordinator/test_sustained.py, 2026-11-22)."""


def balanced(arms: Sequence[Arm], rounds: int, order: random.Random) -> list[list[Arm]]:
    """Every arm once per round, so that each follows each other arm equally often, as far as the rounds allow.

    Each is in each place of a round equally often too: warming up by and by then moves all arms alike.  An arm that
    ends a round may begin the next one; it then follows itself, which is nobody's influence.
    """
    follows: Counter[tuple[Arm, Arm]] = Counter()
    places: Counter[tuple[int, Arm]] = Counter()
    found: list[list[Arm]] = []
    for _ in range(rounds):
        last = found[-1][-1:] if found else []
        drawn = (order.sample(list(arms), len(arms)) for _ in range(DRAWN))
        best = min(drawn, key=lambda one: _cost(pairs([*last, *one]), follows) + _cost(enumerate(one), places))
        follows.update(pairs([*last, *best]))
        places.update(enumerate(best))
        found.append(best)
    return found


def pairs(sequence: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """(arm, the one that follows it), without arms that follow themselves."""
    return [(one, other) for one, other in pairwise(sequence) if one != other]


def _cost(events: Iterable[Hashable], counts: Counter[Any]) -> int:
    """By how much the sum of squares of the counts grows: least where the rarest are taken."""
    return sum(2 * counts[one] + 1 for one in events)


# Rounds of bursts: every arm in turn for at least the burst's length, on a device that has come to its power before.
#
# Whether it has come to it is seen in the times themselves, so it needs no counter: the clock that the power allows
# is in every time. The device is settled when two bursts of the same arm, one after the other, take the same time.


Answers = Sequence[Json]
"""What the ranks say of a burst: the fields of benchmarks.worker.clocks.Burst."""

CALIBRATION_S = 0.02
"""A burst of this length tells how many launches a long one has."""

LEAST_S = 1e-7
"""No launch takes less: bounds the launches of a burst."""

MARGIN = 1.15
"""A burst is planned to last this many times as long as asked, so that it is not too short.  On a settled H200 the
bursts of one arm differ by 1 to 2 %; the first burst on a cold one is 14 % shorter (618 us a call against 718;
2026-11-22)."""

SETTLED = {"clock": 0.05, "graph": 0.02, "events": 0.02}
"""By method: two bursts differ by less when the device has settled.  A GEMM of 4096 x 4096 x 14336 on an H200 goes
from 618 us to 718 us in the first 0.5 s; from then on, 0.17 s of calls differ by 1 % (standard deviation; 2026-11-22),
which is the power control at work.  A CPU that others share never does better than a few percent (ci/policy.toml)."""

SETTLING_BURSTS = 10
"""Most bursts before the first one that counts: 5 s at 0.5 s.  Power settles within 1 s; heat takes minutes, and arms
take turns because of it."""


@dataclasses.dataclass(frozen=True)
class ArmBurst:
    """One burst of an arm.  by_rank: seconds per call.  starved: share of its parts that found an idle device."""

    arm: Arm
    by_rank: Sequence[float]
    starved: float
    energy: EnergySpan | None

    @property
    def joules(self) -> float | None:
        """Of one call on all its devices together; None where their counters did not say."""
        return self.energy.watts * max(self.by_rank) if self.energy else None


class BurstRounds:
    """Takes the bursts of one case.  ask: makes so many launches of an arm in one burst, on all ranks.

    busy_s: seconds of all bursts so far, also of those that do not count.
    """

    def __init__(
        self, ask: Callable[[Arm, int], Answers], burst_s: float, order: random.Random, meter: EnergyMeter
    ) -> None:
        self._ask, self._burst_s, self._order, self._meter = ask, burst_s, order, meter
        self._launch_s: dict[Arm, float] = {}
        self.busy_s = 0.0

    def calibrate(self, arm: Arm, expected_s: float) -> None:
        """Find out how long a launch takes; `expected_s` may be far too much, the host's overhead is in it."""
        length = min(CALIBRATION_S, self._burst_s)
        self._launch_s[arm] = expected_s
        for _ in range(4):
            launches = self._launches(arm, length)
            self._once(arm, launches)
            if launches * self._launch_s[arm] >= length / 2:
                return

    def settle(self, arm: Arm, tolerance: float) -> str:
        """Bursts of one arm until two agree; a sentence if they never do."""
        last = max(self._long(arm).by_rank)
        changes = []
        for _ in range(SETTLING_BURSTS - 1):
            now = max(self._long(arm).by_rank)
            changes.append(now / last - 1)
            if abs(changes[-1]) <= tolerance:
                return ""
            last = now
        return (
            f"the device did not settle: after {SETTLING_BURSTS} bursts of {self._burst_s:g} s the time of a call "
            f"still changes by {changes[-1]:+.1%} from one to the next"
        )

    def take(self, arms: Sequence[Arm], rounds: int) -> Iterator[ArmBurst]:
        """The bursts of all rounds, in an order that gives every arm the same neighbours."""
        for those in balanced(arms, rounds, self._order):
            yield from map(self._long, those)

    def fewest(self, arm: Arm) -> int:
        """Launches of a short burst of an arm, as of calibrating."""
        return self._launches(arm, min(CALIBRATION_S, self._burst_s))

    def _long(self, arm: Arm) -> ArmBurst:
        return self._once(arm, self._launches(arm, MARGIN * self._burst_s))

    def _launches(self, arm: Arm, seconds: float) -> int:
        return max(2, math.ceil(seconds / max(self._launch_s[arm], LEAST_S)))

    def _once(self, arm: Arm, launches: int) -> ArmBurst:
        answers = self._ask(arm, launches)
        self._launch_s[arm] = min(one["busy_s"] for one in answers) / launches
        energy = self._meter.between(max(one["from_s"] for one in answers), min(one["to_s"] for one in answers))
        starved = max(one["starved"] / one["parts"] for one in answers)
        self.busy_s += sum(one["busy_s"] for one in answers) / len(answers)
        return ArmBurst(arm, [one["seconds"] for one in answers], starved, energy)
