"""The search for causes, held against planted truths that are known without noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence

import numpy as np
import pytest

from ci.why.search import CauseAnswer, Search, Slowdown, Suspect, SuspectKind, classified, difference

FLOOR, ERROR = math.log1p(0.003), 0.0008
"""Smallest effect that counts, and the half-width of an interval of a handful of trials on a GPU."""

Truth = Callable[[Collection[str]], float | None]
"""log(time / base's) of head with these put back; None where that does not build."""


def suspect(name: str, weight: float = 3.0) -> Suspect:
    return Suspect(SuspectKind.FILE, name, path=name, weight=weight)


class Played:
    """Measures by a truth, without noise, and remembers what was asked."""

    def __init__(self, truth: Truth, most: int = 1000) -> None:
        self.truth, self.most, self.asked = truth, most, list[tuple[str, ...]]()

    def __call__(self, put: Sequence[Suspect]) -> Slowdown | None:
        if len(self.asked) >= self.most:
            return None
        self.asked.append(tuple(one.name for one in put))
        found = self.truth(set(self.asked[-1]))
        return Slowdown.failed("ImportError") if found is None else seen(found)


def seen(log_ratio: float, error: float = ERROR) -> Slowdown:
    return Slowdown(log_ratio, log_ratio - error, log_ratio + error, 3)


def searched(
    names: Sequence[str], truth: Truth, weights: Sequence[float] = (), most: int = 1000
) -> tuple[Search, Played]:
    played = Played(truth, most)
    whole = truth(set())
    assert whole is not None
    search = Search(seen(whole), FLOOR, played)
    search.run([suspect(*pair) for pair in zip(names, weights or itertools.repeat(3.0), strict=False)])
    return search, played


def causes(search: Search) -> list[tuple[set[str], CauseAnswer]]:
    found = [one for one in search.findings if one.answer.explains]
    return [({one.name for one in finding.suspects}, finding.answer) for finding in found]


def additive(**effects: float) -> Truth:
    """Every cause that is not put back adds its share of log time."""
    return lambda put: sum(effect for name, effect in effects.items() if name not in put)


@pytest.mark.parametrize("names", ["abc", "abcdef", "abcdefghijklmnopqrst"])
def test_one_cause_is_found_wherever_it_is(names: str) -> None:
    for cause in names:
        search, played = searched(names, additive(**{cause: 0.02}))
        assert causes(search) == [({cause}, CauseAnswer.ALL)]
        assert search.explained
        assert len(played.asked) <= (len(names) if len(names) <= 6 else 2 * len(names).bit_length() + 2)


def test_the_likeliest_is_put_back_first() -> None:
    _, played = searched("abc", additive(c=0.02), (1.0, 3.0, 9.0))
    assert played.asked == [("c",)]


def test_two_causes_each_get_their_share() -> None:
    search, _ = searched("abcd", additive(b=0.03, d=0.01))
    assert causes(search) == [({"b"}, CauseAnswer.SOME), ({"d"}, CauseAnswer.ALL)]
    assert [one.share for one in search.findings if one.answer.explains] == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("pair", list(itertools.combinations("abcd", 2)))
def test_parts_that_build_only_together_are_named_together(pair: tuple[str, str]) -> None:
    def truth(put: Collection[str]) -> float | None:
        both = len(set(pair) & set(put))
        return None if both == 1 else 0.0 if both else 0.02

    search, _ = searched("abcd", truth)
    assert causes(search) == [(set(pair), CauseAnswer.ALL)]
    assert not [one for one in search.findings if one.answer is CauseAnswer.BROKEN], (
        "what is part of the answer is no fault"
    )


def test_causes_that_hide_each_other_are_named_together() -> None:
    """Each of two makes it as slow as both: putting back one alone does not help."""
    search, _ = searched("abcde", lambda put: 0.0 if {"b", "e"} <= set(put) else 0.02)
    assert causes(search) == [({"b", "e"}, CauseAnswer.ALL)]


def test_the_fewest_of_many_that_work_only_together() -> None:
    names = "abcdefghij"
    search, _ = searched(names, lambda put: 0.0 if {"b", "i"} <= set(put) else 0.02)
    assert causes(search) == [({"b", "i"}, CauseAnswer.ALL)]


def test_a_gain_that_hides_a_part_of_the_loss() -> None:
    """+3 % and -1 %: without the cause head is faster than base, which is more than all of it."""
    search, _ = searched("ab", additive(a=-0.01, b=0.03))
    assert causes(search) == [({"b"}, CauseAnswer.ALL)]
    assert search.findings[-1].share == pytest.approx(1.5)


def test_nothing_that_differs_explains_it() -> None:
    search, played = searched("abc", lambda put: 0.02)
    assert causes(search) == []
    assert [one.answer for one in search.findings] == [CauseAnswer.NONE] * 3
    assert len(played.asked) == 4, "each, and all together"


def test_no_experiment_begins_after_the_time_is_over() -> None:
    search, played = searched("abcdef", additive(f=0.02), most=3)
    assert search.stopped
    assert len(played.asked) == 3
    assert [one.answer for one in search.findings] == [CauseAnswer.NONE] * 3


def test_what_is_unlikely_is_put_back_at_once() -> None:
    _, played = searched("abcdefgh", additive(a=0.02), (3.0, *[0.1] * 7))
    assert played.asked == [("a",)]
    _, played = searched("abcdefgh", lambda put: 0.02, (3.0, *[0.1] * 7))
    assert played.asked[:2] == [("a",), tuple("bcdefgh")]


@pytest.mark.parametrize("seed", range(40))
def test_random_truths_against_every_subset(seed: int) -> None:
    """What is named explains all and no smaller set does; the oracle looks at every subset of the suspects."""
    rng = np.random.default_rng(seed)
    names = "abcde"
    needed = set(rng.choice(list(names), size=rng.integers(1, 4), replace=False))
    coupled = rng.random() < 0.5

    def truth(put: Collection[str]) -> float | None:
        have = needed & set(put)
        return None if coupled and 0 < len(have) < len(needed) else 0.02 * (have != needed)

    subsets = [set(s) for n in range(len(names) + 1) for s in itertools.combinations(names, n)]
    smallest = min((s for s in subsets if truth(s) == 0), key=len)
    search, _ = searched(names, truth)
    assert set().union(*(found for found, _ in causes(search))) == smallest


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [
        (seen(0.02), seen(0.000), CauseAnswer.ALL),
        (seen(0.02), seen(0.004), CauseAnswer.SOME),
        (seen(0.02), seen(0.012), CauseAnswer.SOME),
        (seen(0.02), seen(0.020), CauseAnswer.NONE),
        (seen(0.02), seen(0.030), CauseAnswer.NONE),
        (seen(0.02), seen(-0.010), CauseAnswer.ALL),
        (seen(0.02), seen(0.009, 0.02), CauseAnswer.UNCLEAR),
        (seen(0.02), seen(0.0, math.inf), CauseAnswer.UNCLEAR),
        (seen(0.02), Slowdown.failed("SyntaxError"), CauseAnswer.BROKEN),
    ],
)
def test_what_follows_from_what_is_left(before: Slowdown, after: Slowdown, answer: CauseAnswer) -> None:
    assert classified(seen(0.02), before, after, FLOOR) is answer


def test_intervals_of_trials_apart_add_their_squares() -> None:
    gone, low, high = difference(seen(0.03, 0.003), seen(0.01, 0.004))
    assert (gone, low, high) == pytest.approx((0.02, 0.015, 0.025))
