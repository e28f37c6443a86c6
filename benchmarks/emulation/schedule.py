"""Launches of the same kernel on several ranks, executed wave by wave in an order that a seed picks.

A memory operation is issued by its instruction and performed at any time until a wait of its wave covers it; a wave
that polls is left alone until what it polls is changed.  The first thing that is wrong is told as a hazard, with both
instructions, even where this order happens to give the right result.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .ordering import AGENT, AGENT_READ, ALWAYS, DONE, LOCAL, SYSTEM, UNIT, Clock, FlatMemory, Hierarchy, Part, Races
from .paths import Event, Path, Program, Stretch, completed
from .programs import SCALAR, STREAM, Facts
from .watching import vector_name

LIMIT = 2_000_000
"""Instructions of one schedule after which it is a livelock."""

ATOMIC_BYTES = 8
"""Accesses of a lane up to this size are made at once."""

TRIES = 8
"""Waves that are picked at random before those that can go on are listed."""

WAKES = 0.1
"""How likely a wave that polls looks again after a change; all that wait do when no other can go on."""

MOST_PLACES = 8
"""Waves that are named of those that cannot go on."""


@dataclass(eq=False)
class Hazard(Exception):
    """Something that goes wrong under some order.  kind: register, lds, memory, wrong, fault, deadlock or livelock.

    where: the register, LDS address or buffer and address; first and second: "instruction at offset of kernel", the
    second is the one that comes too early, with the rank, workgroup and wave of each.
    """

    kind: str
    seed: int
    rank: int
    where: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.kind}, rank {self.rank}, {self.where}: {self.first}, then {self.second}"


@dataclass(frozen=True)
class World:
    """What a launch of each rank does, that is called several times, and the memory that they share.

    facts: of all their instructions by number.
    writes: [rank][call], (place, bytes) of what the stream writes before that call; outputs: first place and bytes of
    each rank's; compared: what a rank's output after a call is beside the reference (kernels.numerics.compare).
    """

    memory: FlatMemory
    programs: list[Program]
    facts: list[Facts]
    writes: list[list[list[tuple[int, Any]]]]
    outputs: list[tuple[int, int]]
    compared: Callable[[int, int, Any], Any]


@dataclass(eq=False)
class Operation:
    """One that a wave has issued: its parts are done when it is performed, and known to be when a wait covers it.

    clock: what its wave knew.  received: what those knew whose atomics it has read, rows of clocks.  loaded: what its
    parts have found.
    """

    facts: Facts
    parts: list[Part]
    index: int
    clock: Clock
    performed: bool = False
    received: list[Any] = field(default_factory=list)
    loaded: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Wave:
    """A wave, or the stream of a rank, and what it has outstanding.  state: ready, barrier, polling or end.

    group: of its rank.  own: which waves are of its workgroup, and of its rank.  issued and queues: operations by the
    counter that waits for them.  at: which event of its stretch is next.  polled: address of an atomic that changed
    nothing -> its places, how often they had been changed by then, and what it found there.
    """

    number: int
    rank: int
    group: int
    name: str
    own: tuple[Any, Any]
    clock: Clock
    issued: dict[str, int] = field(default_factory=lambda: {"vm": 0, "lgkm": 0})
    queues: dict[str, list[Operation]] = field(default_factory=lambda: {"vm": [], "lgkm": []})

    def begin(self, path: Path, clock: Clock) -> None:
        """At its first instruction, of a launch before which this is known."""
        self.path, self.clock = path, clock
        self.stretch: Stretch = path.first
        self.at = 0
        self.state, self.urged = "ready", False
        self.polled: dict[int, tuple[tuple[int, ...], int, bytes]] = {}

    @property
    def event(self) -> Event:
        """What it does next."""
        return self.stretch.events[self.at]

    def issue(self, facts: Facts, parts: list[Part]) -> Operation:
        """An operation that is the next one of its counter."""
        self.issued[facts.queue] += 1
        return Operation(facts, parts, self.issued[facts.queue], self.clock)


class Schedule:
    """All calls of all ranks under one seed.

    expected: [rank][call], the bytes of the output after it, None if they are not known yet; results: the same, as each
    rank's stream reads them.  executed: instructions.

    order: "fair" picks any wave, "waves" and "ranks" the first of a random order that changes now and then.
    early: how likely an outstanding operation is performed before it is waited for, after each turn; evicts: the same
    of lines that leave a cache.
    """

    def __init__(self, world: World, expected: Sequence[Any] | None, seed: int, limit: int) -> None:
        self.world, self.expected, self.seed, self.limit = world, expected, seed, limit
        self.choose = random.Random(seed)
        self.order = self.choose.choice(["fair", "waves", "ranks"])
        self.early, self.evicts = self.choose.choice([0.0, 0.05, 0.5]), self.choose.choice([0.0, 0.0, 0.1])
        warps, count = world.programs[0].launch.warps, len(world.programs[0].paths) + 1  # of a rank, with its stream
        rank_of, place_of = np.divmod(np.arange(len(world.programs) * count), count)
        nothing = Clock(np.zeros((6, len(rank_of)), np.int64))
        self.members: list[Wave] = []
        for rank, place in zip(rank_of.tolist(), place_of.tolist(), strict=True):
            group, within = divmod(place, warps)
            name = f"rank {rank}, workgroup {group}, wave {within}" if place < count - 1 else f"rank {rank}"
            own = (rank_of == rank) & (place_of // warps == group), rank_of == rank
            self.members.append(Wave(len(self.members), rank, group, name, own, nothing))
        self.streams = self.members[count - 1 :: count]
        self.by_rank = [self.members[stream.number - count + 1 : stream.number] for stream in self.streams]
        self.waves: list[Wave] = []
        """Those of ranks that have begun."""
        self.results: list[list[Any]] = [[] for _ in self.streams]
        self.executed = 0
        self.memory, self.hierarchy = world.memory, Hierarchy(world.memory.bytes)
        known = np.tile(rank_of, 2), world.facts
        self.races = Races(len(self.memory.bytes), *known)
        self.lds = [Races(len(program.lds), *known) for program in world.programs]
        self.messages: dict[tuple[int, int], Any] = {}
        self.versions: dict[int, int] = {}
        self.changes = 0

    # The life of a rank: calls one after the other, and what its stream does between them.

    def run(self) -> None:
        """Execute all calls of all ranks.  Raises Hazard for the first thing that is wrong with the order."""
        for rank, waves in enumerate(self.by_rank):
            self.waves += waves
            self._begin(rank)
        stalled = -1
        while True:
            wave = self._picked()
            if wave:
                self._go(wave)
                if self.executed > self.limit:
                    raise self._stuck("livelock")
                if self.early and self.choose.random() < self.early:
                    self._perform_any()
                if self.evicts and self.choose.random() < self.evicts:
                    self.hierarchy.evict(self.choose)
            elif all(wave.state == "end" for wave in self.waves):
                return
            elif not self._wake(1):
                if stalled == self.changes:
                    raise self._stuck("deadlock")
                stalled = self.changes
                self._urge()

    def _begin(self, rank: int) -> None:
        stream, program = self.streams[rank], self.world.programs[rank]
        for place, values in self.world.writes[rank][len(self.results[rank])]:
            self._access(stream, "store", place, len(values))
            self.memory.bytes[place : place + len(values)] = values
        clock = stream.clock = stream.clock.done(slice(None), stream.number, stream.issued["vm"])
        for wave, path in zip(self.by_rank[rank], program.paths, strict=True):
            wave.begin(path, clock)
        program.lds[:] = 0xA5
        self._shuffle()

    def _access(self, stream: Wave, what: str, place: int, size: int) -> None:
        """One of a stream, which must be ordered after all others."""
        part = Part(what, np.arange(place, place + size, UNIT), UNIT)
        self._check(stream, stream.issue(STREAM, [part]), part)

    def _finish(self, rank: int) -> None:
        """A launch has ended: its stores are visible, the stream reads the output, the next call begins."""
        stream = self.streams[rank]
        for wave in self.by_rank[rank]:
            for queue in wave.queues.values():
                for operation in queue:
                    self._perform(wave, operation)
                queue.clear()
            stream.clock = stream.clock.joined(wave.clock.rows).done(LOCAL, wave.number, wave.issued["lgkm"])
            stream.clock = stream.clock.done(slice(DONE, None), wave.number, wave.issued["vm"])
        stream.clock = stream.clock.invalidated(SYSTEM)
        for wave in self.by_rank[rank][:: self.world.programs[rank].launch.warps]:
            self.hierarchy.write_back(rank, wave.group, SYSTEM)
            self.hierarchy.invalidate(rank, wave.group, SYSTEM)
        self._check_output(rank)
        if len(self.results[rank]) < len(self.world.writes[rank]):
            self._begin(rank)

    def _check_output(self, rank: int) -> None:
        (start, size), call = self.world.outputs[rank], len(self.results[rank])
        self._access(self.streams[rank], "load", start, size)
        found = self.memory.bytes[start : start + size].copy()
        self.results[rank].append(found)
        wrong = np.flatnonzero(found != self.expected[rank][call]) if self.expected else ()
        if len(wrong):
            where = f"{self.memory.named(start + int(wrong[0]))}, {len(wrong)} bytes of {size}"
            raise self._hazard("wrong", rank, where, f"call {call}", "the output is not what it should be")

    # Picking.

    def _shuffle(self) -> None:
        """A random precedence of the waves or ranks."""
        ranks = [self.choose.random() for _ in self.streams]
        by_rank = self.order == "ranks"
        self.precedence = sorted(self.waves, key=lambda wave: ranks[wave.rank] if by_rank else self.choose.random())

    def _picked(self) -> Wave | None:
        """A wave that can go on, None if there is none."""
        if self.order == "fair":
            for _ in range(TRIES):
                if (one := self.choose.choice(self.waves)).state == "ready":
                    return one
            ready = [wave for wave in self.waves if wave.state == "ready"]
            return self.choose.choice(ready) if ready else None
        if self.choose.random() < 0.01:
            self._shuffle()
        return next((wave for wave in self.precedence if wave.state == "ready"), None)

    def _urge(self) -> None:
        """Nobody can go on: perform what is outstanding, and let those that poll look again."""
        for wave in self.waves:
            for operation in itertools.chain(*wave.queues.values()):
                self._perform(wave, operation)
            if wave.state == "polling":
                wave.state, wave.urged = "ready", True

    def _perform_any(self) -> None:
        wave = self.choose.choice(self.waves)
        waiting = [queue for queue in wave.queues.values() if queue]
        if waiting:
            self._perform(wave, self.choose.choice(self.choose.choice(waiting)))

    def _wake(self, likely: float) -> bool:
        """Let waves go on, each as likely as that, for which what they poll has changed; whether there was one."""
        before = self.changes
        for wave in self.waves:
            if wave.state == "polling" and self.choose.random() < likely:
                where, version, _ = wave.polled[wave.event.facts.instruction.at]
                if self._version(where) != version:
                    wave.state = "ready"
                    self.changes += 1
        return self.changes > before

    # One wave.

    def _go(self, wave: Wave) -> None:
        """Execute what the wave does next that others could notice, and all before it."""
        event = wave.event
        facts = event.facts
        if event.early:
            raise self._register_hazard(wave, *event.early)
        if event.fault:
            raise self._hazard("fault", wave.rank, event.fault, "", f"{facts} of {wave.name}")
        if facts.atomic and self._polls(wave, event):
            return
        self.executed += event.executed
        wave.at += 1
        if facts.instruction.kind in ("barrier", "end"):
            wave.state = facts.instruction.kind
            self._meet(wave)
        elif facts.queue:
            self._issue(wave, event)
        elif facts.waits:
            self._wait(wave, facts)
        else:
            self.hierarchy.invalidate(wave.rank, wave.group, facts.scope)
            wave.clock = wave.clock.invalidated(facts.scope)

    def _meet(self, wave: Wave) -> None:
        """Let a workgroup go on if all its waves that live are at a barrier; a launch ends with its last wave."""
        mine = self.by_rank[wave.rank]
        living = [one for one in mine if one.group == wave.group and one.state != "end"]
        if living and all(one.state == "barrier" for one in living):
            clock = living[0].clock.joined(*(one.clock.rows for one in living))
            for one in living:
                one.clock, one.state = clock, "ready"
            self.changes += 1
        if all(one.state == "end" for one in mine):
            self.changes += 1
            self._finish(wave.rank)

    def _polls(self, wave: Wave, event: Event) -> bool:
        """Whether an atomic would find what it found last time; then its wave is left alone until that has changed."""
        places, version, _ = wave.polled.get(event.facts.instruction.at, ((), -1, b""))
        if wave.urged or version < 0 or version != self._version(places) or _places(event.parts) != places:
            wave.urged = False
            return False
        wave.state = "polling"
        return True

    def _version(self, places: tuple[int, ...]) -> int:
        return sum(self.versions[place] for place in places)

    def _found(self, wave: Wave, facts: Facts, part: Part, data: bytes) -> None:
        """Remember what an atomic that changed nothing has found."""
        places, at = _places([part]), facts.instruction.at
        for place in places:
            self.versions.setdefault(place, 0)
        self.changes += at in wave.polled and wave.polled[at][2] != data
        wave.polled[at] = (places, self._version(places), data)

    def _changed(self, places: Any) -> None:
        self.changes += 1
        watched = self.versions.keys() & set(places.tolist())
        for place in watched:
            self.versions[place] += 1
        if watched:
            self._wake(WAKES)

    def _issue(self, wave: Wave, event: Event) -> None:
        facts = event.facts
        operation = wave.issue(facts, event.parts)
        if facts.name == "BUFFER_WBL2":
            before = np.where(wave.own[0], wave.clock.rows[DONE], 0)
            before[wave.number] = operation.index
            operation.received = [wave.clock.written_back(before, facts.scope)]
        wave.queues[facts.queue].append(operation)
        if self.early > 0.4 and not event.parts:
            self._perform(wave, operation)

    def _wait(self, wave: Wave, facts: Facts) -> None:
        given = []
        for operation in completed(facts, wave.queues):
            self._perform(wave, operation)
            row = DONE if operation.facts.queue == "vm" else LOCAL
            wave.clock = wave.clock.done(row, wave.number, operation.index)
            if operation.received:
                wave.clock = wave.clock.joined(*operation.received)
            if operation.facts.written:
                given += [data for data in operation.loaded if data is not None]
        if given:
            wave.stretch, wave.at = wave.path.next(wave.stretch, given), 0

    def _perform(self, wave: Wave, operation: Operation) -> None:
        """Do what an operation does, after those of the same wave whose places or registers it shares."""
        if operation.performed:
            return
        for other in wave.queues[operation.facts.queue]:
            if other is operation:
                break
            if not other.performed and _ordered(other, operation):
                self._perform(wave, other)
        operation.performed = True
        if operation.facts.name == "BUFFER_WBL2":
            self.hierarchy.write_back(wave.rank, wave.group, operation.facts.scope)
            self.changes += 1
        operation.loaded = [self._do(wave, operation, part) for part in operation.parts]

    def _do(self, wave: Wave, operation: Operation, part: Part) -> Any:
        """Perform a part of an operation; what it loads, None of a store."""
        facts, accesses = operation.facts, self.world.programs[wave.rank].accesses
        if part.local or facts.queue == "vm":  # scalar loads are of what nobody changes
            self._check(wave, operation, part)
        if part.local:
            if part.what == "load":
                return part.found_in(accesses.lds)
            return part.put_into(accesses.lds, part.given)
        where = wave.rank, wave.group, part
        found: Any = None
        changed = part.what == "store"
        if part.what == "load":
            found = self.hierarchy.load(*where, facts.scope)
        elif part.what == "store":
            self.hierarchy.store(*where, part.given, facts.scope)
        else:
            found, changed = self.hierarchy.modify(*where, part.given[0], facts.scope)
        if facts.atomic and part.size <= ATOMIC_BYTES:
            self._exchange(wave, operation, part)
            if changed:
                wave.polled.pop(facts.instruction.at, None)
            else:
                self._found(wave, facts, part, found.tobytes())
        if changed:
            self._changed(part.places)
        elif part.what == "load" and not facts.written:  # straight to the LDS
            accesses.parts = []
            part.given(found)
            for one in accesses.parts:
                self._do(wave, operation, one)
        return found

    def _exchange(self, wave: Wave, operation: Operation, part: Part) -> None:
        """What an atomic learns from those who wrote there before, and leaves for those who come later: what its wave
        knew when it was issued.  It meets others at a place in its rank's cache and, of the system, in memory."""
        scopes = (wave.rank, -1) if operation.facts.scope == SYSTEM else (wave.rank,)
        keys = [(place, scope) for place in part.places.tolist() for scope in scopes]
        if part.what != "store":
            operation.received += [self.messages[key] for key in keys if key in self.messages]
        if part.what != "load":
            rows = operation.clock.rows[:AGENT_READ]
            for key in keys:
                self.messages[key] = np.maximum(self.messages.get(key, rows), rows)

    # What is told.

    def _check(self, wave: Wave, operation: Operation, part: Part) -> None:
        """Hazard if an access is not ordered after another.  Of the LDS, waves count twice: what came straight from
        memory is complete by vmcnt."""
        facts, number, clock = operation.facts, wave.number, operation.clock
        if part.local:
            direct = len(self.members) if facts.queue == "vm" else 0
            limit = np.concatenate([clock.rows[LOCAL], clock.rows[DONE]])
            limit[[number, number + direct]] = ALWAYS
            number += direct
            races, limits = self.lds[wave.rank], (limit, limit, limit)
        else:
            races, limits = self.races, clock.limits(number, wave.own, facts.scope >= AGENT)
        found = races.conflict(part, limits, (number, facts.number, operation.index))
        if found:
            in_group = found.place % max(1, self.world.programs[wave.rank].accesses.lds_bytes)
            where = f"LDS address {in_group:#x}" if part.local else self.memory.named(found.place)
            first = f"{self.world.facts[found.instruction]} of {self.members[found.wave % len(self.members)].name}"
            second = f"{found.what} by {facts} of {wave.name}"
            raise self._hazard("lds" if part.local else "memory", wave.rank, where, first, second)

    def _register_hazard(self, wave: Wave, first: Facts, second: Facts) -> Hazard:
        register = min(first.written & second.touched)
        name = f"s{register - SCALAR}" if register >= SCALAR else vector_name(register)
        return self._hazard("register", wave.rank, name, f"{first} of {wave.name}", f"{second} of {wave.name}")

    def _stuck(self, kind: str) -> Hazard:
        waiting = [wave for wave in self.waves if wave.state != "end"]
        places = [f"{wave.name} at {wave.event.facts} ({wave.state})" for wave in waiting[:MOST_PLACES]]
        more = f" and {len(waiting) - MOST_PLACES} more" if len(waiting) > MOST_PLACES else ""
        return self._hazard(kind, waiting[0].rank, "no wave can go on", "; ".join(places) + more, "nothing")

    def _hazard(self, kind: str, rank: int, where: str, first: str, second: str) -> Hazard:
        return Hazard(kind, self.seed, rank, where, first, second)


def _places(parts: Sequence[Part]) -> tuple[int, ...]:
    return tuple(place for part in parts for place in part.places.tolist())


def _ordered(first: Operation, second: Operation) -> bool:
    """Whether the second cannot be performed before the first, of one wave."""
    if first.facts.written & second.facts.written or second.facts.name == "BUFFER_WBL2":
        return True
    before, after = ([part.span for part in one.parts] for one in (first, second))
    return any(start < end and begin < stop for start, stop in before for begin, end in after)
