"""Which knobs an entry should have: a winner where it beats the rule beyond doubt, in every case that shares it."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks.points import Knobs
from ci.sweeps.catalogue import Identity, TablePlace, TunedCase, Value
from ci.sweeps.rungs import LEAST_TRIALS, LogTime, Versus, over_cases, versus

RUNNERS_UP = 3
"""Kept with an entry, and measured again when it is verified."""


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


@dataclasses.dataclass(frozen=True)
class RunnerUp:
    """Knobs of a launch that came next.  behind: their time / the winner's, over all cases of the entry."""

    knobs: Knobs
    behind: float


@dataclasses.dataclass(frozen=True, eq=False)
class EntryDecision:
    """What a sweep decides about an entry.

    knobs: of the launch, None where the rule is best or nothing was decided.  against_rule: the winner's time / the
    rule's.  moved_by: where knobs were replaced or removed, the time of what is best now / theirs.
    """

    place: TablePlace
    cases: tuple[TunedCase, ...]
    action: Action
    why: str
    knobs: Knobs | None = None
    against_rule: Versus | None = None
    moved_by: Versus | None = None
    runners_up: tuple[RunnerUp, ...] = ()
    trials: int = 0

    @property
    def entry(self) -> dict[str, Value] | None:
        """The entry to write."""
        return None if self.knobs is None else self.cases[0].as_entry(self.knobs)


@dataclasses.dataclass(frozen=True, eq=False)
class Contest:
    """The measured cases of an entry, and by how much a winner must win (a share of the time)."""

    place: TablePlace
    cases: tuple[TimedCase, ...]
    smallest: float

    @property
    def rule(self) -> Identity:
        return self.cases[0].rule

    @property
    def old(self) -> Identity:
        """The knobs of the present entry; "" for none."""
        tuned = self.cases[0].tuned
        return tuned.identity(tuned.launched(tuned.entry)) if tuned.entry else ""

    def everywhere(self) -> dict[Identity, list[LogTime]]:
        """What has a time in every case, in the order of the first one."""
        names = [name for name in self.cases[0].good if all(name in case.good for case in self.cases)]
        return {name: [case.good[name] for case in self.cases] for name in names}

    def best_first(self) -> list[Identity]:
        """All but the rule's, by the mean of log-ratios over the cases; equals in the order of their names."""
        times = self.everywhere()
        others = [name for name in times if name != self.rule]
        return sorted(others, key=lambda name: (math.fsum(one.log for one in times[name]), name))

    def against(self, one: Identity, other: Identity) -> Versus:
        """Time of one / time of the other, over all cases."""
        times = self.everywhere()
        return over_cases(list(zip(times[one], times[other], strict=True)))

    def beats_rule(self, name: Identity, by: float) -> bool:
        """Whether it is faster than the rule in every case, beyond doubt and by more than a share of the time."""
        return all(versus(case.good[name], case.good[case.rule]).high < 1 - by for case in self.cases)

    def trials(self, name: Identity) -> int:
        """The fewest that it was measured in."""
        return min(case.good[name].trials for case in self.cases)

    def sure(self, name: Identity) -> bool:
        """Whether it was measured often enough to be written."""
        return self.trials(name) >= LEAST_TRIALS


def decide(cases: Sequence[TunedCase], measured: Mapping[str, TimedCase | None], smallest: float) -> EntryDecision:
    """What becomes of the entry that `cases` share.  measured: by case; smallest: share of the time that counts."""
    place = cases[0].place
    gap = _gap(cases, measured)
    if gap:
        return EntryDecision(place, tuple(cases), Action.OPEN, gap)
    contest = Contest(place, tuple(one for case in cases if (one := measured[case.case])), smallest)
    return _of_old(contest) if contest.old else _of_none(contest)


def _gap(cases: Sequence[TunedCase], measured: Mapping[str, TimedCase | None]) -> str:
    """What is not measured and must be, as a sentence; "" if nothing is missing."""
    missing = [case.case for case in cases if not measured.get(case.case)]
    if missing:
        return f"the entry is for {', '.join(missing)} too, which {'is' if len(missing) == 1 else 'are'} not measured"
    for one in measured.values():
        if one and one.rule not in one.good:
            why = one.bad.get(one.rule, "it is not among the points")
            return f"the rule has no time in {one.tuned.case}: {why}"
    return ""


def _of_none(contest: Contest) -> EntryDecision:
    ranked = contest.best_first()
    winning = [name for name in ranked if contest.beats_rule(name, contest.smallest)]
    sure = [name for name in winning if contest.sure(name)]
    if sure:
        return _winner(contest, sure[0], Action.NEW, f"{_told(contest, sure[0])} of the rule's time")
    if winning:
        return _undecided(contest, f"the best knobs were measured in one trial; {LEAST_TRIALS} are needed")
    best = f"the best of {len(ranked)} takes {_told(contest, ranked[0])} of the rule's time" if ranked else "no other"
    return _decision(contest, Action.BY_RULE, f"nothing beats the rule beyond doubt: {best}")


def _of_old(contest: Contest) -> EntryDecision:
    old, ranked = contest.old, contest.best_first()
    if old == contest.rule:
        return _decision(contest, Action.REMOVED, "the rule gives the same knobs now")
    failed = [f"{case.tuned.case}: {case.bad[old]}" for case in contest.cases if old in case.bad]
    if failed:
        return _without_old(contest, ranked, f"it fails: {'; '.join(failed)}")
    if old not in contest.everywhere():
        return _undecided(contest, "the present entry is not among the points")
    if not contest.sure(old):
        return _undecided(contest, f"the present entry was measured in one trial; {LEAST_TRIALS} are needed")
    for name in ranked:
        if name != old and contest.sure(name) and contest.beats_rule(name, contest.smallest) and _ousts(contest, name):
            return _winner(contest, name, Action.MOVED, f"{contest.against(name, old)} of the old entry's time", old)
    if contest.beats_rule(old, 0.0):
        return _winner(contest, old, Action.CONFIRMED, f"{_told(contest, old)} of the rule's time")
    return _without_old(contest, ranked, f"it takes {_told(contest, old)} of the rule's time")


def _ousts(contest: Contest, name: Identity) -> bool:
    """Whether it beats the present entry over all cases, beyond doubt and by what counts, and loses to it in none."""
    pairs = [(case.good[name], case.good[contest.old]) for case in contest.cases]
    loses = any(versus(*pair).low > 1 for pair in pairs)
    return over_cases(pairs).high < 1 - contest.smallest and not loses


def _without_old(contest: Contest, ranked: Sequence[Identity], why: str) -> EntryDecision:
    """Where the present entry cannot stay: the best other one that beats the rule, or none."""
    for name in ranked:
        if name != contest.old and contest.sure(name) and contest.beats_rule(name, contest.smallest):
            return _winner(contest, name, Action.MOVED, f"of the old entry: {why}", contest.old)
    return _decision(contest, Action.REMOVED, why, moved_by=_moved_by(contest, contest.rule, contest.old))


def _winner(contest: Contest, name: Identity, action: Action, why: str, old: Identity = "") -> EntryDecision:
    others = [one for one in contest.best_first() if one != name][:RUNNERS_UP]
    times = contest.cases[0].good
    return dataclasses.replace(
        _decision(contest, action, why, moved_by=_moved_by(contest, name, old)),
        knobs=times[name].knobs,
        against_rule=contest.against(name, contest.rule),
        runners_up=tuple(RunnerUp(times[one].knobs, contest.against(one, name).ratio) for one in others),
        trials=contest.trials(name),
    )


def _moved_by(contest: Contest, name: Identity, old: Identity) -> Versus | None:
    return contest.against(name, old) if old in contest.everywhere() else None


def _undecided(contest: Contest, why: str) -> EntryDecision:
    return _decision(contest, Action.OPEN, why)


def _decision(contest: Contest, action: Action, why: str, moved_by: Versus | None = None) -> EntryDecision:
    cases = tuple(case.tuned for case in contest.cases)
    return EntryDecision(contest.place, cases, action, why, moved_by=moved_by)


def _told(contest: Contest, name: Identity) -> str:
    return str(contest.against(name, contest.rule))


# What a sweep says of the knobs of a case, against the rule: ratios of times with their intervals.


REGIME = "spaced"
"""The regime by which knobs are chosen, unless a sweep has another one only."""


Timings = Mapping[Identity, LogTime]


@dataclasses.dataclass(frozen=True, eq=False)
class TimedCase:
    """A case that was measured.  good: what has a time; bad: why others have none, by identity."""

    tuned: TunedCase
    good: Timings
    bad: Mapping[Identity, str]

    @property
    def rule(self) -> Identity:
        """The identity of the rule's knobs."""
        return self.tuned.identity(self.tuned.rule)


def timed(case: TunedCase, frame: pd.DataFrame) -> TimedCase | None:
    """What a sweep's frame (`ci.sweeps.measured.COLUMNS`) says of the case; None if it has nothing of it.

    Knobs that stand in several rows, as the anchor and as a point for instance, count once: as what has most trials.
    """
    mine = (frame["operator"] == case.operator) & (frame["case"] == case.case) & (frame["backend"] == case.backend)
    rows = frame[mine]
    regimes = set(rows["regime"])
    rows = rows[rows["regime"] == (REGIME if REGIME in regimes else min(regimes, default=""))]
    good, bad = dict[Identity, LogTime](), dict[Identity, str]()
    for row in (_Row.of(one, case) for one in rows.to_dict(orient="records")):
        identity = case.identity(row.knobs)
        if row.failed:
            bad.setdefault(identity, row.failed)
        elif row.time and row.time.trials > good.get(identity, LogTime(0, 0, 0)).trials:
            good[identity] = row.time
    good = {identity: one for identity, one in good.items() if identity not in bad}
    return TimedCase(case, good, bad) if good or bad else None


@dataclasses.dataclass(frozen=True)
class _Row:
    """What counts of a row.  time: None where it has none; failed: why, "" if nothing failed."""

    knobs: Knobs
    time: LogTime | None
    failed: str

    @classmethod
    def of(cls, row: Mapping[Hashable, Any], case: TunedCase) -> _Row:
        """From a row of `ci.sweeps.measured.COLUMNS`; an arm that was never built does not say its whole config."""
        knobs = {**case.defaults, **row["config"]} if row["config"] else {**case.chosen, **row["knobs"]}
        failed = ": ".join(text for text in (str(row["status"]), str(row["why"] or "")) if text)
        ok = row["status"] == "ok"
        return cls(knobs, LogTime.of_row(row, knobs) if ok else None, "" if ok else failed)
