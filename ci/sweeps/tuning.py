"""Tables of tuned knobs: what is measured for them, what becomes of each entry, and the text of the table (tomlkit).

An entry is for all cases that share it.  It is written where its knobs beat the rule beyond doubt in every one of
them, and goes where they no longer do.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import tomlkit
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tomlkit.exceptions import ParseError

from benchmarks.points import Knobs, Point
from ci.git.repository import LocalCheckout
from ci.judging import policy
from ci.sweeps.catalogue import BackendOffer, Catalogue, Identity, TablePlace, Value, by_place
from ci.sweeps.measured import Measured, SweepError
from ci.sweeps.pruning import PointCompiler, Pruned, prune
from ci.sweeps.run import FOLDER, SweepPlan, sweep_id
from ci.sweeps.rungs import Rungs
from kernels import project

VERIFYING_ROUNDS = {"gpu": (40, 40, 40), "cpu": (20, 20)}
"""Rounds of the trials of a verification: few knobs, so all of them get what finalists of a sweep get."""

REGIME = "spaced"
"""The regime by which knobs are chosen, unless a sweep has another one only."""

LEAST_TRIALS = 2
"""Of knobs that win: one process start has a bias of its own (0.1 to 0.2 % on an H200), which no round shows."""

PROVENANCE = "confirmed"
"""The table within an entry that says what confirmed it (kernels._shared.tuning.PROVENANCE)."""


# ---- what is measured ------------------------------------------------------------------------------------------------


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
    rounds = VERIFYING_ROUNDS[kind] if verify else ()
    points, anchors = points_of([(case, (case.by_rule, *(() if verify else case.candidates))) for case in cases])
    pruned = prune(catalogue, points, anchors, compiler)
    rules = {(case.case, case.point(case.by_rule).label) for case in cases}
    stay = frozenset((case, pruned.equal.get((case, label), label)) for case, label in rules)
    rungs = Rungs.of(operator, kind, rounds, halving=not verify, stay=stay)
    name = sweep_id(operator, checkout, rungs)
    file = project.place(f"{FOLDER}/tune-{operator}-{name}.jsonl")
    world = catalogue.world(anchors)
    return SweepPlan(name, operator, checkout, pruned, anchors, file, rungs, budget_min=budget_min, world=world)


def points_of(wanted: Sequence[tuple[BackendOffer, Sequence[Knobs]]]) -> tuple[dict[str, list[Point]], dict[str, str]]:
    """(Points by case, its anchor by case) of knobs of launches; backends other than the anchor are points as well."""
    points: dict[str, dict[str, Point]] = {}
    anchors: dict[str, str] = {}
    for case, knobs in wanted:
        anchor, own = anchors.setdefault(case.case, case.backend), points.setdefault(case.case, {})
        for point in (Point(case.case, case.backend), *map(case.point, knobs)):
            if point.label != anchor:
                own.setdefault(point.label, point)
    return {case: list(own.values()) for case, own in points.items()}, anchors


def entries_here(cases: Sequence[BackendOffer], devices: int | None) -> tuple[list[BackendOffer], list[str]]:
    """(Cases with an entry that can be measured here, a sentence for each entry of more ranks than there are GPUs).

    devices: GPUs here, None if that is not known.
    """
    here, waiting = list[BackendOffer](), list[str]()
    for place, own in by_place(case for case in cases if case.entry).items():
        world = max(case.world for case in own)
        if devices is not None and world > devices:
            waiting.append(f"{place}: waits for {world} GPUs; there are {devices}")
        else:
            here += own
    return here, waiting


# ---- times of knobs, against each other ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LogTime:
    """Of knobs in a case: log of time / time of the anchor, half its interval, and the trials behind it."""

    log: float
    half: float
    trials: int
    knobs: Knobs = dataclasses.field(default_factory=dict, compare=False)


@dataclasses.dataclass(frozen=True)
class Ratio:
    """time / time of something else, with its interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"


def mean_ratio(pairs: Sequence[tuple[LogTime, LogTime]]) -> Ratio:
    """The geometric mean over cases of the ratio of two times, the cases independent.

    Half the interval of a case is the root of the sum of squares of both.  Both are ratios to the same anchor, whose
    noise the difference does not have, so it is too wide rather than not.
    """
    log = math.fsum(one.log - other.log for one, other in pairs) / len(pairs)
    squares = (one.half**2 + other.half**2 for one, other in pairs if one != other)
    half = math.sqrt(math.fsum(squares)) / len(pairs)
    return Ratio(math.exp(log), math.exp(log - half), math.exp(log + half))


@dataclasses.dataclass(frozen=True, eq=False)
class TimedCase:
    """A case that was measured.  times: of knobs that never failed; faults: why others have none, by identity."""

    offer: BackendOffer
    times: Mapping[Identity, LogTime]
    faults: Mapping[Identity, str]


def timed_case(offer: BackendOffer, frame: pd.DataFrame, pruned: Pruned | None = None) -> TimedCase | None:
    """What a sweep's frame (`ci.sweeps.measured.COLUMNS`) says of a case; None if it has nothing of it.

    Knobs that stand in several rows, as the anchor and as a point for instance, count once: as what has most trials.
    pruned: what was not measured because it is the code of another point has the times of that.
    """
    mine = (frame["operator"] == offer.operator) & (frame["case"] == offer.case) & (frame["backend"] == offer.backend)
    rows = frame[mine]
    regimes = set(rows["regime"])
    times, faults = dict[Identity, LogTime](), dict[Identity, str]()
    for row in rows[rows["regime"] == (REGIME if REGIME in regimes else min(regimes, default=""))].to_dict("records"):
        # An arm that was never built does not say its whole configuration.
        knobs = {**offer.defaults, **row["config"]} if row["config"] else offer.whole(row["knobs"])
        name, trials = offer.identity(knobs), int(row["trials"])
        if row["status"] != "ok":
            faults.setdefault(name, ": ".join(filter(None, (str(row["status"]), str(row["why"] or "")))))
        elif name not in times or trials > times[name].trials:
            if row["is_anchor"]:
                times[name] = LogTime(0.0, 0.0, trials, knobs)
            elif 0 < row["low"] <= row["high"] < math.inf:
                half = math.log(row["high"] / row["low"]) / 2
                times[name] = LogTime(math.log(row["ratio"]), half, trials, knobs)
    times = {name: time for name, time in times.items() if name not in faults}
    if not times and not faults:
        return None
    names = {offer.backend: offer.identity(offer.config)}
    twins = [twin for twin in pruned.twins if twin.point.case == offer.case] if pruned else []
    for point in (*(twin.point for twin in twins), *(pruned.to_measure.get(offer.case, ()) if pruned else ())):
        if point.backend == offer.backend:
            names[point.label] = offer.identity(offer.whole(point.knobs))
    for twin in twins:
        if twin.point.label in names and names.get(twin.same_as) in times:
            times.setdefault(names[twin.point.label], times[names[twin.same_as]])
    return TimedCase(offer, times, faults)


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


def decisions(offers: Sequence[BackendOffer], measured: Measured, pruned: Pruned | None = None) -> list[EntryDecision]:
    """What a sweep decides about the entries of the cases that it measured, in the order of the declaration."""
    decided = []
    for shared in by_place(offers).values():
        cases = [timed_case(offer, measured.frame, pruned) for offer in shared]
        if any(cases):
            smallest = policy.load().settings(shared[0].operator, measured.machine.kind).smallest_effect
            decided.append(decide(shared, cases, smallest))
    return decided


def decide(offers: Sequence[BackendOffer], measured: Sequence[TimedCase | None], smallest: float) -> EntryDecision:
    """What becomes of the entry that some cases share.  smallest: share of the time by which a winner must win."""

    def decided(action: Action, why: str, name: Identity = "") -> EntryDecision:
        if not name:
            return EntryDecision(offers, action, why)
        return EntryDecision(offers, action, why, times[name][0].knobs, against(name, rule), trials(name))

    if missing := [offer.case for offer, case in zip(offers, measured, strict=True) if case is None]:
        are = "is" if len(missing) == 1 else "are"
        return decided(Action.OPEN, f"the entry is for {', '.join(missing)} too, which {are} not measured")
    cases, first = [case for case in measured if case], offers[0]
    rule = first.identity(first.rule)
    for case in cases:
        if rule not in case.times:
            why = case.faults.get(rule, "it is not among the points")
            return decided(Action.OPEN, f"the rule has no time in {case.offer.case}: {why}")
    times = {
        name: [case.times[name] for case in cases] for name in cases[0].times if all(name in c.times for c in cases)
    }

    def pairs(name: Identity, other: Identity) -> list[tuple[LogTime, LogTime]]:
        return list(zip(times[name], times[other], strict=True))

    def against(name: Identity, other: Identity) -> Ratio:
        return mean_ratio(pairs(name, other))

    def trials(name: Identity) -> int:
        return min(time.trials for time in times[name])

    def beats_rule(name: Identity, by: float) -> bool:
        """In every case, beyond doubt and by more than a share of the time."""
        return all(mean_ratio([pair]).high < 1 - by for pair in pairs(name, rule))

    def ousts(name: Identity) -> bool:
        """It beats the present entry over all cases, beyond doubt and by what counts, and never loses to it."""
        loses = any(mean_ratio([pair]).low > 1 for pair in pairs(name, old))
        return against(name, old).high < 1 - smallest and not loses

    ranked = sorted((math.fsum(time.log for time in own), name) for name, own in times.items() if name != rule)
    winners = [name for _, name in ranked if beats_rule(name, smallest)]
    confirmed = [name for name in winners if trials(name) >= LEAST_TRIALS]
    one_trial = f"measured in one trial; {LEAST_TRIALS} are needed"
    if not first.entry:
        if confirmed:
            return decided(Action.NEW, f"{against(confirmed[0], rule)} of the rule's time", confirmed[0])
        if winners:
            return decided(Action.OPEN, f"the best knobs were {one_trial}")
        best = (
            f"the best of {len(ranked)} takes {against(ranked[0][1], rule)} of the rule's time"
            if ranked
            else "no other"
        )
        return decided(Action.BY_RULE, f"nothing beats the rule beyond doubt: {best}")
    old = first.identity(first.config)
    if old == rule:
        return decided(Action.REMOVED, "the rule gives the same knobs now")
    better = [name for name in confirmed if name != old]
    if failed := [f"{case.offer.case}: {case.faults[old]}" for case in cases if old in case.faults]:
        why = f"it fails: {'; '.join(failed)}"
    elif old not in times:
        return decided(Action.OPEN, "the present entry is not among the points")
    elif trials(old) < LEAST_TRIALS:
        return decided(Action.OPEN, f"the present entry was {one_trial}")
    else:
        for name in filter(ousts, better):
            return decided(Action.MOVED, f"{against(name, old)} of the old entry's time", name)
        why = f"{against(old, rule)} of the rule's time"
        if beats_rule(old, 0.0):
            return decided(Action.CONFIRMED, why, old)
        why = f"it takes {why}"
    return decided(Action.MOVED, f"of the old entry: {why}", better[0]) if better else decided(Action.REMOVED, why)


# ---- the table -------------------------------------------------------------------------------------------------------


def rewritten(text: str, file: Path, decided: Iterable[EntryDecision], measured: Measured) -> str:
    """The text of a file after some decisions; every line of other entries stays.  SweepError where it is not TOML."""
    try:
        document = tomlkit.parse(text)
    except ParseError as error:
        raise SweepError(f"{file} is not TOML: {error}; repair it, or remove it for a new one") from None
    for decision in decided:
        if decision.place.file != file:
            continue
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
            entry[PROVENANCE].update(dict(confirmation(decision, measured)))
            entry[PROVENANCE].add(tomlkit.nl())
    return tomlkit.dumps(document).rstrip("\n") + "\n"


def confirmation(decision: EntryDecision, measured: Measured) -> Iterator[tuple[str, Any]]:
    """When, where and by how much an entry won: its time / the rule's, geometric mean over the cases, with interval."""
    machine, versions, against = measured.machine, measured.environment.requirements, decision.against_rule
    assert against is not None
    facts = {
        "date": measured.day,
        "device": machine.market_name or machine.device or machine.cpu or "unknown device",
        "machine": machine.name,
        **{name: versions.get(name) for name in ("triton", "torch")},
        "driver": machine.driver,
        "cases": [case.case for case in decision.cases],
        "trials": decision.trials,
        **{name: round(value, 4) for name, value in dataclasses.asdict(against).items()},
    }
    return ((name, value) for name, value in facts.items() if value)


# ---- words -----------------------------------------------------------------------------------------------------------


STYLES = {Action.MOVED: "yellow", Action.REMOVED: "yellow", Action.OPEN: "red", Action.NEW: "green"}


def show(decided: Sequence[EntryDecision], console: Console) -> None:
    """A row for each entry, and how many there are of each kind."""
    table = Table(box=None, pad_edge=False)
    for name in ("entry", "", "knobs", "why"):
        table.add_column(name, overflow="fold")
    for decision in decided:
        knobs = " ".join(f"{name}={value}" for name, value in (decision.entry or {}).items())
        action = Text(decision.action, STYLES.get(decision.action, ""))
        table.add_row(str(decision.place), action, knobs, Text(decision.why))
    console.print(table)
    counts = Counter(decision.action for decision in decided)
    console.print(", ".join(f"{counts[action]} {action}" for action in Action if counts[action]))


def document(decided: Iterable[EntryDecision]) -> dict[str, object]:
    """What --json prints."""
    entries = [
        {
            "entry": str(decision.place),
            "cases": [case.case for case in decision.cases],
            "backend": decision.cases[0].backend,
            "action": str(decision.action),
            "why": decision.why,
            "knobs": decision.entry,
            "against_rule": dataclasses.astuple(decision.against_rule) if decision.against_rule else None,
            "trials": decision.trials,
        }
        for decision in decided
    ]
    return {"entries": entries}
