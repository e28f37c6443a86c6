"""Which entries must be measured again: not those whose code objects are what they were when they were confirmed."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Callable, Mapping, Sequence

from benchmarks.points import Knobs
from ci.sweeps.catalogue import Identity, TunedCase
from ci.sweeps.tuned.choose import RUNNERS_UP
from ci.sweeps.tuned.provenance import CODE_DIGITS
from ci.sweeps.tuned.tables import TableEntry

CodeObjects = Mapping[tuple[str, str, Identity], str]
"""By case, backend and identity of the knobs: the digest of what is launched, and its grid."""

NEVER = datetime.date.min
"""The date of an entry that nobody has confirmed: the oldest of all."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rivals:
    """What is measured to verify an entry.  knobs: of launches; the winner first, then the rule, then the others."""

    entry: TableEntry
    knobs: tuple[Knobs, ...]

    @property
    def since(self) -> datetime.date:
        """When the entry was confirmed."""
        return self.entry.confirmed.date if self.entry.confirmed else NEVER

    def of_case(self, case: TunedCase) -> list[Knobs]:
        """The knobs in one of the entry's cases: its own rule, and of the others what an entry of them says there."""
        first = self.entry.cases[0]
        winner, *others = (case.launched(first.as_entry(knobs)) for knobs in (self.knobs[0], *self.knobs[2:]))
        return [winner, {**case.defaults, **case.rule}, *others]


def rivals(entry: TableEntry) -> Rivals:
    """Winner, rule and runners-up; of an entry that nobody has confirmed the first candidates stand for these."""
    case = entry.cases[0]
    known = [one.knobs for one in entry.confirmed.runners_up] if entry.confirmed else list(case.candidates)
    taken, others = {case.identity(case.chosen), case.identity(case.rule)}, list[Knobs]()
    for knobs in known:
        if (identity := case.identity(knobs)) not in taken and len(others) < RUNNERS_UP:
            taken.add(identity)
            others.append(knobs)
    return Rivals(entry, (case.chosen, {**case.defaults, **case.rule}, *others))


def code_of(cases: Sequence[TunedCase], knobs: Sequence[Knobs], code: CodeObjects) -> str:
    """One digest of the code objects of some knobs in all cases of an entry; "" unless all of them are known."""
    found = [code.get((case.case, case.backend, case.identity(one)), "") for case in cases for one in knobs]
    if not found or not all(found):
        return ""
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:CODE_DIGITS]


def code_of_rivals(one: Rivals, code: CodeObjects) -> str:
    """The digest of the code objects of an entry's rivals, case by case."""
    parts = [code_of([case], one.of_case(case), code) for case in one.entry.cases]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:CODE_DIGITS] if all(parts) else ""


@dataclasses.dataclass(frozen=True, eq=False)
class Due:
    """Entries to verify.  unchanged: their code is what was confirmed.  stale: to measure, oldest first."""

    unchanged: tuple[Rivals, ...]
    stale: tuple[Rivals, ...]


def due(entries: Sequence[TableEntry], code: CodeObjects) -> Due:
    """Which of the entries need GPU time."""
    every = [rivals(one) for one in entries]
    same = [one for one in every if _unchanged(one, code)]
    stale = [one for one in every if one not in same]
    return Due(tuple(same), tuple(sorted(stale, key=lambda one: (one.since, one.entry.place))))


def _unchanged(one: Rivals, code: CodeObjects) -> bool:
    confirmed = one.entry.confirmed
    return bool(confirmed and confirmed.code) and code_of_rivals(one, code) == confirmed.code  # type: ignore[union-attr]


def within(
    stale: Sequence[Rivals], minutes: Callable[[Sequence[Rivals]], float], budget_min: float | None
) -> tuple[tuple[Rivals, ...], tuple[Rivals, ...]]:
    """(Those that a budget of GPU minutes allows, in their order; the others).  One is always allowed, or none ever is.

    minutes: that some of them take together.
    """
    now = min(len(stale), 1)
    while now < len(stale) and (budget_min is None or minutes(stale[: now + 1]) <= budget_min):
        now += 1
    return tuple(stale[:now]), tuple(stale[now:])
