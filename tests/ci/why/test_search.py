"""The search for causes, held against planted truths that are known without noise."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from ci.why.search import CauseAnswer, Search, Slowdown, Suspect, SuspectKind, classified
from ci.why.suspects import changed_lines, hunks, put_back, same_program

FLOOR, ERROR = math.log1p(0.003), 0.0008
"""Smallest effect that counts, and the half-width of an interval of a handful of trials on a GPU."""


def suspect(name, weight=3.0):
    return Suspect(SuspectKind.FILE, name, path=name, weight=weight)


class Played:
    """Measures by a truth, without noise, and remembers what was asked."""

    def __init__(self, truth, most=1000):
        self.truth, self.most, self.asked = truth, most, list[tuple[str, ...]]()

    def __call__(self, put):
        if len(self.asked) >= self.most:
            return None
        self.asked.append(tuple(one.name for one in put))
        found = self.truth(set(self.asked[-1]))
        return Slowdown.failed("ImportError") if found is None else seen(found)


def seen(log_ratio, error=ERROR):
    return Slowdown(log_ratio, log_ratio - error, log_ratio + error, 3)


def searched(names, truth, weights=(), most=1000):
    played = Played(truth, most)
    whole = truth(set())
    assert whole is not None
    search = Search(seen(whole), FLOOR, played)
    search.run([suspect(*pair) for pair in zip(names, weights or itertools.repeat(3.0), strict=False)])
    return search, played


def causes(search):
    found = [one for one in search.findings if one.answer.explains]
    return [({one.name for one in finding.suspects}, finding.answer) for finding in found]


def additive(**effects):
    """Every cause that is not put back adds its share of log time."""
    return lambda put: sum(effect for name, effect in effects.items() if name not in put)


@pytest.mark.parametrize("names", ["abc", "abcdef", "abcdefghijklmnopqrst"])
def test_one_cause_is_found_wherever_it_is(names):
    for cause in names:
        search, played = searched(names, additive(**{cause: 0.02}))
        assert causes(search) == [({cause}, CauseAnswer.ALL)]
        assert search.explained
        assert len(played.asked) <= (len(names) if len(names) <= 6 else 2 * len(names).bit_length() + 2)


def test_two_causes_each_get_their_share():
    search, _ = searched("abcd", additive(b=0.03, d=0.01))
    assert causes(search) == [({"b"}, CauseAnswer.SOME), ({"d"}, CauseAnswer.ALL)]
    assert [one.share for one in search.findings if one.answer.explains] == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("pair", list(itertools.combinations("abcd", 2)))
def test_parts_that_build_only_together_are_named_together(pair):
    def truth(put):
        both = len(set(pair) & set(put))
        return None if both == 1 else 0.0 if both else 0.02

    search, _ = searched("abcd", truth)
    assert causes(search) == [(set(pair), CauseAnswer.ALL)]
    assert not [one for one in search.findings if one.answer is CauseAnswer.BROKEN], (
        "what is part of the answer is no fault"
    )


def test_the_fewest_of_many_that_work_only_together():
    names = "abcdefghij"
    search, _ = searched(names, lambda put: 0.0 if {"b", "i"} <= set(put) else 0.02)
    assert causes(search) == [({"b", "i"}, CauseAnswer.ALL)]


def test_a_gain_that_hides_a_part_of_the_loss():
    """+3 % and -1 %: without the cause head is faster than base, which is more than all of it."""
    search, _ = searched("ab", additive(a=-0.01, b=0.03))
    assert causes(search) == [({"b"}, CauseAnswer.ALL)]
    assert search.findings[-1].share == pytest.approx(1.5)


def test_nothing_that_differs_explains_it():
    search, played = searched("abc", lambda put: 0.02)
    assert causes(search) == []
    assert [one.answer for one in search.findings] == [CauseAnswer.NONE] * 3
    assert len(played.asked) == 4, "each, and all together"


def test_no_experiment_begins_after_the_time_is_over():
    search, played = searched("abcdef", additive(f=0.02), most=3)
    assert search.stopped
    assert len(played.asked) == 3
    assert [one.answer for one in search.findings] == [CauseAnswer.NONE] * 3


def test_what_is_unlikely_is_put_back_at_once():
    _, played = searched("abcdefgh", additive(a=0.02), (3.0, *[0.1] * 7))
    assert played.asked == [("a",)]
    _, played = searched("abcdefgh", lambda put: 0.02, (3.0, *[0.1] * 7))
    assert played.asked[:2] == [("a",), tuple("bcdefgh")]


@pytest.mark.parametrize("seed", range(40))
def test_random_truths_against_every_subset(seed):
    """What is named explains all and no smaller set does; the oracle looks at every subset of the suspects."""
    rng = np.random.default_rng(seed)
    names = "abcde"
    needed = set(rng.choice(list(names), size=rng.integers(1, 4), replace=False))
    coupled = rng.random() < 0.5

    def truth(put):
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
def test_what_follows_from_what_is_left(before, after, answer):
    assert classified(seen(0.02), before, after, FLOOR) is answer


# Parts of a file: any of them can be put back, and what is left is the other side's.


BASE = """import math


def area(r):
    return math.pi * r * r


@cached
def name():
    # a comment
    return "disc"
"""
HEAD = """import math
import time


def area(r):
    time.sleep(1)
    return math.pi * r * r


@cached
def name():
    # another comment
    return "circle"
"""


def test_all_parts_make_base_and_none_makes_head():
    found = hunks(BASE, HEAD)
    assert [one.where for one in found] == ["", "area", "name"]
    assert put_back(BASE, HEAD, range(len(found))) == BASE
    assert put_back(BASE, HEAD, ()) == HEAD


def test_what_a_part_says_in_a_line():
    added, called = hunks(BASE, HEAD)[1:]
    assert changed_lines(BASE, HEAD, added) == ("", "time.sleep(1)")
    assert changed_lines(BASE, HEAD, called) == ('return "disc"', 'return "circle"')


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_independent_of_each_other(seed):
    """Against lines that say which side they are of: what is put back is base's, in every choice of parts."""
    draw = random.Random(seed)
    kinds = [draw.choice("=bhr") for _ in range(14)]
    base = [f"{n} base" if kind != "=" else f"{n}" for n, kind in enumerate(kinds) if kind != "h"]
    head = [f"{n} head" if kind != "=" else f"{n}" for n, kind in enumerate(kinds) if kind != "b"]
    one, two = ("".join(f"{line}\n" for line in lines) for lines in (base, head))
    found = hunks(one, two)
    for chosen in itertools.chain.from_iterable(
        itertools.combinations(range(len(found)), n) for n in (0, 1, len(found))
    ):
        kept = [line for h in found if h.number not in chosen for line in head[slice(*h.head)]]
        back = [line for h in found if h.number in chosen for line in base[slice(*h.base)]]
        lines = put_back(one, two, chosen).splitlines()
        assert [line for line in lines if "head" in line] == kept
        assert [line for line in lines if "base" in line] == back
        assert [line for line in lines if line.isdigit()] == [line for line in head if line.isdigit()]


def test_a_last_line_without_an_end_is_not_glued_to_the_next():
    assert put_back("a\nb", "a\nb\nc\n", ()) == "a\nb\nc\n"
    assert put_back("x", "y\nz\n", {0}) == "x"


def test_comments_and_blank_space_are_no_change_of_a_program():
    assert same_program("x = 1\n", "# why\n\nx = 1  # so\n")
    assert not same_program("x = 1\n", "x = 2\n")
    assert not same_program("x = (\n", "x = (  \n")
