"""One batch of a sweep, as a trial line has it: points of one case, timed in turn with an anchor."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
"""An object of a checked line."""

SPACED = "spaced"
"""The regime of lines that name none."""


@dataclasses.dataclass(frozen=True)
class SweptPoint:
    """A point as a line names it.  knobs: what it overrides of config(case, arch)."""

    backend: str
    knobs: Json


@dataclasses.dataclass(frozen=True)
class SweepBatch:
    """The part of a trial line that is about its sweep.

    anchor: the backend whose plain arm is timed in turn with the points.  points: by id.  rounds, regime: asked for.
    same_as: by (case, arm), the arm whose times an arm has: they run the same code, which was timed once.
    """

    id: str
    rung: int
    number: int
    anchor: str
    points: Mapping[str, SweptPoint]
    same_as: Mapping[tuple[str, str], str]
    rounds: int = 0
    regime: str = SPACED

    @classmethod
    def of(cls, line: Json) -> SweepBatch | None:
        """From a checked trial line; None for a line that is of no sweep."""
        found = line.get("sweep")
        if not found:
            return None
        points = {id_: SweptPoint(point["backend"], point.get("knobs") or {}) for id_, point in found["points"].items()}
        arms = (
            (case, key.partition("/")[2], arm.get("same_as"))
            for case, entry in line["cases"].items()
            for key, arm in entry.get("arms", {}).items()
        )
        same_as = {(case, arm): str(other).partition("/")[2] for case, arm, other in arms if other}
        protocol = line.get("protocol") or {}
        how = protocol.get("rounds") or 0, protocol.get("regime") or SPACED
        return cls(found["id"], found["rung"], found["batch"], found["anchor"], points, same_as, *how)
