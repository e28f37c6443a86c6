"""Where the seconds of a run went: all of them, in the order of a trial, as a sentence, a table and JSON."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from benchmarks.coordinator.session import ledger
from ci.report.run_summary import EXPLAINED, ORDER, minutes, seconds_of
from ci.trials import file as files
from ci.trials.trial import Trial
from tests.ci import made_trials


def trial(**more: object) -> Trial:
    return made_trials.parsed({**made_trials.trial(), **more}) if more else made_trials.parsed(made_trials.trial())


SPENT = {"rounds": 2.0, "checks": 1.0, "start": 0.5}


def test_the_seconds_of_all_trials_add_up_to_those_of_the_command() -> None:
    found = seconds_of([trial(spent_s=SPENT, ahead_s=4.0), trial(spent_s=SPENT, ahead_s=0.0)], whole_s=15.0)
    assert found
    assert list(found.phases) == ["start", "checks", "rounds", "before the trials", "outside of measuring"]
    assert (found.whole_s, found.measuring_s) == (15.0, 4.0)
    most = "before the trials 4.0 s, outside of measuring 4.0 s, checks 2.0 s"
    assert found.sentence() == f"measuring: 4.0 of 15.0 s (27 %); most of the rest: {most}"
    assert found.as_json()["measuring_s"] == 4.0
    out = io.StringIO()
    Console(file=out, width=100).print(found.table())
    assert "rounds" in out.getvalue()
    assert out.getvalue().splitlines()[-1].split() == ["all", "15.0", "100"]


def test_trials_that_do_not_say_it_have_no_table() -> None:
    assert seconds_of([]) is None
    assert seconds_of([trial(), trial(spent_s=SPENT)]) is None


def test_an_operator_that_this_machine_cannot_measure_takes_no_phase_from_the_others(tmp_path: Path) -> None:
    nothing = {"m16": {"head/triton": made_trials.failed("skipped"), "head/blas": made_trials.failed("unsupported")}}
    lines = (
        {**made_trials.trial(number=0), "spent_s": SPENT, "ahead_s": 1.0},
        {**made_trials.trial(nothing, number=1, kernel="reduce_scatter"), "spent_s": {}, "ahead_s": 2.0},
        {**made_trials.trial(nothing, number=2, kernel="all_to_all"), "spent_s": {}, "ahead_s": 0.0},
    )
    file = files.read(made_trials.write(tmp_path / "trials.jsonl", *lines))
    assert (len(file.trials), file.rejected) == (3, ())
    found = seconds_of(file.trials, whole_s=8.0)
    assert found
    assert found.phases == {**SPENT, "before the trials": 3.0, "outside of measuring": 1.5}
    assert found.whole_s == 8.0
    assert found.sentence().startswith("measuring: 2.0 of 8.0 s (25 %)")


def test_a_run_that_could_measure_nothing_says_where_its_seconds_went() -> None:
    found = seconds_of([trial(spent_s={}, ahead_s=1.0)], whole_s=3.0)
    assert found
    most = "outside of measuring 2.0 s, before the trials 1.0 s"
    assert found.sentence() == f"measuring: 0.0 of 3.0 s (0 %); most of the rest: {most}"


def test_a_phase_of_a_later_version_is_shown_last() -> None:
    found = seconds_of([trial(spent_s={"thinking": 1.0, "rounds": 1.0})])
    assert found
    assert list(found.phases)[-1] == "thinking"


def test_every_phase_that_is_written_is_explained() -> None:
    written = {*ledger.PHASES.values(), ledger.WARM_UP, ledger.COMPILING, ledger.BETWEEN}
    assert written <= EXPLAINED.keys()
    assert set(ORDER) == EXPLAINED.keys()


def test_minutes() -> None:
    assert [minutes(one) for one in (3.4, 99.0, 170.0)] == ["3 s", "99 s", "3 min"]


def test_the_table_says_how_many_trials_were_prepared_side_by_side() -> None:
    for count, wanted in ((None, False), (1, False), (3, True)):
        found = seconds_of([trial(spent_s=SPENT, side_by_side=count), trial(spent_s=SPENT)])
        assert found
        out = io.StringIO()
        Console(file=out, width=100).print(found.table())
        assert ("3 trials were prepared side by side, each was timed alone" in out.getvalue()) == wanted
