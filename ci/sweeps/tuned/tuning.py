"""From a measured sweep to tables: what it decides about every entry, and what the files become."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ci.judging import policy
from ci.sweeps.catalogue import TablePlace, TunedCase, by_place
from ci.sweeps.measured import Measured
from ci.sweeps.pruning import Pruned
from ci.sweeps.tuned import provenance
from ci.sweeps.tuned.choose import EntryDecision, decide
from ci.sweeps.tuned.measuring import Bench, Wanted
from ci.sweeps.tuned.provenance import Confirmed
from ci.sweeps.tuned.tables import WRITTEN, TableEntry, rewritten
from ci.sweeps.tuned.timed import TimedCase, timed
from ci.sweeps.tuned.verifying import CodeObjects, Rivals, code_of_rivals


def search(cases: Sequence[TunedCase]) -> Wanted:
    """What a search measures: the present choice, the rule and every candidate."""
    return [(case, (case.chosen, {**case.defaults, **case.rule}, *case.candidates)) for case in cases]


def verification(rivals: Iterable[Rivals]) -> Wanted:
    """What a verification measures."""
    return [(case, one.of_case(case)) for one in rivals for case in one.entry.cases]


def decisions(cases: Sequence[TunedCase], measured: Measured, pruned: Pruned | None = None) -> list[EntryDecision]:
    """What a sweep decides about the entries of the cases that it measured, in the order of the declaration."""
    found: dict[str, dict[str, TimedCase | None]] = {}
    for case in cases:
        one = timed(case, measured.frame)
        found.setdefault(case.backend, {})[case.case] = with_equals(one, case, pruned) if one else None
    made = []
    for own in by_place(cases).values():
        seen = {case.case: found[case.backend][case.case] for case in own}
        if any(seen.values()):
            kind, operator = measured.machine.kind, own[0].operator
            made.append(decide(own, seen, policy.load().settings(operator, kind).smallest_effect))
    return made


def with_equals(one: TimedCase, case: TunedCase, pruned: Pruned | None) -> TimedCase:
    """With the times of what was not measured because it is the code of another point."""
    if pruned is None:
        return one
    points = [*pruned.twins, *pruned.kept.get(case.case, ())]
    mine = [one for one in points if (one.case, one.backend) == (case.case, case.backend)]
    names = {one.label: case.identity({**case.chosen, **one.knobs}) for one in mine}
    names[case.backend] = case.identity(case.chosen)
    equal = {
        names[twin]: one.good[names[other]]
        for (owner, twin), other in pruned.equal.items()
        if owner == case.case and twin in names and names.get(other) in one.good and names[twin] not in one.good
    }
    return dataclasses.replace(one, good={**one.good, **equal})


def rivals_of(made: EntryDecision) -> Rivals:
    """Winner, rule and runners-up of a decision that has knobs: what its code is recorded of."""
    first = made.cases[0]
    assert made.knobs is not None
    entry = TableEntry(made.place, made.cases, None)
    rule = {**first.defaults, **first.rule}
    return Rivals(entry, (made.knobs, rule, *(one.knobs for one in made.runners_up)))


def confirmations(made: Sequence[EntryDecision], measured: Measured, code: CodeObjects) -> dict[TablePlace, Confirmed]:
    """The provenance of every entry that is written."""
    machine, versions = measured.machine, dict(measured.environment.requirements)
    versions |= {"driver": machine.driver} if machine.driver else {}
    device = machine.market_name or machine.device or machine.cpu or "unknown device"
    facts = (day(measured.started_at), device, machine.name, versions)
    return {
        one.place: provenance.of_decision(one, *facts, code_of_rivals(rivals_of(one), code))
        for one in made
        if one.action in WRITTEN
    }


def day(started_at: str) -> datetime.date:
    """The UTC day of an ISO time."""
    return datetime.datetime.fromisoformat(started_at).astimezone(datetime.UTC).date()


def codes(bench: Bench, made: Sequence[EntryDecision]) -> CodeObjects:
    """What the winners, rules and runners-up of decisions compile to."""
    wanted = verification(rivals_of(one) for one in made if one.action in WRITTEN)
    return bench.code(wanted) if wanted else {}


def new_texts(
    cases: Sequence[TunedCase], made: Sequence[EntryDecision], confirmed: Mapping[TablePlace, Confirmed]
) -> dict[Path, tuple[str, str]]:
    """Of every file that decisions are about: its text, and what it becomes."""
    keys = list(dict.fromkeys(case.place.key for case in cases))
    found = {}
    for file in dict.fromkeys(one.place.file for one in made):
        before = file.read_text(encoding="utf-8")
        found[file] = (before, rewritten(before, file, made, confirmed, keys))
    return found
