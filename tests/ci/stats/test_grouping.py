import numpy as np
import pytest

from ci.stats import interval as measured
from ci.stats import sequential as grouping
from ci.stats.types import PairedRounds

RNG = np.random.default_rng(8)


def sample(effect, numbers=range(6)):
    trials = [
        PairedRounds(n, np.exp(0.01 * RNG.standard_normal(40)), np.exp(0.01 * RNG.standard_normal(40) + effect))
        for n in numbers
    ]
    return measured.samples([trials])[0]


def test_mean_and_median_over_shapes_within_each_trial():
    members = [sample(e) for e in (0.01, 0.02, 0.03, 0.9)]
    mean, median = grouping.together(members, robust=False), grouping.together(members, robust=True)
    for i in range(6):
        values = [m.shifts.shift[i] for m in members]
        assert mean.shifts.shift[i] == pytest.approx(np.mean(values))
        assert median.shifts.shift[i] == pytest.approx(np.median(values))
    assert mean.shifts.variance[0] == pytest.approx(np.sum([m.shifts.variance[0] for m in members]) / 16)


def test_only_common_trials_are_used_and_too_few_are_refused():
    joined = grouping.together([sample(0, range(6)), sample(0, range(2, 8))], robust=False)
    assert joined.numbers == (2, 3, 4, 5)
    assert grouping.together([sample(0, range(4)), sample(0, range(2, 8))], robust=False) is None


def test_neighbours_need_four():
    assert grouping.neighbours(list("aabbbbaac")) == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert grouping.neighbours(list("aaab")) == []


@pytest.mark.parametrize(("slower", "faster", "said"), [(8, 0, True), (0, 9, True), (7, 0, False), (20, 1, False)])
def test_one_sided_findings_raise_a_doubt(slower, faster, said):
    assert bool(grouping.one_sided(slower, faster)) is said
