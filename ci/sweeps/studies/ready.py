"""A study made ready on an architecture: its points, those that need no GPU time, and what the rest will cost."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.points import Point
from benchmarks.studies.types import Study, StudyPart
from ci.harness import machine_kind
from ci.sweeps.catalogue import Catalogue, Catalogues
from ci.sweeps.effort import ExpectedEffort, expected
from ci.sweeps.measured import SweepError
from ci.sweeps.pruning import PointCompiler, Pruned, prune
from ci.sweeps.rungs import Rungs
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
    """A part of a study.  asked: its points by case; compiler: by whose code some need no time, None for none."""

    part: StudyPart
    catalogue: Catalogue
    asked: Mapping[str, Sequence[Point]]
    compiler: PointCompiler | None
    rungs: Rungs

    @functools.cached_property
    def pruned(self) -> Pruned:
        """What is left to be measured.  Compiling ahead takes seconds: it waits until it is the part's turn."""
        return prune(self.catalogue, self.asked, self.anchors, self.compiler)

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
        return self.catalogue.world(self.asked)


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
            compiler = PointCompiler(asked.tree, console, launched=asked.arch is None, program=known.program)
            ahead = asked.compile_ahead and not part.check
            yield ReadyPart(part, catalogue, found, compiler if ahead else None, rungs(study, asked))


def code_of(
    study: Study, parts: Sequence[ReadyPart], asked: StudyAsked, known: Catalogues, console: Console
) -> list[code.PointCode]:
    """The machine code of all points, for the device that measures and AMD's."""

    def points_of(part: StudyPart, arch: str, units: int | None) -> Mapping[str, Sequence[Point]]:
        return points(part, known.of(part.operator, arch, units), asked.cases)

    device = parts[0].catalogue
    compiler = PointCompiler(asked.tree, console, program=known.program)
    return code.compiled(study, points_of, device.arch, device.compute_units, compiler)


def rungs(study: Study, asked: StudyAsked) -> Rungs:
    """Few rounds for all and more for the best, or all rounds of all trials for every point."""
    kind = machine_kind()
    if study.halving and not asked.trials:
        return Rungs.of(study.operators[0], kind)
    count, rounds = asked.trials or study.trials, asked.rounds or study.rounds
    return Rungs.of(study.operators[0], kind, (rounds,) * count, halving=False)
