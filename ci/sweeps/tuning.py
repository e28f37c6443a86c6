"""From a measured sweep to tables: what it decides about every entry, and what the files become."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from benchmarks.points import Knobs, Point
from ci.git.repository import LocalCheckout
from ci.judging import policy
from ci.sweeps import run, tables
from ci.sweeps.catalogue import BackendOffer, Catalogue, Identity, TablePlace, by_place
from ci.sweeps.choose import RUNNERS_UP, Action, EntryDecision, TimedCase, decide, timed
from ci.sweeps.measured import Measured, SweepError
from ci.sweeps.pruning import PointCompiler, Pruned, prune
from ci.sweeps.run import FOLDER, SweepPlan, sweep_id
from ci.sweeps.rungs import Rungs
from ci.sweeps.tables import CODE_DIGITS, WRITTEN, Confirmed, TableEntry, rewritten
from ci.whole_files import replace
from kernels import project


def search(cases: Sequence[BackendOffer]) -> Wanted:
    """What a search measures: the present choice, the rule and every candidate."""
    return [(case, (case.whole({}), case.by_rule, *case.candidates)) for case in cases]


def verification(rivals: Iterable[Rivals]) -> Wanted:
    """What a verification measures."""
    return [(case, one.of_case(case)) for one in rivals for case in one.entry.cases]


def decisions(cases: Sequence[BackendOffer], measured: Measured, pruned: Pruned | None = None) -> list[EntryDecision]:
    """What a sweep decides about the entries of the cases that it measured, in the order of the declaration."""
    found: dict[str, dict[str, TimedCase | None]] = {}
    for case in cases:
        one = timed(case, measured.frame)
        found.setdefault(case.backend, {})[case.case] = with_equals(one, pruned) if one else None
    made = []
    for own in by_place(cases).values():
        seen = {case.case: found[case.backend][case.case] for case in own}
        if any(seen.values()):
            kind, operator = measured.machine.kind, own[0].operator
            made.append(decide(own, seen, policy.load().settings(operator, kind).smallest_effect))
    return made


def with_equals(one: TimedCase, pruned: Pruned | None) -> TimedCase:
    """With the times of what was not measured because it is the code of another point."""
    offer = one.offer
    twins = [twin for twin in (pruned.twins if pruned else ()) if twin.point.case == offer.case]
    points = [*(twin.point for twin in twins), *(pruned.kept.get(offer.case, ()) if pruned else ())]
    names = {
        point.label: offer.identity(offer.whole(point.knobs)) for point in points if point.backend == offer.backend
    }
    names[offer.backend] = offer.identity(offer.config)
    equal = {
        names[twin.point.label]: one.good[names[twin.same_as]]
        for twin in twins
        if twin.point.label in names and names.get(twin.same_as) in one.good
    }
    return dataclasses.replace(one, good={**equal, **one.good})


def rivals_of(made: EntryDecision) -> Rivals:
    """Winner, rule and runners-up of a decision that has knobs: what its code is recorded of."""
    first = made.cases[0]
    assert made.knobs is not None
    entry = TableEntry(made.place, made.cases, None)
    return Rivals(entry, (made.knobs, first.by_rule, *(one.knobs for one in made.runners_up)))


def confirmations(made: Sequence[EntryDecision], measured: Measured, code: CodeObjects) -> dict[TablePlace, Confirmed]:
    """The provenance of every entry that is written."""
    machine, versions = measured.machine, dict(measured.environment.requirements)
    versions |= {"driver": machine.driver} if machine.driver else {}
    device = machine.market_name or machine.device or machine.cpu or "unknown device"
    day = datetime.datetime.fromisoformat(measured.started_at).astimezone(datetime.UTC).date()
    facts = (day, device, machine.name, versions)
    return {
        one.place: tables.of_decision(one, *facts, code_of_rivals(rivals_of(one), code))
        for one in made
        if one.action in WRITTEN
    }


def codes(bench: Bench, made: Sequence[EntryDecision]) -> CodeObjects:
    """What the winners, rules and runners-up of decisions compile to."""
    wanted = verification(rivals_of(one) for one in made if one.action in WRITTEN)
    return bench.code(wanted) if wanted else {}


def new_texts(
    cases: Sequence[BackendOffer], made: Sequence[EntryDecision], confirmed: Mapping[TablePlace, Confirmed]
) -> dict[Path, tuple[str, str]]:
    """Of every file that decisions are about: its text, and what it becomes."""
    keys = list(dict.fromkeys(case.place.key for case in cases))
    found = {}
    for file in dict.fromkeys(one.place.file for one in made):
        before = file.read_text(encoding="utf-8")
        found[file] = (before, rewritten(before, file, made, confirmed, keys))
    return found


# Which entries must be measured again: not those whose code objects are what they were when they were confirmed.


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

    def of_case(self, case: BackendOffer) -> list[Knobs]:
        """The knobs in one of the entry's cases: its own rule, and of the others what an entry of them says there."""
        first = self.entry.cases[0]
        winner, *others = (case.launched(first.as_entry(knobs)) for knobs in (self.knobs[0], *self.knobs[2:]))
        return [winner, case.by_rule, *others]


def rivals(entry: TableEntry) -> Rivals:
    """Winner, rule and runners-up; of an entry that nobody has confirmed the first candidates stand for these."""
    case = entry.cases[0]
    known = [one.knobs for one in entry.confirmed.runners_up] if entry.confirmed else list(case.candidates)
    taken, others = {case.identity(case.config), case.identity(case.rule)}, list[Knobs]()
    for knobs in known:
        if (identity := case.identity(knobs)) not in taken and len(others) < RUNNERS_UP:
            taken.add(identity)
            others.append(knobs)
    return Rivals(entry, (case.whole({}), case.by_rule, *others))


def code_of_rivals(one: Rivals, code: CodeObjects) -> str:
    """One digest of the code objects of an entry's rivals, case by case; "" unless all of them are known."""
    return _digest(
        _digest(code.get((case.case, case.backend, case.identity(knobs)), "") for knobs in one.of_case(case))
        for case in one.entry.cases
    )


def _digest(parts: Iterable[str]) -> str:
    every = list(parts)
    return hashlib.sha256("\n".join(every).encode()).hexdigest()[:CODE_DIGITS] if all(every) else ""


@dataclasses.dataclass(frozen=True, eq=False)
class Due:
    """Entries to verify.  unchanged: their code is what was confirmed.  stale: to measure, oldest first.

    elsewhere: stale ones of more ranks than there are GPUs here.
    """

    unchanged: tuple[Rivals, ...]
    stale: tuple[Rivals, ...]
    elsewhere: tuple[Rivals, ...]


def due(entries: Sequence[TableEntry], code: CodeObjects, devices: int | None) -> Due:
    """Which of the entries need GPU time.  devices: GPUs here, None for any number."""
    every = [rivals(one) for one in entries]
    same = [one for one in every if _unchanged(one, code)]
    stale = sorted((one for one in every if one not in same), key=lambda one: (one.since, one.entry.place))
    elsewhere = [one for one in stale if devices is not None and one.entry.world > devices]
    return Due(tuple(same), tuple(one for one in stale if one not in elsewhere), tuple(elsewhere))


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


# What knobs compiled to where they were measured, as a file beside the trials: other hosts have another Triton.


LARGEST = 20_000_000
"""Bytes: an entry has some 400, and a night measures a few thousand sets of knobs."""


def beside(trials: Path) -> Path:
    """The file of a trial file: sweep.jsonl -> sweep.code.json."""
    name = trials.name.removesuffix(".gz").removesuffix(".jsonl")
    return trials.with_name(f"{name}.code.json")


def write(trials: Path, operator: str, code: CodeObjects) -> None:
    """Keep what is known, with what the file had of other operators; one entry a line."""
    old = [one for one in _entries(beside(trials)) if one[0] != operator]
    new = [[operator, *place, found] for place, found in code.items() if found]
    lines = ",\n".join(json.dumps(one) for one in sorted([*old, *new]))
    replace(beside(trials), f"[\n{lines}\n]\n")


def read(files: Iterable[Path], operator: str) -> CodeObjects:
    """What some files say of an operator; nothing where there are none."""
    entries = [one for path in files for one in _entries(path)]
    return {(case, backend, identity): found for owner, case, backend, identity, found in entries if owner == operator}


def _entries(path: Path) -> list[list[str]]:
    """[operator, case, backend, identity, digest] each.  SweepError for a file that is something else."""
    if not path.exists():
        return []
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it has more than {LARGEST:,} bytes")
        found = json.loads(path.read_text(encoding="utf-8"))
        if all(len(one) == 5 and all(isinstance(part, str) for part in one) for one in found):
            return list(found)
        why = "an entry is not five texts"
    except (OSError, ValueError, TypeError) as error:
        why = str(error)
    raise SweepError(f"{path} cannot be used: {why}; remove it, and the entries are verified again in time")


# Measuring for a table: the points of its cases as a sweep, and the code objects that they compile to.


VERIFYING_ROUNDS = {"gpu": (40, 40, 40), "cpu": (20, 20)}
"""Rounds of the trials of a verification: few knobs, so all of them get what finalists of a sweep get."""

Wanted = Sequence[tuple[BackendOffer, Sequence[Knobs]]]
"""Cases, and knobs of launches to measure in each."""

Points = Mapping[str, Sequence[Point]]
"""By case."""


@dataclasses.dataclass(frozen=True, eq=False)
class Bench:
    """An operator of a checkout, as the catalogue offers it for one device."""

    catalogue: Catalogue
    checkout: LocalCheckout
    console: Console

    def points(self, wanted: Wanted) -> tuple[dict[str, list[Point]], dict[str, str]]:
        """The points by case, and the anchors.  Backends beside the anchor are points as they are, too."""
        found: dict[str, dict[str, Point]] = {}
        anchors: dict[str, str] = {}
        for case, knobs in wanted:
            anchors.setdefault(case.case, case.backend)
            for point in (Point(case.case, case.backend), *map(case.point, knobs)):
                if point.label != anchors[case.case]:
                    found.setdefault(case.case, {}).setdefault(point.label, point)
        return {case: list(found.get(case, {}).values()) for case in anchors}, anchors

    def pruned(self, points: Points, anchors: Mapping[str, str]) -> Pruned:
        """Without what cannot load, and without what is the code of another point."""
        return prune(self.catalogue, points, anchors, self._compiler)

    def code(self, wanted: Wanted) -> CodeObjects:
        """What some knobs compile to now, for this device; nothing on a CPU, where nothing is compiled ahead."""
        found: dict[tuple[str, str, str], str] = {}
        for backend in dict.fromkeys(case.backend for case, _ in wanted if self.catalogue.kind == "gpu"):
            mine = [(case, knobs) for case, knobs in wanted if case.backend == backend]
            points, anchors = self.points(mine)
            known = self._compiler.compiled(self.catalogue, points, anchors)
            for case, knobs in mine:
                for one in knobs:
                    made = known.get((case.case, case.point(one).label))
                    found[case.case, backend, case.identity(one)] = made.identity if made else ""
        return found

    @property
    def _compiler(self) -> PointCompiler:
        return PointCompiler(self.checkout.path, self.console)

    def rungs(self, verifying: bool, cases: Iterable[BackendOffer] = ()) -> Rungs:
        """A search drops what is slow early, but for the rules of the cases, against which an entry has to stand.

        A verification measures all it asks for in every trial.
        """
        operator, kind = self.catalogue.operator, self.catalogue.kind
        if verifying:
            return Rungs.of(operator, kind, VERIFYING_ROUNDS[kind], halving=False)
        rules = frozenset((one.case, one.point(one.by_rule).label) for one in cases)
        return Rungs.of(operator, kind, stay=rules)

    def plan(self, points: Points, anchors: Mapping[str, str], pruned: Pruned, rungs: Rungs) -> SweepPlan:
        """The sweep, with a trial file of its own by which it is resumed."""
        operator = self.catalogue.operator
        name = sweep_id(operator, self.checkout, rungs)
        file = project.place(f"{FOLDER}/tune-{operator}-{name}.jsonl")
        stay = frozenset((case, pruned.equal.get((case, label), label)) for case, label in rungs.stay)
        rungs = dataclasses.replace(rungs, stay=stay)
        world = self.catalogue.world(points)
        return SweepPlan(name, operator, self.checkout, pruned, anchors, file, rungs, world=world)

    def minutes(self, points: Points, rungs: Rungs) -> float:
        """GPU minutes that these points are expected to take."""
        return run.expected(self.catalogue, points, rungs).minutes


# What tuning did, or would do, in words.


STYLES = {Action.MOVED: "yellow", Action.REMOVED: "yellow", Action.OPEN: "red", Action.NEW: "green"}

LISTED = 20
"""Entries that are listed one by one; of more, the number."""


def show(made: Sequence[EntryDecision], console: Console) -> None:
    """A row for each entry, and how many there are of each kind."""
    table = RichTable(box=None, pad_edge=False)
    for name in ("entry", "", "knobs", "why"):
        table.add_column(name, overflow="fold")
    for one in made:
        action = Text(str(one.action), STYLES.get(one.action, ""))
        table.add_row(str(one.place), action, _words(one.entry or {}), Text(one.why))
    console.print(table)
    console.print(counted(made))


def counted(made: Sequence[EntryDecision]) -> str:
    """How many there are of each kind."""
    counts = Counter(str(one.action) for one in made)
    return ", ".join(f"{counts[action]} {action}" for action in Action if counts[action])


def _words(knobs: Knobs) -> str:
    return " ".join(f"{name}={value}" for name, value in knobs.items())


def document(made: Sequence[EntryDecision]) -> dict[str, object]:
    """What --json prints."""
    return {"entries": [_entry(one) for one in made]}


def _entry(one: EntryDecision) -> dict[str, object]:
    ratios = {name: getattr(one, name) for name in ("against_rule", "moved_by")}
    return {
        "entry": str(one.place),
        "cases": [case.case for case in one.cases],
        "backend": one.cases[0].backend,
        "action": str(one.action),
        "why": one.why,
        "knobs": one.entry,
        **{name: list(dataclasses.astuple(found)) if found else None for name, found in ratios.items()},
        "runners_up": [{"knobs": dict(other.knobs), "time": other.behind} for other in one.runners_up],
        "trials": one.trials,
    }


def would_search(cases: Sequence[BackendOffer], pruned: Pruned, minutes: float, arch: str) -> None:
    """What a search would measure."""
    entries = by_place(cases)
    click.echo(f"{len(entries)} entries on {arch}, for {len(cases)} cases and backends")
    for what, count in pruned.reasons().items():
        click.echo(f"  {count} points are not measured: {what}")
    click.echo(f"would measure {pruned.count} points, about {minutes:.1f} GPU minutes")


def say_due(operator: str, due: Due, later: Sequence[Rivals], minutes: float) -> None:
    """Which entries need no GPU time, which are measured now, in so many minutes, and which wait for the next call."""
    told = [f"{one.entry.place}: code unchanged since it was confirmed on {one.since}" for one in due.unchanged]
    told += [f"{one.entry.place}: to verify, {_since(one)}" for one in due.stale]
    told += [f"{one.entry.place}: waits for the next call, {_since(one)}: the budget is spent" for one in later]
    told += [f"{one.entry.place}: waits for {one.entry.world} GPUs, {_since(one)}" for one in due.elsewhere]
    for line in told[:LISTED]:
        click.echo(line, err=True)
    if len(told) > LISTED:
        click.echo(f"and {len(told) - LISTED} more", err=True)
    measured = f"{len(due.stale)} to verify in about {minutes:.1f} GPU minutes" if due.stale else "none to verify"
    waiting = len(later) + len(due.elsewhere)
    click.echo(
        f"{operator}: {len(told)} entries, {len(due.unchanged)} need no GPU time, {measured}, {waiting} wait", err=True
    )


def _since(one: Rivals) -> str:
    if one.entry.confirmed is None or one.since == NEVER:
        return "never confirmed"
    changed = "its code has changed" if one.entry.confirmed.code else "its code was not recorded"
    return f"confirmed on {one.since}, and {changed}"


def added(lines: Path, out: Path) -> None:
    """Add the lines of a trial file to another one, each once."""
    before = out.read_text(encoding="utf-8") if out.exists() else ""
    measured = lines.read_text(encoding="utf-8").splitlines() if lines.exists() else []
    known = set(before.splitlines())
    new = [line for line in measured if line not in known]
    replace(out, before + "".join(f"{line}\n" for line in new))


def markdown(made: Sequence[EntryDecision]) -> str:
    """What a pull request with new tables says: what moved, what goes, what is new, what was confirmed."""
    order = (Action.MOVED, Action.REMOVED, Action.NEW, Action.CONFIRMED)
    told = sorted((one for one in made if one.action in order), key=lambda one: (order.index(one.action), one.place))
    rows = [f"| `{one.cases[0].operator}` `{one.place}` | {one.action} | {one.why} |" for one in told]
    moved = sum(one.action in (Action.MOVED, Action.REMOVED) for one in told)
    head = f"{moved} best configurations moved." if moved != 1 else "1 best configuration moved."
    note = "Every entry says what confirmed it; an entry is for all cases that share it."
    return "\n".join([head, "", "| entry | | why |", "|---|---|---|", *rows, "", note, ""])
