"""A study made ready on an architecture: its points, those that need no GPU time, and what the rest will cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.points import Point
from benchmarks.studies.types import Study, StudyPart
from ci.harness import machine_kind
from ci.judging import policy
from ci.sweeps import catalogue as catalogues
from ci.sweeps.catalogue import Catalogue
from ci.sweeps.effort import ExpectedEffort, expected
from ci.sweeps.measured import SweepError
from ci.sweeps.prepare import CACHE
from ci.sweeps.pruning import PointCompiler, Pruned, by_config
from ci.sweeps.rungs import CPU_ROUNDS, GPU_ROUNDS, Rungs
from ci.sweeps.studies.across import code
from ci.sweeps.studies.points import points


@dataclasses.dataclass(frozen=True)
class StudyAsked:
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
    """A part of a study.  asked: its points by case; pruned: what is left of them to be measured."""

    part: StudyPart
    catalogue: Catalogue
    asked: Mapping[str, Sequence[Point]]
    pruned: Pruned
    rungs: Rungs

    @property
    def anchors(self) -> dict[str, str]:
        """The anchor of each case."""
        return dict.fromkeys(self.asked, self.part.anchor)

    @property
    def count(self) -> int:
        """Points and plain arms that were asked for."""
        return sum(map(len, self.asked.values()))

    @property
    def expected(self) -> ExpectedEffort:
        """What measuring it takes."""
        return expected(self.catalogue, self.pruned.kept, self.rungs)

    @property
    def world(self) -> int:
        """The most ranks of its cases."""
        return max((one.world for one in self.catalogue.offers if one.case in self.asked), default=1)


def ready(study: Study, asked: StudyAsked, console: Console) -> list[ReadyPart]:
    """Every part of a study that has a case among those asked for.  StudyError, SweepError or MeasureError if not."""
    made = list(_parts(study, asked, console))
    if not made:
        raise SweepError(f"no case of the study {study.name} fits {', '.join(asked.cases)}")
    return made


def _parts(study: Study, asked: StudyAsked, console: Console) -> Iterator[ReadyPart]:
    known: dict[str, Catalogue] = {}
    for part in study.parts:
        if part.operator not in known:
            known[part.operator] = catalogues.ask(part.operator, asked.tree, (), asked.arch, asked.compute_units)
        catalogue = known[part.operator]
        found = points(part, catalogue, asked.cases)
        if found:
            yield ReadyPart(
                part, catalogue, found, _pruned(part, catalogue, found, asked, console), rungs(study, asked)
            )


def _pruned(
    part: StudyPart, catalogue: Catalogue, found: Mapping[str, Sequence[Point]], asked: StudyAsked, console: Console
) -> Pruned:
    anchors = dict.fromkeys(found, part.anchor)
    pruned = by_config(catalogue, found, anchors)
    if part.check or not asked.compile_ahead or catalogue.arch == "cpu" or not pruned.count:
        return pruned
    units, here = catalogue.compute_units, asked.arch is None
    compiler = PointCompiler(asked.tree, catalogue.arch, units, CACHE, console, launched=here)
    return compiler.pruned(part.operator, pruned, anchors)


def code_of(study: Study, parts: Sequence[ReadyPart], asked: StudyAsked, console: Console) -> list[code.PointCode]:
    """The machine code of all points, for the device that measures and AMD's."""

    def points_of(part: StudyPart, arch: str, units: int | None) -> Mapping[str, Sequence[Point]]:
        return points(part, catalogues.ask(part.operator, asked.tree, (), arch, units), asked.cases)

    device = parts[0].catalogue
    return code.compiled(study, points_of, asked.tree, device.arch, device.compute_units, console)


def rungs(study: Study, asked: StudyAsked) -> Rungs:
    """Few rounds for all and more for the best, or all rounds of all trials for every point."""
    kind = machine_kind()
    least = policy.load().settings(study.operators[0], kind).trial_noise
    if study.halving and not asked.trials:
        return Rungs(CPU_ROUNDS if kind == "cpu" else GPU_ROUNDS, least=least)
    count, rounds = asked.trials or study.trials, asked.rounds or study.rounds
    return Rungs((rounds,) * count, halving=False, least=least)
