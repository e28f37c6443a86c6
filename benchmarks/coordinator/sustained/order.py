"""In which order bursts follow each other: the clock and the heat that an arm leaves are the next one's beginning."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

Arm = TypeVar("Arm", bound=Hashable)

DRAWN = 120
"""Orders of a round that are tried; the one that balances best is taken.  With two arms the balance is exact; with 3 to
8 arms and 8 or 12 rounds the most and the least frequent neighbours differ by 3 at most, those of plain shuffling by 5
or 6 (tests/benchmarks/coordinator/sustained/test_order.py, 2026-11-22)."""


def balanced(arms: Sequence[Arm], rounds: int, order: random.Random) -> list[list[Arm]]:
    """Every arm once per round, so that each follows each other arm equally often, as far as the rounds allow.

    Each is in each place of a round equally often too: warming up by and by then moves all arms alike.  An arm that
    ends a round may begin the next one; it then follows itself, which is nobody's influence.
    """
    follows: Counter[tuple[Arm, Arm]] = Counter()
    places: Counter[tuple[Arm, int]] = Counter()
    found: list[list[Arm]] = []
    for _ in range(rounds):
        last = found[-1][-1:] if found else []
        drawn = (order.sample(list(arms), len(arms)) for _ in range(DRAWN))
        best = min(drawn, key=lambda one: _cost(pairs([*last, *one]), follows) + _cost(enumerated(one), places))
        follows.update(pairs([*last, *best]))
        places.update(enumerated(best))
        found.append(best)
    return found


def pairs(sequence: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """(arm, the one that follows it), without arms that follow themselves."""
    return [(one, other) for one, other in zip(sequence, sequence[1:], strict=False) if one != other]


def enumerated(sequence: Sequence[Arm]) -> list[tuple[Arm, int]]:
    """(arm, its place in the round)."""
    return [(one, place) for place, one in enumerate(sequence)]


def _cost(events: Sequence[Hashable], counts: Counter[Hashable]) -> int:
    """By how much the sum of squares of the counts grows: least where the rarest are taken."""
    return sum(2 * counts[one] + 1 for one in events)
