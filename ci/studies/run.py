"""A study from its declaration to its trial file: the points of each part, measured as a sweep of its own."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.points import Knobs, Point
from ci import harness
from ci.git.repository import LocalCheckout
from ci.studies.types import Study, StudyError, StudyPart, Tried
from ci.sweeps import catalogue
from ci.sweeps.catalogue import BackendOffer, Catalogue, some
from ci.sweeps.pruning import PointCompiler, Pruned, Rungs, prune
from ci.sweeps.run import SweepPlan, expected_minutes, measure, sweep_id

WHOLE_CALLS = 30
"""Calls timed from the host's side: a launch from Python scatters by some 5 % and the median of 30 by 1 % (1.25 * 5 % /
sqrt(30), the standard error of a median), and at 50 us a call they cost 5 ms with their flushes."""

# ---- from a declaration to points ------------------------------------------------------------------------------------


def points(part: StudyPart, offered: Catalogue, cases: Sequence[str] = ()) -> dict[str, list[Point]]:
    """By case, the plain arms of a part and its points, each once; the anchor is the first of the plain arms.

    cases: patterns, only these.  Raises StudyError where nothing matches, or a declared knob does not exist.
    """
    by_case: dict[str, dict[str, BackendOffer]] = {}
    for offer in offered.offers:
        if part.has(offer.case, offer.world):
            by_case.setdefault(offer.case, {})[offer.backend] = offer
    if not by_case:
        wanted = f"{', '.join(part.cases[:4])} on {' or '.join(map(str, part.ranks))} ranks"
        raise StudyError(f"no case of {part.operator} matches {wanted}; it has {some(offered.cases)}")
    chosen = Tried(cases=tuple(cases))
    return {case: _points(part, case, of, offered.arch) for case, of in by_case.items() if chosen.at(case)}


def _points(part: StudyPart, case: str, offers: Mapping[str, BackendOffer], arch: str) -> list[Point]:
    arms = [Point(case, name) for name in (part.anchor, *part.arms) if name in offers]
    for tried in part.tried:
        offer = offers.get(tried.backend)
        if offer and not offer.why_not and tried.on(arch) and tried.at(case):
            arms += (Point(case, tried.backend, knobs) for knobs in overrides(tried, offer, part.operator))
    return list({point.label: point for point in arms}.values())


def overrides(tried: Tried, offer: BackendOffer, operator: str) -> Iterator[Knobs]:
    """Knob sets over config(), as far as they differ from it."""
    for name in dict.fromkeys(name for knobs in (tried.knobs, *tried.points) for name in knobs):
        if name not in offer.knobs:
            has = f"its knobs are: {', '.join(offer.knobs) or 'none'}"
            raise StudyError(f"{operator}: backend {offer.backend} has no knob {name!r}; {has}")
    bases = [*(offer.candidates if tried.candidates else ()), *tried.points] or [{}]
    for base, change in itertools.product(bases, combinations(tried)):
        yield offer.overrides({**offer.whole({}), **base, **change})


def combinations(tried: Tried) -> list[Knobs]:
    """Every combination of the values (or, with `each`, every value of every knob alone); one empty set for none."""
    if tried.each:
        return [{name: value} for name, values in tried.knobs.items() for value in values]
    return [dict(zip(tried.knobs, values, strict=True)) for values in itertools.product(*tried.knobs.values())]


@dataclasses.dataclass(frozen=True, eq=False)
class ReadyPart:
    """A part of a study on an architecture.  points: by case; compiler: by whose code some need no time."""

    part: StudyPart
    catalogue: Catalogue
    points: Mapping[str, Sequence[Point]]
    compiler: PointCompiler
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
    def world(self) -> int:
        """The most ranks of its cases."""
        return self.catalogue.world(self.points)


def ready(study: Study, tree: Path, console: Console, cases: Sequence[str], arch: str | None) -> list[ReadyPart]:
    """Every part of a study that has one of some cases (patterns; () is all).  StudyError where none has.

    arch: another one than this machine's, for which nothing is launched.
    """
    compiler = PointCompiler(tree, console, launched=arch is None)
    offered = {operator: catalogue.ask(operator, tree, arch=arch) for operator in study.operators}
    repeats = None if study.halving else (study.rounds,) * study.trials
    parts = []
    for part in study.parts:
        own = offered[part.operator]
        if wanted := points(part, own, cases):
            rungs = Rungs.of(part.operator, harness.machine_kind(), repeats or (), halving=study.halving)
            parts.append(ReadyPart(part, own, wanted, compiler, rungs))
    if not parts:
        raise StudyError(f"no case of the study {study.name} fits {', '.join(cases)}")
    return parts


# ---- measured --------------------------------------------------------------------------------------------------------


def measured(
    study: Study,
    parts: Sequence[ReadyPart],
    checkout: LocalCheckout,
    out: Path,
    budget_min: float | None,
    console: Console,
) -> list[str]:
    """Measure what the file lacks, part by part; a sentence on what is left of each.  KeyboardInterrupt on Ctrl-C."""
    left, began = list[str](), time.monotonic()
    for number, ready_part in enumerate(parts, 1):
        operator, pruned = ready_part.part.operator, ready_part.pruned
        console.print(f"{study.name}, part {number} of {len(parts)}: {operator}, {len(ready_part.points)} cases")
        if not pruned.count:
            continue
        spent_min = (time.monotonic() - began) / 60 * ready_part.world
        plan = SweepPlan(
            sweep_id(operator, checkout, ready_part.rungs, out),
            operator,
            checkout,
            pruned,
            ready_part.anchors,
            out,
            ready_part.rungs,
            budget_min=None if budget_min is None else max(budget_min - spent_min, 0.0),
            world=ready_part.world,
            shared=True,
            whole_calls=WHOLE_CALLS if study.whole_call else 0,
        )
        ended = measure(plan, console)
        if ended.left:
            left.append(f"{operator}: {ended.left.count} points are not measured yet: {ended.why}")
    if not out.exists():
        why = [*left, *(dropped.why for part in parts for dropped in part.pruned.dropped)]
        nothing = "; ".join(dict.fromkeys(why[:3])) or "no point is left"
        raise StudyError(f"the study {study.name} measured nothing: {nothing}")
    return left


# ---- a dry run -------------------------------------------------------------------------------------------------------


def planned(parts: Sequence[ReadyPart]) -> list[dict[str, object]]:
    """What would be measured, part by part, as JSON values."""
    return [
        {
            "operator": part.part.operator,
            "arch": part.catalogue.arch,
            "ranks": list(part.part.ranks),
            "cases": len(part.points),
            "points": sum(map(len, part.points.values())),
            "measured": part.pruned.count,
            "left_out": part.pruned.reasons(),
            "gpu_minutes": round(expected_minutes(part.pruned.count, part.rungs, part.world), 2),
        }
        for part in parts
    ]
