"""A whole search over made-up trials: right, resumable, round what cannot be measured, within its trials."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from ci.bisect import search as searching
from ci.bisect.search import BisectError, RowPlace, SearchRules, TrialOutcome
from ci.commands import bisect as show

RULES = SearchRules(smallest=0.003, noise=0.003, most=60)
ROW = [RowPlace(f"{n:040x}", f"c{n}", f"change {n}") for n in range(41)]
UNKNOWN = [None] * len(ROW)


@dataclasses.dataclass
class MadeTrials:
    """Trials with noise; `broken` positions fail.  asked: the pairs, in order."""

    steps: dict[int, float]
    sd: float = 0.002
    broken: frozenset[int] = frozenset()
    labels: list[str] | None = None
    seed: int = 0

    def __post_init__(self):
        self.rng, self.asked = np.random.default_rng(self.seed), list[tuple[int, int]]()

    def __call__(self, low, high):
        self.asked.append((low, high))
        if failed := {place: "it does not build" for place in (low, high) if place in self.broken}:
            return TrialOutcome(low, high, failed=failed, seconds=3.0)
        shift = sum(size for place, size in self.steps.items() if low < place <= high) + self.sd * self.rng.normal()
        told = {place: self.labels[place] for place in (low, high)} if self.labels else {}
        return TrialOutcome(low, high, shift, labels=told, seconds=10.0)


def search(*asked, **more):
    """The last state of a search."""
    return searching.search(*asked, **more)


def found(state):
    assert state.answer
    return state.answer.low, state.answer.high


def test_it_finds_the_change_and_ends_with_a_fresh_trial_of_its_neighbours():
    trials = MadeTrials({23: 0.01})
    ended = search(ROW, UNKNOWN, RULES, trials)
    assert found(ended) == (22, 23)
    assert trials.asked[0] == (0, 40)
    assert trials.asked[-1] == (22, 23)
    assert ended.trials == len(trials.asked) <= 30


def test_an_interrupted_search_goes_on_as_if_nothing_had_happened():
    whole = search(ROW, UNKNOWN, RULES, MadeTrials({23: 0.01}))
    again = MadeTrials({23: 0.01})
    for _ in range(5):
        again.rng.normal()
    resumed = search(ROW, UNKNOWN, RULES, again, before=whole.outcomes[:5])
    assert resumed.outcomes == whole.outcomes
    assert len(again.asked) == whole.trials - 5


def test_what_cannot_be_measured_makes_the_answer_a_range():
    ended = search(ROW, UNKNOWN, RULES, MadeTrials({23: 0.02}, broken=frozenset({21, 22, 23, 30})))
    assert found(ended) == (20, 24)
    assert set(ended.skipped) <= {21, 22, 23, 30}
    assert {21, 22, 23} <= set(ended.skipped)


@pytest.mark.parametrize(("end", "said"), [(0, "the good end, c0"), (40, "the bad end, c40")])
def test_an_end_that_cannot_be_measured_ends_the_search(end, said):
    with pytest.raises(BisectError, match=f"{said}, cannot be measured: it does not build; name another"):
        search(ROW, UNKNOWN, RULES, MadeTrials({}, broken=frozenset({end})))


def test_spent_trials_leave_it_undecided_and_more_go_on():
    few = search(ROW, UNKNOWN, dataclasses.replace(RULES, most=4), MadeTrials({23: 0.01}))
    assert few.answer is None
    assert few.trials == 4
    more = search(ROW, UNKNOWN, RULES, MadeTrials({23: 0.01}, seed=1), before=few.outcomes)
    assert found(more) == (22, 23)


def test_equal_code_is_not_measured():
    runs = [str(n // 10) for n in range(len(ROW))]
    trials = MadeTrials({20: 0.01}, labels=runs)
    ended = search(ROW, runs, RULES, trials)
    assert found(ended) == (19, 20)
    assert len(set(trials.asked)) <= 7


@pytest.mark.slow
def test_what_is_suspected_adds_up_to_certainty():
    for steps in ({12: 0.012, 30: 0.009}, {23: 0.01}, {}):
        trials = MadeTrials(steps)
        states = []
        search(ROW, UNKNOWN, RULES, trials, report=states.append)
        for state in states[1:]:
            assert state.belief.none + state.belief.changes.sum() == pytest.approx(1.0)
            shares = re.findall(r"(?:over )?([\d.e-]+) %", show.suspects_text(state, "commit").partition(";")[0])
            shown = [float(share) for share in shares]
            assert sum(shown) == pytest.approx(100, abs=0.5)
