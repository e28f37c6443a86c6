"""Parts of a file: any of them can be put back, and what is left is the other side's."""

from __future__ import annotations

import itertools
import random

import pytest

from ci.why.search import changed_lines, hunks, put_back, same_program

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


def test_all_parts_make_base_and_none_makes_head() -> None:
    found = hunks(BASE, HEAD)
    assert [one.where for one in found] == ["", "area", "name"]
    assert put_back(BASE, HEAD, range(len(found))) == BASE
    assert put_back(BASE, HEAD, ()) == HEAD


def test_a_part_alone_leaves_the_others_as_they_are_in_head() -> None:
    text = put_back(BASE, HEAD, {1})
    assert "time.sleep" not in text
    assert "import time" in text
    assert "circle" in text


def test_what_a_part_says_in_a_line() -> None:
    added, called = hunks(BASE, HEAD)[1:]
    assert changed_lines(BASE, HEAD, added) == ("", "time.sleep(1)")
    assert changed_lines(BASE, HEAD, called) == ('return "disc"', 'return "circle"')


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_independent_of_each_other(seed: int) -> None:
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


def test_a_last_line_without_an_end_is_not_glued_to_the_next() -> None:
    assert put_back("a\nb", "a\nb\nc\n", ()) == "a\nb\nc\n"
    assert put_back("x", "y\nz\n", {0}) == "x"


def test_comments_and_blank_space_are_no_change_of_a_program() -> None:
    assert same_program("x = 1\n", "# why\n\nx = 1  # so\n")
    assert not same_program("x = 1\n", "x = 2\n")
    assert not same_program("x = (\n", "x = (  \n")
