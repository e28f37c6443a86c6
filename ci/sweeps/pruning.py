"""Which points need no GPU time: what cannot run, and what would run the code of another point.

`python -m benchmarks.isa metrics --points FILE` compiles every point ahead of time.  Two points are equal if the
launches have the same code, the same scalar arguments and the same grid; points whose knobs come to the same are equal
without compiling.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.points import Batch, Point, PointsFile, UntimedPoint
from ci import harness
from ci.sweeps.catalogue import Catalogue
from ci.sweeps.measured import SweepError
from ci.trials.trial import Json
from kernels import project

CACHE = ".ridgeline/isa"
"""Below the root of the project: where compiled points are kept, beside those of `ridgeline isa`."""

WILL_NOT_LOAD, REFUSED, FAILED = "cannot load", "refused", "does not compile"
"""Reasons why a point is not measured, in few words."""


DECLARED = "its isa() declaration failed: ValueError: "
"""Begins the sentence of a launch that the operator itself refuses (benchmarks.isa.worker)."""


@dataclasses.dataclass(frozen=True)
class Dropped:
    """A point that is not measured.  kind: one of the reasons above; why: a sentence."""

    point: Point
    kind: str
    why: str


@dataclasses.dataclass(frozen=True)
class Pruned:
    """kept: by case, points that are measured.  twins: points that share the times of another.  dropped: the others."""

    kept: Mapping[str, Sequence[Point]]
    twins: tuple[UntimedPoint, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    @property
    def count(self) -> int:
        """How many points are measured."""
        return sum(map(len, self.kept.values()))

    @property
    def equal(self) -> dict[tuple[str, str], str]:
        """By (case, label) of a twin, the label of the one whose times it has."""
        return {(one.point.case, one.point.label): one.same_as for one in self.twins}

    def reasons(self) -> dict[str, int]:
        """How many points are not measured, by reason."""
        found = Counter({"the code of another point": len(self.twins)} if self.twins else {})
        return dict(found + Counter(one.kind for one in self.dropped))


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What is known of a point.  kind, why: of one that is not measured.  identity: of its launches, "" where that is
    not known and it equals no other."""

    kind: str = ""
    why: str = ""
    identity: str = ""


Known = Mapping[tuple[str, str], Compiled]
"""By (case, label of a point), the anchors too."""


def prune(
    catalogue: Catalogue,
    asked: Mapping[str, Sequence[Point]],
    anchors: Mapping[str, str],
    compiler: PointCompiler | None,
) -> Pruned:
    """What is left to be measured, by its knobs and by its code.  compiler: None to compile nothing ahead."""
    known = {
        (case, one.label): _by_knobs(catalogue, one)
        for case, own in asked.items()
        for one in (Point(case, anchors[case]), *own)
    }
    found = _joined(asked, known, anchors)
    if compiler is None or catalogue.kind == "cpu" or not found.count:
        return found
    code, equal = compiler.compiled(catalogue, found.kept, anchors), found.equal
    for (case, label), by_knobs in known.items():
        told = code.get((case, equal.get((case, label), label)), by_knobs)
        known[case, label] = told if told.kind or told.identity else by_knobs
    return _joined(asked, known, anchors)


def _by_knobs(catalogue: Catalogue, point: Point) -> Compiled:
    """Without compiling: whether its backend refuses the case, and all knobs of its launch; none of a library's."""
    offer = catalogue.of(point.case, point.backend)
    if offer is None or offer.why_not:
        return Compiled(REFUSED, offer.why_not if offer else "its backend does not have this case")
    told = f"{point.backend} {json.dumps(offer.whole(point.knobs), sort_keys=True)}"
    return Compiled(identity=told if offer.knobs else "")


def _joined(points: Mapping[str, Sequence[Point]], known: Known, anchors: Mapping[str, str]) -> Pruned:
    """Points of one identity as one: the anchor's, or the first one's."""
    kept: dict[str, list[Point]] = {}
    twins, dropped = list[UntimedPoint](), list[Dropped]()
    for case, own in points.items():
        anchor = anchors[case]
        first = {known[case, anchor].identity: anchor}
        for point in own:
            found = known[case, point.label]
            if point.label == anchor:
                continue  # it is in every batch
            if found.kind:
                dropped.append(Dropped(point, found.kind, found.why))
            elif found.identity and (other := first.setdefault(found.identity, point.label)) != point.label:
                twins.append(UntimedPoint(point, other))
            else:
                kept.setdefault(case, []).append(point)
    return Pruned(kept, tuple(twins), tuple(dropped))


# ---- compiled ahead -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PointCompiler:
    """Compiles points of a tree ahead of time; the cache keeps what is compiled.

    launched: they will be launched on this machine, so the binaries go where launches look for them.  program: what
    runs the compiling program as one of its commands, None for a process of its own.
    """

    tree: Path
    console: Console
    launched: bool = False
    program: harness.OneProgram | None = None

    def compiled(
        self, catalogue: Catalogue, points: Mapping[str, Sequence[Point]], anchors: Mapping[str, str]
    ) -> Known:
        """What their code says; SweepError if the compiling program gave no result."""
        batches = tuple(
            Batch(case, anchors[case], (Point(case, anchors[case]), *(one for one in own if one.knobs)))
            for case, own in points.items()
        )
        told = self.told(catalogue.operator, batches, catalogue.arch, catalogue.compute_units, "compiling ahead")
        return read_compiled(told)

    def told(self, operator: str, batches: tuple[Batch, ...], arch: str, compute_units: int | None, title: str) -> Json:
        """What `python -m benchmarks.isa metrics --points` writes of some points on a device."""
        with tempfile.TemporaryDirectory(prefix="ridgeline-sweep-") as folder:
            asked, out = Path(folder) / "points.json", Path(folder) / "compiled.json"
            asked.write_text(json.dumps(dataclasses.asdict(PointsFile("ahead", operator, 0, 1, batches))))
            argv = harness.program("benchmarks.isa", "metrics")
            argv += harness.options(points=asked, tree=self.tree.resolve(), cache=project.place(CACHE).resolve())
            argv += harness.options(arch=arch, compute_units=compute_units, out=out, progress="json")
            argv += ["--launch-cache"] * self.launched
            harness.produce(argv, out, self.console, title, self.program)
            return dict(json.loads(out.read_text()))


def read_compiled(document: Json) -> Known:
    """What `python -m benchmarks.isa metrics --points` wrote."""
    if document.get("failure"):
        raise SweepError(f"nothing could be compiled ahead: {document['failure']}")
    found = {}
    for one in document["points"]:
        point = Point(one["case"], one["backend"], one.get("knobs") or {})
        found[point.case, point.label] = _compiled(one)
    return found


def _compiled(one: Json) -> Compiled:
    if one["status"] == "undeclared":
        return Compiled()  # a library's: nothing is compiled
    if one["status"] == "unsupported":
        return Compiled(REFUSED, one["why"])
    if one["status"] != "ok":
        refused, _, why = str(one["why"]).partition(DECLARED)
        return Compiled(FAILED, refused) if refused else Compiled(REFUSED, why)
    if one.get("will_not_load"):
        return Compiled(WILL_NOT_LOAD, one["will_not_load"])
    return Compiled(identity=f"{one['backend']} {one['equal']}" if one.get("equal") else "")
