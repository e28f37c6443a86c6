"""Where a step was placed when it could first be told: ids are made of that, so more history changes none.

A detector that has seen more places a step better, so its place moves; what it said of the points up to the first
alarm does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ci.history.steps.evidence import SLACK, Candidate
from ci.history.steps.grouping import StepGroup
from ci.history.steps.series import Tracks
from ci.stats import steps as detector
from ci.stats.types import FloatArray

BEFORE, AFTER = 40, range(3, 16)
"""Points before a step that are looked at, and after it: most steps of a history of noise as it is are told by then."""


def places(groups: Sequence[StepGroup], tracks: Tracks) -> list[int]:
    """The place of each group as its first alarm had it; the place it has now where none of those looks found it."""
    asked = [(number, one) for number, group in enumerate(groups) for one in group.counting if one.number >= 0]
    first: dict[int, tuple[int, Candidate, int]] = {}
    for (number, one), (alarm, place) in zip(asked, _first([one for _, one in asked], tracks), strict=True):
        told = (alarm, one, place)
        if place >= 0 and (number not in first or (alarm, one.key) < (first[number][0], first[number][1].key)):
            first[number] = told
    return [first[number][2] if number in first else group.bad for number, group in enumerate(groups)]


def _first(candidates: Sequence[Candidate], tracks: Tracks) -> Iterator[tuple[int, int]]:
    """(place of the newest point at the first alarm, place of the step then) of each; (-1, -1) if never."""
    found: dict[int, tuple[int, int]] = {}
    for after in AFTER:
        waiting = [number for number in range(len(candidates)) if number not in found]
        looks = {number: _look(candidates[number], tracks, after) for number in waiting}
        whole = {number: values for number, values in looks.items() if values is not None}
        for number, steps in zip(whole, detector.find_many(list(whole.values())), strict=True):
            one = candidates[number]
            start = max(one.step.index - BEFORE, 0)
            near = [step.index + start for step in steps if _is_it(step.index + start, step.ratio, one)]
            if near:
                point = tracks.span(one.track).start
                newest = point + one.step.index + after - 1
                found[number] = int(tracks.place[newest]), int(tracks.place[point + near[0]])
    return (found.get(number, (-1, -1)) for number in range(len(candidates)))


def _is_it(index: int, ratio: float, one: Candidate) -> bool:
    return abs(index - one.step.index) <= SLACK and (ratio > 1) == (one.step.ratio > 1)


def _look(one: Candidate, tracks: Tracks, after: int) -> FloatArray | None:
    """The points about a step up to `after` ones of the new level; None if there are not so many."""
    span = tracks.span(one.track)
    stop = span.start + one.step.index + after
    start = span.start + max(one.step.index - BEFORE, 0)
    return np.asarray(tracks.values[start:stop]) if stop <= span.stop else None
