"""The order of bursts: balanced neighbours and places, next to an exhaustive search and to plain shuffling."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from benchmarks.coordinator.sustained import balanced


def spread(counts: Counter, keys: list) -> int:
    return max(counts[key] for key in keys) - min(counts[key] for key in keys)


def neighbours(rounds: list[list[str]]) -> tuple[int, int]:
    """By how much the most frequent follower and place exceed the rarest, counted one by one."""
    flat = [arm for those in rounds for arm in those]
    arms = sorted(set(flat))
    follows = Counter((a, b) for a, b in zip(flat, flat[1:], strict=False) if a != b)
    places = Counter((arm, those.index(arm)) for those in rounds for arm in those)
    pairs = list(itertools.permutations(arms, 2))
    return spread(follows, pairs), spread(places, list(itertools.product(arms, range(len(arms)))))


@pytest.mark.parametrize("arms", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("seed", range(4))
def test_every_round_has_every_arm_and_neighbours_and_places_balance(arms, seed):
    names = list("abcdef"[:arms])
    rounds = balanced(names, 12, random.Random(seed))
    assert [sorted(those) for those in rounds] == [names] * 12
    follows, places = neighbours(rounds)
    assert follows <= 3
    assert places <= 3
    if arms == 2:
        assert (follows, places) == (0, 0)


def test_two_arms_are_as_balanced_as_any_order_of_four_rounds_can_be():
    def cost(rounds):
        follows, places = neighbours(rounds)
        return follows + places

    orders = [["a", "b"], ["b", "a"]]
    best = min(cost(list(those)) for those in itertools.product(orders, repeat=4))
    assert all(cost(balanced(["a", "b"], 4, random.Random(seed))) == best for seed in range(8))


def test_shuffling_alone_is_less_balanced():
    plain, ours = 0, 0
    for seed in range(20):
        order = random.Random(seed)
        plain += sum(neighbours([order.sample("abcde", 5) for _ in range(10)]))
        ours += sum(neighbours(balanced(list("abcde"), 10, random.Random(seed))))
    assert ours < plain / 2


def test_one_arm_and_no_rounds():
    assert balanced(["a"], 3, random.Random(0)) == [["a"]] * 3
    assert balanced(["a", "b"], 0, random.Random(0)) == []
