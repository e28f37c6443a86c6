"""Steps of one machine, kind and direction that are the same change, put together."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ci.history.steps.evidence import Candidate
from ci.history.steps.words import Direction, EventKind

MACHINE_SHARE = 0.5
"""Series without a baseline: from this share of a machine's on, stepping together, it is the machine.  A choice."""
MACHINE_OPERATORS = 3
"""And from so many operators on: fewer share code with each other more often than a machine moves.  A choice."""


Leader = tuple[int, int, Candidate]
"""Place, rank by sureness, and the candidate itself."""


@dataclasses.dataclass(frozen=True)
class StepGroup:
    """Candidates that are one change.  good, bad: places of the last good and the first bad commit."""

    machine: str
    kind: EventKind
    direction: Direction
    members: tuple[Candidate, ...]
    good: int
    bad: int

    @functools.cached_property
    def operators(self) -> frozenset[str]:
        """The kernels that moved."""
        return frozenset(one.key.kernel for one in self.members)

    @property
    def counting(self) -> tuple[Candidate, ...]:
        """Members whose size is the event's."""
        return tuple(one for one in self.members if one.counts) or self.members

    @property
    def surest(self) -> Candidate:
        """The member with the smallest p-value."""
        return min(self.members, key=_sureness)


def grouped(
    candidates: Iterable[Candidate], alone: Mapping[str, int], same_compiler: Callable[[Candidate], bool]
) -> list[StepGroup]:
    """Groups by machine, kind and direction, oldest first.

    alone: series without a baseline, by machine.  same_compiler: whether a candidate's two sides were compiled alike;
    where they were not, a step of every series is no sign of the machine.
    """
    found = [group for same in _apart(candidates) for group in _groups(same)]
    turned = [_of_machine(group, alone, same_compiler) for group in found]
    kept = list(_joined(_united(turned)))
    return sorted(kept, key=lambda group: (group.bad, group.machine, group.kind, group.direction))


def _apart(candidates: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    def place(one: Candidate) -> tuple[str, str, str]:
        return one.key.machine, one.kind, one.direction

    return (list(group) for _, group in itertools.groupby(sorted(candidates, key=place), key=place))


def _groups(candidates: Sequence[Candidate]) -> Iterator[StepGroup]:
    """Around the surest step first; a step joins the leader it is nearest to."""
    reach = max((max(one.bad - one.low, one.high - one.bad) for one in candidates), default=0)
    leaders: list[Leader] = []
    for rank, one in enumerate(sorted(candidates, key=_sureness)):
        if not any(one.agrees(leader) for _, _, leader in _within(leaders, one.bad, reach)):
            bisect.insort(leaders, (one.bad, rank, one))
    members: dict[int, list[Candidate]] = {}
    for one in candidates:
        around = _within(leaders, one.bad, reach)
        near = ((abs(bad - one.bad), rank) for bad, rank, leader in around if one is leader or one.agrees(leader))
        members.setdefault(min(near)[1], []).append(one)
    return (group_of(each) for each in members.values())


def _within(
    leaders: Sequence[tuple[int, int, Candidate]], place: int, reach: int
) -> Sequence[tuple[int, int, Candidate]]:
    """Leaders that may agree with a candidate at a place."""
    return leaders[bisect.bisect_left(leaders, (place - reach,)) : bisect.bisect_left(leaders, (place + reach + 1,))]


def group_of(members: Sequence[Candidate]) -> StepGroup:
    """The group of members; its first bad commit is the one most of them name, the surest of them on a tie.

    A series in two tracks or with two steps within the slack is told once, by its surest step.
    """
    best: dict[tuple[object, bool], Candidate] = {}
    for one in sorted(members, key=_sureness):
        best.setdefault((one.key, one.counts), one)
    each = sorted(best.values(), key=lambda one: (one.key, one.bad))
    counting = [one for one in each if one.counts] or each
    votes = Counter(one.bad for one in counting)
    bad = min(counting, key=lambda one: (-votes[one.bad], _sureness(one))).bad
    good = max(one.good for one in counting if one.bad == bad)
    first = each[0]
    return StepGroup(first.key.machine, first.kind, first.direction, tuple(each), good, bad)


def _of_machine(group: StepGroup, alone: Mapping[str, int], same_compiler: Callable[[Candidate], bool]) -> StepGroup:
    """The group as the machine's, if most of the series that have no baseline are in it."""
    seconds = [one for one in group.members if one.judged_by == "seconds"]
    wide = len(seconds) >= MACHINE_SHARE * alone.get(group.machine, 0)
    several = len({one.key.kernel for one in seconds}) >= MACHINE_OPERATORS
    if group.kind is not EventKind.KERNEL or not (wide and several) or not all(map(same_compiler, seconds)):
        return group
    return _as_machine(group)


def _united(groups: Sequence[StepGroup]) -> list[StepGroup]:
    """Groups that became the machine's, with those that were: the same change is one of them."""
    machine = [one for group in groups if group.kind is EventKind.MACHINE for one in group.members]
    others = [group for group in groups if group.kind is not EventKind.MACHINE]
    return [*others, *(group for same in _apart(machine) for group in _groups(same))]


def _as_machine(group: StepGroup) -> StepGroup:
    members = tuple(dataclasses.replace(one, kind=EventKind.MACHINE) for one in group.members)
    return dataclasses.replace(group, kind=EventKind.MACHINE, members=members)


def _joined(groups: Sequence[StepGroup]) -> Iterator[StepGroup]:
    """Steps of seconds that the machine's own steps explain go with these."""
    machines = [group for group in groups if group.kind is EventKind.MACHINE]
    taken: dict[int, list[Candidate]] = {}
    for group in groups:
        if group.kind is not EventKind.KERNEL:
            continue
        left = []
        for one in group.members:
            host = next((number for number, other in enumerate(machines) if _explains(other, one)), None)
            if host is None:
                left.append(one)
            else:
                taken.setdefault(host, []).append(dataclasses.replace(one, kind=EventKind.MACHINE))
        if left:
            yield group_of(left) if len(left) < len(group.members) else group
    for number, group in enumerate(machines):
        yield group_of([*group.members, *taken[number]]) if number in taken else group
    yield from (group for group in groups if group.kind not in (EventKind.KERNEL, EventKind.MACHINE))


def _explains(machine: StepGroup, one: Candidate) -> bool:
    same = machine.machine == one.key.machine and machine.direction is one.direction and one.judged_by == "seconds"
    known = len(machine.operators) >= MACHINE_OPERATORS or one.key.kernel in machine.operators
    return same and known and any(one.agrees(other) for other in machine.members)


def _sureness(one: Candidate) -> tuple[float, int, object]:
    return one.step.p_value, one.bad, one.key
