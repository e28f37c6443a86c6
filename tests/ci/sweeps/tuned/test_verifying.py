"""Which entries need GPU time: those whose code is not what was confirmed, the oldest first."""

from __future__ import annotations

import dataclasses
import datetime

from ci.sweeps.rungs import Versus
from ci.sweeps.tuned.choose import RunnerUp
from ci.sweeps.tuned.tables import Confirmed, TableEntry
from ci.sweeps.tuned.tuning import code_of_rivals, due, rivals, within
from tests.ci.sweeps.tuned.made_tables import DEFAULTS, FAST, OTHER, RULE, SLOW, case


def entry(name: str, day: int | None, code: str = "") -> TableEntry:
    """An entry for two cases, confirmed on a day of November, or never."""
    cases = tuple(case(f"{name}_{dtype}", FAST) for dtype in ("fp16", "bf16"))
    runners = (RunnerUp({**DEFAULTS, **OTHER}, 1.02),)
    date = datetime.date(2026, 11, day or 1)
    confirmed = Confirmed(date, "H200", "h200", {}, (), 3, Versus(0.9, 0.89, 0.91), runners, code)
    return TableEntry(cases[0].place, cases, confirmed if day else None)


def code(*entries: TableEntry, of: str = "") -> dict[tuple[str, str, str], str]:
    """Code objects of all knobs; of: what all are marked with."""
    every = [one for each in entries for one in each.cases]
    return {(one.case, "triton", one.identity(knobs)): f"{one.case}{knobs}{of}" for one in every
            for knobs in (RULE, FAST, SLOW, OTHER)}  # fmt: skip


def confirmed(name: str, day: int) -> TableEntry:
    """An entry that was confirmed with the code of now."""
    made = entry(name, day)
    digest = code_of_rivals(rivals(made), code(made))
    return dataclasses.replace(made, confirmed=dataclasses.replace(made.confirmed, code=digest))


def test_an_entry_is_measured_with_its_rule_and_runners_up():
    one = rivals(entry("m16", 5))
    assert [{k: v for k, v in knobs.items() if k in RULE} for knobs in one.knobs] == [FAST, RULE, OTHER]


def test_candidates_stand_for_the_runners_up_of_an_entry_that_nobody_confirmed():
    one = rivals(entry("m16", None))
    assert [{k: v for k, v in knobs.items() if k in RULE} for knobs in one.knobs] == [FAST, RULE, SLOW, OTHER]


def test_unchanged_code_needs_no_gpu_time():
    same = confirmed("m16", 5)
    assert due([same], code(same)).stale == ()
    [unchanged] = due([same], code(same)).unchanged
    assert unchanged.entry is same


def test_code_that_changed_anywhere_is_measured_again():
    same = confirmed("m16", 5)
    known = code(same)
    for name, contender in [(one, knobs) for one in same.cases for knobs in (FAST, RULE, OTHER)]:
        changed = (name.case, "triton", name.identity(contender))
        assert len(due([same], {**known, changed: "new"}).stale) == 1, changed
    of_no_contender = (same.cases[0].case, "triton", same.cases[0].identity(SLOW))
    assert due([same], {**known, of_no_contender: "new"}).stale == ()
    assert len(due([same], {}).stale) == 1
    assert len(due([entry("m16", 5, code="")], code(same)).stale) == 1


def test_the_oldest_come_first_and_as_many_as_the_budget_allows():
    every = [entry("m16", 9), entry("m32", 3), entry("m64", None), entry("m128", 3)]
    stale = due(every, {}).stale
    assert [one.entry.place.key for one in stale] == ["m64", "m128", "m32", "m16"]

    def minutes(some):
        return 1.0 + 0.5 * len(some)

    keys = [[one.entry.place.key for one in part] for part in within(stale, minutes, 2.1)]
    assert keys == [["m64", "m128"], ["m32", "m16"]]
    assert [len(part) for part in within(stale, minutes, None)] == [4, 0]
    assert [len(part) for part in within(stale, minutes, 0.1)] == [1, 3]
    assert within((), minutes, 1.0) == ((), ())
