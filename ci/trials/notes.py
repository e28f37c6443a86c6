"""Notes: trial lines in one file, with what they share written once.

    {"format": "ridgeline-notes", "version": 1, "shared": [{"name": "h200x1-537ca5d2", ...}, ...]}
    {"format": "ridgeline-trial", ..., "machine": 0, "trees": {"head": {..., "environment": 1, "declaration": 2}}, ...}

A whole number where a trial line has an object is the place of that object in `shared`.  With them put back a line is
the one that was measured, key by key, so that its id is still the digest of its content.  The file is compressed; equal
trials give equal bytes, on every machine.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from benchmarks.shapes import Unfit, anything, items, one_of, record
from ci.trials.trial import Trial

FORMAT, VERSION = "ridgeline-notes", 1

HEAD = record({"format": one_of(FORMAT), "version": one_of(VERSION), "shared": items(anything)}, {})
"""The first line."""

OF_TRIAL, OF_CHECKOUT = ("machine", "protocol", "preflight"), ("environment", "declaration", "ran")
"""Fields of a trial, and of each of its checkouts, that many trials of a record have alike."""


@dataclasses.dataclass(frozen=True)
class Packed:
    """The content of a file of notes, and 12 hex digits that depend on its lines alone."""

    content: bytes
    digest: str


def packed(trials: Iterable[Trial]) -> Packed:
    """The lines of trials, oldest first, as a file."""
    shared: dict[str, int] = {}
    lines = []
    for trial in sorted(trials, key=lambda one: one.order):
        line = json.loads(trial.text)
        for holder, field in _fields(line):
            if isinstance(holder.get(field), dict):
                holder[field] = shared.setdefault(json.dumps(holder[field]), len(shared))
        lines.append(line)
    head = {"format": FORMAT, "version": VERSION, "shared": [json.loads(text) for text in shared]}
    text = "".join(f"{json.dumps(line, allow_nan=False, separators=(',', ':'))}\n" for line in (head, *lines))
    content = gzip.compress(text.encode(), 9, mtime=0)
    content = content[:9] + b"\xff" + content[10:]  # the byte that names the system differs between Pythons
    return Packed(content, hashlib.blake2b(text.encode(), digest_size=6).hexdigest())


def shared_of(data: Any) -> Sequence[Any]:
    """What the first line of notes says that the others share.  Raises Unfit."""
    HEAD(data, "")
    shared: Sequence[Any] = data["shared"]
    return shared


def restored(data: Any, text: str, shared: Sequence[Any] | None) -> tuple[Any, str]:
    """A trial line, as value and text, with the shared objects put back.  Raises Unfit where they are not known."""
    places = [(holder, field) for holder, field in _fields(data) if type(holder.get(field)) is int]
    for holder, field in places:
        if shared is None or not 0 <= holder[field] < len(shared):
            raise Unfit(field, holder[field], "an object, or the place of one in the first line of the notes")
        holder[field] = shared[holder[field]]
    return data, _text(data) if places else text


def _text(data: Any) -> str:
    try:
        return orjson.dumps(data).decode()
    except TypeError:  # a number above 64 bits, a lone surrogate
        return json.dumps(data, separators=(",", ":"))


def _fields(data: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """(object, field) of everything that may be shared."""
    yield from ((data, field) for field in OF_TRIAL)
    trees = data.get("trees")
    for checkout in trees.values() if isinstance(trees, dict) else ():
        if isinstance(checkout, dict):
            yield from ((checkout, field) for field in OF_CHECKOUT)
