"""Which knobs an entry should have: a winner where it beats the rule beyond doubt, in every case that shares it."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping, Sequence

import pandas as pd

from benchmarks.points import Knobs
from ci.sweeps.catalogue import BackendOffer, Identity, TablePlace, Value
from ci.sweeps.rungs import LEAST_TRIALS, LogTime, Versus, over_cases, versus


class Action(enum.StrEnum):
    """What becomes of an entry."""

    NEW = "new"
    """There was none; the winner beats the rule."""
    CONFIRMED = "confirmed"
    """It still beats the rule, and nothing beats it beyond doubt."""
    MOVED = "moved"
    """Other knobs beat it beyond doubt, and the rule as well."""
    REMOVED = "removed"
    """It no longer beats the rule, and nothing else does."""
    BY_RULE = "by rule"
    """There was none, and nothing beats the rule beyond doubt."""
    OPEN = "open"
    """Something is not measured: nothing changes."""


@dataclasses.dataclass(frozen=True, eq=False)
class EntryDecision:
    """What a sweep decides about an entry.

    knobs: of the launch, None where the rule is best or nothing was decided.  against_rule: the winner's time / the
    rule's.  trials: the fewest that the winner was measured in.
    """

    cases: tuple[BackendOffer, ...]
    action: Action
    why: str
    knobs: Knobs | None = None
    against_rule: Versus | None = None
    trials: int = 0

    @property
    def place(self) -> TablePlace:
        """Where the entry lies."""
        return self.cases[0].place

    @property
    def entry(self) -> dict[str, Value] | None:
        """The entry to write."""
        return None if self.knobs is None else self.cases[0].as_entry(self.knobs)


Verdict = tuple[Action, str, Identity]
"""What becomes of an entry, why, and the knobs that it has then: "" where the rule is best or nothing is decided."""


@dataclasses.dataclass(frozen=True, eq=False)
class Contest:
    """The measured cases of an entry, and by how much a winner must win (a share of the time)."""

    cases: tuple[TimedCase, ...]
    smallest: float

    @property
    def rule(self) -> Identity:
        return self.cases[0].rule

    @property
    def old(self) -> Identity:
        """The knobs of the present entry; "" for none."""
        offer = self.cases[0].offer
        return offer.identity(offer.config) if offer.entry else ""

    @functools.cached_property
    def times(self) -> dict[Identity, list[LogTime]]:
        """What has a time in every case, in the order of the first one."""
        names = [name for name in self.cases[0].good if all(name in case.good for case in self.cases)]
        return {name: [case.good[name] for case in self.cases] for name in names}

    @functools.cached_property
    def best_first(self) -> list[Identity]:
        """All but the rule's, by the mean of log-ratios over the cases; equals in the order of their names."""
        others = [name for name in self.times if name != self.rule]
        return sorted(others, key=lambda name: (math.fsum(one.log for one in self.times[name]), name))

    def pairs(self, one: Identity, other: Identity) -> list[tuple[LogTime, LogTime]]:
        """The times of both, case by case."""
        return list(zip(self.times[one], self.times[other], strict=True))

    def against(self, one: Identity, other: Identity) -> Versus:
        """Time of one / time of the other, over all cases."""
        return over_cases(self.pairs(one, other))

    def beats_rule(self, name: Identity, by: float) -> bool:
        """Whether it is faster than the rule in every case, beyond doubt and by more than a share of the time."""
        return all(versus(*pair).high < 1 - by for pair in self.pairs(name, self.rule))

    def trials(self, name: Identity) -> int:
        """The fewest that it was measured in."""
        return min(one.trials for one in self.times[name])

    def sure(self, name: Identity) -> bool:
        """Whether it was measured often enough to be written."""
        return self.trials(name) >= LEAST_TRIALS

    def of_none(self) -> Verdict:
        """Where there is no entry."""
        winning = [name for name in self.best_first if self.beats_rule(name, self.smallest)]
        for name in filter(self.sure, winning):
            return Action.NEW, f"{self.against(name, self.rule)} of the rule's time", name
        if winning:
            return Action.OPEN, f"the best knobs were measured in one trial; {LEAST_TRIALS} are needed", ""
        best = "no other"
        if ranked := self.best_first:
            best = f"the best of {len(ranked)} takes {self.against(ranked[0], self.rule)} of the rule's time"
        return Action.BY_RULE, f"nothing beats the rule beyond doubt: {best}", ""

    def of_old(self) -> Verdict:
        """Of an entry that is there."""
        old = self.old
        if old == self.rule:
            return Action.REMOVED, "the rule gives the same knobs now", ""
        better = [
            name for name in self.best_first if name != old and self.sure(name) and self.beats_rule(name, self.smallest)
        ]
        if failed := [f"{case.offer.case}: {case.bad[old]}" for case in self.cases if old in case.bad]:
            why = f"it fails: {'; '.join(failed)}"
        elif old not in self.times:
            return Action.OPEN, "the present entry is not among the points", ""
        elif not self.sure(old):
            return Action.OPEN, f"the present entry was measured in one trial; {LEAST_TRIALS} are needed", ""
        else:
            for name in filter(self.ousts, better):
                return Action.MOVED, f"{self.against(name, old)} of the old entry's time", name
            why = f"{self.against(old, self.rule)} of the rule's time"
            if self.beats_rule(old, 0.0):
                return Action.CONFIRMED, why, old
            why = f"it takes {why}"
        return (Action.MOVED, f"of the old entry: {why}", better[0]) if better else (Action.REMOVED, why, "")

    def ousts(self, name: Identity) -> bool:
        """Whether it beats the present entry over all cases, beyond doubt and by what counts, and never loses to it."""
        pairs = self.pairs(name, self.old)
        return over_cases(pairs).high < 1 - self.smallest and not any(versus(*pair).low > 1 for pair in pairs)


def decide(cases: Sequence[BackendOffer], measured: Mapping[str, TimedCase | None], smallest: float) -> EntryDecision:
    """What becomes of the entry that `cases` share.  measured: by case; smallest: share of the time that counts."""
    if gap := _gap(cases, measured):
        return EntryDecision(tuple(cases), Action.OPEN, gap)
    contest = Contest(tuple(one for case in cases if (one := measured[case.case])), smallest)
    action, why, name = contest.of_old() if contest.old else contest.of_none()
    if not name:
        return EntryDecision(tuple(cases), action, why)
    knobs = contest.times[name][0].knobs
    return EntryDecision(tuple(cases), action, why, knobs, contest.against(name, contest.rule), contest.trials(name))


def _gap(cases: Sequence[BackendOffer], measured: Mapping[str, TimedCase | None]) -> str:
    """What is not measured and must be, as a sentence; "" if nothing is missing."""
    missing = [case.case for case in cases if not measured.get(case.case)]
    if missing:
        return f"the entry is for {', '.join(missing)} too, which {'is' if len(missing) == 1 else 'are'} not measured"
    for one in filter(None, measured.values()):
        if one.rule not in one.good:
            why = one.bad.get(one.rule, "it is not among the points")
            return f"the rule has no time in {one.offer.case}: {why}"
    return ""


# What a sweep says of the knobs of a case, against the rule: ratios of times with their intervals.


REGIME = "spaced"
"""The regime by which knobs are chosen, unless a sweep has another one only."""


@dataclasses.dataclass(frozen=True, eq=False)
class TimedCase:
    """A case that was measured.  good: what has a time; bad: why others have none, by identity."""

    offer: BackendOffer
    good: Mapping[Identity, LogTime]
    bad: Mapping[Identity, str]

    @property
    def rule(self) -> Identity:
        """The identity of the rule's knobs."""
        return self.offer.identity(self.offer.rule)


def timed(case: BackendOffer, frame: pd.DataFrame) -> TimedCase | None:
    """What a sweep's frame (`ci.sweeps.measured.COLUMNS`) says of the case; None if it has nothing of it.

    Knobs that stand in several rows, as the anchor and as a point for instance, count once: as what has most trials.
    """
    mine = (frame["operator"] == case.operator) & (frame["case"] == case.case) & (frame["backend"] == case.backend)
    rows = frame[mine]
    regimes = set(rows["regime"])
    rows = rows[rows["regime"] == (REGIME if REGIME in regimes else min(regimes, default=""))]
    good, bad = dict[Identity, LogTime](), dict[Identity, str]()
    for row in rows.to_dict(orient="records"):
        # An arm that was never built does not say its whole configuration.
        knobs = {**case.defaults, **row["config"]} if row["config"] else case.whole(row["knobs"])
        identity = case.identity(knobs)
        if row["status"] != "ok":
            bad.setdefault(identity, ": ".join(filter(None, (str(row["status"]), str(row["why"] or "")))))
        elif (time := LogTime.of_row(row, knobs)) and time.trials > good.get(identity, LogTime(0, 0, 0)).trials:
            good[identity] = time
    good = {identity: one for identity, one in good.items() if identity not in bad}
    return TimedCase(case, good, bad) if good or bad else None
