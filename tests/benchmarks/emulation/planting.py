"""Faults of memory order planted in machine code, one at a time: does any schedule find them, and if none, why not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.emulation.code_object import KernelCode
from benchmarks.emulation.collective import Schedules, programs
from benchmarks.emulation.ordering import UNIT, Part
from benchmarks.emulation.paths import Event, Path, Stretch, completed
from benchmarks.emulation.programs import Facts
from benchmarks.emulation.schedule import Hazard

NOP = (0xBF800000).to_bytes(4, "little")
"""S_NOP 0: what a removed instruction is replaced by, word by word."""

Queues = dict[str, list[Event]]

REMOVED = ("BUFFER_WBL2", "BUFFER_INV", "S_WAITCNT", "S_BARRIER")

ENOUGH = 20
"""Schedules without a hazard after which a reason that holds on all paths ends the search."""

SCOPE_BITS = {"GLOBAL": (16, 25), "FLAT": (16, 25), "BUFFER": (14, 15)}
"""Bits of sc0 and sc1 in an instruction, by the first word of its name: formats FLAT and MUBUF of the ISA documents."""


@dataclass(frozen=True)
class Plant:
    """A change of one instruction: "removed", or "relaxed" where its scope is taken away."""

    facts: Facts
    how: str

    def __str__(self) -> str:
        return f"{self.facts.name.lower()} at {self.facts.instruction.at:#x} {self.how}"

    def in_code(self, code: KernelCode) -> KernelCode:
        """The kernel with the fault."""
        at, size = self.facts.instruction.at, self.facts.instruction.size
        if self.how == "removed":
            changed = NOP * (size // 4)
        else:
            low, high = SCOPE_BITS[self.facts.name.split("_")[0]]
            kept = "_ATOMIC_" in self.facts.name  # its sc0 says whether it returns a value
            bits = int.from_bytes(code.image[at : at + size], "little")
            changed = (bits & ~(1 << high | (0 if kept else 1 << low))).to_bytes(size, "little")
        return replace(code, image=code.image[:at] + changed + code.image[at + size :])


@dataclass(frozen=True)
class Outcome:
    """What became of a plant: the first hazard with how many schedules it took, or the reason why there is none."""

    plant: Plant
    schedules: int
    hazard: Hazard | None
    reason: str = ""


def plants(sound: Schedules) -> list[Plant]:
    """Everything that can be planted in what has been executed, in the order of addresses."""
    found: dict[int, Plant] = {}
    for facts in sound.world.facts[1:]:
        if facts.name in REMOVED or facts.atomic:
            how = "removed" if facts.name in REMOVED else "relaxed"
            found.setdefault(facts.instruction.at, Plant(facts, how))
    return [found[at] for at in sorted(found)]


def planted(sound: Schedules, plant: Plant) -> Schedules:
    """The same schedules with the fault in the code of all ranks; outputs are compared with the sound ones."""
    broken, launches = copy(sound), [one.launch for one in sound.world.programs]
    changed, facts = programs(sound.world.memory, [replace(one, code=plant.in_code(one.code)) for one in launches])
    broken.world = replace(sound.world, programs=changed, facts=facts)
    return broken


def hazard(schedules: Schedules, seed: int) -> Hazard | None:
    """What is wrong under this seed."""
    try:
        schedules.run(seed)
    except Hazard as found:
        return found
    return None


def outcomes(sound: Schedules, seeds: Sequence[int]) -> Iterator[Outcome]:
    """Each plant under these seeds, until one finds it."""
    sound.run(seeds[0])
    reasons = Reasons(sound)
    for plant in plants(sound):
        broken = planted(sound, plant)
        count, found, reason = 0, None, ""
        while count < len(seeds) and not (found or reason):
            found = hazard(broken, seeds[count])
            count += 1
            reason = reasons.shown(plant) if count == ENOUGH and not found else ""
        yield Outcome(plant, count, found, "" if found else reason or reasons.why(plant))


class Reasons:
    """Why a change changes nothing, from all that waves did in the schedules so far (paths.Path)."""

    def __init__(self, sound: Schedules) -> None:
        first = sound.world.programs[0].launch
        self._warps, self._code = first.warps, first.code
        self._waves = list(enumerate(path for program in sound.world.programs for path in program.paths))
        self._around = cache(self._found_around)
        self._held: dict[tuple[int, bool], set[int]] = {}
        self._stored: dict[int, set[int]] = {}
        for number, path in self._waves:
            events = [event for stretch in _stretches(path) for event in stretch.events]
            self._stored[number] = _stored(events)
            for event in events:
                for part in event.parts if event.facts.queue == "vm" else ():
                    kept_in_caches = part.what == "store" and not event.facts.scope
                    for key in {(number // self._warps, False), (number // self._warps, kept_in_caches)}:
                        self._held.setdefault(key, set()).update(_units(part))

    def why(self, plant: Plant) -> str:
        """The reason, from the paths, or as far as the schedules go."""
        if found := self.shown(plant):
            return found
        if plant.how == "removed":
            return "the schedules do not show that it matters: what it orders is ordered by what stands around it"
        if self._only_loads(plant.facts.instruction.at):
            return "in every schedule a release and an acquire stand between the stores of others to its place and it"
        return "the schedules do not show that it matters: others access its place"

    def shown(self, plant: Plant) -> str:
        """The reason that holds on all paths, whatever the schedule; "" if there is none."""
        if plant.in_code(self._code).image == self._code.image:
            return "it has no bit of a scope: a read-modify-write is done in the L2, as the device's scope asks"
        shown = {
            "S_WAITCNT": self._wait,
            "S_BARRIER": self._barrier,
            "BUFFER_INV": self._invalidation,
            "BUFFER_WBL2": self._write_back,
        }
        return shown.get(plant.facts.name, self._alone)(plant.facts.instruction.at)

    def _from(self, at: int) -> Iterator[tuple[int, Path, Stretch, int]]:
        for number, path in self._waves:
            for stretch in _stretches(path):
                for index, event in enumerate(stretch.events):
                    if event.facts.instruction.at == at:
                        yield number, path, stretch, index

    def _wait(self, at: int) -> str:
        """That each operation is completed by a later wait, with nothing in between that depends on it."""
        again: set[str] = set()
        nothing = True
        for number, _, stretch, index in self._from(at):
            before = _outstanding(stretch, index)
            done = completed(stretch.events[index].facts, _copied(before))
            nothing = nothing and not done
            states = [(stretch, index + 1, before)] if done else []
            seen = set()
            while states:
                one, place, queues = states.pop()
                if place == len(one.events):
                    for after in one.follow.values():
                        key = (id(after), *map(id, itertools.chain(*queues.values())))
                        if key not in seen:
                            seen.add(key)
                            states.append((after, 0, _copied(queues)))
                    continue
                event = one.events[place]
                facts = event.facts
                if facts.instruction.kind == "end":
                    again.add("the end of the kernel")
                    continue
                if _fences(event) and not all(self._unordered(number, one, event) for one in done):
                    return ""
                again |= {f"{facts.instruction.at:#x}" for _ in _go_on(event, queues)[:1]}
                if any(other is one_done for one_done in done for other in itertools.chain(*queues.values())):
                    states.append((one, place + 1, queues))
        if nothing:
            return "nothing that it counts is outstanding there, on any path"
        named = ", ".join(sorted(again))
        return f"what it waits for is waited for again by {named}, on every path, and nothing in between depends on it"

    def _unordered(self, number: int, event: Event, fence: Event) -> bool:
        """Whether a wave's operation may be done after one of its fences: it accesses no memory, or loads what others
        do not store, those of its workgroup not before the next barrier if the fence is one."""
        others = {other: units for other, units in self._stored.items() if other != number}
        if fence.facts.instruction.kind == "barrier":
            group = number // self._warps
            after = self._around(fence.facts.instruction.at)[1]
            others |= {other: _stored(after[other]) for other in others if other // self._warps == group}
        return all(
            part.what == "load" and not part.local and all(units.isdisjoint(_units(part)) for units in others.values())
            for part in event.parts
        )

    def _barrier(self, at: int) -> str:
        """That what waves do between the barriers before and after it needs no order among them."""
        if self._warps == 1:
            return "a workgroup has one wave"
        before, after = self._around(at)
        pairs = ((a, b) for a, b in itertools.permutations(before, 2) if a // self._warps == b // self._warps)
        if any(_ordered(x, y) for a, b in pairs for x in before[a] for y in after[b]):
            return ""
        return (
            "what a wave does between the barriers before and after it and what another does there touch different "
            "places, and neither acquires or releases for the other"
        )

    def _found_around(self, at: int) -> tuple[dict[int, list[Event]], dict[int, list[Event]]]:
        """What each wave does between a barrier and the one before it, and until the one after it."""
        before: dict[int, list[Event]] = {number: [] for number, _ in self._waves}
        after: dict[int, list[Event]] = {number: [] for number, _ in self._waves}
        for number, path in self._waves:
            for stretch, index in _after_barriers(path):
                found = list(_until(stretch, index, ("S_BARRIER",)))
                if any(event.facts.instruction.at == at for event in found):
                    before[number] += [*found, *itertools.chain(*_outstanding(stretch, index).values())]
                if index and stretch.events[index - 1].facts.instruction.at == at:
                    after[number] += found
        return before, after

    def _invalidation(self, at: int) -> str:
        """That no load through the caches follows before the next invalidation, or none of what others write."""
        loads = set()
        for number, _, stretch, index in self._from(at):
            for event in _until(stretch, index + 1, ("BUFFER_INV",)):
                if event.facts.queue == "vm" and not event.facts.scope:
                    for part in event.parts:
                        if part.what == "load":
                            loads.add(event.facts.instruction.at)
                            if not _units(part).isdisjoint(self._others(number, True)):
                                return ""
        if not loads:
            return "no load through the caches follows before the next one or the end of the kernel, on any path"
        named = ", ".join(f"{one:#x}" for one in sorted(loads)[:4])
        return f"no other workgroup stores what is loaded through the caches after it, by {named}"

    def _write_back(self, at: int) -> str:
        """That its workgroup keeps nothing in the caches that another accesses."""
        groups = {number // self._warps for number, _, _, _ in self._from(at)}
        if all(
            self._held.get((group, True), set()).isdisjoint(self._others(group * self._warps, False))
            for group in groups
        ):
            return "no other workgroup accesses what its workgroup stores through the caches"
        return ""

    def _alone(self, at: int) -> str:
        for number, _, stretch, index in self._from(at):
            for part in stretch.events[index].parts:
                if not _units(part).isdisjoint(self._others(number, False)):
                    return ""
        return "no other workgroup accesses its place while the kernel runs"

    def _only_loads(self, at: int) -> bool:
        parts = (part for _, _, stretch, index in self._from(at) for part in stretch.events[index].parts)
        return all(part.what == "load" for part in parts)

    def _others(self, number: int, kept_in_caches: bool) -> set[int]:
        """Units that other workgroups access, or store through the caches."""
        own = number // self._warps
        return set().union(*(u for (g, kept), u in self._held.items() if g != own and kept == kept_in_caches))


def _stretches(path: Path) -> list[Stretch]:
    return [path.first, *path.known.values()]


def _after_barriers(path: Path) -> Iterator[tuple[Stretch, int]]:
    """Where a wave begins, and after each of its barriers: a stretch and the number of its event there."""
    yield path.first, 0
    for stretch in _stretches(path):
        for index, event in enumerate(stretch.events, 1):
            if event.facts.name == "S_BARRIER":
                yield stretch, index


def _fences(event: Event) -> bool:
    """Whether others can tell what its wave has done before it: a barrier, an acquire or a release."""
    if event.facts.atomic:
        return any(part.what != "load" for part in event.parts)
    return event.facts.instruction.kind == "barrier" or event.facts.name in REMOVED[:2]


def _ordered(before: Event, after: Event) -> bool:
    """Whether a barrier between them matters: they conflict, or one acquires or releases for the other's wave."""
    if after.facts.queue == "vm" and (before.facts.name == "BUFFER_INV" or before.facts.atomic):
        return True
    releases = _fences(after) and after.facts.instruction.kind != "barrier"
    if releases and any(part.what != "load" and not part.local for part in before.parts):
        return True
    return any(
        one.local == other.local
        and not (one.what == other.what == "load")
        and not _units(one).isdisjoint(_units(other))
        for one in before.parts
        for other in after.parts
    )


def _until(stretch: Stretch, index: int, names: tuple[str, ...]) -> Iterator[Event]:
    """All events that can follow, up to and with one of these names."""
    states, seen = [(stretch, index)], set()
    while states:
        one, place = states.pop()
        for event in one.events[place:]:
            yield event
            if event.facts.name in names:
                break
        else:
            for after in one.follow.values():
                if id(after) not in seen:
                    seen.add(id(after))
                    states.append((after, 0))


def _stored(events: Sequence[Event]) -> set[int]:
    """Units of memory that these events write."""
    parts = (part for event in events if event.facts.queue == "vm" for part in event.parts)
    return set().union(*(_units(part) for part in parts if part.what != "load"))


def _units(part: Part) -> set[int]:
    return {place // UNIT + step for place in part.places.tolist() for step in range(max(1, part.size // UNIT))}


def _outstanding(stretch: Stretch, index: int) -> Queues:
    """What is outstanding before one of its events."""
    queues = _copied(stretch.before)
    for event in stretch.events[:index]:
        _go_on(event, queues)
    return queues


def _go_on(event: Event, queues: Queues) -> list[Event]:
    """Let what is outstanding change by an event; what it completes."""
    if event.facts.queue:
        queues[event.facts.queue].append(event)
    return completed(event.facts, queues)


def _copied(queues: Mapping[str, list[Event]]) -> Queues:
    return {name: list(queue) for name, queue in queues.items()}
