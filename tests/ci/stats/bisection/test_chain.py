"""The chain against a sum over every place and size of one step and two, written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ci.stats import bisection
from ci.stats.bisection import Chain, Line, PairShift

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
    assert with_.state.sum(axis=(1, 2, 3)) == pytest.approx(1.0)


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
