"""From a points file to batches that fit the memory.  Pure: JSON values in, a plan out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import plan
from benchmarks.plan import Json, PlannedCase, Selection, UsageError
from benchmarks.points import Batch, Point, PointsFile
from benchmarks.protocol import Protocol
from benchmarks.trial_file import Status
from kernels.spec import Cost

ROLE = "head"
"""A sweep measures one checkout."""


@dataclasses.dataclass(frozen=True)
class PlannedBatch:
    """A batch, or a part of one.  index: its place in the points file.  case: its arms, the anchor first."""

    index: int
    batch: Batch
    case: PlannedCase

    def told(self, file: PointsFile) -> dict[str, Any]:
        """The field `sweep` of its trial line."""
        every = (*self.batch.points, *(one.point for one in self.batch.untimed))
        points = {point.id: point.as_json() for point in every if point.id}
        about = {"id": file.sweep, "rung": file.rung, "batch": self.index, "anchor": self.batch.anchor}
        return {**about, "points": points}

    def key(self, point: Point) -> str:
        """The name of a point's arm in the trial file."""
        return f"{ROLE}/{point.label}"

    def only(self, points: tuple[Point, ...]) -> PlannedBatch:
        """The same with fewer points."""
        keys = {f"{ROLE}/{self.batch.anchor}", *map(self.key, points)}
        arms = tuple(arm for arm in self.case.arms if arm.key in keys)
        labels = {self.batch.anchor, *(point.label for point in points)}
        first = points[:1] == self.batch.points[:1]
        untimed = tuple(one for one in self.batch.untimed if (one.same_as in labels if one.same_as else first))
        smaller = dataclasses.replace(self.batch, points=points, untimed=untimed)
        return dataclasses.replace(self, batch=smaller, case=dataclasses.replace(self.case, arms=arms))

    def untimed(self, arms: Mapping[str, Any]) -> dict[str, Any]:
        """The arms of points that are recorded and not timed.  arms: those of the line, by key."""
        found = {}
        for one in self.batch.untimed:
            other = f"{ROLE}/{one.same_as}"
            if not one.same_as:
                found[self.key(one.point)] = {"status": Status.SKIPPED, "why": one.why, "detail": ""}
            elif other in arms:
                found[self.key(one.point)] = {**arms[other], "same_as": arms[other].get("same_as", other)}
        return found

    def halves(self) -> list[PlannedBatch]:
        """Two batches with half of the points each; itself if there is but one."""
        half = len(self.batch.points) // 2
        return [self.only(part) for part in (self.batch.points[:half], self.batch.points[half:]) if part]


def check(file: PointsFile, declaration: Json) -> None:
    """UsageError for a case or a backend that the operator does not declare."""
    cases, backends = [case["name"] for case in declaration["cases"]], list(declaration["backends"])
    for index, batch in enumerate(file.batches):
        where = f"batch {index} of the points file"
        if batch.case not in cases:
            raise UsageError(f"{where}: {file.operator} has no case {batch.case!r}; known: {', '.join(cases)}")
        for backend in (batch.anchor, *(point.backend for point in batch.points)):
            if backend not in backends:
                known = ", ".join(backends)
                raise UsageError(f"{where}: {file.operator} has no backend {backend!r}; known: {known}")


def planned(index: int, batch: Batch, declaration: Json, machine: Json, protocol: Protocol) -> Iterator[PlannedBatch]:
    """A batch as it is measured here, in as many parts as the memory demands."""
    one = Selection("sweep", cases=(batch.case,))
    [case] = plan.plan_kernel({ROLE: declaration}, machine, one, protocol.cache, protocol.regime)
    cost = Cost(**declaration["costs"].get(batch.case, {}))
    whole = _with_points(batch, case)
    for points in parts(batch.points, most_points(cost, case.copies, machine)):
        part = PlannedBatch(index, batch, whole).only(points)
        heap = plan.heap_bytes(cost, case.copies, case.world, part.case.arms, machine) if case.world > 1 else 0
        yield dataclasses.replace(part, case=dataclasses.replace(part.case, heap_bytes=heap))


def most_points(cost: Cost, copies: int, machine: Json) -> int:
    """Points that one process can hold beside inputs, reference and anchor: each writes less than a call moves."""
    room = plan.MEMORY_SHARE * (machine["memory_bytes"] or 0) - plan.memory_bytes(cost, copies)
    each = cost.hbm_bytes * copies
    return max(1, int(room / each)) if machine["memory_bytes"] and each else 10**6


def parts(points: tuple[Point, ...], most: int) -> list[tuple[Point, ...]]:
    """The points in as few parts as possible, of nearly the same size; one part if there are none."""
    count = max(1, -(-len(points) // most))
    edges = [len(points) * part // count for part in range(count + 1)]
    return [points[begin:end] for begin, end in zip(edges, edges[1:], strict=False)]


def _with_points(batch: Batch, case: PlannedCase) -> PlannedCase:
    """The case with the anchor and the points as its arms."""
    plain = {arm.backend: arm for arm in case.arms}
    points = [
        dataclasses.replace(plain[point.backend], overrides=dict(point.knobs), point=point.id) for point in batch.points
    ]
    arms = (plain[batch.anchor], *points)
    errors = {arm.key: case.errors.get(f"{ROLE}/{arm.backend}", "") for arm in arms}
    return dataclasses.replace(case, arms=arms, errors={key: why for key, why in errors.items() if why})
