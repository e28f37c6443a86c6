"""Where a step was placed when it could first be told: ids are made of that, so more history changes none.

A detector that has seen more places a step better, so its place moves; what it said of the points up to the first
alarm does not.  Those are few points and stay as they are, so their answers are kept for the next call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ci.history.steps.evidence import SLACK, Candidate
from ci.history.steps.finding import UNUSABLE, made_by, replaced
from ci.history.steps.grouping import StepGroup
from ci.history.steps.series import Tracks
from ci.stats import steps as detector
from ci.stats.types import FloatArray

BEFORE, AFTER = 40, range(3, 16)
"""Points before a step that are looked at, and after it: most steps of a history of noise as it is are told by then."""

NAME = "first_told.npz"
"""The file of kept answers."""

Told = tuple[int, int]
"""Points after the step when it could first be told, and its index then among those looked at; (-1, -1): never."""


@dataclasses.dataclass(frozen=True, eq=False)
class Look:
    """The points about a step.  index: of the step among them; slower: its direction; start: points before them."""

    values: FloatArray
    index: int
    slower: bool
    start: int

    @classmethod
    def at(cls, one: Candidate, tracks: Tracks) -> Look:
        """At a candidate's series."""
        start = max(one.step.index - BEFORE, 0)
        values = tracks.values[tracks.span(one.track)][start : one.step.index + AFTER[-1]]
        return cls(values, one.step.index - start, one.step.ratio > 1, start)

    @functools.cached_property
    def key(self) -> int:
        """64 bits of all that the answer depends on, but the detector."""
        text = f"{self.index} {self.slower} {BEFORE} {AFTER} {SLACK} ".encode()
        return int.from_bytes(hashlib.blake2b(text + self.values.tobytes(), digest_size=8).digest(), signed=True)

    def up_to(self, after: int) -> FloatArray | None:
        """The points up to so many of the new level; None if there are fewer."""
        stop = self.index + after
        return self.values[:stop] if stop <= len(self.values) else None


def places(groups: Sequence[StepGroup], tracks: Tracks, kept: Path | None = None) -> list[int]:
    """The place of each group as its first alarm had it; the place it has now where none of those looks found it.

    kept: a folder for answers; one that cannot be used only costs time.
    """
    asked = [(number, one) for number, group in enumerate(groups) for one in group.counting if one.number >= 0]
    looks = [Look.at(one, tracks) for _, one in asked]
    first: dict[int, tuple[int, Candidate, int]] = {}
    for (number, one), look, (after, index) in zip(asked, looks, _answers(looks, kept), strict=True):
        if after < 0:
            continue
        place = tracks.place[tracks.span(one.track)]
        told = (int(place[one.step.index + after - 1]), one, int(place[look.start + index]))
        if number not in first or (told[0], one.key) < (first[number][0], first[number][1].key):
            first[number] = told
    return [first[number][2] if number in first else group.bad for number, group in enumerate(groups)]


def _answers(looks: Sequence[Look], kept: Path | None) -> list[Told]:
    known = _read(kept / NAME) if kept else {}
    new = {look.key: look for look in looks if look.key not in known}
    answers = {**known, **dict(zip(new, _first(list(new.values())), strict=True))}
    if kept and (new or len(known) > len(looks)):
        _write(kept, {look.key: answers[look.key] for look in looks})
    return [answers[look.key] for look in looks]


def _first(looks: Sequence[Look]) -> Iterator[Told]:
    """The first alarm of each."""
    found: dict[int, Told] = {}
    for after in AFTER:
        seen = {number: look.up_to(after) for number, look in enumerate(looks) if number not in found}
        whole = {number: values for number, values in seen.items() if values is not None}
        for number, steps in zip(whole, detector.find_many(list(whole.values())), strict=True):
            look = looks[number]
            near = [
                one.index for one in steps if abs(one.index - look.index) <= SLACK and (one.ratio > 1) == look.slower
            ]
            if near:
                found[number] = after, near[0]
    return (found.get(number, (-1, -1)) for number in range(len(looks)))


def _read(path: Path) -> dict[int, Told]:
    with contextlib.suppress(*UNUSABLE), np.load(path, allow_pickle=False) as file:
        if str(file["made_by"]) == made_by():
            told = map(tuple, file["told"].tolist())
            return dict(zip(file["keys"].tolist(), told, strict=True))
    return {}


def _write(folder: Path, answers: Mapping[int, Told]) -> None:
    keys, told = np.array(list(answers), np.int64), np.array(list(answers.values()), np.int64)
    replaced(folder / NAME, made_by=np.array(made_by()), keys=keys, told=told.reshape(len(keys), 2))
