import numpy as np
import pytest
from scipy.stats import poisson

from ci.stats import PairedRounds, anomalies

RNG = np.random.default_rng(5)


def relative(trials=4, rounds=39, spikes=()):
    rows = [np.exp(0.01 * RNG.standard_normal(rounds)) for _ in range(trials)]
    for trial, place, factor in spikes:
        rows[trial][place] = factor
    return rows


def test_one_call_in_twenty_ten_times_slower_is_named():
    spikes = [(t, p, 10.0) for t in range(4) for p in (5, 25)]
    found = anomalies.collapse(relative(spikes=spikes), relative())
    assert found.certain
    assert (found.calls, found.trials) == (8, 4)
    assert found.factor == pytest.approx(10)
    assert found.cost == pytest.approx(8 * 9 / 156, rel=0.01)
    assert "8 of 156 calls (in 4 trials) took 10 times the median; they add 46.2%" in found.anomaly("head").sentence


def test_calls_that_collapse_more_often_in_base_are_not_heads():
    """Found by the canary, A/A on a CPU with other work: most of base's calls took 10 times as long, 6 of 39 of head's.

    Base's median is the collapsed time, so none of its calls stands out beside it.
    """
    slow_base = [np.where(RNG.random(39) < 0.8, 1.0, 0.1) for _ in range(4)]
    slow_head = relative(spikes=[(t, p, 10.0) for t in range(4) for p in range(0, 36, 6)])
    found = anomalies.of_pair(slow_base, slow_head, np.full(4, np.log(0.1)))
    assert [one for one in found if one.collapse] == []
    assert anomalies.of_pair(relative(), slow_head, np.zeros(4))[-1].collapse


def test_a_burst_in_one_trial_only_is_not_the_code():
    assert not anomalies.collapse(relative(spikes=[(1, p, 8.0) for p in range(10)]), relative()).certain


def test_two_spikes_are_not_reported():
    assert anomalies.collapse(relative(spikes=[(0, 1, 9.0), (1, 1, 9.0)]), relative()) is None
    assert anomalies.collapse([], []) is None


def slow_two_modes(values):
    """Otsu's split by trying every cut with the definition."""
    values = sorted(values)
    least = max(2, int(np.ceil(anomalies.MODES_SMALLEST * len(values))))
    cuts = range(least, len(values) - least + 1)
    best = min(cuts, key=lambda c: np.var(values[:c]) * c + np.var(values[c:]) * (len(values) - c))
    low, high = values[:best], values[best:]
    return np.mean(high) - np.mean(low), len(high) / len(values)


@pytest.mark.parametrize("share", [0.15, 0.5, 0.8])
def test_two_speeds_agree_with_the_oracle(share):
    slow = RNG.random(300) < share
    logs = 0.004 * RNG.standard_normal(300) + 0.12 * slow
    found = anomalies.two_modes(logs)
    assert (found.apart, found.slow_share) == pytest.approx(slow_two_modes(logs), rel=1e-6)
    assert found.slow_share == pytest.approx(share, abs=0.08)


@pytest.mark.parametrize(
    "logs",
    [
        RNG.standard_normal(400) * 0.05,
        RNG.random(400) * 0.2,
        RNG.exponential(0.05, 400),
        np.zeros(50),
        np.array([0.0, 1.0]),
        np.repeat([0.0, 0.01], 50) + 1e-5 * RNG.standard_normal(100),
    ],
)
def test_one_speed_is_not_two(logs):
    assert anomalies.two_modes(logs) is None


def test_two_speeds_name_the_arm_and_the_trials():
    head = [
        np.where(np.arange(39) % each, 1.12, 1.0) * r for each, r in zip([2, 13] * 3, relative(trials=6), strict=True)
    ]
    shifts = np.array([0.0, 0.0, 0.0, 0.05, 0.05, 0.05]) + 1e-4 * RNG.standard_normal(6)
    found = anomalies.of_pair(relative(trials=6), head, shifts)
    assert [(a.collapse, a.arm) for a in found] == [(False, "head"), (False, None)]
    assert [a.sentence.split(" has ")[0] for a in found] == ["head", "the ratio itself"]
    # a thirteenth of a trial's are fast ones too
    assert "; 71% of its calls run at the slower one" in found[0].sentence


def test_a_pair_with_a_collapsing_head_is_certain_only_where_base_is_quiet():
    spikes = [(t, p, 10.0) for t in range(4) for p in (5, 25)]
    [found] = anomalies.of_pair(relative(), relative(spikes=spikes), np.zeros(4))
    assert (found.collapse, found.arm) == (True, "head")
    [found] = anomalies.of_pair(relative(spikes=spikes), relative(), np.zeros(4))
    assert (found.collapse, found.arm) == (True, "base")
    assert anomalies.of_pair(relative(spikes=spikes), relative(spikes=spikes), np.zeros(4)) == []


# ---- one arm without a partner ----


def microseconds(*values):
    return np.array(values) * 1e-6


def test_four_calls_of_forty_four_times_slower_are_a_collapse_and_no_second_speed():
    samples = microseconds(
        *[100.0] * 9 + [400.0], *[100.0] * 9 + [400.0], *[100.0] * 9 + [400.0], *[100.0] * 9 + [400.0]
    )
    [found] = anomalies.of_arm([samples])
    assert found.arm is None
    assert found.sentence.startswith("intermittent collapse: 4 of 39 calls (in 1 trial) took 4 times the median; ")
    assert not found.collapse, "one trial alone cannot show that it comes back"
    [found] = anomalies.of_arm([samples, samples])
    assert found.collapse
    shaken = samples * np.exp(0.01 * np.random.default_rng(1).standard_normal(40))
    assert [a.sentence[:21] for a in anomalies.of_arm([shaken])] == ["intermittent collapse"]


@pytest.mark.parametrize(
    "trials", [[], [microseconds(100.0)], [microseconds(*[100.0] * 20, 900.0, *[100.0] * 19)], [np.zeros(40)]]
)
def test_an_arm_without_a_finding(trials):
    assert anomalies.of_arm(trials) == []


def test_sm_clocks_that_differ_are_named():
    def warned(*clocks):
        return anomalies.clock_warnings([PairedRounds(0, np.ones(1), np.ones(1), clocks_mhz=mhz) for mhz in clocks])

    (sentence,) = warned((1900.0, 1800.0), None, (1900.0, 1800.0))
    assert "base 1900 MHz, head 1800 MHz (-5.3%)" in sentence
    assert warned((1900.0, 1900.0)) == warned(None) == []


@pytest.mark.parametrize(("count", "expected"), [(3, 0.08), (40, 12.5), (3, 3.5), (0, 2.0), (200, 1.0)])
def test_the_poisson_tail_is_that_of_scipy(count, expected):
    assert anomalies.poisson_tail(count, expected) == pytest.approx(poisson.sf(count - 1, expected), rel=1e-9)
