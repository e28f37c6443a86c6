"""One cause, many shapes: evidence shared by the cases of one kernel and backend."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from ci.stats.interval import Shifts
from ci.stats.measured import Sample

LEAST_NEIGHBOURS = 4
"""At least this many shapes, so that a single one cannot move their median."""

ONE_SIDED_LEAST = 8
"""So many findings, all in one direction, are suspicious (by chance: 1 run in 128)."""


def neighbours(keys: Sequence[Hashable]) -> list[list[int]]:
    """Positions of equal keys, groups of at least `LEAST_NEIGHBOURS`."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for position, key in enumerate(keys):
        groups[key].append(position)
    return [members for members in groups.values() if len(members) >= LEAST_NEIGHBOURS]


def together(members: Sequence[Sample], *, robust: bool) -> Sample | None:
    """One sample for several cases: per trial, the mean of their shifts, or (robust) the median.

    Cases of one trial share its processes, so they are first combined within the trial; what they have in common then
    shows as scatter between trials, where it belongs.  Only trials that all members have are used; None if fewer than
    3.
    A median of C values has pi/2 times the variance of their mean.
    """
    common = functools.reduce(lambda a, b: a & b, (set(m.numbers) for m in members))
    if len(common) < 3:
        return None
    numbers = [n for n in members[0].numbers if n in common]
    stacked = [_fields(m, numbers) for m in members]
    shift, variance, serial, level = (np.array([s[i] for s in stacked]) for i in range(4))
    loss = np.pi / 2 if robust else 1.0
    centre = np.median(shift, axis=0) if robust else shift.mean(axis=0)
    joined = Shifts(centre, loss * variance.mean(axis=0) / len(members), serial.mean(axis=0), level.mean(axis=0))
    return Sample(tuple(numbers), joined, int(np.median([m.rounds for m in members])))


def _fields(member: Sample, numbers: Sequence[int]) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    place = {number: i for i, number in enumerate(member.numbers)}
    index = np.array([place[n] for n in numbers])
    return [getattr(member.shifts, f.name)[index] for f in dataclasses.fields(Shifts)]


def one_sided(slower: int, faster: int) -> str | None:
    """A warning if all of many findings point one way: the fingerprint of a machine that moved.

    A baseline that was timed beside the findings and stood still clears the machine; the caller knows.
    """
    if max(slower, faster) < ONE_SIDED_LEAST or min(slower, faster) > 0:
        return None
    findings = f"all {slower + faster} findings point one way ({'slower' if slower else 'faster'})"
    suspects = "no baseline stood still beside them, so suspect the machine, the environment or base first"
    return f"{findings} and {suspects}; compare base with itself to be sure"
