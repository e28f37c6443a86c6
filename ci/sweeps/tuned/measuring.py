"""Measuring for a table: the points of its cases as a sweep, and the code objects that they compile to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console

from benchmarks.points import Knobs, Point
from ci.git.repository import LocalCheckout
from ci.sweeps import effort
from ci.sweeps.catalogue import Catalogue, TunedCase
from ci.sweeps.plan import FOLDER, SweepPlan, sweep_id
from ci.sweeps.pruning import PointCompiler, Pruned, prune
from ci.sweeps.rungs import Rungs
from ci.sweeps.tuned.verifying import CodeObjects
from kernels import project

VERIFYING_ROUNDS = {"gpu": (40, 40, 40), "cpu": (20, 20)}
"""Rounds of the trials of a verification: few knobs, so all of them get what finalists of a sweep get."""

Wanted = Sequence[tuple[TunedCase, Sequence[Knobs]]]
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
        found: dict[str, list[Point]] = {}
        anchors: dict[str, str] = {}
        for case, knobs in wanted:
            anchors.setdefault(case.case, case.backend)
            own = found.setdefault(case.case, [])
            plain = [] if anchors[case.case] == case.backend else [Point(case.case, case.backend)]
            tried = [self.point(case, one) for one in knobs]
            known = {one.label for one in own}
            own += dict.fromkeys(one for one in (*plain, *(p for p in tried if p.knobs)) if one.label not in known)
        return {case: _once(own) for case, own in found.items()}, anchors

    def point(self, case: TunedCase, knobs: Knobs) -> Point:
        """The point of the knobs of a launch: what they change of the present choice."""
        chosen = case.chosen
        changed = {name: value for name, value in knobs.items() if name not in chosen or chosen[name] != value}
        return Point(case.case, case.backend, changed)

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
                    made = known.get((case.case, self.point(case, one).label))
                    found[case.case, backend, case.identity(one)] = made.identity if made else ""
        return found

    @property
    def _compiler(self) -> PointCompiler:
        return PointCompiler(self.checkout.path, self.console)

    def rungs(self, verifying: bool, cases: Iterable[TunedCase] = ()) -> Rungs:
        """A search drops what is slow early, but for the rules of the cases, against which an entry has to stand.

        A verification measures all it asks for in every trial.
        """
        operator, kind = self.catalogue.operator, self.catalogue.kind
        if verifying:
            return Rungs.of(operator, kind, VERIFYING_ROUNDS[kind], halving=False)
        rules = {(one.case, self.point(one, {**one.defaults, **one.rule}).label) for one in cases}
        return Rungs.of(operator, kind, stay=frozenset(rules))

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
        return effort.expected(self.catalogue, points, rungs).minutes


def _once(points: Iterable[Point]) -> list[Point]:
    return list({one.label: one for one in points}.values())
