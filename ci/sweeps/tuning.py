"""Tuned tables: what is measured for them, what is decided about every entry, and how that is said."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from benchmarks.points import Knobs, Point
from ci.git.repository import LocalCheckout
from ci.judging import policy
from ci.sweeps.catalogue import BackendOffer, Catalogue, by_place
from ci.sweeps.choose import Action, EntryDecision, TimedCase, decide, timed
from ci.sweeps.measured import Measured
from ci.sweeps.pruning import PointCompiler, Pruned, prune
from ci.sweeps.run import FOLDER, SweepPlan, sweep_id
from ci.sweeps.rungs import Rungs
from ci.whole_files import replace
from kernels import project

VERIFYING_ROUNDS = {"gpu": (40, 40, 40), "cpu": (20, 20)}
"""Rounds of the trials of a verification: few knobs, so all of them get what finalists of a sweep get."""


# ---- what is measured ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class TuningSweep:
    """The sweep that decides about the entries of some cases.  pruned: its points without what need not be measured.

    anchors: the backend of each case that its points are ratios to.
    """

    pruned: Pruned
    anchors: Mapping[str, str]
    rungs: Rungs

    def plan(self, catalogue: Catalogue, checkout: LocalCheckout, budget_min: float | None) -> SweepPlan:
        """The sweep, with a trial file of its own by which it is resumed."""
        name = sweep_id(catalogue.operator, checkout, self.rungs)
        file = project.place(f"{FOLDER}/tune-{catalogue.operator}-{name}.jsonl")
        stay = frozenset((case, self.pruned.equal.get((case, label), label)) for case, label in self.rungs.stay)
        return SweepPlan(
            name,
            catalogue.operator,
            checkout,
            self.pruned,
            self.anchors,
            file,
            dataclasses.replace(self.rungs, stay=stay),
            budget_min=budget_min,
            world=catalogue.world(self.anchors),
        )


def search(catalogue: Catalogue, cases: Sequence[BackendOffer], compiler: PointCompiler) -> TuningSweep:
    """The present choice, the rule and every candidate; what is slow is dropped early, but for the rules."""
    rules = frozenset((case.case, case.point(case.by_rule).label) for case in cases)
    rungs = Rungs.of(catalogue.operator, catalogue.kind, stay=rules)
    return _sweep(catalogue, [(case, (case.by_rule, *case.candidates)) for case in cases], rungs, compiler)


def verification(catalogue: Catalogue, cases: Sequence[BackendOffer], compiler: PointCompiler) -> TuningSweep:
    """The entries and the rule, each in all rounds of every trial."""
    rounds = VERIFYING_ROUNDS[catalogue.kind]
    rungs = Rungs.of(catalogue.operator, catalogue.kind, rounds, halving=False)
    return _sweep(catalogue, [(case, (case.by_rule,)) for case in cases], rungs, compiler)


def _sweep(
    catalogue: Catalogue, wanted: Sequence[tuple[BackendOffer, Sequence[Knobs]]], rungs: Rungs, compiler: PointCompiler
) -> TuningSweep:
    points, anchors = points_of(wanted)
    return TuningSweep(prune(catalogue, points, anchors, compiler), anchors, rungs)


def points_of(wanted: Sequence[tuple[BackendOffer, Sequence[Knobs]]]) -> tuple[dict[str, list[Point]], dict[str, str]]:
    """(Points by case, its anchor by case) of knobs of launches; backends other than the anchor are points as well."""
    points: dict[str, dict[str, Point]] = {}
    anchors: dict[str, str] = {}
    for case, knobs in wanted:
        anchors.setdefault(case.case, case.backend)
        for point in (Point(case.case, case.backend), *map(case.point, knobs)):
            if point.label != anchors[case.case]:
                points.setdefault(case.case, {}).setdefault(point.label, point)
    return {case: list(points.get(case, {}).values()) for case in anchors}, anchors


def with_entry_here(cases: Sequence[BackendOffer], devices: int | None) -> tuple[list[BackendOffer], list[str]]:
    """(Cases with an entry that can be measured here, a sentence for each entry of more ranks than there are GPUs).

    devices: GPUs here, None if that is not known.
    """
    here, waiting = list[BackendOffer](), list[str]()
    for place, own in by_place(cases).items():
        world = max(case.world for case in own)
        if own[0].entry and devices is not None and world > devices:
            waiting.append(f"{place}: waits for {world} GPUs; there are {devices}")
        elif own[0].entry:
            here += own
    return here, waiting


# ---- what is decided -------------------------------------------------------------------------------------------------


def decisions(cases: Sequence[BackendOffer], measured: Measured, pruned: Pruned | None = None) -> list[EntryDecision]:
    """What a sweep decides about the entries of the cases that it measured, in the order of the declaration."""
    times: dict[tuple[str, str], TimedCase | None] = {}
    for case in cases:
        own = timed(case, measured.frame)
        times[case.backend, case.case] = with_equals(own, pruned) if own else None
    decided = []
    for shared in by_place(cases).values():
        own_times = {case.case: times[case.backend, case.case] for case in shared}
        if any(own_times.values()):
            smallest = policy.load().settings(shared[0].operator, measured.machine.kind).smallest_effect
            decided.append(decide(shared, own_times, smallest))
    return decided


def with_equals(case: TimedCase, pruned: Pruned | None) -> TimedCase:
    """With the times of what was not measured because it is the code of another point."""
    offer = case.offer
    twins = [twin for twin in (pruned.twins if pruned else ()) if twin.point.case == offer.case]
    points = [*(twin.point for twin in twins), *(pruned.kept.get(offer.case, ()) if pruned else ())]
    names = {
        point.label: offer.identity(offer.whole(point.knobs)) for point in points if point.backend == offer.backend
    }
    names[offer.backend] = offer.identity(offer.config)
    equal = {
        names[twin.point.label]: case.good[names[twin.same_as]]
        for twin in twins
        if twin.point.label in names and names.get(twin.same_as) in case.good
    }
    return dataclasses.replace(case, good={**equal, **case.good})


def add_lines(lines: Path, out: Path) -> None:
    """Add the lines of a trial file to another one, each once."""
    before = out.read_text(encoding="utf-8") if out.exists() else ""
    measured = lines.read_text(encoding="utf-8").splitlines() if lines.exists() else []
    known = set(before.splitlines())
    replace(out, before + "".join(f"{line}\n" for line in measured if line not in known))


# ---- words -----------------------------------------------------------------------------------------------------------


STYLES = {Action.MOVED: "yellow", Action.REMOVED: "yellow", Action.OPEN: "red", Action.NEW: "green"}


def show(decided: Sequence[EntryDecision], console: Console) -> None:
    """A row for each entry, and how many there are of each kind."""
    table = RichTable(box=None, pad_edge=False)
    for name in ("entry", "", "knobs", "why"):
        table.add_column(name, overflow="fold")
    for decision in decided:
        action = Text(str(decision.action), STYLES.get(decision.action, ""))
        knobs = " ".join(f"{name}={value}" for name, value in (decision.entry or {}).items())
        table.add_row(str(decision.place), action, knobs, Text(decision.why))
    console.print(table)
    counts = Counter(str(decision.action) for decision in decided)
    console.print(", ".join(f"{counts[action]} {action}" for action in Action if counts[action]))


def document(decided: Iterable[EntryDecision]) -> dict[str, object]:
    """What --json prints."""
    return {
        "entries": [
            {
                "entry": str(decision.place),
                "cases": [case.case for case in decision.cases],
                "backend": decision.cases[0].backend,
                "action": str(decision.action),
                "why": decision.why,
                "knobs": decision.entry,
                "against_rule": list(dataclasses.astuple(decision.against_rule)) if decision.against_rule else None,
                "trials": decision.trials,
            }
            for decision in decided
        ]
    }
