"""Which points need no GPU time: what cannot run, and what would run the code of another point.

`python -m benchmarks.isa metrics --points FILE` compiles every point ahead of time.  Two points are equal if the
launches have the same code, the same scalar arguments and the same grid; points whose knobs come to the same are equal
without compiling.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.points import Batch, Point, PointsFile
from ci import harness
from ci.sweeps.catalogue import BackendOffer, Catalogue
from ci.sweeps.measured import SweepError
from ci.trials.trial import Json
from kernels import project

CACHE = ".ridgeline/isa"
"""Below the root of the project: where compiled points are kept, beside those of `ridgeline isa`."""

WILL_NOT_LOAD, SPILLS, REGISTERS, REFUSED, FAILED = (
    *("cannot load", "spills too much", "too many registers", "refused", "does not compile"),
)
"""Reasons why a point is not measured, in few words."""


DECLARED = "its isa() declaration failed: ValueError: "
"""Begins the sentence of a launch that the operator itself refuses (benchmarks.isa.worker)."""


@dataclasses.dataclass(frozen=True)
class CodeLimits:
    """What a point's code may have at most; None: anything.  registers: per lane (thread).  spills: vector registers,
    on NVIDIA bytes of local memory per thread."""

    registers: int | None = None
    spills: int | None = None


@dataclasses.dataclass(frozen=True)
class Dropped:
    """A point that is not measured.  kind: one of the reasons above; why: a sentence."""

    point: Point
    kind: str
    why: str


@dataclasses.dataclass(frozen=True)
class Pruned:
    """kept: by case, points that are measured.  equal: points that share the times of another, by (case, label), with
    that one's label.  dropped: the others.  compiled: how many were compiled to know this."""

    kept: Mapping[str, Sequence[Point]]
    equal: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    dropped: tuple[Dropped, ...] = ()
    twins: tuple[Point, ...] = ()
    compiled: int = 0

    @property
    def count(self) -> int:
        """How many points are measured."""
        return sum(map(len, self.kept.values()))

    def reasons(self) -> dict[str, int]:
        """How many points are not measured, by reason."""
        found: dict[str, int] = {"the code of another point": len(self.equal)} if self.equal else {}
        for one in self.dropped:
            found[one.kind] = found.get(one.kind, 0) + 1
        return found


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What compiling a point gave.  identity: of its launches, "" where that is not known and it equals no other."""

    kind: str = ""
    why: str = ""
    identity: str = ""


def by_config(catalogue: Catalogue, points: Mapping[str, Sequence[Point]], anchors: Mapping[str, str]) -> Pruned:
    """Without compiling: points in cases that a backend refuses, and those whose knobs come to the same."""
    dropped: list[Dropped] = []
    identities: dict[tuple[str, str], Compiled] = {}
    for case, own in points.items():
        for point in own:
            offer = catalogue.of(case, point.backend)
            why = offer.why_not if offer else "its backend does not have this case"
            if why or offer is None:
                dropped.append(Dropped(point, REFUSED, why))
            else:
                identities[case, point.label] = Compiled(identity=_told(offer, point))
    left = {case: [one for one in own if (case, one.label) in identities] for case, own in points.items()}
    for case, backend in anchors.items():
        if offer := catalogue.of(case, backend):
            identities[case, backend] = Compiled(identity=_told(offer, Point(case, backend)))
    return _joined(left, identities, anchors, dropped)


def _told(offer: BackendOffer, point: Point) -> str:
    """All knobs of a launch as text; nothing for a backend without any."""
    return f"{point.backend} {json.dumps(offer.whole(point.knobs), sort_keys=True)}" if offer.knobs else ""


def _joined(
    points: Mapping[str, Sequence[Point]],
    known: Mapping[tuple[str, str], Compiled],
    anchors: Mapping[str, str],
    dropped: Iterable[Dropped],
) -> Pruned:
    """Points of one identity as one: the anchor's, or the first one's."""
    kept: dict[str, list[Point]] = {}
    equal: dict[tuple[str, str], str] = {}
    twins: list[Point] = []
    gone = list(dropped)
    for case, own in points.items():
        anchor = known.get((case, anchors.get(case, "")), Compiled())
        first = {anchor.identity: anchors.get(case, "")} if anchor.identity else {}
        for point in own:
            found = known.get((case, point.label), Compiled())
            if point.label == anchors.get(case):
                continue  # it is in every batch
            if found.kind:
                gone.append(Dropped(point, found.kind, found.why))
            elif found.identity and first.setdefault(found.identity, point.label) != point.label:
                equal[case, point.label] = first[found.identity]
                twins.append(point)
            else:
                kept.setdefault(case, []).append(point)
    return Pruned(kept, equal, tuple(gone), tuple(twins), sum(1 for one in known.values() if one.identity))


# ---- compiled ahead -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PointCompiler:
    """Compiles points of a tree ahead of time; the cache keeps what is compiled.

    launched: they will be launched on this machine, so the binaries go where launches look for them.  program: what
    runs the compiling program as one of its commands, None for a process of its own.
    """

    tree: Path
    console: Console
    limits: CodeLimits = CodeLimits()
    launched: bool = False
    program: harness.OneProgram | None = None

    def pruned(self, catalogue: Catalogue, before: Pruned, anchors: Mapping[str, str]) -> Pruned:
        """What is left after compiling; SweepError if the compiling program gave no result."""
        known = self.compiled(catalogue, before.kept, anchors)
        after = _joined(before.kept, known, anchors, before.dropped)
        moved = {place: after.equal.get((place[0], other), other) for place, other in before.equal.items()}
        gone = {(one.point.case, one.point.label): one for one in after.dropped}
        lost = [one for one in before.twins if (one.case, moved[one.case, one.label]) in gone]
        more = [dataclasses.replace(gone[one.case, moved[one.case, one.label]], point=one) for one in lost]
        equal = {place: other for place, other in moved.items() if (place[0], other) not in gone}
        twins = [one for one in before.twins if (one.case, one.label) in equal]
        return dataclasses.replace(
            after, equal={**equal, **after.equal}, dropped=(*after.dropped, *more), twins=(*twins, *after.twins)
        )

    def compiled(
        self, catalogue: Catalogue, points: Mapping[str, Sequence[Point]], anchors: Mapping[str, str]
    ) -> dict[tuple[str, str], Compiled]:
        """By (case, label), the anchors too."""
        batches = tuple(
            Batch(case, anchors[case], (Point(case, anchors[case]), *(one for one in own if one.knobs)))
            for case, own in points.items()
        )
        told = self.told(catalogue.operator, batches, catalogue.arch, catalogue.compute_units, "compiling ahead")
        return read_compiled(told, self.limits)

    def told(self, operator: str, batches: tuple[Batch, ...], arch: str, compute_units: int | None, title: str) -> Json:
        """What `python -m benchmarks.isa metrics --points` writes of some points on a device."""
        with tempfile.TemporaryDirectory(prefix="ridgeline-sweep-") as folder:
            asked, out = Path(folder) / "points.json", Path(folder) / "compiled.json"
            asked.write_text(json.dumps(PointsFile("ahead", operator, 0, 1, batches).as_json()))
            argv = harness.program("benchmarks.isa", "metrics")
            argv += harness.options(points=asked, tree=self.tree.resolve(), cache=project.place(CACHE).resolve())
            argv += harness.options(arch=arch, compute_units=compute_units, out=out, progress="json")
            argv += ["--launch-cache"] * self.launched
            harness.produce(argv, out, self.console, title, self.program)
            return dict(json.loads(out.read_text()))


def prune(
    catalogue: Catalogue,
    asked: Mapping[str, Sequence[Point]],
    anchors: Mapping[str, str],
    compiler: PointCompiler | None,
) -> Pruned:
    """What is left to be measured, by its knobs and by its code.  compiler: None to compile nothing ahead."""
    found = by_config(catalogue, asked, anchors)
    if compiler is None or catalogue.kind == "cpu" or not found.count:
        return found
    return compiler.pruned(catalogue, found, anchors)


def read_compiled(document: Json, limits: CodeLimits) -> dict[tuple[str, str], Compiled]:
    """What `python -m benchmarks.isa metrics --points` wrote, by (case, label of the point)."""
    if document.get("failure"):
        raise SweepError(f"nothing could be compiled ahead: {document['failure']}")
    found = {}
    for one in document["points"]:
        point = Point(one["case"], one["backend"], one.get("knobs") or {})
        found[point.case, point.label] = _compiled(one, limits)
    return found


def _compiled(one: Json, limits: CodeLimits) -> Compiled:
    if one["status"] == "undeclared":
        return Compiled()  # a library's: nothing is compiled
    if one["status"] == "unsupported":
        return Compiled(REFUSED, one["why"])
    if one["status"] != "ok":
        refused, _, why = str(one["why"]).partition(DECLARED)
        return Compiled(FAILED, refused) if refused else Compiled(REFUSED, why)
    if one.get("will_not_load"):
        return Compiled(WILL_NOT_LOAD, one["will_not_load"])
    metrics = one.get("metrics") or {}
    registers = metrics.get("vgpr", metrics.get("registers")) or 0
    spills = metrics.get("vgpr_spills", metrics.get("scratch_bytes")) or 0
    if limits.registers is not None and registers > limits.registers:
        return Compiled(REGISTERS, f"{registers} registers, and at most {limits.registers} are allowed")
    if limits.spills is not None and spills > limits.spills:
        return Compiled(SPILLS, f"{spills} spilled, and at most {limits.spills} are allowed")
    return Compiled(identity=f"{one['backend']} {one['equal']}" if one.get("equal") else "")
