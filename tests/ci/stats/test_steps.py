"""Change points: against slow, obvious oracles; what is no step; what grows gives the same answer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.signal import lfilter

from ci.stats.steps import LEVEL, TABLE, CleanSeries, Noise, critical, find, p_value, running_median

# Series without a step, as histories of timings wander; for the studies of change points.

SIGMA = 0.02
"""Between runs the median of one GEMM wanders by 2 to 3 % on H200 (recorded 2026-11-20)."""

WARM_UP = 50
"""Points that an AR(1) process of correlation 0.5 needs to forget how it began."""


def gaussian(rng, series, points):
    return np.asarray(SIGMA * rng.normal(size=(series, points)))


def heavy(rng, series, points):
    """Student's t with 3 degrees of freedom, scaled to the same standard deviation."""
    return np.asarray(SIGMA / np.sqrt(3) * rng.standard_t(3, size=(series, points)))


def correlated(rng, series, points, correlation=0.5):
    """AR(1)."""
    shocks = rng.normal(size=(series, points + WARM_UP)) * np.sqrt(1 - correlation**2)
    return np.asarray(SIGMA * lfilter([1], [1, -correlation], shocks, axis=1)[:, WARM_UP:])


def outliers(rng, series, points):
    """Gaussian, and 1 % of the points 30 % slower."""
    return np.asarray(gaussian(rng, series, points) + np.log(1.3) * (rng.random((series, points)) < 0.01))


KINDS = {"gaussian": gaussian, "t, 3 degrees": heavy, "AR(1) 0.5": correlated, "1 % outliers": outliers}
"""What null series are made of, for which the false-alarm rate holds.  Two modes of which a short series shows first
one, then the other are two levels to anybody; what a machine drifts by is taken off before (ci.history.series)."""


def rng(*seed):
    return np.random.default_rng(seed)


def stepped(points, places, seed=1, sigma=0.01):
    """A series of levels: (first point, ratio to the level before)."""
    logs = gaussian(rng(seed), 1, points)[0] * sigma / 0.02
    for place, ratio in places:
        logs[place:] += np.log(ratio)
    return np.exp(logs)


def indices(values):
    return [step.index for step in find(values)]


@pytest.mark.parametrize("kind", KINDS)
def test_null_series_raise_hardly_any_alarm(kind):
    """400 series of each kind; at a rate of 1 % more than 12 alarms happen once in a thousand times."""
    for points in (30, 300):
        alarms = sum(bool(find(values)) for values in np.exp(KINDS[kind](rng(points), 400, points)))
        assert alarms <= 12 * points / 300 + 4


def test_a_step_is_found_with_its_size_and_place():
    (step,) = find(stepped(300, [(200, 1.04)]))
    assert abs(step.index - 200) <= 2
    assert step.ratio_low < 1.04 < step.ratio_high
    assert step.ratio_high - step.ratio_low < 0.02
    assert step.p_value < 1e-6
    assert step.ratio == pytest.approx(step.after / step.before)


@pytest.mark.parametrize(("place", "ratio"), [(295, 1.08), (295, 0.92), (5, 1.08), (290, 1.04)])
def test_a_step_near_an_end_is_found(place, ratio):
    found = [indices(stepped(300, [(place, ratio)], seed)) for seed in range(20)]
    assert sum(any(abs(index - place) <= 2 for index in one) for one in found) >= 19


def test_levels_that_come_and_go_are_each_found():
    places = [(60, 1.05), (90, 1 / 1.05), (150, 1.03), (220, 1.04)]
    found = indices(stepped(300, places))
    assert np.abs(np.array(found) - [place for place, _ in places]).max() <= 2


def test_spikes_of_one_or_two_points_are_no_step():
    values = stepped(300, [])
    values[[40, 41, 120, 200, 201, 298, 299]] *= 1.3
    assert find(values) == []


@pytest.mark.parametrize(("often", "found"), [(16, []), (1000, [660])])
def test_spikes_in_a_row_at_the_end_are_a_level_where_the_series_has_no_others(often, found):
    """As in 0004 of SAP/performance-regression-data-set: 42 of 663 points are spikes, the last three among them."""
    values = stepped(663, [], sigma=0.02)
    values[::often] *= 1.3
    values[[-9, -7]] *= 1.1
    values[-3:] *= 1.2
    assert indices(values) == found
    assert indices(1 / values) == found, "faster as well as slower"


def test_a_level_of_which_the_noise_is_nothing_is_found_exactly():
    values = np.repeat([1.0, 1.001, 1.0], 20)
    assert indices(values) == [20, 40]
    assert find(np.full(300, 3.5e-5)) == []


@pytest.mark.parametrize("points", range(12))
def test_few_points_are_judged_or_left_alone(points):
    assert find(np.full(points, 2.0)) == []
    assert len(find(np.where(np.arange(points) < points // 2, 1.0, 2.0))) <= 1


def test_the_interval_covers_the_size():
    """99 % of steps that are found at their place have their size within the interval."""
    series = np.exp(gaussian(rng(3), 300, 120) / 2)
    series[:, 60:] *= 1.05
    found = [step for values in series for step in find(values) if step.index == 60]
    assert len(found) > 200
    assert np.mean([step.ratio_low <= 1.05 <= step.ratio_high for step in found]) >= 0.97


def test_steps_across_full_windows_are_found_and_those_that_are_decided_stay():
    places = (300, 900, 1405, 2590)
    values = stepped(2600, list(zip(places, (1.05, 1.04, 0.95, 1.06), strict=True)))
    found = find(values)
    assert np.abs(np.array([step.index for step in found]) - places).max() <= 2
    other = np.concatenate([values[:2048], values[2048:] * 3])
    assert find(other)[:2] == found[:2]


def test_what_the_levels_leave():
    """The oracle takes each level's mean off and looks at what is left."""
    for seed, edges in itertools.product(range(3), ([0, 50], [0, 20, 50], [0, 3, 4, 31, 50])):
        series = CleanSeries(gaussian(rng(4, seed), 1, 50)[0])
        levels = [series.points[a:b] - series.points[a:b].mean() for a, b in itertools.pairwise(edges)]
        square = sum(float(level @ level) for level in levels)
        lag = sum(float(level[1:] @ level[:-1]) for level in levels)
        r = lag / square
        r += len(levels) * (1 + 4 * max(r, 0)) / 50
        noise = series.noise_between(edges)
        assert noise.sigma == pytest.approx((square / (50 - len(levels) - 1)) ** 0.5)
        assert noise.correlation == pytest.approx(np.clip((50 * r + 5) / 60, 0, 0.9), abs=1e-9)


def test_the_variance_of_a_mean_is_that_of_an_autoregression():
    """The oracle sums all covariances."""
    noise = Noise(2.0, 0.6)
    for count in (1, 2, 5, 40):
        apart = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
        assert noise.variance(count) == pytest.approx(4 * (0.6**apart).sum() / count**2)


def test_the_running_median_of_each_point():
    series = rng(5).normal(size=40)
    found = running_median(series)
    for i in range(40):
        first = min(max(i - 4, 0), 31)
        assert found[i] == np.median(series[first : first + 9])


def test_p_values_fall_with_size_and_grow_with_places():
    assert p_value(critical(300), 300) == pytest.approx(LEVEL)
    assert p_value(critical(5000), 5000) == pytest.approx(LEVEL)
    assert p_value(TABLE[100][1], 100) == pytest.approx(0.001)
    sizes = [p_value(size, 300) for size in (0, 3, 5, 8, 30)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 1.0
    assert critical(5000) > critical(1024)
