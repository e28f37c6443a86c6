"""How many tokens each expert gets: the four routings that the cases of this operator use, defined once.

The total is always `groups * mean`, so that the FLOPs of a shape do not depend on the routing.

balanced    every expert gets the mean.
mild        shares fall like 1 / rank^s (Zipf), s chosen so that the largest is twice the mean.
extreme     one expert gets half of all tokens, a quarter of the experts (rounded down) get none, others share equally.
unbalanced  shares 0.2 + 0.8 u, u evenly distributed in [0, 1): what the benchmarks of Primus-Turbo call so (AMD-AGI/
            Primus-Turbo, benchmark/ops/training, state of 2026-08); the numbers are ours, and fixed.

Which expert is large is shuffled, the same way in every process, so that no schedule profits from an order by size.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

ROUTINGS = ("balanced", "mild", "extreme", "unbalanced")

MILD_MAX_OVER_MEAN = 2.0


def lens(routing: str, groups: int, mean: int) -> tuple[int, ...]:
    """Tokens per expert, `groups` whole numbers that sum up to groups * mean.  ValueError for an unknown routing."""
    if groups < 1 or mean < 0:
        raise ValueError(f"{groups} experts with {mean} tokens each: give at least 1 expert and no negative mean")
    if routing not in ROUTINGS:
        raise ValueError(f"routing {routing!r} is not one of {', '.join(ROUTINGS)}")
    total = groups * mean
    known = {"balanced": _balanced, "mild": _mild, "extreme": _extreme, "unbalanced": _unbalanced}
    shares = known[routing](groups)
    counts = _apportion(total, shares)
    random.Random(f"{routing} {groups}").shuffle(counts)
    return tuple(counts)


def ends(counts: Sequence[int]) -> list[int]:
    """Inclusive running sum: expert g owns the rows [ends[g] - counts[g], ends[g])."""
    total, result = 0, []
    for count in counts:
        total += count
        result.append(total)
    return result


def _balanced(groups: int) -> list[int]:
    return [1] * groups


def _mild(groups: int) -> list[int]:
    """Zipf shares in millionths; the exponent has two decimals, so that no rounding of pow can change a count."""
    steps = (s / 100 for s in range(300))
    exponent = next((s for s in steps if groups / _zipf_sum(groups, s) >= MILD_MAX_OVER_MEAN), 3.0)
    return [round(1e6 * rank**-exponent) for rank in range(1, groups + 1)]


def _zipf_sum(groups: int, exponent: float) -> float:
    return sum(rank**-exponent for rank in range(1, groups + 1))


def _extreme(groups: int) -> list[int]:
    """Half for one expert, nothing for a quarter; with one or two experts the rest is what is left of that."""
    empty = groups // 4
    others = groups - 1 - empty
    return [max(others, 1)] + [1] * others + [0] * empty


def _unbalanced(groups: int) -> list[int]:
    """In millionths, so that no rounding can change a count."""
    draw = random.Random(f"unbalanced shares of {groups}")
    return [round(1e6 * (0.2 + 0.8 * draw.random())) for _ in range(groups)]


def _apportion(total: int, shares: Sequence[int]) -> list[int]:
    """Whole numbers proportional to the shares that sum up to total: the largest remainders are rounded up."""
    whole = sum(shares)
    counts = [total * share // whole for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (-(total * shares[i] % whole), i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts
