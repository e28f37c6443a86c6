import dataclasses

import pytest

from ci.judging.types import CaseVerdict, Verdict
from ci.stats.sequential import Progress, decide, share

LOOKS = (4, 6, 8, 12)


def case(name, verdict, trials, wants_more=True):
    return CaseVerdict(name, "k", "t", verdict, trials=trials, wants_more=wants_more)


def test_the_shares_of_all_looks_add_up_to_the_whole_rate():
    assert sum(share(n, LOOKS) for n in LOOKS) == pytest.approx(1)
    assert share(3, LOOKS) == 0


@pytest.mark.parametrize(("trials", "next_look"), [(4, 6), (5, 6), (6, 8), (8, 12)])
def test_an_open_case_is_measured_up_to_the_next_look(trials, next_look):
    decision = decide(Progress(LOOKS), [case("a", Verdict.CANNOT_TELL, trials)])
    assert (decision.action, decision.trials, decision.cases) == ("more", next_look, ("a",))


def test_the_budget_ends_it():
    assert decide(Progress(LOOKS), [case("a", Verdict.CANNOT_TELL, 12)]).action == "stop"


def test_settled_cases_are_left_alone():
    decision = decide(Progress(LOOKS), [case("a", Verdict.SAME, 4, False), case("b", Verdict.CANNOT_TELL, 4)])
    assert decision.cases == ("b",)


def test_slower_asks_for_fresh_trials_once_and_even_after_the_last_look():
    cases = [case("a", Verdict.SLOWER, 12)]
    progress = Progress(LOOKS, confirming=3).advanced(cases)
    assert progress.flagged == {"a": 12}
    assert decide(progress, cases).trials == 15 == progress.most
    confirmed = [case("a", Verdict.SLOWER, 15, False)]
    assert decide(progress.advanced(confirmed), confirmed).action == "stop"
    assert progress.advanced(confirmed).flagged == {"a": 12}


def test_all_cases_at_the_nearest_target_go_together():
    cases = [case("a", Verdict.SLOWER, 4), case("b", Verdict.CANNOT_TELL, 4)]
    progress = Progress(LOOKS, confirming=3).advanced(cases)
    assert decide(progress, cases).trials == 6
    assert decide(progress, cases).cases == ("a", "b")
    assert decide(dataclasses.replace(progress, confirming=2), cases).cases == ("a", "b")


def test_broken_needs_no_trials():
    assert decide(Progress(LOOKS), [case("a", Verdict.BROKEN, 4, False)]).action == "stop"
