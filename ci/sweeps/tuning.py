"""Tables of tuned knobs: what is measured for them, what becomes of each entry, and the text of the table (tomlkit).

An entry is for all cases that share it.  It is written where its knobs beat the rule beyond doubt in every one of
them, and goes where they no longer do.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import tomlkit
from tomlkit.exceptions import ParseError

from benchmarks.points import Knobs, Point
from ci.git.repository import LocalCheckout
from ci.judging import policy
from ci.sweeps.catalogue import BackendOffer, Catalogue, Identity, TablePlace, Value
from ci.sweeps.measured import Measured, SweepError
from ci.sweeps.pruning import PointCompiler, Rungs, prune
from ci.sweeps.run import FOLDER, SweepPlan, sweep_id
from kernels import project

VERIFYING_ROUNDS = {"gpu": (40, 40, 40), "cpu": (20, 20)}
"""Rounds of the trials of a verification: few knobs, so all of them get what finalists of a sweep get."""

LEAST_TRIALS = 2
"""Of knobs that win: one process start has a bias of its own (0.1 to 0.2 % on an H200), which no round shows."""

PROVENANCE = "confirmed"
"""The table within an entry that says what confirmed it (kernels._shared.tuning.PROVENANCE)."""


def tuning_sweep(
    catalogue: Catalogue,
    cases: Sequence[BackendOffer],
    checkout: LocalCheckout,
    compiler: PointCompiler,
    budget_min: float | None,
    verify: bool,
) -> SweepPlan:
    """The sweep that decides about the entries of some cases, with a trial file of its own by which it is resumed.

    It has the present choice, the rule and every candidate; what is slow is dropped early, but for the rules.
    verify: the entries and the rule alone, each in all rounds of every trial.
    """
    operator, kind = catalogue.operator, catalogue.kind
    points: dict[str, dict[str, Point]] = {}
    anchors: dict[str, str] = {}
    rules = set()
    for offer in cases:
        anchor, rule = anchors.setdefault(offer.case, offer.backend), offer.point(offer.by_rule)
        tried = [Point(offer.case, offer.backend), rule, *(() if verify else map(offer.point, offer.candidates))]
        points.setdefault(offer.case, {}).update({point.label: point for point in tried if point.label != anchor})
        rules.add((offer.case, rule.label))
    pruned = prune(catalogue, {case: list(own.values()) for case, own in points.items()}, anchors, compiler)
    stay = frozenset((case, pruned.equal.get((case, label), label)) for case, label in rules)
    rungs = Rungs.of(operator, kind, VERIFYING_ROUNDS[kind] if verify else (), halving=not verify, stay=stay)
    name = sweep_id(operator, checkout, rungs)
    file = project.place(f"{FOLDER}/tune-{operator}-{name}.jsonl")
    return SweepPlan(name, operator, checkout, pruned, anchors, file, rungs, budget_min, catalogue.world(anchors))


# ---- times of knobs, against each other ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LogTime:
    """Of knobs in a case: log of time / time of the anchor, half its interval, and the trials behind it."""

    log: float
    half: float
    trials: int
    knobs: Knobs = dataclasses.field(default_factory=dict, compare=False)


class Ratio(NamedTuple):
    """time / time of something else, with its interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"


def mean_ratio(times: Sequence[LogTime], others: Sequence[LogTime]) -> Ratio:
    """The geometric mean over cases of the ratio of two times, the cases independent.

    Half the interval of a case is the root of the sum of squares of both.  Both are ratios to the same anchor, whose
    noise the difference does not have, so it is too wide rather than not.
    """
    pairs = list(zip(times, others, strict=True))
    log = math.fsum(time.log - other.log for time, other in pairs) / len(pairs)
    squares = (time.half**2 + other.half**2 for time, other in pairs if time != other)
    half = math.sqrt(math.fsum(squares)) / len(pairs)
    return Ratio(math.exp(log), math.exp(log - half), math.exp(log + half))


@dataclasses.dataclass(frozen=True, eq=False)
class TimedCase:
    """A case that was measured.  times: of knobs that never failed; faults: why others have none, by identity."""

    offer: BackendOffer
    times: Mapping[Identity, LogTime]
    faults: Mapping[Identity, str]


def timed_case(offer: BackendOffer, frame: pd.DataFrame) -> TimedCase | None:
    """What a sweep's frame (`ci.sweeps.measured.COLUMNS`) says of a case; None if it has nothing of it.

    Knobs that stand in several rows, as the anchor and as a point for instance, count once: as what has most trials.
    """
    times, faults = dict[Identity, LogTime](), dict[Identity, str]()
    mine = (frame["operator"] == offer.operator) & (frame["case"] == offer.case) & (frame["backend"] == offer.backend)
    for row in frame[mine].to_dict("records"):
        # An arm that was never built, or timed as another, does not say its own configuration.
        own = row["config"] and not row["equal_to"]
        knobs = {**offer.defaults, **row["config"]} if own else offer.whole(row["knobs"])
        name, trials = offer.identity(knobs), int(row["trials"])
        if row["status"] != "ok":
            faults.setdefault(name, ": ".join(filter(None, (row["status"], row["why"]))))
        elif name not in times or trials > times[name].trials:
            if row["is_anchor"]:
                times[name] = LogTime(0.0, 0.0, trials, knobs)
            elif 0 < row["low"] <= row["high"] < math.inf:
                half = math.log(row["high"] / row["low"]) / 2
                times[name] = LogTime(math.log(row["ratio"]), half, trials, knobs)
    times = {name: time for name, time in times.items() if name not in faults}
    return TimedCase(offer, times, faults) if times or faults else None


# ---- what is decided -------------------------------------------------------------------------------------------------


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

    cases: Sequence[BackendOffer]
    action: Action
    why: str
    knobs: Knobs | None = None
    against_rule: Ratio | None = None
    trials: int = 0

    @property
    def place(self) -> TablePlace:
        """Where the entry lies."""
        return self.cases[0].place

    @property
    def entry(self) -> dict[str, Value] | None:
        """The entry to write."""
        return None if self.knobs is None else self.cases[0].as_entry(self.knobs)


def decisions(offers: Sequence[BackendOffer], measured: Measured) -> list[EntryDecision]:
    """What a sweep decides about the entries of the cases that it measured, in the order of the declaration."""
    decided = []
    for place in dict.fromkeys(offer.place for offer in offers):
        shared = [offer for offer in offers if offer.place == place]
        cases = [timed_case(offer, measured.frame) for offer in shared]
        if any(cases):
            smallest = policy.load().settings(shared[0].operator, measured.machine.kind).smallest_effect
            decided.append(decide(shared, cases, smallest))
    return decided


def decide(offers: Sequence[BackendOffer], measured: Sequence[TimedCase | None], smallest: float) -> EntryDecision:
    """What becomes of the entry that some cases share.  smallest: share of the time by which a winner must win."""
    first, cases = offers[0], [case for case in measured if case]
    rule, old = first.identity(first.rule), first.identity(first.config) if first.entry else ""
    if len(cases) < len(offers):
        missing = ", ".join(offer.case for offer, case in zip(offers, measured, strict=True) if case is None)
        return EntryDecision(offers, Action.OPEN, f"the entry is for {missing} too, of which nothing is measured")
    names = set(cases[0].times).intersection(*(case.times for case in cases))
    times = {name: [case.times[name] for case in cases] for name in cases[0].times if name in names}
    if rule not in times:
        case = next(case for case in cases if rule not in case.times)
        why = case.faults.get(rule, "it is not among the points")
        return EntryDecision(offers, Action.OPEN, f"the rule has no time in {case.offer.case}: {why}")

    def beats_rule(name: Identity, by: float) -> bool:
        """In every case, beyond doubt and by more than a share of the time."""
        pairs = zip(times[name], times[rule], strict=True)
        return name != rule and all(mean_ratio([own], [of_rule]).high < 1 - by for own, of_rule in pairs)

    def trials(name: Identity) -> int:
        return min(time.trials for time in times[name])

    def decided(action: Action, name: Identity, why: str = "") -> EntryDecision:
        against = mean_ratio(times[name], times[rule])
        return EntryDecision(
            offers, action, why or f"{against} of the rule's time", times[name][0].knobs, against, trials(name)
        )

    ranked = sorted(times, key=lambda name: (math.fsum(time.log for time in times[name]), name))
    winners = [name for name in ranked if beats_rule(name, smallest)]
    confirmed = [name for name in winners if trials(name) >= LEAST_TRIALS and name != old]
    if not old:
        if confirmed:
            return decided(Action.NEW, confirmed[0])
        if winners:
            return EntryDecision(offers, Action.OPEN, f"the best knobs have one trial; {LEAST_TRIALS} are needed")
        best = f"the best of {len(times)} takes {mean_ratio(times[ranked[0]], times[rule])} of its time"
        return EntryDecision(offers, Action.BY_RULE, f"nothing beats the rule beyond doubt: {best}")
    if old == rule:
        return EntryDecision(offers, Action.REMOVED, "the rule gives the same knobs now")
    if failed := [f"{case.offer.case}: {case.faults[old]}" for case in cases if old in case.faults]:
        why = f"the entry fails: {'; '.join(failed)}"
    elif old not in times or trials(old) < LEAST_TRIALS:
        return EntryDecision(offers, Action.OPEN, f"the present entry has less than {LEAST_TRIALS} trials")
    else:
        for name in confirmed:
            against_old = mean_ratio(times[name], times[old])
            if against_old.high < 1 - smallest:
                return decided(Action.MOVED, name, f"{against_old} of the old entry's time")
        if beats_rule(old, 0.0):
            return decided(Action.CONFIRMED, old)
        why = f"the entry takes {mean_ratio(times[old], times[rule])} of the rule's time"
    return decided(Action.MOVED, confirmed[0], why) if confirmed else EntryDecision(offers, Action.REMOVED, why)


# ---- the table -------------------------------------------------------------------------------------------------------


def rewritten(text: str, file: Path, decided: Iterable[EntryDecision], measured: Measured) -> str:
    """The text of a file after some decisions; every line of other entries stays.  SweepError where it is not TOML."""
    try:
        document = tomlkit.parse(text)
    except ParseError as error:
        raise SweepError(f"{file} is not TOML: {error}; repair it, or remove it for a new one") from None
    for decision in (decision for decision in decided if decision.place.file == file):
        table: Any = document
        for name in decision.place.table:
            table = table.setdefault(name, tomlkit.table(is_super_table=True))
        key, knobs = decision.place.key, decision.entry
        if decision.action is Action.REMOVED:
            table.pop(key)
        elif knobs is not None:
            entry = table.setdefault(key, tomlkit.table())
            for name in [name for name in entry if name not in knobs]:
                entry.remove(name)
            entry.update(knobs)  # knobs that were there keep their place
            entry[PROVENANCE] = tomlkit.table()
            entry[PROVENANCE].update(confirmation(decision, measured))
            entry[PROVENANCE].add(tomlkit.nl())
    return tomlkit.dumps(document).rstrip("\n") + "\n"


def confirmation(decision: EntryDecision, measured: Measured) -> dict[str, Any]:
    """When, where and by how much an entry won: its time / the rule's, geometric mean over the cases, with interval."""
    machine, versions = measured.machine, measured.environment.requirements
    assert decision.against_rule is not None
    facts = {
        "date": measured.day,
        "device": machine.market_name or machine.device or machine.cpu or "unknown device",
        "machine": machine.name,
        **{name: versions.get(name) for name in ("triton", "torch")},
        "driver": machine.driver,
        "cases": [case.case for case in decision.cases],
        "trials": decision.trials,
        **{name: round(value, 4) for name, value in decision.against_rule._asdict().items()},
    }
    return {name: value for name, value in facts.items() if value}


def document(decided: Iterable[EntryDecision]) -> list[dict[str, Any]]:
    """The decisions as JSON values."""
    return [
        {
            "entry": str(decision.place),
            "action": str(decision.action),
            "knobs": decision.entry,
            "why": decision.why,
            "cases": [case.case for case in decision.cases],
            "backend": decision.cases[0].backend,
            "against_rule": decision.against_rule,
            "trials": decision.trials,
        }
        for decision in decided
    ]
