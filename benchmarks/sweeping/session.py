"""Measuring the batches of a points file: one line each, as soon as it is done.

The processes stay warm over all batches of a number of ranks; inputs and reference stay while the case does.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.orders import CaseCounter, Report
from benchmarks.coordinator.trial import CaseEntries, Session
from benchmarks.coordinator.worker_pools import WorkerPools
from benchmarks.plan import Protocol, Selection, WarmUp, unknown_kernel
from benchmarks.points import Point, PointsFile
from benchmarks.sweeping import batches
from benchmarks.sweeping.batches import PlannedBatch
from benchmarks.sweeping.earlier import Earlier
from benchmarks.trial_file import Status

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
    declared = session.descriptions[batches.ROLE].kernels
    if file.operator not in declared:  # a broken module may hide it
        raise unknown_kernel(file.operator, sorted(declared))
    declaration = declared[file.operator]
    batches.check(file, declaration)
    left = {index: batch for index in range(len(file.batches)) if (batch := earlier.left(file, index))}
    how = (declaration, session.machine, session.protocol)
    return [part for index, batch in left.items() for part in batches.planned(index, batch, *how)]


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
