"""The chain against a sum over every place and size of one step and two, written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ci.stats import bisection
from ci.stats.bisection import Ask, Chain, FoundSteps, Line, PairShift, believe, information, next_step

SKEWED = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
SEEN = [
    PairShift(0, 5, 0.031),
    PairShift(0, 2, 0.012),
    PairShift(0, 3, -0.002),
    PairShift(2, 3, 0.009),
    PairShift(0, 3, 0.018),
]


def oracle(line: Line, seen: list[PairShift]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(probability of none, one and two steps; of a step at each change; of the first one), by brute force."""
    sizes = bisection.of(line.smallest, line.noise)
    levels = sizes.levels
    two_in_all = line.weight_of_two(0, line.last)
    rows = [((), np.array([bisection.NONE]), [np.zeros(1)] * (line.last + 1))]
    for k in range(1, line.last + 1):
        shape = [levels if position >= k else np.zeros(len(levels)) for position in range(line.last + 1)]
        rows.append(((k,), bisection.ONE * line.weights[k - 1] * sizes.prior, shape))
    for k, other in itertools.combinations(range(1, line.last + 1), 2):
        first, second = (one.ravel() for one in np.meshgrid(levels, levels, indexing="ij"))
        prior = bisection.TWO / two_in_all * line.weights[k - 1] * line.weights[other - 1]
        shape = [second if p >= other else first if p >= k else np.zeros(len(first)) for p in range(line.last + 1)]
        rows.append(((k, other), prior * (sizes.prior[:, None] * sizes.second).ravel(), shape))
    counts, changes, firsts = np.zeros(3), np.zeros(line.last), np.zeros(line.last)
    for places, prior, shape in rows:
        away = [one.shift - (shape[one.high] - shape[one.low]) for one in seen]
        likelihood = np.exp(sum(sizes.log_density(one[:, None]) for one in away))
        weight = float((prior[:, None] * likelihood * sizes.weight).sum())
        counts[len(places)] += weight
        changes[[place - 1 for place in places]] += weight
        firsts[[place - 1 for place in places[:1]]] += weight
    return counts / counts.sum(), changes / counts.sum(), firsts / counts.sum()


@pytest.mark.parametrize("count", range(1, len(SEEN) + 1))
def test_the_chain_is_the_sum_over_all_places_and_sizes(count: int) -> None:
    line = Line(SKEWED, smallest=0.005, noise=0.004)
    belief = Chain(line, SEEN[:count]).belief()
    counts, changes, firsts = oracle(line, SEEN[:count])
    assert (belief.none, belief.one, belief.two) == pytest.approx(tuple(counts), rel=1e-9)
    assert belief.changes == pytest.approx(changes, rel=1e-9)
    assert belief.first == pytest.approx(firsts, rel=1e-9)
    assert belief.none + belief.first.sum() == pytest.approx(1.0)


def test_positions_that_are_asked_about_change_nothing() -> None:
    line = Line(SKEWED, smallest=0.005, noise=0.004)
    without, with_ = Chain(line, SEEN).belief(), Chain(line, SEEN, [1, 4]).belief()
    assert (with_.none, with_.one, with_.two) == pytest.approx((without.none, without.one, without.two))
    assert with_.state.sum(axis=(1, 2)) == pytest.approx(1.0)


def test_far_off_and_many_trials_leave_numbers() -> None:
    rng = np.random.default_rng(0)
    line = Line(np.full(20, 1 / 20), 0.05, 0.03)
    wild = [PairShift(0, int(rng.integers(1, 21)), float(rng.standard_t(2))) for _ in range(80)]
    with np.errstate(all="raise", under="ignore"):
        belief = bisection.believe(line, wild)
    assert belief.none + belief.one + belief.two == pytest.approx(1.0)


def test_a_trial_of_two_positions_that_are_no_neighbours_is_refused() -> None:
    with pytest.raises(ValueError, match="neighbours"):
        Chain(Line(SKEWED), [PairShift(1, 4, 0.01), PairShift(0, 2, 0.0)])


# What is measured next, and when a search ends.


EVEN = Line(np.full(16, 1 / 16))


def after(line: Line, seen: list[PairShift]) -> Ask | FoundSteps:
    return next_step(line, seen, believe(line, seen))


def test_the_two_ends_come_first() -> None:
    assert next_step(EVEN, [], None) == Ask(0, 16)


def test_then_the_middle_by_the_prior() -> None:
    ends = [PairShift(0, 16, 0.05)] * 3
    asked = after(EVEN, ends)
    assert isinstance(asked, Ask)
    assert asked.low == 0
    assert 7 <= asked.high <= 9
    early = Line(np.array([0.45, 0.45, *[0.1 / 14] * 14]))
    assert after(early, ends) == Ask(0, 1, pytest.approx(0.9, abs=0.15))


def test_the_change_is_bracketed_before_it_is_named() -> None:
    seen = [PairShift(0, 16, 0.05), PairShift(0, 16, 0.051), *[PairShift(0, 7, 0.0)] * 2, *[PairShift(0, 8, 0.05)] * 3]
    assert after(EVEN, seen) == Ask(7, 8, fresh=True)
    done = after(EVEN, [*seen, PairShift(7, 8, 0.049)])
    assert isinstance(done, FoundSteps)
    assert [(one.low, one.high) for one in done.culprits] == [(7, 8)]
    assert done.probability >= 0.99
    assert done.culprits[0].shift == pytest.approx(0.05, rel=0.1)


def test_a_fresh_trial_that_shows_nothing_takes_the_certainty_back() -> None:
    seen = [PairShift(0, 16, 0.01), *[PairShift(0, 7, 0.0)] * 3, *[PairShift(0, 8, 0.01)] * 3, PairShift(7, 8, 0.0)]
    assert isinstance(after(EVEN, seen), Ask)


def test_no_step_is_an_answer() -> None:
    flat = after(EVEN, [PairShift(0, 16, shift) for shift in (0.0004, -0.0003, 0.0001, 0.0, 0.0002)] * 3)
    assert isinstance(flat, FoundSteps)
    assert flat.culprits == ()


def test_two_trials_that_agree_by_chance_are_no_answer() -> None:
    """A step of 1 % in noise of 0.6 % gave these; the prior over sizes alone is 99 % sure that there is none."""
    belief = believe(EVEN, [PairShift(0, 16, -0.0007)] * 2)
    assert belief.none >= 0.99
    assert belief.none_at_worst < 0.95
    assert belief.surely_none == belief.none_at_worst
    assert isinstance(after(EVEN, [PairShift(0, 16, -0.0007)] * 2), Ask)


@pytest.mark.parametrize("sizes", [(0.0032, 0.002), (0.005, 0.004), (0.01, 0.006)])
def test_no_step_is_hardly_ever_said_of_a_step_of_any_size(sizes: tuple[float, float]) -> None:
    """400 rows of trials of both ends, up to 40 of each: at most 1 in 100 is called flat, by the oracle of the rule."""
    step, sd = sizes
    rng, grid_ = np.random.default_rng(5), bisection.of(EVEN.smallest, EVEN.noise)
    rows = np.log1p(step) + sd * rng.standard_normal((400, 40))
    flat = np.log(grid_.weight) + np.cumsum(grid_.log_density(rows[..., None]), axis=1)
    flat = np.log(np.exp(flat - flat.max(axis=-1, keepdims=True)).sum(axis=-1)) + flat.max(axis=-1)
    best = np.full(flat.shape, -np.inf)
    for level in grid_.levels:
        best = np.maximum(best, np.cumsum(grid_.log_density(rows[..., None] - level), axis=1).max(axis=-1))
    odds = flat - best + np.log(bisection.NONE / bisection.ONE)
    assert float((odds.max(axis=1) >= np.log(99)).mean()) <= 0.01
    seen = [PairShift(0, 16, float(one)) for one in rows[0, :6]]
    assert believe(EVEN, seen).none_at_worst == pytest.approx(1 / (1 + np.exp(-odds[0, 5])), rel=1e-6)


def test_two_steps_are_both_named_the_larger_one_first() -> None:
    levels = {1: 0.0, 3: 0.0, 4: 0.01, 8: 0.01, 11: 0.01, 12: 0.04, 16: 0.04}
    seen = [PairShift(0, node, level + n * 2e-4) for n in (-1, 0, 1) for node, level in levels.items()]
    asked = after(EVEN, seen)
    assert isinstance(asked, Ask)
    assert asked.fresh
    assert (asked.low, asked.high) == (11, 12)
    done = after(EVEN, [*seen, PairShift(11, 12, 0.03), PairShift(3, 4, 0.01)])
    assert isinstance(done, FoundSteps)
    assert [(one.low, one.high) for one in done.culprits] == [(11, 12), (3, 4)]


def test_what_cannot_be_measured_is_not_asked_for_and_makes_the_answer_a_range() -> None:
    line = Line(np.full(16, 1 / 16), skipped=frozenset({7, 8, 9}))
    seen = [PairShift(0, 16, 0.05)] * 3
    asked = after(line, seen)
    assert isinstance(asked, Ask)
    assert asked.high not in line.skipped
    done = after(line, [*seen, *[PairShift(0, 6, 0.0)] * 3, *[PairShift(0, 10, 0.05)] * 3, PairShift(6, 10, 0.05)])
    assert isinstance(done, FoundSteps)
    assert [(one.low, one.high) for one in done.culprits] == [(6, 10)]


def test_bits_are_those_of_the_outcomes_by_sampling() -> None:
    """The expected gain against a Monte Carlo of the same model: entropy before minus mean entropy after."""
    line = Line(np.full(4, 1 / 4), smallest=0.01, noise=0.01)
    belief = believe(line, [PairShift(0, 4, 0.02)])
    at = list(belief.nodes).index(2)
    rng = np.random.default_rng(1)
    sizes = bisection.of(line.smallest, line.noise)
    gained = _mean_gain(rng, belief.state[at], sizes, draws=4000)
    assert information(line, belief)[at] == pytest.approx(gained, abs=0.03)


def _mean_gain(rng: np.random.Generator, state: np.ndarray, sizes: bisection.StepGrid, draws: int) -> float:
    def of_counts(joint: np.ndarray) -> np.ndarray:
        return np.array([joint[:, some].sum() for some in sizes.counts])

    flat = state.ravel() / state.sum()
    gains = []
    for index in rng.choice(len(flat), draws, p=flat):
        noise, place = np.unravel_index(index, state.shape)
        y = sizes.level[place] + sizes.scale[noise] * rng.standard_t(sizes.tail[noise])
        after = of_counts(state * np.exp(sizes.log_density(y - sizes.level[:, None])).T)
        gains.append(_entropy(of_counts(state)) - _entropy(after / after.sum()))
    return float(np.mean(gains))


def _entropy(chance: np.ndarray) -> float:
    kept = chance[chance > 0]
    return float(-(kept * np.log2(kept)).sum())
