"""Points of a sweep: a case, a backend and the knobs that differ from config(); and the file that asks for them.

Standard library only: a sweep writes the file on any machine, a node reads it and measures.

    {"sweep": "f3a9", "operator": "gemm", "rung": 0, "rounds": 8, "batches": [
        {"case": "m64", "anchor": "triton", "points": [
            {"case": "m64", "backend": "triton", "knobs": {"block_m": 64}}, {"case": "m64", "backend": "blas"}]}]}

A batch is measured in one process, in shuffled rounds with its anchor, a backend with the knobs of config(); so each
point is a ratio to the anchor.  A rung is a process start of its own, hence a trial of its own.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from .shapes import Json, JsonObject, Unfit, bounded, built, inside, name, whole

ID_DIGITS = 10
"""Of a point's id: a million points share one with a chance of 5 in 10 (2^40 = 1.1e12; birthday bound n^2 / 2^41), and
a file holds at most some thousand points of an operator: 1e4 points, 5e-5."""

MARK = "@"
"""Between the backend and the id of a point in the name of its arm."""


Name = Annotated[str, name]
Knobs = Mapping[Name, Any]
"""Knobs of a backend by name: JSON values."""


def knob_value(text: str) -> str | int | float:
    """A knob's value as a person writes it: true, false, a number, or a string with or without quotes."""
    word = text.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        value = ast.literal_eval(word)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return word
    return value if isinstance(value, str | int | float) else word


@dataclasses.dataclass(frozen=True)
class Point:
    """A case, a backend and overrides of its knobs; no overrides: the backend as it is, a baseline for instance."""

    case: Name
    backend: Name
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

    def as_json(self) -> JsonObject:
        """As in the line of a trial, which names the case."""
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


@dataclasses.dataclass(frozen=True)
class Batch:
    """Points of one case that are measured together with an anchor.  untimed: those that its line records as well."""

    case: Name
    anchor: Name
    points: tuple[Point, ...]
    untimed: tuple[UntimedPoint, ...] = ()


@dataclasses.dataclass(frozen=True)
class PointsFile:
    """What a sweep asks for.  sweep: its id, which the trial lines carry; rung: their trial number.

    whole_calls: calls of every arm that are timed from the host's side too, once its rounds are taken.
    """

    sweep: Name
    operator: Name
    rung: Annotated[int, whole(0, 1_000_000)]
    rounds: Annotated[int, whole(1, 100_000)]
    batches: tuple[Batch, ...]
    whole_calls: Annotated[int, whole(0, 10_000)] = 0


def parse(value: Any, where: str = "") -> PointsFile:
    """The points that a JSON value asks for.  Unfit names the place, the value and what is allowed."""
    bounded(value, where)
    file, place = built(PointsFile, value, where), inside(where, "batches")
    if not file.batches:
        raise Unfit(place, [], "a list of at least one batch")
    batches = tuple(_batch(batch, f"{place}[{index}]") for index, batch in enumerate(file.batches))
    return dataclasses.replace(file, batches=batches)


def _batch(batch: Batch, where: str) -> Batch:
    counts = Counter(point.label for point in batch.points)
    if twice := [one for one, count in counts.items() if count > 1]:
        raise Unfit(f"{where}.points", twice[0], "each point once")
    for backend in (batch.anchor, *(point.backend for point in batch.points)):
        if MARK in backend or "/" in backend:
            raise Unfit(where, backend, f"backends without {MARK} and /")
    return dataclasses.replace(batch, points=tuple(one for one in batch.points if one.label != batch.anchor))


def read(path: Path) -> PointsFile:
    """The points file.  OSError, or Unfit, which says what is wrong with it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Unfit(str(path), str(error), "JSON") from None
    return parse(value, str(path))


# ---- in a trial line ---------------------------------------------------------------------------------------------


def check_line(sweep: Json, cases: Sequence[str]) -> None:
    """Unfit unless the field `sweep` of a line is of one case, and the ids of its points are what they must be."""
    if len(cases) != 1:
        raise Unfit("cases", list(cases), "one case, in a batch of a sweep")
    for id, point in sweep["points"].items():
        known = Point(cases[0], point["backend"], point["knobs"]).id
        if id != known:
            raise Unfit(f"sweep.points.{id}", id, f"{known!r}, the digest of its case, backend and knobs")


def without_id(key: str, points: Json, case: str) -> str:
    """The key of an arm as ROLE/BACKEND.  points: those of the line; Unfit where the key names another backend."""
    backend, id = split(key)
    if id not in points:
        return key  # a backend of this name is declared, or it is nobody's
    if points[id]["backend"] != backend:
        raise Unfit(f"cases.{case}.arms", key, f"the backend {points[id]['backend']}, as sweep.points says")
    return f"{key.partition('/')[0]}/{backend}"
