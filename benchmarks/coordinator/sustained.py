"""Bursts of calls back to back: in which order they follow each other, and when the device has come to its power."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from benchmarks.shapes import Json

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


class BurstRounds:
    """Takes the bursts of one case.  ask: makes so many launches of an arm in one burst, on all ranks.

    busy_s: seconds of all bursts so far, also of those that do not count.
    """

    def __init__(self, ask: Callable[[Arm, int], Answers], burst_s: float, order: random.Random) -> None:
        self._ask, self._burst_s, self._order = ask, burst_s, order
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
        starved = max(one["starved"] / one["parts"] for one in answers)
        self.busy_s += sum(one["busy_s"] for one in answers) / len(answers)
        return ArmBurst(arm, [one["seconds"] for one in answers], starved)
