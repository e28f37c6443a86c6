"""Where the seconds of a run went."""

from __future__ import annotations

from pathlib import Path

from ci.report.run_summary import minutes, seconds_of
from ci.trials.trial import Trial
from tests.ci.made_trials import failed, parsed, trial

ROOT = Path(__file__).resolve().parents[3]


# Where the seconds of a run went: all of them, in the order of a trial, as a sentence, a table and JSON.


def lasting(**more: object) -> Trial:
    return parsed({**trial(), **more})


SPENT = {"rounds": 2.0, "checks": 1.0, "start": 0.5}


def test_the_seconds_of_all_trials_add_up_to_those_of_the_command() -> None:
    found = seconds_of([lasting(spent_s=SPENT, ahead_s=4.0), lasting(spent_s=SPENT, ahead_s=0.0)], whole_s=15.0)
    assert found
    assert list(found.phases) == ["rounds", "checks", "start", "before the trials", "outside of measuring"]
    assert (found.whole_s, found.measuring_s) == (15.0, 4.0)
    most = "before the trials 4.0 s, outside of measuring 4.0 s, checks 2.0 s"
    assert found.sentence() == f"measuring: 4.0 of 15.0 s (27 %); most of the rest: {most}"
    assert found.as_json()["measuring_s"] == 4.0


def test_trials_that_do_not_say_it_have_no_table() -> None:
    assert seconds_of([]) is None
    assert seconds_of([lasting(), lasting(spent_s=SPENT)]) is None


def test_an_operator_that_this_machine_cannot_measure_takes_no_phase_from_the_others() -> None:
    nothing = {"m16": {"head/triton": failed("skipped"), "head/blas": failed("unsupported")}}
    found = seconds_of(
        [
            lasting(spent_s=SPENT, ahead_s=1.0),
            parsed({**trial(nothing, 1, kernel="reduce_scatter"), "spent_s": {}, "ahead_s": 2.0}),
            parsed({**trial(nothing, 2, kernel="all_to_all"), "spent_s": {}, "ahead_s": 0.0}),
        ],
        whole_s=8.0,
    )
    assert found
    assert found.phases == {**SPENT, "before the trials": 3.0, "outside of measuring": 1.5}
    assert found.whole_s == 8.0
    assert found.sentence().startswith("measuring: 2.0 of 8.0 s (25 %)")


def test_minutes() -> None:
    assert [minutes(one) for one in (3.4, 99.0, 170.0)] == ["3 s", "99 s", "3 min"]
