"""Steps of a machine's own path: what all its operators did at one commit."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ci.history.steps.finding import MachineNoise
from ci.history.steps.grouping import LEAST_SECONDS, Candidate, went_along
from ci.history.steps.series import Direction, EventKind, MachinePath, Tracks
from ci.stats.types import FloatArray, Step

Find = Callable[[FloatArray], Sequence[Step]]


def of_paths(
    tracks: Tracks,
    paths: Mapping[str, MachinePath],
    find: Find,
    noise: Mapping[str, MachineNoise],
    same_compiler: Callable[[Candidate], bool],
) -> Iterator[Candidate]:
    """Candidates of all machines: one series of each operator and arm that went along tells of the step.

    Where no library went along and the compiler changed, it is the compiler's doing: of kind KERNEL.
    """
    for machine, path in paths.items():
        steps = find(np.exp(path.path)) if np.any(path.path) else []
        steps = [step for step in steps if noise[machine].lets_through(step, len(path.path))]
        edges = [0, *(step.index for step in steps), len(path.path)]
        for step, (first, stop) in zip(steps, zip(edges, edges[2:], strict=False), strict=True):
            if abs(math.log(step.ratio)) >= LEAST_SECONDS:
                leader = _leader(path, step, tracks, machine)
                yield from _told(tracks, machine, leader, (path.places[first], path.places[stop - 1]), same_compiler)


def _leader(path: MachinePath, step: Step, tracks: Tracks, machine: str) -> Candidate:
    """The step as if it were of a series."""
    where = [int(path.places[index]) for index in (step.index - 1, step.index)]
    way = Direction.SLOWER if step.ratio > 1 else Direction.FASTER
    track = int(tracks.of_machine[machine][0])
    bounds = (where[0], where[1], where[0], where[1])
    return Candidate(EventKind.MACHINE, way, tracks.keys[track], track, -1, step, "seconds", *bounds)


def _told(
    tracks: Tracks, machine: str, leader: Candidate, window: tuple[int, int], same_compiler: Callable[[Candidate], bool]
) -> list[Candidate]:
    def arm(track: int) -> tuple[str, bool]:
        return tracks.keys[track].kernel, bool(tracks.is_baseline[track])

    found = []
    listed = sorted(map(int, tracks.of_machine[machine]), key=lambda track: (arm(track), tracks.keys[track], track))
    for _, same in itertools.groupby(listed, key=arm):
        along = (one for track in same if (one := went_along(tracks, track, leader, *window)))
        if one := next(along, None):
            found.append(one)
    alike = any(tracks.is_baseline[one.track] for one in found) or all(map(same_compiler, found))
    kind = EventKind.MACHINE if alike else EventKind.KERNEL
    return [dataclasses.replace(one, kind=kind) for one in found]
