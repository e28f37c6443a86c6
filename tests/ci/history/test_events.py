"""A best configuration that moved is an event of its own: never a regression, never without an earlier best."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from pathlib import Path

import pandas as pd
import pytest

from ci.commands import events as listing
from ci.history.analysis import analyse
from ci.history.configurations import SweptCase, loss_of, loss_to, read, stretches, swept_cases
from ci.history.events import configuration_events
from ci.history.reading import of_frame, with_explanations
from ci.history.triage import Triage, TriageEntry
from ci.history.types import (
    Cause,
    CommitFacts,
    Direction,
    EventKind,
    EventPlace,
    EventState,
    HistoryEvent,
    Moved,
    SeriesKey,
    ids,
)
from ci.records.derived import derive
from ci.records.ledger import Explanation, RecordedCause
from ci.records.store import load
from ci.stats.types import Step
from ci.sweeps.rungs import LogTime
from tests.ci.history.made import Line, commit, facts, frame, noisy
from tests.ci.made_trials import ENVIRONMENT, MACHINE
from tests.ci.sweeps.made_sweeps import FAST, OTHER, RULE, sweep_file, trees

A, B, C, D = (f"{n:040x}" for n in range(1, 5))
COMMITS = {name: CommitFacts(name, 1000 * n, "Ada", f"commit {n}") for n, name in enumerate((A, B, C, D), 1)}
USED, BETTER, THIRD = (json.dumps(knobs) for knobs in ({"warps": 4}, {"warps": 8}, {"warps": 2}))
KEY = SeriesKey("h200", "gemm", "triton", "m16")


def swept(commit: str, chosen: str = USED, half: float = 0.004, trials: int = 3, **ratios: float) -> SweptCase:
    """A sweep at a commit.  ratios: of `better` and `third` to the knobs in use."""
    named = {"used": USED, "better": BETTER, "third": THIRD}
    times = {named[name]: LogTime(math.log(ratio), half, trials) for name, ratio in ratios.items()}
    times[chosen] = LogTime(0.0, 0.0, trials)
    versions = {"triton": "3.6.0" if commit < C else "3.8.0"}
    return SweptCase(KEY, commit, COMMITS[commit].date_ms, chosen, times, 0.003, versions)


def events(*sweeps: SweptCase, triage: Triage | None = None):
    return configuration_events(sweeps, COMMITS, triage or Triage())


def test_knobs_that_were_the_best_and_lose_now_are_an_event():
    [event] = events(swept(A, better=1.02, third=1.1), swept(B, better=1.03), swept(C, better=0.95, third=1.1))
    assert (event.kind, event.direction, event.state) == (
        EventKind.CONFIGURATION, Direction.SLOWER, EventState.OPEN
    )  # fmt: skip
    assert (event.last_good.hash, event.first_bad.hash) == (B, C)
    assert event.ratio == pytest.approx(1 / 0.95)
    assert event.ratio_low < event.ratio < event.ratio_high
    assert [cause.text for cause in event.causes] == ["triton 3.6.0 -> 3.8.0", "triton/m16: faster with warps 4 -> 8"]
    assert event.moved[0].key == KEY


@pytest.mark.parametrize(
    "sweeps",
    [
        (swept(A, better=0.95), swept(B, better=0.94)),
        (swept(A, better=1.02), swept(B, better=0.999)),
        (swept(A, better=1.02), swept(B, better=0.95, trials=1)),
        (swept(A, better=0.998, half=0.05), swept(B, better=0.95)),
        (swept(A, better=1.02), swept(B, chosen=THIRD, better=0.95)),
        (swept(A, better=0.95),),
        (),
    ],
    ids=["never best", "within doubt", "one trial", "within the earlier interval", "other knobs", "first", "none"],
)
def test_what_is_not_a_best_configuration_that_moved(sweeps):
    assert events(*sweeps) == []


def test_it_is_fixed_by_a_new_table_and_recovers_by_itself():
    before, moved = swept(A, better=1.02), swept(B, better=0.95)
    [fixed] = events(before, moved, swept(C, chosen=BETTER, used=1.05))
    assert (fixed.state, fixed.ended_at.hash) == (EventState.FIXED, C)
    [recovered] = events(before, moved, swept(C, better=1.02))
    assert recovered.state is EventState.RECOVERED
    [again, second] = events(before, moved, swept(C, better=1.02), swept(D, better=0.9))
    assert (again.state, second.state) == (EventState.RECOVERED, EventState.OPEN)
    assert again.id != second.id


def test_its_id_stays_and_people_may_decide_about_it():
    one = (swept(A, better=1.02), swept(B, better=0.95))
    [event] = events(*one)
    [later] = events(*one, swept(C, better=0.94))
    assert event.id == later.id
    entry = TriageEntry(event.id, EventState.ACCEPTED, pd.Timestamp("2026-11-22").date(), owner="Ada")
    [accepted] = events(*one, triage=Triage({event.id: entry}))
    assert (accepted.state, accepted.owner) == (EventState.ACCEPTED, "Ada")


def test_it_is_no_regression_and_is_called_by_its_name():
    [event] = events(swept(A, better=1.02), swept(B, better=0.95))
    assert not listing.is_regression(event)
    assert listing.is_moved_configuration(event)
    assert "best configuration moved: gemm" in listing.block(event).plain


def test_sweeps_of_one_commit_stand_in_the_order_of_their_dates():
    first, second = swept(A, better=1.02), swept(A, better=0.95)
    early = SweptCase(KEY, A, 5, first.chosen, first.times, 0.003)
    late = SweptCase(KEY, A, 9, second.chosen, second.times, 0.003)
    assert len(events(late, early)) == 1
    assert stretches([late, early]) == []


def test_a_loss_is_as_wide_as_both_intervals():
    case = swept(A, better=0.95)
    assert loss_of(case) == loss_to(case, BETTER)
    assert loss_to(case, BETTER).low == pytest.approx(math.exp(-math.log(0.95) - 0.004))


def sweep_line_files(results: Path, *moments: tuple[str, float]) -> None:
    """Recorded sweeps of gemm at some commits: FAST against the rule in use."""
    folder = results / "sweeps" / MACHINE["name"]
    folder.mkdir(parents=True)
    for sha, ratio in moments:
        file = sweep_file(results, {"m16_fp16": [(FAST, ratio), (OTHER, 1.2)]})
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for number, line in enumerate(lines):
            line["id"] = f"{sha[-2:]}{number:014d}"
            line["session"] = f"{sha[-2:]}{line['session']}"
            line["trees"] = trees("m16_fp16", commit=sha, date_ms=COMMITS[sha].date_ms, environment=ENVIRONMENT)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{sha[-8:]}-env-gemm.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        file.unlink()


def test_recorded_sweeps_are_events_of_the_history(tmp_path):
    sweep_line_files(tmp_path, (A, 1.05), (B, 0.93))
    found = read(tmp_path)
    assert {one.commit for one in found} == {A, B}
    assert {json.loads(one.chosen)["warps"] for one in found} == {RULE["warps"]}
    history = of_frame(derive(load(tmp_path)), tmp_path)
    [event] = [one for one in history.events if one.kind is EventKind.CONFIGURATION]
    assert (event.last_good.hash, event.first_bad.hash) == (A, B)
    assert event.machine == MACHINE["name"]


def test_a_folder_without_sweeps_has_none(tmp_path):
    assert read(tmp_path) == []


def test_a_backend_that_was_not_measured_as_it_is_says_nothing():
    place = {"operator": "gemm", "case": "m16", "backend": "triton", "regime": "spaced", "status": "ok"}
    time = {"is_anchor": False, "ratio": 0.9, "low": 0.89, "high": 0.91, "trials": 3}
    points = ({"point": "ab", "config": {"warps": 8}}, {"point": "cd", "config": {"warps": 2}})
    frame = pd.DataFrame([{**place, **time, **point} for point in points])
    assert list(swept_cases(frame, "h200", A, 0, {"gemm": 0.003}, {})) == []


# Events of the history with what experiments have shown about them.


ROW = [f"{number:040x}" for number in range(6)]
KNOWN = {commit: CommitFacts(commit, number) for number, commit in enumerate(ROW)}
CASE = "gemm/triton/m64"
SHOWN = Explanation((CASE,), CASE, "proven", "knob a 1 → 2: proven")
MOVED = Moved(
    SeriesKey("m", "gemm", "triton", "m64"), Step(3, 1.0, 1.1, 1.1, 1.09, 1.11, 0.0), Direction.SLOWER, "ratio",
    ROW[4], ROW[1],
)  # fmt: skip
EVENT = HistoryEvent(
    "e", EventKind.KERNEL, Direction.SLOWER, "m", (MOVED,), KNOWN[ROW[4]], KNOWN[ROW[1]], 2, 1.1, 1.09, 1.11,
    0.0, (Cause("code", "vgpr 1 → 2"),),
)  # fmt: skip


def recorded(base: int, head: int, machine: str = "m", **changes: object) -> RecordedCause:
    return RecordedCause(machine, ROW[base], ROW[head], dataclasses.replace(SHOWN, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("ends", [(1, 4), (2, 3), (1, 2), (3, 4)])
def test_what_was_shown_within_the_range_is_the_first_cause(ends: tuple[int, int]) -> None:
    (found,) = with_explanations([EVENT], [recorded(*ends)], KNOWN)
    assert found.causes == (Cause("proven", SHOWN.sentence), *EVENT.causes)
    assert found.explanations == (SHOWN,)
    assert json.loads(json.dumps(found.as_json()))["explanations"][0]["state"] == "proven"


@pytest.mark.parametrize(
    "one",
    [
        recorded(0, 4),
        recorded(1, 5),
        recorded(3, 2),
        recorded(1, 4, machine="other"),
        recorded(1, 4, cases=("gemm/triton/m16",)),
    ],
    ids=["begins earlier", "ends later", "backwards", "another machine", "another case"],
)
def test_what_was_shown_elsewhere_says_nothing(one: RecordedCause) -> None:
    assert with_explanations([EVENT], [one], KNOWN) == (EVENT,)


def test_the_same_two_commits_need_no_history() -> None:
    (found,) = with_explanations([EVENT], [recorded(1, 4)], {})
    assert found.explanations == (SHOWN,)
    assert with_explanations([EVENT], [recorded(2, 3)], {}) == (EVENT,)


def test_what_was_not_found_is_no_cause_and_an_improvement_has_none() -> None:
    (found,) = with_explanations([EVENT], [recorded(1, 4, state="not found")], KNOWN)
    assert found.causes == EVENT.causes
    assert found.explanations
    faster = dataclasses.replace(EVENT, direction=Direction.FASTER)
    assert with_explanations([faster], [recorded(1, 4)], KNOWN) == (faster,)


# Ids: one per event, found again near the place of a decision, the same however much history follows.


ORDER = {"m": {commit(number): number for number in range(20)}}


def place(number: int, direction: Direction = Direction.SLOWER, machine: str = "m") -> EventPlace:
    return EventPlace(machine, EventKind.KERNEL, direction, commit(number))


def test_the_nearest_known_id_is_taken_once() -> None:
    known = {"a" * 10: place(5), "b" * 10: place(7), "c" * 10: place(5, Direction.FASTER)}
    found = ids([place(6), place(7), place(10)], known, ORDER)
    assert found == ["a" * 10, "b" * 10, place(10).id]
    assert ids([place(8), place(6)], {"a" * 10: place(7)}, ORDER) == ["a" * 10, place(6).id]
    assert ids([place(8)], {"a" * 10: place(11)}, ORDER) == [place(8).id]


def test_a_decision_on_a_commit_that_is_gone_is_no_hindrance() -> None:
    known = {"a" * 10: place(99), "b" * 10: place(5, machine="other")}
    assert ids([place(5)], known, ORDER) == [place(5).id]


def test_no_two_events_share_an_id() -> None:
    found = ids([place(5), place(5), place(5)], {}, ORDER)
    assert len(set(found)) == 3
    assert found[0] == place(5).id


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_the_id_of_a_noisy_step_stays_when_history_grows(seed: int) -> None:
    line = Line("gemm", "c", noisy(seed, 120, {50: 1.05}, sigma=0.02))
    found = set()
    for count in range(60, 121, 5):
        grown = Line(line.kernel, line.case, line.seconds[:count])
        found |= {event.id for event in analyse(frame([grown]), commits=facts(120)).events}
    assert len(found) == 1
