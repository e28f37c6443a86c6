"""Which points need no GPU time, and which need more of it: what cannot run, what would run the code of another point,
and the rungs that the others climb.

`python -m benchmarks.isa --points FILE` compiles every point ahead of time.  Two points are equal if the
launches have the same code, the same scalar arguments and the same grid; points whose knobs come to the same are equal
without compiling.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.points import Batch, Point, PointsFile, UntimedPoint, label
from ci import harness
from ci.judging import policy
from ci.sweeps.catalogue import Catalogue
from ci.sweeps.measured import MISS, Observation, SweepError, estimates, observations
from ci.sweeps.measured import survivors as surviving
from ci.trials.trial import Json, Trial
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
    """to_measure: points by case.  twins: points that share the times of another.  dropped: the others."""

    to_measure: Mapping[str, Sequence[Point]]
    twins: tuple[UntimedPoint, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    @property
    def count(self) -> int:
        """How many points are measured."""
        return sum(map(len, self.to_measure.values()))

    @property
    def point_count(self) -> int:
        """How many points there are beside the anchors."""
        return self.count + len(self.twins) + len(self.dropped)

    @functools.cached_property
    def equal(self) -> dict[tuple[str, str], str]:
        """By (case, label) of a twin, the label of the one whose times it has."""
        return {(twin.point.case, twin.point.label): twin.same_as for twin in self.twins}

    def reasons(self) -> dict[str, int]:
        """How many points are not measured, by reason."""
        counts = Counter({"the code of another point": len(self.twins)} if self.twins else {})
        return dict(counts + Counter(point.kind for point in self.dropped))


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
        (case, point.label): _by_knobs(catalogue, point)
        for case, own in asked.items()
        for point in (Point(case, anchors[case]), *own)
    }
    by_knobs = _joined(asked, known, anchors)
    if compiler is None or catalogue.kind == "cpu" or not by_knobs.count:
        return by_knobs
    code = compiler.compiled(catalogue, by_knobs.to_measure, anchors)
    for case, name in known:
        compiled = code.get((case, by_knobs.equal.get((case, name), name)), Compiled())
        if compiled.kind or compiled.identity:
            known[case, name] = compiled
    return _joined(asked, known, anchors)


def _by_knobs(catalogue: Catalogue, point: Point) -> Compiled:
    """Without compiling: whether its backend refuses the case, and all knobs of its launch; none of a library's."""
    offer = catalogue.of(point.case, point.backend)
    if offer is None or offer.why_not:
        return Compiled(REFUSED, offer.why_not if offer else "its backend does not have this case")
    identity = f"{point.backend} {json.dumps(offer.whole(point.knobs), sort_keys=True)}"
    return Compiled(identity=identity if offer.knobs else "")


def _joined(points: Mapping[str, Sequence[Point]], known: Known, anchors: Mapping[str, str]) -> Pruned:
    """Points of one identity as one: the anchor's, or the first one's."""
    kept: dict[str, list[Point]] = {}
    twins, dropped = list[UntimedPoint](), list[Dropped]()
    for case, own in points.items():
        anchor = anchors[case]
        first = {known[case, anchor].identity: anchor}
        for point in own:
            compiled = known[case, point.label]
            if point.label == anchor:
                continue  # it is in every batch
            if compiled.kind:
                dropped.append(Dropped(point, compiled.kind, compiled.why))
            elif compiled.identity and (other := first.setdefault(compiled.identity, point.label)) != point.label:
                twins.append(UntimedPoint(point, other))
            else:
                kept.setdefault(case, []).append(point)
    return Pruned(kept, tuple(twins), tuple(dropped))


# ---- compiled ahead -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PointCompiler:
    """Compiles points of a tree ahead of time; the cache keeps what is compiled.

    launched: they will be launched on this machine, so the binaries go where launches look for them.
    """

    tree: Path
    console: Console
    launched: bool = False

    def compiled(
        self, catalogue: Catalogue, points: Mapping[str, Sequence[Point]], anchors: Mapping[str, str]
    ) -> Known:
        """What their code says, by `python -m benchmarks.isa --points`.  SweepError if it gave no result."""
        batches = tuple(
            Batch(case, anchors[case], (Point(case, anchors[case]), *(point for point in own if point.knobs)))
            for case, own in points.items()
        )
        with tempfile.TemporaryDirectory(prefix="ridgeline-sweep-") as folder:
            asked, out = Path(folder) / "points.json", Path(folder) / "compiled.json"
            asked.write_text(json.dumps(dataclasses.asdict(PointsFile("ahead", catalogue.operator, 0, 1, batches))))
            argv = harness.program("benchmarks.isa")
            argv += harness.options(points=asked, tree=self.tree.resolve(), cache=project.place(CACHE).resolve())
            argv += harness.options(arch=catalogue.arch, compute_units=catalogue.compute_units, out=out)
            argv += ["--progress", "json", *["--launch-cache"] * self.launched]
            harness.produce(argv, out, self.console, "compiling ahead")
            return read_compiled(json.loads(out.read_text()))


def read_compiled(document: Json) -> Known:
    """What `python -m benchmarks.isa --points` wrote."""
    if document.get("failure"):
        raise SweepError(f"nothing could be compiled ahead: {document['failure']}")
    compiled = {}
    for entry in document["points"]:
        point = Point(entry["case"], entry["backend"], entry.get("knobs") or {})
        compiled[point.case, point.label] = _compiled(entry)
    return compiled


def _compiled(entry: Json) -> Compiled:
    if entry["status"] == "undeclared":
        return Compiled()  # a library's: nothing is compiled
    if entry["status"] == "unsupported":
        return Compiled(REFUSED, entry["why"])
    if entry["status"] != "ok":
        refused, _, why = str(entry["why"]).partition(DECLARED)
        return Compiled(FAILED, refused) if refused else Compiled(REFUSED, why)
    if entry.get("will_not_load"):
        return Compiled(WILL_NOT_LOAD, entry["will_not_load"])
    return Compiled(identity=f"{entry['backend']} {entry['equal']}" if entry.get("equal") else "")


# Which points are measured next: pure, from what the lines of a sweep say already.
#
# A rung is a process start with a number of rounds: all points few, those that may still be the best more, and the
# finalists in several fresh trials.  Backends are judged apart, so a library that is faster than all of our points
# drops none of them; the anchor counts as a point of its backend.


GPU_ROUNDS = (8, 20, 40, 40, 40)
"""All points (with 4 rounds two slow samples spoil a trial: sd 1.6 % where 8 have 0.8 %, GEMM of 42 us); those that may
be the best; finalists in three fresh trials, as many as a verdict needs (policy:
min_trials) and with the rounds that repeat a median to 0.1 % (`ci.options`)."""

CPU_ROUNDS = (8, 12, 20, 20)
"""The same where a call takes milliseconds and the machine is shared."""


@dataclasses.dataclass(frozen=True)
class Rungs:
    """rounds: of each rung.  halving: False measures every point in every rung.

    least: the smallest spread between trials (policy: trial_noise).  stay: (case, label of a point) of those that are
    measured in every rung however slow they are, because the others are compared with them in the end.
    """

    rounds: tuple[int, ...] = GPU_ROUNDS
    halving: bool = True
    least: float = 0.001
    stay: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, operator: str, kind: str, rounds: tuple[int, ...] = (), **more: Any) -> Rungs:
        """Those of an operator on a kind of machine.  rounds: () for the usual ones."""
        usual = CPU_ROUNDS if kind == "cpu" else GPU_ROUNDS
        return cls(rounds or usual, least=policy.load().settings(operator, kind).trial_noise, **more)

    def __len__(self) -> int:
        return len(self.rounds)

    def first(self, count: int) -> Rungs:
        """The first few; all where points are dropped, as what is dropped depends on how many there are."""
        return self if self.halving else dataclasses.replace(self, rounds=self.rounds[:count])


Wanted = Mapping[str, Sequence[Point]]
"""By case, points that each have code of their own."""

Seen = Mapping[tuple[str, str], Sequence[Observation]]
"""By (case, label of a point): what was seen of it."""


def seen_in(trials: Iterable[Trial], operator: str) -> dict[tuple[str, str], list[Observation]]:
    """What lines of sweeps say of the points of an operator."""
    observed = observations(trial for trial in trials if trial.operator == operator)
    return {(case, label(backend, point)): own for (_, case, backend, point, _), own in observed.items()}


@dataclasses.dataclass(frozen=True)
class DueRung:
    """What comes next: a rung, the points that it lacks, and how many it has in all."""

    rung: int
    points: Wanted
    entered: int

    @property
    def count(self) -> int:
        """How many points it lacks."""
        return sum(map(len, self.points.values()))


def due(wanted: Wanted, rungs: Rungs, seen: Seen, anchors: Mapping[str, str]) -> DueRung | None:
    """The first rung that lacks a point; None when all are done.  anchors: backend by case."""
    entered = wanted
    for rung in range(len(rungs)):
        if rung:
            entered = {case: survivors(own, rung, rungs, seen, anchors[case]) for case, own in entered.items()}
        lacking = {case: [point for point in own if _lacks(point, rung, rungs, seen)] for case, own in entered.items()}
        if any(lacking.values()):
            return DueRung(rung, {case: own for case, own in lacking.items() if own}, sum(map(len, entered.values())))
    return None


def _lacks(point: Point, rung: int, rungs: Rungs, seen: Seen) -> bool:
    """Whether a rung lacks it; one that failed is never tried again."""
    return not any(
        not one.arm.ok or (one.batch.rung == rung and one.arm.rounds >= rungs.rounds[rung])
        for one in seen.get((point.case, point.label), ())
    )


def survivors(entered: Sequence[Point], rung: int, rungs: Rungs, seen: Seen, anchor: str) -> list[Point]:
    """Of the points of a case that entered the rung before, those that enter `rung`: by what the earlier rungs say.

    A point without a ratio, whose anchor failed, ends here.
    """
    right = [point for point in entered if all(one.arm.ok for one in seen.get((point.case, point.label), ()))]
    if not rungs.halving:
        return right
    stay = set(rungs.stay)
    for backend in dict.fromkeys(point.backend for point in right):
        pairs = {
            (point.case, point.label): [
                one.pair for one in seen.get((point.case, point.label), ()) if one.pair and one.batch.rung < rung
            ]
            for point in right
            if point.backend == backend
        }
        if timed := {key: own for key, own in pairs.items() if own}:
            mean, sd = estimates(list(timed.values()), rungs.least)
            if backend == anchor:
                mean, sd = np.append(mean, 0.0), np.append(sd, 0.0)
            stay.update(itertools.compress(timed, surviving(mean, sd, MISS / max(1, len(rungs) - 1))))
    return [point for point in right if (point.case, point.label) in stay]
