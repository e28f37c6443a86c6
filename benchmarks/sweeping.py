"""Measuring the points of a sweep: batches with an anchor that fit the memory, resumed where a file has them.

One line for each batch, as soon as it is done.  The processes stay warm over all batches of a number of ranks; inputs
and reference stay while the case does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import plan
from benchmarks.coordinator.checkouts import START_S, Checkout, answers_of, modules_with, probed_by, refuse_unknown
from benchmarks.coordinator.orders import CaseCounter, Report, objects
from benchmarks.coordinator.ranks import Failed, Failure, make_directories, remove_directories
from benchmarks.coordinator.trial import Session
from benchmarks.coordinator.worker_pools import WorkerPools
from benchmarks.plan import PlannedCase, Protocol, Selection, UsageError, WarmUp, unknown_kernel
from benchmarks.points import Batch, Point, PointsFile
from benchmarks.shapes import Json, JsonObject
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

    def sweep_field(self, file: PointsFile) -> JsonObject:
        """The field `sweep` of its trial line."""
        every = (*self.batch.points, *(untimed.point for untimed in self.batch.untimed))
        points = {point.id: point.as_json() for point in every if point.id}
        return {
            "id": file.sweep, "rung": file.rung, "batch": self.index, "anchor": self.batch.anchor, "points": points
        }  # fmt: skip

    def untimed(self, arms: Json) -> JsonObject:
        """The arms of points that are recorded and not timed.  arms: those of the line, by key."""
        entries = {}
        for untimed in self.batch.untimed:
            key, other = f"{ROLE}/{untimed.point.label}", f"{ROLE}/{untimed.same_as}"
            if not untimed.same_as:
                entries[key] = {"status": Status.SKIPPED, "why": untimed.why, "detail": ""}
            elif other in arms:
                entries[key] = {**arms[other], "same_as": other}
        return entries


def selected(file: PointsFile) -> Selection:
    """The cases and the backends that the operator of a points file must declare."""
    arms = {arm for batch in file.batches for arm in (batch.anchor, *(point.backend for point in batch.points))}
    return Selection("sweep", tuple(batch.case for batch in file.batches), tuple(sorted(arms)))


def planned_batches(
    index: int, batch: Batch, declaration: Json, machine: Json, protocol: Protocol
) -> Iterator[PlannedBatch]:
    """A batch as it is measured here, in as many parts as the memory demands; what is not timed goes with its point."""
    wanted = Selection("sweep", cases=(batch.case,))
    [case] = plan.plan_kernel({ROLE: declaration}, machine, wanted, protocol.cache, protocol.regime)
    cost = Cost(**declaration["costs"].get(batch.case, {}))
    plain = {arm.backend: arm for arm in case.arms}
    places = {"", batch.anchor}
    for points in parts(batch.points, most_points(cost, case.copies, machine)):
        own = (dataclasses.replace(plain[one.backend], overrides=dict(one.knobs), point=one.id) for one in points)
        arms = (plain[batch.anchor], *own)
        errors = {arm.key: why for arm in arms if (why := case.errors.get(f"{ROLE}/{arm.backend}"))}
        heap = plan.heap_bytes(cost, case.copies, case.world, arms, machine) if case.world > 1 else 0
        places |= {point.label for point in points}
        untimed = tuple(point for point in batch.untimed if point.same_as in places)
        yield PlannedBatch(
            index,
            dataclasses.replace(batch, points=points, untimed=untimed),
            dataclasses.replace(case, arms=arms, errors=errors, heap_bytes=heap),
        )
        places = set()


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

    def add(self, line: Json) -> None:
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


BRIEF = WarmUp(seconds=0.005, fewest=3, most=5, rounds=1)
"""Of a point: the batches before it have warmed the device, so that only its own first calls are left.  On an H200 the
first sample of 94 points was 1.0007 of their median (5 to 95 %: 0.993 to 1.010), and two processes gave the same ratio
to the anchor within 0.16 % in the median (GEMM of 0.6 ms, 8 rounds, 45 ms a point in all; 2026-11-22)."""


def measure_points(
    file: PointsFile, checkout: Checkout, protocol: Protocol, earlier: Earlier, on_progress: Report | None = None
) -> Iterator[JsonObject]:
    """A trial line for each batch of which something is left to measure.

    Raises UsageError or CheckoutError before anything is measured.  However it is left, none of its processes stays.
    """
    protocol = dataclasses.replace(protocol, rounds=file.rounds, trials=1, warm_up=BRIEF, whole_calls=file.whole_calls)
    with Session([checkout], protocol, selected(file), on_progress, [file.operator]) as session:
        session.refuse_unseen_gpu()
        batches = _planned(session, file, earlier)
        session.known(file.operator).update(earlier.lost)
        progress = CaseCounter(sum(len(batch.case.arms) for batch in batches), session.on_progress)
        for world in dict.fromkeys(batch.case.world for batch in batches):
            own = [batch for batch in batches if batch.case.world == world]
            with session.pools(file.operator, world, [batch.case for batch in own]) as workers:
                for batch in own:
                    yield _line(session, file, workers, batch, progress)
                    progress.done += len(batch.case.arms)
        progress.finish()


def _planned(session: Session, file: PointsFile, earlier: Earlier) -> list[PlannedBatch]:
    session.choose([file.operator])
    declared = session.descriptions[ROLE].kernels
    if file.operator not in declared:  # a broken module may hide it
        raise unknown_kernel(file.operator, sorted(declared))
    left = {index: batch for index in range(len(file.batches)) if (batch := earlier.left(file, index))}
    how = (declared[file.operator], session.machine, session.protocol)
    return [part for index, batch in left.items() for part in planned_batches(index, batch, *how)]


def _line(
    session: Session, file: PointsFile, workers: WorkerPools, batch: PlannedBatch, progress: CaseCounter
) -> JsonObject:
    name, rung, case = file.operator, file.rung, batch.case

    def measured(entries: JsonObject, warnings: list[str]) -> None:
        if not case.skip:
            run = session.case_run(workers, name, case, rung, f"/{batch.index}", keep_inputs=case.world == 1)
            run.say = progress.telling(f"{name} {case.name} rung {rung} batch {batch.index + 1} of {len(file.batches)}")
            entries[case.name] = run.run()
            warnings += session.learn(workers)
        arms = entries[case.name]["arms"]
        arms.update(batch.untimed(arms))

    return session.line(name, [case], rung, measured, sweep=batch.sweep_field(file))


# What a sweep could try of a kernel, asked of a checkout in a process of its own; needs no GPU where --arch is given.
#
# python -m benchmarks candidates --kernel gemm --case 'n4096_k4096_*' --arch gfx942 --json


def ask_candidates(
    checkout: Checkout,
    kernel: str,
    cases: Sequence[str] = (),
    backends: Sequence[str] = (),
    arch: str | None = None,
    compute_units: int | None = None,
) -> JsonObject:
    """{"kernel", "arch", "compute_units", "devices", "entries"}, see benchmarks.worker.declare.

    cases: shell patterns, as backends () for all.  arch: None for the first device here.
    devices: how many GPUs are here, None where there are none or an architecture is asked for.
    UsageError for a kernel, case, backend or architecture that does not exist.
    """
    known = ("cpu", *dict.fromkeys(device.arch for device in hardware.DEVICES))
    if arch and arch not in known:
        raise UsageError(f"architecture {arch!r} is not known; known: {', '.join(known)}")
    refuse_unknown([kernel], [checkout])
    directory = make_directories()
    try:
        devices = [] if arch else probed_by([checkout], directory)[0]["devices"]
        first = devices[0] if devices else {"arch": arch or "cpu", "compute_units": None}
        place = {"arch": first["arch"], "compute_units": compute_units or first["compute_units"]}
        which = {"kernel": kernel, "cases": list(cases), "backends": list(backends), "place": place}
        which["modules"] = modules_with(checkout, [kernel])
        [entries] = answers_of(directory, START_S, [(checkout, "candidates", which)])
    finally:
        remove_directories(directory)
    if isinstance(entries, Failed):
        raise UsageError(f"{checkout.path}: {entries.failure.why}\n{entries.failure.detail}".strip())
    return {"kernel": kernel, **place, "devices": len(devices) or None, "entries": entries}
