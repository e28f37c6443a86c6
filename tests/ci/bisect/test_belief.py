"""The belief against a sum over every place and size of a step, written out."""

from __future__ import annotations

import numpy as np
import pytest

from ci.bisect import search as bisection
from ci.bisect.search import Ask, Line, RowPlace, SearchAnswer, SearchState, believe, grid_of, next_step
from ci.bisect.search import TrialOutcome as Pair
from ci.commands import bisect as show

SKEWED = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
SEEN = [Pair(0, 5, 0.031), Pair(0, 2, 0.012), Pair(0, 3, -0.002), Pair(2, 3, 0.009), Pair(0, 3, 0.018)]


def oracle(line, seen):
    """(probability of no step; of a step at each change; expected level of each position), by brute force."""
    grid = grid_of(line.smallest, line.noise)
    sizes = grid.levels[1:]
    weights, levels = [], np.zeros(line.last + 1)
    for change in range(line.last + 1):  # 0: no step
        prior = (1 - bisection.NONE) * line.weights[change - 1] / len(sizes) if change else bisection.NONE
        step = sizes if change else np.zeros(1)
        away = [one.shift - step * (one.low < change <= one.high) for one in seen]
        likelihood = np.exp(sum(grid.log_density(one) for one in away)) * grid.weight
        weights.append(prior * float(likelihood.sum()))
        levels[change:] += prior * float(likelihood.sum(axis=1) @ step)
    total = sum(weights)
    return weights[0] / total, np.array(weights[1:]) / total, levels / total


@pytest.mark.parametrize("count", range(1, len(SEEN) + 1))
def test_the_belief_is_the_sum_over_all_places_and_sizes(count):
    line = Line(SKEWED, smallest=0.005, noise=0.004)
    belief = believe(line, SEEN[:count])
    none, changes, levels = oracle(line, SEEN[:count])
    assert belief.none == pytest.approx(none, rel=1e-9)
    assert belief.changes == pytest.approx(changes, rel=1e-9)
    assert belief.levels == pytest.approx(levels, abs=1e-9)


def test_far_off_and_many_trials_leave_numbers():
    rng = np.random.default_rng(0)
    line = Line(np.full(20, 1 / 20), 0.05, 0.03)
    wild = [Pair(0, int(rng.integers(1, 21)), float(rng.standard_t(2))) for _ in range(80)]
    with np.errstate(all="raise", under="ignore"):
        belief = bisection.believe(line, wild)
    assert belief.none + belief.changes.sum() == pytest.approx(1.0)


# What is measured next, and when a search ends.


EVEN = Line(np.full(16, 1 / 16))


def after(line, seen):
    return next_step(line, seen, believe(line, seen))


def test_the_two_ends_come_first():
    assert after(EVEN, []) == Ask(0, 16)


def test_then_the_middle_by_the_prior():
    ends = [Pair(0, 16, 0.05)] * 3
    asked = after(EVEN, ends)
    assert isinstance(asked, Ask)
    assert asked.low == 0
    assert 7 <= asked.high <= 9
    early = Line(np.array([0.45, 0.45, *[0.1 / 14] * 14]))
    assert after(early, ends) == Ask(0, 1)


def test_the_change_is_bracketed_before_it_is_named():
    seen = [Pair(0, 16, 0.05), Pair(0, 16, 0.051), *[Pair(0, 7, 0.0)] * 2, *[Pair(0, 8, 0.05)] * 3]
    assert after(EVEN, seen) == Ask(7, 8, fresh=True)
    done = after(EVEN, [*seen, Pair(7, 8, 0.049)])
    assert isinstance(done, SearchAnswer)
    assert (done.low, done.high) == (7, 8)
    assert done.probability >= 0.99
    assert done.shift == pytest.approx(0.05, rel=0.1)


def test_a_fresh_trial_that_shows_nothing_takes_the_certainty_back():
    seen = [Pair(0, 16, 0.01), *[Pair(0, 7, 0.0)] * 3, *[Pair(0, 8, 0.01)] * 3, Pair(7, 8, 0.0)]
    assert isinstance(after(EVEN, seen), Ask)


def test_no_step_is_an_answer():
    flat = after(EVEN, [Pair(0, 16, shift) for shift in (0.0004, -0.0003, 0.0001, 0.0, 0.0002)] * 3)
    assert isinstance(flat, SearchAnswer)
    assert not flat.high


def test_two_trials_that_agree_by_chance_are_no_answer():
    """A step of 1 % in noise of 0.6 % gave these; the prior over sizes alone is 99 % sure that there is none."""
    belief = believe(EVEN, [Pair(0, 16, -0.0007)] * 2)
    assert belief.none >= 0.99
    assert belief.none_at_worst < 0.95
    assert belief.surely_none == belief.none_at_worst
    assert isinstance(after(EVEN, [Pair(0, 16, -0.0007)] * 2), Ask)


@pytest.mark.parametrize("sizes", [(0.0032, 0.002), (0.005, 0.004), (0.01, 0.006)])
def test_no_step_is_hardly_ever_said_of_a_step_of_any_size(sizes):
    """400 rows of trials of both ends, up to 40 of each: at most 1 in 100 is called flat, by the oracle of the rule."""
    step, sd = sizes
    rng, grid_ = np.random.default_rng(5), grid_of(EVEN.smallest, EVEN.noise)
    rows = np.log1p(step) + sd * rng.standard_normal((400, 40))
    flat = np.log(grid_.weight) + np.cumsum(grid_.log_density(rows), axis=1)
    flat = np.log(np.exp(flat - flat.max(axis=-1, keepdims=True)).sum(axis=-1)) + flat.max(axis=-1)
    best = np.full(flat.shape, -np.inf)
    for level in grid_.levels[1:]:
        best = np.maximum(best, np.cumsum(grid_.log_density(rows - level), axis=1).max(axis=-1))
    odds = flat - best + np.log(bisection.NONE / (1 - bisection.NONE))
    assert float((odds.max(axis=1) >= np.log(99)).mean()) <= 0.01
    seen = [Pair(0, 16, float(one)) for one in rows[0, :6]]
    assert believe(EVEN, seen).none_at_worst == pytest.approx(1 / (1 + np.exp(-odds[0, 5])), rel=1e-6)


def test_of_two_steps_one_is_named_and_the_other_is_left_between_the_ends():
    steps = {4: 0.01, 12: 0.03}
    rng, seen = np.random.default_rng(0), [Pair(0, 16, 0.04)]
    while isinstance(asked := after(EVEN, seen), Ask) and len(seen) < 60:
        size = sum(step for change, step in steps.items() if asked.low < change <= asked.high)
        seen.append(Pair(asked.low, asked.high, size + 0.001 * float(rng.standard_normal())))
    assert isinstance(asked, SearchAnswer)
    assert asked.high in steps
    assert asked.low == asked.high - 1
    ends, row = Pair(0, 16, 0.04), [RowPlace(f"{n}", f"c{n}") for n in range(17)]
    said = show.answer(SearchState(row, EVEN, [ends], None, asked, {}), "commit", "")
    assert "between the ends is left: search again on either side of it" in said


def test_what_cannot_be_measured_is_not_asked_for_and_makes_the_answer_a_range():
    line = Line(np.full(16, 1 / 16), skipped=frozenset({7, 8, 9}))
    seen = [Pair(0, 16, 0.05)] * 3
    asked = after(line, seen)
    assert isinstance(asked, Ask)
    assert asked.high not in line.skipped
    done = after(line, [*seen, *[Pair(0, 6, 0.0)] * 3, *[Pair(0, 10, 0.05)] * 3, Pair(6, 10, 0.05)])
    assert isinstance(done, SearchAnswer)
    assert (done.low, done.high) == (6, 10)
