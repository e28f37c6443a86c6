"""What a trial file holds of a sweep already: finished points are not measured twice, what hung is not tried again."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.coordinator.orders import objects
from benchmarks.coordinator.ranks import Failure
from benchmarks.points import Batch, Point, PointsFile
from benchmarks.sweeping.batches import ROLE
from benchmarks.trial_file import FORMAT, Status

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


def read(path: Path, file: PointsFile) -> Earlier:
    """What a trial file has of the sweep; nothing, if there is no such file."""
    found = Earlier()
    wanted = (FORMAT, file.operator, file.sweep)
    with contextlib.suppress(EOFError, gzip.BadGzipFile):  # torn by a crash: what comes before is whole
        for line in objects(path, '"sweep"'):
            if (line.get("format"), line.get("kernel"), (line.get("sweep") or {}).get("id")) == wanted:
                found.add(line)
    return found
