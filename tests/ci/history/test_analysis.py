"""From made histories to events: kinds, groups, states, ids, and all that a history can have been through."""

from __future__ import annotations

import dataclasses
import datetime

import numpy as np
import pytest

from ci.history import exact
from ci.history.analysis import PairedStep, analyse
from ci.history.reading import under_current_names
from ci.history.triage import Triage, TriageEntry
from ci.history.types import EventState
from tests.ci.history.made import ENV, Line, commit, facts, frame, noisy, pair

COUNT = 60


def events(*lines, count=COUNT, **given):
    return list(analyse(frame(lines), commits=facts(count), **given).events)


def one(*lines, **given):
    (event,) = events(*lines, **given)
    return event


def brief(event):
    """Such as "kernel slower open 30", or "... back 30-45" of one that ended."""
    places = [event.first_bad, *([event.ended_at] if event.ended_at else [])]
    numbers = "-".join(str(int(place.hash[:8], 16)) for place in places)
    return f"{event.kind} {event.direction} {event.state} {numbers}"


def briefs(*lines, **given):
    return [brief(event) for event in events(*lines, **given)]


def step(at, ratio=1.08, **more):
    """A series that steps beside a quiet baseline."""
    return pair(1, COUNT, ours={at: ratio}, **more)


def decision(event, state, **texts):
    place = {"kind": event.kind, "direction": event.direction, "machine": event.machine}
    place["kernel"] = event.moved[0].key.kernel
    entry = TriageEntry(event.id, state, datetime.date(2026, 11, 22), **place, first_bad=event.first_bad.hash, **texts)
    return Triage({event.id: entry})


# ---- whose step it is ----------------------------------------------------------------------------------------------

NEWER_TORCH = [ENV] * 30 + [ENV.replace("torch2.11.0", "torch2.12.0")] * 30


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (step(30, 1.04), ["kernel slower open 30"]),
        (pair(1, COUNT, theirs={30: 0.9}), ["library faster open 30"]),
        (pair(1, COUNT, theirs={30: 1.1}), ["library slower open 30"]),
        (pair(1, COUNT, ours={30: 1.06}, theirs={30: 1.06}), []),
        ([Line("gemm", "small", noisy(1, COUNT, {30: 1.3}))], []),
        (pair(1, COUNT, theirs={30: 0.97}, env=NEWER_TORCH), ["library faster open 30"]),
        (step(30) + step(30, machine="h200x1-00000002"), ["kernel slower open 30"] * 2),
        (step(30) + step(30, kernel="norm"), ["kernel slower open 30"] * 2),
        (step(30) + pair(9, COUNT, ours={30: 0.95}, case="b"), ["kernel faster open 30", "kernel slower open 30"]),
        (step(30) + pair(9, COUNT, ours={32: 1.05}, case="b"), ["kernel slower open 30"]),
        (step(30) + pair(9, COUNT, ours={33: 1.05}, case="b"), ["kernel slower open 30", "kernel slower open 33"]),
        (pair(1, COUNT, ours={30: 1.08, 34: 1 / 1.08}), ["kernel slower back 30-34"]),
        (pair(1, COUNT, ours={30: 1.08, 45: 1 / 1.08}), ["kernel slower back 30-45"]),
        (pair(1, COUNT, ours={30: 1.08, 45: 1 / 1.03}), ["kernel slower open 30", "kernel faster open 45"]),
        (pair(1, COUNT, ours={20: 1 / 1.08, 45: 1.08}), ["kernel faster back 20-45", "kernel slower open 45"]),
    ],
    ids=[
        *("ours", "the library's, faster", "the library's", "both: the machine", "no library", "a library's version"),
        *("machines", "kernels", "directions", "within two commits", "places", "back soon", "back later", "half a fix"),
        "what was fast for long is lost",
    ],
)
def test_what_a_history_tells(lines, wanted):
    assert sorted(briefs(*lines)) == sorted(wanted)


def test_every_slow_down_of_forty_planted_ones_is_an_event_at_its_commit_and_nothing_else_is():
    """Of 4 and 8 %, in a noise of 1 % of a ratio, each of an operator of its own; as many operators have none."""
    rng = np.random.default_rng(1)
    places = rng.integers(8, COUNT - 8, 40)
    slow = [pair(n, COUNT, ours={at: 1.04 + 0.04 * (n % 2)}, kernel=f"slow{n}") for n, at in enumerate(places)]
    quiet = [pair(100 + n, COUNT, kernel=f"quiet{n}") for n in range(40)]
    for line in (lines := [line for own in slow + quiet for line in own]):
        line.seconds = line.seconds * np.exp(0.007 * rng.standard_t(5, COUNT) / np.sqrt(5 / 3))
    of_kernel = {event.moved[0].key.kernel: event for event in events(*lines)}
    assert of_kernel.keys() == {f"slow{n}" for n in range(40)}
    off = [int(of_kernel[f"slow{n}"].first_bad.hash[:8], 16) - at for n, at in enumerate(places)]
    assert max(map(abs, off)) <= 2


def test_an_event_says_how_much_where_and_of_what():
    event = one(*step(30, 1.04))
    assert (event.first_bad, event.last_good.hash, event.between) == (facts(COUNT)[commit(30)], commit(29), 0)
    assert event.ratio_low < 1.04 < event.ratio_high
    assert event.ratio == pytest.approx(1.04, abs=0.002)
    assert [(m.key.backend, m.judged_by, m.first_bad) for m in event.moved] == [("triton", "ratio", commit(30))]
    library = one(*pair(1, COUNT, theirs={30: 0.9}))
    assert library.ratio == pytest.approx(0.9, rel=0.01), "the library's time: it is charged, not ours"
    assert [m.key.backend for m in library.moved] == ["blas"]
    event = one(*pair(1, 20, ours={10: 1.05}, at=range(0, 100, 5)), count=100)
    assert (event.last_good.hash, event.first_bad.hash, event.between) == (commit(45), commit(50), 4)


def test_versions_that_changed_are_causes():
    event = one(*pair(1, COUNT, theirs={30: 0.97}, env=NEWER_TORCH))
    assert [(cause.kind, cause.text) for cause in event.causes] == [("torch", "torch 2.11.0 → 2.12.0")]


def test_cases_of_a_kernel_that_step_together_are_one_event():
    lines = [line for n, case in enumerate("abc") for line in pair(10 * n, COUNT, ours={30: 1.05}, case=case)]
    event = one(*lines)
    assert {m.key.case for m in event.moved} == {"a", "b", "c"}
    assert event.ratio == pytest.approx(1.05, abs=0.005)


def test_the_same_code_on_both_sides_is_no_event_of_ours():
    code = {"more": {"code": "c0ffee"}}
    assert events(*step(30, **code)) == []
    assert briefs(*pair(1, COUNT, theirs={30: 0.9}, **code)) == ["library faster open 30"]


def verdicts(**by_case):
    """Of the two commits around place 30, and none else."""
    said = {f"gemm/triton/{case}": verdict for case, verdict in by_case.items()}
    return lambda machine, base, head: said if (base, head) == (commit(29), commit(30)) else {}


SLOWER = PairedStep("slower", 1.01, 1.008, 1.012, 1e-6)
NOTHING = PairedStep("", 1.0, 0.999, 1.001, 0.5)


@pytest.mark.parametrize(
    ("ours", "verdict", "wanted"),
    [
        ({}, SLOWER, ["kernel slower open 30"]),
        ({31: 1.05}, SLOWER, ["kernel slower open 30"]),
        ({30: 1.05}, NOTHING, []),
        ({40: 1.05}, NOTHING, ["kernel slower open 40"]),
    ],
)
def test_what_is_said_of_neighbours_in_the_same_trials_overrides(ours, verdict, wanted):
    whole = frame(pair(1, COUNT, ours=ours))
    here = (whole["commit"] == commit(30)) & (whole["backend"] == "triton")
    whole["compared_with"] = np.where(here, commit(29), "")
    found = analyse(whole, commits=facts(COUNT), paired=verdicts(small=verdict)).events
    assert [brief(event) for event in found] == wanted
    if verdict is SLOWER:
        assert (found[0].ratio, found[0].ratio_low, found[0].moved[0].judged_by) == (1.01, 1.008, "pairs")


# ---- states --------------------------------------------------------------------------------------------------------


def test_an_accepted_level_is_the_one_to_hold():
    lines = pair(1, COUNT, ours={20: 1.08, 40: 1.05})
    first, second = events(*lines)
    held = events(*lines, triage=decision(first, "accepted", owner="A. Author", reason="worth it"))
    assert [(e.id, e.state, e.owner, e.reason) for e in held] == [
        (first.id, EventState.ACCEPTED, "A. Author", "worth it"),
        (second.id, EventState.OPEN, "", ""),
    ]
    back = pair(1, COUNT, ours={20: 1.08, 40: 1 / 1.08})
    accepted = decision(one(*back), "accepted")
    assert briefs(*back, triage=accepted) == ["kernel slower accepted 20", "kernel faster open 40"]


def test_an_acknowledged_event_is_open_and_still_ends():
    stands, ends = step(30), pair(1, COUNT, ours={30: 1.08, 45: 1 / 1.08})
    acked = decision(one(*stands), "acknowledged", owner="A. Author", link="https://example.org/1")
    assert briefs(*stands, triage=acked) == ["kernel slower open 30"]
    assert one(*stands, triage=acked).owner == "A. Author"
    ended = one(*ends, triage=acked)
    assert (ended.state, ended.owner, ended.link) == (EventState.BACK, "A. Author", "https://example.org/1")
    assert one(*ends, triage=decision(one(*stands), "open")).state is EventState.OPEN


def test_what_cannot_be_compared_any_more_is_not_waited_for():
    event = one(*pair(1, COUNT, ours={30: 1.08, 45: 1.5}, yardstick=["1"] * 45 + ["2"] * 15))
    assert (brief(event), event.reason) == ("kernel slower accepted 30", "its benchmark definition changed")
    ended = [dataclasses.replace(line, seconds=line.seconds[:50]) for line in step(30)]
    event = one(*ended, *pair(40, COUNT, case="stays"))
    assert (brief(event), event.reason) == ("kernel slower accepted 30", "its cases are no longer measured")
    assert briefs(*ended, *pair(40, COUNT, kernel="other")) == ["kernel slower open 30"]


def test_a_case_that_comes_seldom_is_waited_for():
    for last, state in ((56, EventState.OPEN), (52, EventState.ACCEPTED)):
        at = range(0, last + 1, 4)
        seldom = pair(1, len(at), ours={8: 1.08}, at=at)
        assert one(*seldom, *pair(40, COUNT, case="stays")).state is state


# ---- ids -----------------------------------------------------------------------------------------------------------


def test_an_id_stays_when_history_grows():
    grown = (events(*pair(1, count, ours={30: 1.05}), count=count) for count in range(36, COUNT, 4))
    assert len({event.id for found in grown for event in found}) == 1


def test_a_decision_is_found_where_the_place_moved():
    event = one(*pair(1, COUNT, ours={30: 1.05}))
    moved = decision(event, "acknowledged", owner="A. Author")
    for place, known in ((31, True), (28, True), (33, False)):
        shifted = one(*pair(1, COUNT, ours={place: 1.05}), triage=moved)
        assert (shifted.id == event.id, shifted.owner == "A. Author") == (known, known), place
    other = one(*pair(1, COUNT, ours={30: 1.05}, kernel="norm"), triage=moved)
    assert other.owner == "", "a decision is of one kernel"
    names = under_current_names(moved, {"gemm": "norm"})
    renamed = one(*pair(1, COUNT, ours={30: 1.05}, kernel="norm"), triage=names)
    assert (renamed.id, renamed.owner) == (event.id, "A. Author"), "it goes on under the kernel's new name"


# ---- what a history can have been through --------------------------------------------------------------------------


def test_a_clock_that_was_set_back_moves_nothing_that_git_knows():
    lines = pair(1, COUNT, ours={30: 1.05})
    wrong = {number: 1_000_000_000_000 + number for number in range(30, 40)}
    history = analyse(frame(lines, dates=wrong), commits=facts(COUNT))
    assert [event.first_bad.hash for event in history.events] == [commit(30)]
    assert history.commits == tuple(map(commit, range(COUNT)))


def test_a_rewritten_history_stands_by_its_dates_and_is_said():
    known = {name: one for name, one in facts(COUNT).items() if int(name[:8], 16) >= 20}
    history = analyse(frame(pair(1, COUNT, ours={30: 1.05})), commits=known)
    assert [event.first_bad.hash for event in history.events] == [commit(30)]
    assert history.commits == tuple(map(commit, range(COUNT)))
    assert "20 of 60 recorded commits are not in the history that git knows here" in history.notes[0]


def test_a_commit_in_two_environments_counts_once():
    other = ENV.replace("3.6.0", "3.7.0")
    lines = [*pair(1, COUNT), *pair(2, 40, ours={0: 1.5}, at=range(20, 60), env=other)]
    history = analyse(frame(lines), commits=facts(COUNT))
    assert history.events == ()
    assert history.points == 2 * COUNT
    assert any("40 commits are recorded in several environments" in note for note in history.notes)


# ---- machine code --------------------------------------------------------------------------------------------------


def code(step_at, kernel="gemm"):
    points = [exact.CodePoint(kernel, "vgpr", "triton", case, "gfx942") for case in ("small", "large")]
    return [
        exact.CodeRecord(commit(n), 0, "triton3.8.0", dict.fromkeys(points, 128 if n >= step_at else 86))
        for n in range(COUNT)
    ]


def test_a_change_of_code_is_a_cause_of_a_step_at_its_commit():
    (found,) = events(*pair(1, COUNT, ours={30: 1.05}), code=code(30))
    (cause,) = found.causes
    assert cause.text == f"{commit(30)[:8]}: gemm/triton on gfx942, 2 configurations: vgpr 86 → 128"
    for other in (code(31), code(30, kernel="other")):
        (kernel,) = events(*pair(1, COUNT, ours={30: 1.05}), code=other)
        assert kernel.causes == ()
