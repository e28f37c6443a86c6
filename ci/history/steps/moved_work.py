"""Work that only moved: one operator slower and another faster by the same seconds, at one commit of one machine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from ci.history.steps.grouping import StepGroup
from ci.history.steps.words import Direction, EventKind

LEFT = 0.25
"""Share of the larger move that may be left over: levels of seconds are known to some percent each.  A choice."""


@dataclasses.dataclass(frozen=True)
class MovedWork:
    """slower, faster: indices of groups.  sentence: what a person is told."""

    slower: int
    faster: int
    sentence: str


def moved_work(groups: Sequence[StepGroup]) -> dict[int, MovedWork]:
    """Pairs of groups that cancel, by the slower one; each group is in one pair at most."""
    taken: set[int] = set()
    found = {}
    for slower, faster in _pairs(groups):
        if slower not in taken and faster not in taken and _cancel(groups[slower], groups[faster]):
            taken |= {slower, faster}
            found[slower] = MovedWork(slower, faster, _sentence(groups[slower], groups[faster]))
    return found


def _pairs(groups: Sequence[StepGroup]) -> Iterator[tuple[int, int]]:
    """Kernels slower and faster on one machine at the same place."""
    by_place: dict[tuple[str, int], list[int]] = {}
    for number, group in enumerate(groups):
        if group.kind is EventKind.KERNEL and group.direction is Direction.FASTER:
            by_place.setdefault((group.machine, group.bad), []).append(number)
    for number, group in enumerate(groups):
        if group.kind is EventKind.KERNEL and group.direction is Direction.SLOWER:
            yield from ((number, other) for other in by_place.get((group.machine, group.bad), ()))


def _cancel(slower: StepGroup, faster: StepGroup) -> bool:
    lost, won = seconds(slower), seconds(faster)
    return not slower.operators & faster.operators and abs(lost + won) <= LEFT * max(abs(lost), abs(won))


def seconds(group: StepGroup) -> float:
    """Seconds that one call of each series takes more than before."""
    return math.fsum(one.seconds for one in group.members)


def _sentence(slower: StepGroup, faster: StepGroup) -> str:
    names = [", ".join(sorted(group.operators)) for group in (slower, faster)]
    moved = [f"{abs(seconds(group)) * 1e6:.3g} us" for group in (slower, faster)]
    return f"work moved: {names[0]} takes {moved[0]} more and {names[1]} {moved[1]} less at the same commit"
