"""Measure a study: every part as a sweep of its own, and the parts that are not timed as checks."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.points import Knobs, Point
from ci.git.repository import LocalCheckout
from ci.harness import FAULTS, MEASURED, NOTHING, MeasureError, MeasurePlan, OneProgram, machine_kind, measure
from ci.options import out_console
from ci.studies import changes
from ci.studies.folder import CHECKS, Rendered
from ci.studies.frame import ranks_text
from ci.studies.types import Study, StudyError, StudyPart, Tried
from ci.sweeps.catalogue import BackendOffer, Catalogue, Catalogues, some
from ci.sweeps.measured import SweepError
from ci.sweeps.pruning import PointCompiler, Pruned, prune
from ci.sweeps.run import ExpectedEffort, SweepPlan, expected, go_on, sweep_id
from ci.sweeps.rungs import Rungs

WHOLE_CALLS = 30
"""Calls timed from the host's side: a launch from Python scatters by some 5 % and the median of 30 by 1 % (1.25 * 5 % /
sqrt(30), the standard error of a median), and at 50 us a call they cost 5 ms with their flushes."""


@dataclasses.dataclass(frozen=True)
class Left:
    """What one call did not measure, and why, by operator."""

    operator: str
    points: int
    why: str


def measured(
    study: Study,
    parts: Sequence[ReadyPart],
    checkout: LocalCheckout,
    request: StudyRequest,
    out: Path,
    program: OneProgram,
    console: Console,
) -> list[Left]:
    """Measure what the file lacks, part by part; what is left then.  KeyboardInterrupt on Ctrl-C.

    Nobody else may measure into the file meanwhile (ci.sweeps.run.lone_writer).
    """
    left, spent_min = list[Left](), 0.0
    for number, part in enumerate(parts, 1):
        operator = part.part.operator
        console.print(f"{study.name}, part {number} of {len(parts)}: {operator}, {len(part.points)} cases")
        count, began = part.pruned.count, time.monotonic()
        if part.part.check:
            _check(part, checkout, out.parent / CHECKS / f"{study.name}.jsonl", program, console)
        elif count:
            ended = go_on(_plan(study, part, checkout, request, out, spent_min), console, program.follow)
            left += [Left(operator, ended.left.count, ended.why)] if ended.left else []
        spent_min += (time.monotonic() - began) / 60 * part.world
    return left


def _plan(
    study: Study, part: ReadyPart, checkout: LocalCheckout, request: StudyRequest, out: Path, spent_min: float
) -> SweepPlan:
    operator, regime = part.part.operator, request.regime or study.regime
    return SweepPlan(
        sweep_id(operator, checkout, part.rungs, regime),
        operator,
        checkout,
        part.pruned,
        part.anchors,
        out,
        part.rungs,
        regime,
        budget_min=None if request.budget_min is None else max(request.budget_min - spent_min, 0.0),
        world=part.world,
        shared=True,
        whole_calls=WHOLE_CALLS if study.whole_call else 0,
    )


def _check(part: ReadyPart, checkout: LocalCheckout, out: Path, program: OneProgram, console: Console) -> None:
    """Compare every arm with the reference; MeasureError if that could not be done."""
    backends = list(dict.fromkeys(point.backend for own in part.points.values() for point in own))
    plan = MeasurePlan("sweep", [part.part.operator], list(part.points), backends)
    if measure([checkout], plan, out, console, "verify", by=program) not in (MEASURED, FAULTS, NOTHING):
        raise MeasureError(f"the checks of {part.part.operator} broke off; what is finished is in {out}")


# From a declaration to points: which arms each case of a study has on an architecture.


def points(part: StudyPart, catalogue: Catalogue, cases: Sequence[str] = ()) -> dict[str, list[Point]]:
    """By case, the plain arms of a part and its points, each once; the anchor is the first of the plain arms.

    cases: patterns, only these.  Raises StudyError where nothing matches, or a declared knob does not exist.
    """
    offers = [offer for offer in catalogue.offers if part.has(offer.case, offer.world)]
    if not offers:
        wanted_cases = f"{', '.join(part.cases[:4])} on {ranks_text(part.ranks)}"
        raise StudyError(f"no case of {part.operator} matches {wanted_cases}; it has {some(catalogue.cases)}")
    wanted = Tried(cases=tuple(cases))
    by_case: dict[str, dict[str, BackendOffer]] = {}
    for offer in offers:
        if wanted.at(offer.case):
            by_case.setdefault(offer.case, {})[offer.backend] = offer
    return {case: list(_points(part, case, offers, catalogue.arch)) for case, offers in by_case.items()}


def _points(part: StudyPart, case: str, offers: Mapping[str, BackendOffer], arch: str) -> Iterator[Point]:
    yield from (Point(case, name) for name in dict.fromkeys((part.anchor, *part.arms)) if name in offers)
    seen: set[str] = set()
    for tried in part.tried:
        offer = offers.get(tried.backend)
        if offer is None or offer.why_not or not (tried.on(arch) and tried.at(case)):
            continue
        for knobs in overrides(tried, offer, part.operator):
            point = Point(case, tried.backend, knobs)
            if knobs and point.label not in seen:
                seen.add(point.label)
                yield point


def overrides(tried: Tried, offer: BackendOffer, operator: str) -> Iterator[Knobs]:
    """Knob sets over config(), as far as they differ from it."""
    for name in dict.fromkeys(name for knobs in (tried.knobs, *tried.points) for name in knobs):
        if name not in offer.knobs:
            has = f"its knobs are: {', '.join(offer.knobs) or 'none'}"
            raise StudyError(f"{operator}: backend {offer.backend} has no knob {name!r}; {has}")
    whole = offer.whole({})
    bases = [*(offer.candidates if tried.candidates else ()), *tried.points] or [{}]
    for base, change in itertools.product(bases, combinations(tried)):
        yield {name: value for name, value in {**base, **change}.items() if whole.get(name) != value}


def combinations(tried: Tried) -> list[Knobs]:
    """Every combination of the values (or, with `each`, every value of every knob alone); one empty set for none."""
    if tried.each:
        return [{name: value} for name, values in tried.knobs.items() for value in values]
    names = list(tried.knobs)
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*tried.knobs.values())]


# A study made ready on an architecture: its points, those that need no GPU time, and what the rest will cost.


@dataclasses.dataclass(frozen=True)
class StudyRequest:
    """Where and how a study is done.  cases: patterns, only these.  arch, compute_units: None for this machine's.

    trials, rounds: over those of the declaration; None to keep them.  budget_min: GPU minutes, None for any.
    """

    tree: Path
    cases: Sequence[str] = ()
    arch: str | None = None
    compute_units: int | None = None
    regime: str = ""
    trials: int | None = None
    rounds: int | None = None
    compile_ahead: bool = True
    budget_min: float | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class ReadyPart:
    """A part of a study.  points: by case; compiler: by whose code some need no time, None for none."""

    part: StudyPart
    catalogue: Catalogue
    points: Mapping[str, Sequence[Point]]
    compiler: PointCompiler | None
    rungs: Rungs

    @functools.cached_property
    def pruned(self) -> Pruned:
        """What is left to be measured.  Compiling ahead takes seconds: it waits until it is the part's turn."""
        return prune(self.catalogue, self.points, self.anchors, self.compiler)

    @property
    def anchors(self) -> dict[str, str]:
        """The anchor of each case."""
        return dict.fromkeys(self.points, self.part.anchor)

    @property
    def count(self) -> int:
        """Points and plain arms that were asked for."""
        return sum(map(len, self.points.values()))

    @property
    def expected(self) -> ExpectedEffort:
        """What measuring it takes."""
        return expected(self.catalogue, self.pruned.to_measure, self.rungs)

    @property
    def world(self) -> int:
        """The most ranks of its cases."""
        return self.catalogue.world(self.points)


def ready(study: Study, request: StudyRequest, known: Catalogues, console: Console) -> list[ReadyPart]:
    """Every part of a study that has a case among those asked for.  StudyError, SweepError or MeasureError if not."""
    made = list(_parts(study, request, known, console))
    if not made:
        raise SweepError(f"no case of the study {study.name} fits {', '.join(request.cases)}")
    return made


def _parts(study: Study, request: StudyRequest, known: Catalogues, console: Console) -> Iterator[ReadyPart]:
    for part in study.parts:
        catalogue = known.of(part.operator, request.arch, request.compute_units)
        points_of_part = points(part, catalogue, request.cases)
        if points_of_part:
            compiler = PointCompiler(request.tree, console, launched=request.arch is None, program=known.program)
            ahead = request.compile_ahead and not part.check
            yield ReadyPart(part, catalogue, points_of_part, compiler if ahead else None, rungs(study, request))


def code_of(
    study: Study, parts: Sequence[ReadyPart], request: StudyRequest, known: Catalogues, console: Console
) -> list[changes.PointCode]:
    """The machine code of all points, for the device that measures and AMD's."""

    def points_of(part: StudyPart, arch: str, units: int | None) -> Mapping[str, Sequence[Point]]:
        return points(part, known.of(part.operator, arch, units), request.cases)

    device = parts[0].catalogue
    compiler = PointCompiler(request.tree, console, program=known.program)
    return changes.compiled(study, points_of, device.arch, device.compute_units, compiler)


def rungs(study: Study, request: StudyRequest) -> Rungs:
    """Few rounds for all and more for the best, or all rounds of all trials for every point."""
    kind = machine_kind()
    if study.halving and not request.trials:
        return Rungs.of(study.operators[0], kind)
    count, rounds = request.trials or study.trials, request.rounds or study.rounds
    return Rungs.of(study.operators[0], kind, (rounds,) * count, halving=False)


# What `ridgeline study` prints: a plan, and what came of a study.


def planned(parts: Sequence[ReadyPart]) -> list[dict[str, Any]]:
    """A dry run as JSON values, part by part."""
    return [
        {
            "operator": ready_part.part.operator,
            "arch": ready_part.catalogue.arch,
            "ranks": list(ready_part.part.ranks),
            "cases": len(ready_part.points),
            "points": ready_part.count,
            "measured": 0 if ready_part.part.check else ready_part.pruned.count,
            "checked": ready_part.count if ready_part.part.check else 0,
            "left_out": ready_part.pruned.reasons(),
            "why": dict(Counter(dropped.why for dropped in ready_part.pruned.dropped)),
            "gpu_minutes": 0.0 if ready_part.part.check else round(ready_part.expected.minutes, 2),
        }
        for ready_part in parts
    ]


def plan_table(name: str, parts: Sequence[Mapping[str, Any]]) -> Table:
    """A dry run (`planned`) as a table."""
    title = f"{name} on {parts[0]['arch']}"
    table = Table("operator", "ranks", "cases", "points", "measured", "left out", "GPU min", title=title)
    for part in parts:
        reasons = "; ".join(f"{count} {why}" for why, count in part["left_out"].items())
        minutes = "checked only" if part["checked"] else f"{part['gpu_minutes']:.1f}"
        numbers = [str(part[what]) for what in ("cases", "points", "measured")]
        table.add_row(part["operator"], ranks_text(part["ranks"]), *numbers, reasons, minutes)
    return table


def why_nothing(parts: Sequence[ReadyPart], left: Sequence[Left]) -> str:
    """Why a study has no line."""
    reasons = [part_left.why for part_left in left] + [each.why for part in parts for each in part.pruned.dropped]
    return "; ".join(list(dict.fromkeys(reasons))[:3]) or "no point is left"


def show(study: Study, made: Rendered, as_json: bool) -> None:
    """Where everything is, the rules and what is missing; the table is in table.md and table.csv."""
    if as_json:
        click.echo(json.dumps(result_document(study, made), indent=1))
        return
    console = out_console()
    console.print(f"[bold]{study.title}[/bold]")
    console.print(f"{len(made.table)} rows in {made.folder / 'table.md'}, figures: {', '.join(made.figures) or 'none'}")
    for line in [finding.sentence for finding in made.findings] + [f"not there: {one}" for one in made.waits]:
        console.print(f"- {line}", markup=False)


def result_document(study: Study, made: Rendered) -> dict[str, object]:
    """What came of a study as JSON values."""
    rules = [{"rule": finding.rule, "said": finding.sentence} for finding in made.findings]
    rows = json.loads(made.table.to_json(orient="records", double_precision=12))
    where = {"study": study.name, "folder": str(made.folder), "figures": list(made.figures)}
    return {**where, "waits": list(made.waits), "guidance": rules, "rows": rows}
