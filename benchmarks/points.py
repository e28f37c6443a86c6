"""Points of a sweep: a case, a backend and the knobs that differ from config(); and the file that asks for them.

Standard library only: a sweep writes the file on any machine, a node reads it and measures.

    {"sweep": "f3a9", "operator": "gemm", "rung": 0, "rounds": 8, "regime": "spaced", "batches": [
        {"case": "n4096_k4096_m64", "anchor": "triton", "points": [
            {"backend": "triton", "knobs": {"block_m": 64}}, {"backend": "blas", "knobs": {}}]}]}

A batch is measured in one process, in shuffled rounds with its anchor, a backend with the knobs of config(); so each
point is a ratio to the anchor.  A rung is a process start of its own, hence a trial of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .shapes import Unfit, anything, bounded, items, name, one_of, record, table, text, whole

REGIMES = ("spaced", "sustained")
"""Calls spaced by a cache flush, or back to back at settled power."""

ID_DIGITS = 10
"""Of a point's id: a million points share one with a chance of 5 in 10 (2^40 = 1.1e12; birthday bound n^2 / 2^41), and
a file holds at most some thousand points of an operator: 1e4 points, 5e-5."""

MARK = "@"
"""Between the backend and the id of a point in the name of its arm."""


Knobs = Mapping[str, Any]
"""Knobs of a backend by name: JSON values."""


@dataclasses.dataclass(frozen=True)
class Point:
    """A case, a backend and overrides of its knobs; no overrides: the backend as it is, a baseline for instance."""

    case: str
    backend: str
    knobs: Knobs = dataclasses.field(default_factory=dict, hash=False)

    @functools.cached_property
    def id(self) -> str:
        """The first digits of a digest of all three; "" without knobs."""
        if not self.knobs:
            return ""
        told = json.dumps([self.case, self.backend, dict(self.knobs)], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(told.encode()).hexdigest()[:ID_DIGITS]

    @property
    def label(self) -> str:
        """BACKEND@ID, or BACKEND without knobs: the name of its arm behind the role."""
        return label(self.backend, self.id)

    def as_json(self) -> dict[str, Any]:
        """As in a points file, where the batch names the case."""
        return {"backend": self.backend, "knobs": dict(self.knobs)}


def label(backend: str, point: str) -> str:
    """BACKEND@ID of a point; BACKEND of an arm in its default configuration."""
    return f"{backend}{MARK}{point}" if point else backend


def split(arm: str) -> tuple[str, str]:
    """(backend, id) of a label or of the key of an arm; the id is "" for an arm without knobs."""
    backend, _, point = arm.rpartition("/")[2].partition(MARK)
    return backend, point


@dataclasses.dataclass(frozen=True)
class UntimedPoint:
    """A point that is recorded and not timed.  same_as: the label of the arm whose times it shares; why: else, why."""

    point: Point
    same_as: str = ""
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """As in a points file."""
        return {**self.point.as_json(), **({"same_as": self.same_as} if self.same_as else {"why": self.why})}


@dataclasses.dataclass(frozen=True)
class Batch:
    """Points of one case that are measured together with an anchor.  untimed: those that its line records as well."""

    case: str
    anchor: str
    points: tuple[Point, ...]
    untimed: tuple[UntimedPoint, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As in a points file."""
        told = {"case": self.case, "anchor": self.anchor, "points": [point.as_json() for point in self.points]}
        return told | ({"untimed": [one.as_json() for one in self.untimed]} if self.untimed else {})


@dataclasses.dataclass(frozen=True)
class PointsFile:
    """What a sweep asks for.  sweep: its id, which the trial lines carry; rung: their trial number.

    whole_calls: calls of every arm that are timed from the host's side too, once its rounds are taken.
    """

    sweep: str
    operator: str
    rung: int
    rounds: int
    batches: tuple[Batch, ...]
    regime: str = "spaced"
    whole_calls: int = 0

    def as_json(self) -> dict[str, Any]:
        """The content of the file."""
        told = {field: getattr(self, field) for field in ("sweep", "operator", "rung", "rounds", "regime")}
        told |= {"whole_calls": self.whole_calls} if self.whole_calls else {}
        return {**told, "batches": [batch.as_json() for batch in self.batches]}


_POINT = record({"backend": name}, {"knobs": table(name, anything), "same_as": name, "why": text()})
_BATCH = record({"case": name, "anchor": name, "points": items(_POINT)}, {"untimed": items(_POINT)})
_FILE = record(
    {"sweep": name, "operator": name, "rung": whole(0, 1_000_000), "rounds": whole(1, 100_000)},
    {"regime": one_of(*REGIMES), "batches": items(_BATCH), "whole_calls": whole(0, 10_000)},
)


def parse(value: Any) -> PointsFile:
    """The points that a JSON value asks for.  Unfit names the place, the value and what is allowed."""
    bounded(value)
    _FILE(value, "")
    if not value.get("batches"):
        raise Unfit("batches", value.get("batches"), "a list of at least one batch")
    told = {field: value[field] for field in ("sweep", "operator", "rung", "rounds")}
    batches = tuple(_batch(one, f"batches[{index}]") for index, one in enumerate(value["batches"]))
    regime, whole_calls = value.get("regime", REGIMES[0]), value.get("whole_calls", 0)
    return PointsFile(**told, batches=batches, regime=regime, whole_calls=whole_calls)


def _batch(value: Mapping[str, Any], where: str) -> Batch:
    case, anchor = value["case"], value["anchor"]
    found = tuple(_point(case, one) for one in value["points"])
    counts = Counter(point.label for point in found)
    if twice := [one for one, count in counts.items() if count > 1]:
        raise Unfit(f"{where}.points", twice[0], "each point once")
    for backend in (anchor, *(point.backend for point in found)):
        if MARK in backend or "/" in backend:
            raise Unfit(where, backend, f"backends without {MARK} and /")
    untimed = (UntimedPoint(_point(case, o), o.get("same_as", ""), o.get("why", "")) for o in value.get("untimed", ()))
    return Batch(case, anchor, tuple(point for point in found if point.label != anchor), tuple(untimed))


def _point(case: str, value: Mapping[str, Any]) -> Point:
    return Point(case, value["backend"], value.get("knobs", {}))


def read(path: Path) -> PointsFile:
    """The points file.  ValueError says what is wrong with it, by name."""
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"the points file {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"the points file {path}: {error}") from None


# ---- in a trial line ---------------------------------------------------------------------------------------------


def check_line(sweep: Mapping[str, Any], cases: Sequence[str]) -> None:
    """Unfit unless the field `sweep` of a line is of one case, and the ids of its points are what they must be."""
    if len(cases) != 1:
        raise Unfit("cases", list(cases), "one case, in a batch of a sweep")
    for id, point in sweep["points"].items():
        known = Point(cases[0], point["backend"], point["knobs"]).id
        if id != known:
            raise Unfit(f"sweep.points.{id}", id, f"{known!r}, the digest of its case, backend and knobs")


def without_id(key: str, points: Mapping[str, Any], case: str) -> str:
    """The key of an arm as ROLE/BACKEND.  points: those of the line; Unfit where the key names another backend."""
    backend, id = split(key)
    if id not in points:
        return key  # a backend of this name is declared, or it is nobody's
    if points[id]["backend"] != backend:
        raise Unfit(f"cases.{case}.arms", key, f"the backend {points[id]['backend']}, as sweep.points says")
    return f"{key.partition('/')[0]}/{backend}"
