"""A study made ready on an architecture: its points, those that need no GPU time, and what the rest will cost."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.points import Point
from benchmarks.studies.types import Study, StudyPart
from ci.harness import OneProgram, machine_kind
from ci.judging import policy
from ci.sweeps.catalogue import Catalogue, Catalogues
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
    """A part of a study.  asked: its points by case; prune: finds out what is left of them to be measured."""

    part: StudyPart
    catalogue: Catalogue
    asked: Mapping[str, Sequence[Point]]
    prune: Callable[[], Pruned]
    rungs: Rungs

    @functools.cached_property
    def pruned(self) -> Pruned:
        """What is left to be measured.  Compiling ahead takes seconds: it waits until it is the part's turn."""
        return self.prune()

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


def ready(study: Study, asked: StudyAsked, known: Catalogues, console: Console) -> list[ReadyPart]:
    """Every part of a study that has a case among those asked for.  StudyError, SweepError or MeasureError if not."""
    made = list(_parts(study, asked, known, console))
    if not made:
        raise SweepError(f"no case of the study {study.name} fits {', '.join(asked.cases)}")
    return made


def _parts(study: Study, asked: StudyAsked, known: Catalogues, console: Console) -> Iterator[ReadyPart]:
    for part in study.parts:
        catalogue = known.of(part.operator, asked.arch, asked.compute_units)
        found = points(part, catalogue, asked.cases)
        if found:
            prune = functools.partial(_pruned, part, catalogue, found, asked, known.program, console)
            yield ReadyPart(part, catalogue, found, prune, rungs(study, asked))


def _pruned(
    part: StudyPart,
    catalogue: Catalogue,
    found: Mapping[str, Sequence[Point]],
    asked: StudyAsked,
    program: OneProgram,
    console: Console,
) -> Pruned:
    anchors = dict.fromkeys(found, part.anchor)
    pruned = by_config(catalogue, found, anchors)
    if part.check or not asked.compile_ahead or catalogue.arch == "cpu" or not pruned.count:
        return pruned
    units, here = catalogue.compute_units, asked.arch is None
    compiler = PointCompiler(asked.tree, catalogue.arch, units, CACHE, console, launched=here, program=program)
    return compiler.pruned(part.operator, pruned, anchors)


def code_of(
    study: Study, parts: Sequence[ReadyPart], asked: StudyAsked, known: Catalogues, console: Console
) -> list[code.PointCode]:
    """The machine code of all points, for the device that measures and AMD's."""

    def points_of(part: StudyPart, arch: str, units: int | None) -> Mapping[str, Sequence[Point]]:
        return points(part, known.of(part.operator, arch, units), asked.cases)

    device = parts[0].catalogue
    where = (asked.tree, device.arch, device.compute_units)
    return code.compiled(study, points_of, *where, console, known.program)


def rungs(study: Study, asked: StudyAsked) -> Rungs:
    """Few rounds for all and more for the best, or all rounds of all trials for every point."""
    kind = machine_kind()
    least = policy.load().settings(study.operators[0], kind).trial_noise
    if study.halving and not asked.trials:
        return Rungs(CPU_ROUNDS if kind == "cpu" else GPU_ROUNDS, least=least)
    count, rounds = asked.trials or study.trials, asked.rounds or study.rounds
    return Rungs((rounds,) * count, halving=False, least=least)
