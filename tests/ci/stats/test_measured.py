import numpy as np
import pytest

from ci.stats.interval import Scale, adjusted, effects, samples, shifts
from ci.stats.types import PairedRounds

RNG = np.random.default_rng(4)


def trial(number, rounds=40, effect=0.0, baseline=None):
    base, head = (np.exp(0.01 * RNG.standard_normal(rounds) + e) for e in (0, effect))
    if baseline is None:
        return PairedRounds(number, base, head)
    return PairedRounds(number, base, head, *(np.exp(0.01 * RNG.standard_normal(rounds) + e) for e in (0, baseline)))


def test_each_case_gets_its_own_trials_in_order_whatever_the_rounds():
    cases = [[trial(0), trial(3, 20), trial(5)], [], [trial(1, 20)]]
    found = samples(cases)
    assert found[1] is None
    assert found[0].numbers == (0, 3, 5)
    for case, sample in ((cases[0], found[0]), (cases[2], found[2])):
        for i, t in enumerate(case):
            assert sample.shifts.shift[i] == shifts(t.base[None], t.head[None]).shift[0]
            assert len(sample.base_relative[i]) == len(t.base) - 1
    assert found[0].rounds == 40
    assert found[2].base_seconds == pytest.approx(np.median(cases[2][0].base))


def test_a_shared_movement_of_baseline_and_case_cancels():
    trials = [trial(n, effect=0.03, baseline=0.03) for n in range(6)]
    case, baseline = samples([trials])[0], samples([trials], baseline=True)[0]
    relative = adjusted(case, baseline)
    assert abs(effects([relative], [Scale(1e-3, 0, 0.99)])[0].log_ratio) < 0.01
    assert effects([case], [Scale(1e-3, 0, 0.99)])[0].log_ratio == pytest.approx(0.03, abs=0.005)


def test_a_baseline_of_too_few_common_trials_is_none():
    trials = [trial(0, baseline=0.0), trial(1)]
    assert adjusted(samples([trials])[0], samples([trials], baseline=True)[0]) is None


def test_order_is_kept_over_different_numbers_of_trials():
    cases = [[trial(n, effect=e) for n in range(count)] for count, e in ((5, 0.05), (3, -0.05), (5, 0.0))]
    found = effects([s for s in samples(cases) if s], [Scale(1e-3, 5e-4, 0.99)] * 3)
    assert [e.log_ratio for e in found] == pytest.approx([0.05, -0.05, 0.0], abs=0.01)
    assert found[0].low < 0.05 < found[0].high
    assert found[1].not_faster < 1e-3 < found[1].not_slower
