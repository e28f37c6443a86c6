"""Measuring the points of a sweep: batches with an anchor that fit the memory, resumed where a file has them.

One line for each batch, as soon as it is done.  The processes stay warm over all batches of a number of ranks; inputs
and reference stay while the case does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import plan
from benchmarks.coordinator.checkouts import START_S, Checkout, CheckoutError, refuse_unknown
from benchmarks.coordinator.orders import CaseCounter, Report, objects
from benchmarks.coordinator.ranks import (
    Failure,
    PoolDied,
    StepFailed,
    WorkerPool,
    make_directories,
    remove_directories,
    started,
)
from benchmarks.coordinator.trial import CaseEntries, Session
from benchmarks.coordinator.worker_pools import WorkerPools
from benchmarks.plan import PlannedCase, Protocol, Selection, UsageError, WarmUp, unknown_kernel
from benchmarks.points import Batch, Point, PointsFile
from benchmarks.shapes import Json
from benchmarks.trial_file import FORMAT, Status
from kernels import hardware
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


def refuse_undeclared(file: PointsFile, declaration: Json) -> None:
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


def planned_batches(
    index: int, batch: Batch, declaration: Json, machine: Json, protocol: Protocol
) -> Iterator[PlannedBatch]:
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


# What a trial file holds of a sweep already: finished points are not measured twice, what hung is not tried again.


LOST = (Status.HANG, Status.CRASH)
"""Statuses of a point that cost its processes: it is not tried again in the same sweep."""


@dataclasses.dataclass
class Earlier:
    """What is known of a sweep.  done: (rung, case, arm) of points, and (rung, case, arm, batch) of arms without knobs.

    lost: what hung or crashed, by (case, arm).
    """

    done: set[tuple[Any, ...]] = dataclasses.field(default_factory=set)
    lost: dict[tuple[str, str], Failure] = dataclasses.field(default_factory=dict)

    def add(self, line: Mapping[str, Any]) -> None:
        """Take in a line of the sweep."""
        sweep, [(case, entry)] = line["sweep"], line["cases"].items()
        for key, arm in entry["arms"].items():
            point = key.partition("/")[2].rpartition("@")[2]
            own = () if point in sweep["points"] else (sweep["batch"],)
            self.done.add((sweep["rung"], case, key, *own))
            if arm["status"] in LOST and point in sweep["points"]:
                why = arm["why"].removeprefix("not tried again: ")
                self.lost.setdefault((case, key), Failure(Status(arm["status"]), f"not tried again: {why}"))

    def left(self, file: PointsFile, index: int) -> Batch | None:
        """What is to be measured of a batch; None if nothing."""
        batch = file.batches[index]
        points = tuple(point for point in batch.points if not self._known(file.rung, index, point))
        alone = Point(batch.case, batch.anchor)
        if not points and (batch.points or self._known(file.rung, index, alone)):
            return None
        return dataclasses.replace(batch, points=points)

    def _known(self, rung: int, index: int, point: Point) -> bool:
        own = () if point.id else (index,)
        return (rung, point.case, f"{ROLE}/{point.label}", *own) in self.done


def earlier_points(path: Path, file: PointsFile) -> Earlier:
    """What a trial file has of the sweep; nothing, if there is no such file."""
    found = Earlier()
    wanted = (FORMAT, file.operator, file.sweep)
    with contextlib.suppress(EOFError, gzip.BadGzipFile):  # torn by a crash: what comes before is whole
        for line in objects(path, '"sweep"'):
            if (line.get("format"), line.get("kernel"), (line.get("sweep") or {}).get("id")) == wanted:
                found.add(line)
    return found


# Measuring the batches of a points file: one line each, as soon as it is done.
#
# The processes stay warm over all batches of a number of ranks; inputs and reference stay while the case does.


BRIEF = WarmUp(seconds=0.005, fewest=3, most=5, rounds=1)
"""Of a point: the batches before it have warmed the device, so that only its own first calls are left.  On an H200 the
first sample of 94 points was 1.0007 of their median (5 to 95 %: 0.993 to 1.010), and two processes gave the same ratio
to the anchor within 0.16 % in the median (GEMM of 0.6 ms, 8 rounds, 45 ms a point in all; 2026-11-22)."""

NO_ROOM = ("OutOfMemoryError", "symmetric heap of rank")
"""In the sentence of a point that failed because others were in the memory: it is tried again beside fewer."""


def protocol_of(file: PointsFile, like: Protocol) -> Protocol:
    """How the points of a file are measured."""
    how = {"warm_up": BRIEF, "regime": file.regime, "whole_calls": file.whole_calls}
    return dataclasses.replace(like, rounds=file.rounds, trials=1, **how)


def measure_points(
    file: PointsFile, checkout: Checkout, protocol: Protocol, earlier: Earlier, on_progress: Report | None = None
) -> Iterator[dict[str, Any]]:
    """A trial line for each batch of which something is left to measure.

    Raises UsageError or CheckoutError before anything is measured.  However it is left, none of its processes stays.
    """
    with Session([checkout], protocol_of(file, protocol), Selection("sweep"), on_progress) as session:
        session.refuse_unseen_gpu()
        plans = _plans(session, file, earlier)
        session.known(file.operator).update(earlier.lost)
        progress = CaseCounter(sum(len(one.case.arms) for one in plans), session.on_progress)
        for world in dict.fromkeys(one.case.world for one in plans):
            of_world = _PointsOfWorld(session, file, world, progress)
            with contextlib.closing(of_world.lines([one for one in plans if one.case.world == world])) as lines:
                yield from lines
        progress.finish()


def _plans(session: Session, file: PointsFile, earlier: Earlier) -> list[PlannedBatch]:
    session.choose([file.operator])
    declared = session.descriptions[ROLE].kernels
    if file.operator not in declared:  # a broken module may hide it
        raise unknown_kernel(file.operator, sorted(declared))
    declaration = declared[file.operator]
    refuse_undeclared(file, declaration)
    left = {index: batch for index in range(len(file.batches)) if (batch := earlier.left(file, index))}
    how = (declaration, session.machine, session.protocol)
    return [part for index, batch in left.items() for part in planned_batches(index, batch, *how)]


class _PointsOfWorld:
    """The batches of one number of ranks, on the same processes."""

    def __init__(self, session: Session, file: PointsFile, world: int, progress: CaseCounter) -> None:
        self._session, self._file, self._world, self._progress = session, file, world, progress

    def lines(self, plans: Sequence[PlannedBatch]) -> Iterator[dict[str, Any]]:
        """A line for each batch; what did not fit into the memory comes again, beside fewer."""
        queue = deque(plans)
        with self._session.pools(self._file.operator, self._world, [one.case for one in plans]) as workers:
            while queue:
                batch = queue.popleft()
                line, short = self._line(workers, batch)
                queue.extendleft(reversed(batch.only(short).halves()))
                self._progress.done += len(batch.case.arms) - len(short)
                if len(short) < max(1, len(batch.batch.points)):
                    yield line

    def _line(self, workers: WorkerPools, batch: PlannedBatch) -> tuple[dict[str, Any], tuple[Point, ...]]:
        """The line of a batch, without the points that found no room; and those."""
        told, short = batch.told(self._file), []

        def measured(done: CaseEntries) -> None:
            if not batch.case.skip:
                self._measure(workers, batch, done)
                short.extend(_taken_out(batch, told, done.entries[batch.case.name]))
            arms = done.entries[batch.case.name]["arms"]
            arms.update(batch.untimed(arms))

        line = self._session.line(self._file.operator, [batch.case], self._file.rung, measured, sweep=told)
        return line, tuple(short)

    def _measure(self, workers: WorkerPools, batch: PlannedBatch, done: CaseEntries) -> None:
        name, rung, index = self._file.operator, self._file.rung, batch.index
        run = self._session.case_run(workers, name, batch.case, rung, f"/{index}", keep_inputs=self._world == 1)
        words = f"{name} {batch.case.name} rung {rung} batch {index + 1} of {len(self._file.batches)}"
        run.say = self._progress.telling(words)
        done.add(run)
        done.warnings += self._session.learn(workers)


def _taken_out(batch: PlannedBatch, told: dict[str, Any], entry: dict[str, Any]) -> Iterator[Point]:
    """The points that found no room beside the others, taken out of the entry and of what is told."""
    points = batch.batch.points
    for point in points if len(points) > 1 else ():
        arm = entry["arms"][batch.key(point)]
        if arm["status"] in (Status.ERROR, Status.UNSUPPORTED) and any(words in arm["why"] for words in NO_ROOM):
            del entry["arms"][batch.key(point)]
            told["points"].pop(point.id, None)
            yield point


# What a sweep could try of kernels, asked of a checkout in a process of its own; needs no GPU where --arch is given.
#
# python -m benchmarks candidates --kernel gemm --case 'n4096_k4096_*' --arch gfx942 --json


@dataclasses.dataclass(frozen=True)
class CandidateRequest:
    """Which cases (shell patterns) and backends of kernels; empty means all.  arch: None for the first device here."""

    kernels: Sequence[str]
    cases: Sequence[str] = ()
    backends: Sequence[str] = ()
    arch: str | None = None
    compute_units: int | None = None


def ask_candidates(checkout: Checkout, wanted: CandidateRequest) -> dict[str, Any]:
    """{"kernels", "arch", "compute_units", "devices", "entries"}, see benchmarks.worker.declare.

    devices: how many GPUs are here, None where there are none or an architecture is asked for.

    UsageError for a kernel, case, backend or architecture that does not exist.
    """
    known = ("cpu", *dict.fromkeys(device.arch for device in hardware.DEVICES))
    if wanted.arch and wanted.arch not in known:
        raise UsageError(f"architecture {wanted.arch!r} is not known; known: {', '.join(known)}")
    refuse_unknown(wanted.kernels, [checkout])
    directory = make_directories()
    try:
        with started("candidates", checkout.python, checkout.path, 1, directory) as pool:
            return _answer(pool, wanted)
    except StepFailed as error:
        raise UsageError(error.failure.why) from error
    except PoolDied as error:
        raise CheckoutError(f"{checkout.path}: {error.failure.why}\n{error.failure.detail}") from error
    finally:
        remove_directories(directory)


def _answer(pool: WorkerPool, wanted: CandidateRequest) -> dict[str, Any]:
    place, devices = {"arch": wanted.arch, "compute_units": wanted.compute_units}, None
    if not wanted.arch:
        [seen] = pool.ask("looking for devices", START_S, "probe")
        device = (seen["devices"] or [{"arch": "cpu", "compute_units": None}])[0]
        place = {"arch": device["arch"], "compute_units": wanted.compute_units or device["compute_units"]}
        devices = len(seen["devices"]) or None
    which = {"cases": list(wanted.cases), "backends": list(wanted.backends), "place": place}
    entries = list[dict[str, Any]]()
    for kernel in wanted.kernels:
        entries += pool.ask("listing candidates", START_S, "candidates", kernel=kernel, **which)[0]
    return {"kernels": list(wanted.kernels), **place, "devices": devices, "entries": entries}
