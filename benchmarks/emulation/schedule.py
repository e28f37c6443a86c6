"""Launches of the same kernel on several ranks, executed wave by wave in an order that a seed picks.

A memory operation is issued by its instruction and performed at any time until a wait of its wave covers it; a wave
that polls is left alone until what it polls is changed.  What is wrong is told as hazards, with both instructions, even
where this order happens to give the right result.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import ordering
from .machine import Machine
from .ordering import AGENT, DONE, LOCAL, SYSTEM, UNIT, Clock, Conflict, FlatMemory, Hierarchy, Part, Races
from .paths import Event, Path, Stretch, completed, paths
from .programs import SCALAR, STREAM, Facts, Programs, Recording
from .triton_driver import Launch
from .waves import ACCUMULATORS, Fault

LIMIT = 2_000_000
"""Instructions of one schedule after which it is a livelock."""

ATOMIC_BYTES = 8
"""Accesses of a lane up to this size are made at once."""

TRIES = 8
"""Waves that are picked at random before those that can go on are listed."""

WAKES = 0.1
"""How likely a wave that polls looks again after a change; all that wait do when no other can go on."""

MOST = 8
"""Hazards that end a schedule; a fault or a deadlock ends it too."""


@dataclass(frozen=True)
class Hazard:
    """Something that goes wrong under some order.  kind: register, lds, memory, deadlock or fault.

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


@dataclass(eq=False)
class Operation:
    """One that a wave has issued: its parts are done when it is performed, and known to be when a wait covers it."""

    facts: Facts
    index: int
    clock: Clock
    parts: list[Part]
    performed: bool = False
    received: list[Any] = field(default_factory=list)
    """What the writers of what it has read knew: rows of clocks."""
    loaded: dict[int, Any] = field(default_factory=dict)
    """What its parts have found, by their number."""


@dataclass(eq=False)
class Wave:
    """A wave and what it has outstanding.  state: ready, barrier, polling or ended."""

    number: int
    rank: int
    group: int
    path: Path
    clock: Clock
    own: Any
    """Which waves are of its workgroup, and of its rank: [2, waves]."""
    issued: list[int]
    """Operations counted by vmcnt, and by lgkmcnt."""
    vm: list[Operation] = field(default_factory=list)
    lgkm: list[Operation] = field(default_factory=list)
    state: str = "ready"
    at: int = 0
    """Which event of its stretch is next."""
    polled: dict[int, tuple[tuple[int, ...], int, bytes]] = field(default_factory=dict)
    """Address of an atomic that changed nothing -> its places, how often they had been changed by then, and what it
    found there."""
    urged: bool = False

    def __post_init__(self) -> None:
        self.stretch: Stretch = self.path.first

    @property
    def event(self) -> Event:
        """What it does next."""
        return self.stretch.events[self.at]


@dataclass(frozen=True)
class Mood:
    """How one schedule picks, from its seed.

    order: "fair" picks any wave, "waves" and "ranks" the first of a random order that changes now and then.
    early: how likely an outstanding operation is performed before it is waited for, after each turn; evicts: the same
    of lines that leave a cache.
    """

    order: str
    early: float
    evicts: float

    @classmethod
    def of(cls, choose: random.Random) -> Mood:
        """What the first numbers of a seed say."""
        return cls(
            choose.choice(["fair", "waves", "ranks"]), choose.choice([0.0, 0.05, 0.5]), choose.choice([0.0, 0.0, 0.1])
        )


@dataclass(frozen=True)
class Between:
    """What a rank's stream does between launches: bytes that it writes at places."""

    writes: tuple[tuple[int, Any], ...]


class Schedule:
    """All launches of all ranks under one seed.

    launches: [rank][call]; between: [rank][call], writes of the stream before that call; outputs: first place and bytes
    of each rank's; expected: [rank][call], the bytes of the output after it, None if they are not known yet.
    """

    def __init__(
        self,
        programs: Programs,
        memory: FlatMemory,
        launches: Sequence[Sequence[Launch]],
        between: Sequence[Sequence[Between]],
        outputs: Sequence[tuple[int, int]],
        expected: Sequence[Sequence[Any]] | None,
        seed: int,
        most: int = MOST,
        limit: int = LIMIT,
    ) -> None:
        self.most, self.limit = most, limit
        self.programs, self.memory, self.seed = programs, memory, seed
        self.launches, self.between, self.outputs, self.expected = launches, between, outputs, expected
        self.choose = random.Random(seed)
        self.mood = Mood.of(self.choose)
        first = launches[0][0]
        self.groups, self.warps = int(np.prod(first.grid)), first.warps
        self.ranks = len(launches)
        count = self.ranks * self.groups * self.warps
        self.streams = count
        self.rank_of = np.concatenate(
            [np.repeat(np.arange(self.ranks), self.groups * self.warps), np.arange(self.ranks)]
        )
        group_of = np.concatenate(
            [np.repeat(np.arange(self.ranks * self.groups), self.warps), -1 - np.arange(self.ranks)]
        )
        self.group_of = group_of
        self.hierarchy = Hierarchy(memory.bytes)
        self.hierarchy.groups_of_a_rank = self.groups
        self.races = Races(len(memory.bytes), self.rank_of, programs.scopes)
        self.hazards: list[Hazard] = []
        self.seen: set[tuple[str, int, int]] = set()
        self.messages: dict[tuple[int, int], Any] = {}
        self.versions: dict[int, int] = {}
        self.changes = 0
        self.executed = 0
        self.clocks = [Clock(np.zeros((6, count + self.ranks), np.int64)) for _ in range(self.ranks)]
        self.stream_index = [0] * self.ranks
        self.calls = [0] * self.ranks
        self.waves: list[Wave] = []
        self.place: dict[int, int] = {}
        """Number of a wave -> its index in `waves`."""
        self.results: list[list[Any]] = [[] for _ in range(self.ranks)]
        """Outputs, [rank][call], as each rank's stream reads them."""

    # The life of a rank: calls one after the other, and what its stream does between them.

    def run(self) -> list[Hazard]:
        """Execute all calls of all ranks; what is wrong with the order, at most MOST hazards."""
        self.alive = [0] * (self.ranks * self.groups)
        self.lds = [Races(8, self.rank_of, self.programs.scopes)] * (self.ranks * self.groups)
        self.machines: list[Machine | None] = [None] * self.ranks
        try:
            for rank in range(self.ranks):
                self._begin(rank)
            self._loop()
        except Fault as error:
            if not self.hazards:
                raise error
        return self.hazards

    def _begin(self, rank: int) -> None:
        call = self.calls[rank]
        launch = self.launches[rank][call]
        if int(np.prod(launch.grid)) != self.groups or launch.warps != self.warps:
            raise Fault("launches of the ranks differ in their grid or waves")
        self._stream_writes(rank, self.between[rank][call])
        machine = self.machines[rank] = self.programs.machine(launch)
        machine.accesses.memory = self.memory
        for number, path in enumerate(paths(self.programs, machine, launch, rank)):
            index = rank * self.groups * self.warps + number
            group = rank * self.groups + number // self.warps
            same = np.stack([self.group_of == group, self.rank_of == rank])
            if call:
                self.waves[self.place[index]] = Wave(
                    index, rank, group, path, self.clocks[rank], same, self.waves[self.place[index]].issued
                )
            else:
                self.place[index] = len(self.waves)
                self.waves.append(Wave(index, rank, group, path, self.clocks[rank], same, [0, 0]))
            self.alive[group] += number % self.warps == 0 and self.warps
        for group in range(rank * self.groups, (rank + 1) * self.groups):
            start = group * launch.lds_bytes
            self.lds[group] = Races(launch.lds_bytes, np.tile(self.rank_of, 2), self.programs.scopes, start)
        machine.accesses.lds[rank * self.groups * launch.lds_bytes : (rank + 1) * self.groups * launch.lds_bytes] = 0xA5
        self._orders()

    def _stream_writes(self, rank: int, between: Between) -> None:
        wave = self.streams + rank
        for place, values in between.writes:
            self.stream_index[rank] += 1
            event = (wave, STREAM, self.stream_index[rank])
            part = Part("store", np.arange(place, place + len(values), UNIT), UNIT)
            limits = self._limits(self.clocks[rank], wave, True)
            self._tell_memory(self.races.write(part, (limits[1], limits[2]), event), event, rank)
            self.memory.bytes[place : place + len(values)] = values
        rows = self.clocks[rank].rows.copy()
        rows[:, wave] = self.stream_index[rank]
        self.clocks[rank] = Clock(rows)

    def _finish(self, rank: int) -> None:
        """A launch has ended: its stores are visible, the stream reads the output, the next call begins."""
        mine = [wave for wave in self.waves if wave.rank == rank]
        rows = self.clocks[rank].rows.copy()
        for wave in mine:
            for queue in (wave.vm, wave.lgkm):
                for operation in queue:
                    self._perform(wave, operation)
                queue.clear()
            rows = np.maximum(rows, wave.clock.rows)
        for wave in mine:
            rows[LOCAL, wave.number] = wave.issued[1]
            rows[DONE:, wave.number] = wave.issued[0]
        rows[ordering.AGENT_READ :] = rows[ordering.AGENT_SEEN : ordering.AGENT_READ]
        self.clocks[rank] = Clock(rows)
        self.hierarchy.ended(rank, range(rank * self.groups, (rank + 1) * self.groups))
        self._check_output(rank)
        self.calls[rank] += 1
        if self.calls[rank] < len(self.launches[rank]):
            self._begin(rank)

    def _check_output(self, rank: int) -> None:
        start, size = self.outputs[rank]
        wave = self.streams + rank
        self.stream_index[rank] += 1
        event = (wave, STREAM, self.stream_index[rank])
        part = Part("load", np.arange(start, start + size, UNIT), UNIT)
        self._tell_memory(self.races.read(part, self._limits(self.clocks[rank], wave, True)[0], event), event, rank)
        self.results[rank].append(self.memory.bytes[start : start + size].copy())
        if self.expected is None:
            return
        expected = self.expected[rank][self.calls[rank]]
        wrong = np.flatnonzero(self.memory.bytes[start : start + size] != expected)
        if len(wrong):
            where = f"{self.memory.named(start + int(wrong[0]))}, {len(wrong)} bytes of {size}"
            self._tell("wrong", rank, where, f"call {self.calls[rank]}", "the output is not what it should be", (0, 0))

    # Picking.

    def _orders(self) -> None:
        """A random order of the waves or ranks."""
        ranks = [self.choose.random() for _ in range(self.ranks)]
        precedence = {
            wave: ranks[wave.rank] if self.mood.order == "ranks" else self.choose.random() for wave in self.waves
        }
        self.order = sorted(self.waves, key=precedence.__getitem__)

    def _loop(self) -> None:
        stalled = -1
        while len(self.hazards) < self.most:
            wave = self._picked()
            if wave is None:
                if all(wave.state == "ended" for wave in self.waves):
                    return
                if self._wake(1):
                    continue
                if stalled == self.changes:
                    self._deadlock("deadlock")
                    return
                stalled = self.changes
                self._urge()
                continue
            self._go(wave)
            if self.executed > self.limit:
                self._deadlock("livelock")
                return
            if self.mood.early and self.choose.random() < self.mood.early:
                self._perform_any()
            if self.mood.evicts and self.choose.random() < self.mood.evicts:
                self.hierarchy.evict(self.choose)

    def _picked(self) -> Wave | None:
        """A wave that can go on, None if there is none."""
        if self.mood.order == "fair":
            for _ in range(TRIES):
                if (one := self.choose.choice(self.waves)).state == "ready":
                    return one
            ready = [wave for wave in self.waves if wave.state == "ready"]
            return self.choose.choice(ready) if ready else None
        if self.choose.random() < 0.01:
            self._orders()
        return next((wave for wave in self.order if wave.state == "ready"), None)

    def _urge(self) -> None:
        """Nobody can go on: perform what is outstanding, and let those that poll look again."""
        for wave in self.waves:
            for operation in [*wave.vm, *wave.lgkm]:
                self._perform(wave, operation)
            if wave.state == "polling":
                wave.state, wave.urged = "ready", True

    def _perform_any(self) -> None:
        wave = self.choose.choice(self.waves)
        waiting = [queue for queue in (wave.vm, wave.lgkm) if queue]
        if waiting:
            self._perform(wave, self.choose.choice(self.choose.choice(waiting)))

    def _deadlock(self, kind: str) -> None:
        places = []
        for wave in self.waves:
            if wave.state != "ended":
                places.append(f"{self._who(wave.number)} at {self._at(wave.event.facts)} ({wave.state})")
        rank = next(wave.rank for wave in self.waves if wave.state != "ended")
        more = f" and {len(places) - 8} more" if len(places) > 8 else ""
        self._tell(kind, rank, "no wave can go on", "; ".join(places[:8]) + more, "nothing", (0, 0))

    # One wave.

    def _machine(self, wave: Wave) -> Machine:
        machine = self.machines[wave.rank]
        assert machine is not None
        return machine

    def _go(self, wave: Wave) -> None:
        """Execute what the wave does next that others could notice, and all before it."""
        event = wave.event
        facts = event.facts
        if event.early:
            self._register_hazard(wave, *event.early)
            raise Fault("what follows depends on a register that is not there yet")
        if event.fault:
            self._tell("fault", wave.rank, event.fault, "", self._event(wave, facts), (0, facts.number))
            raise Fault(event.fault)
        if facts.atomic and self._polls(wave, facts, event.parts):
            return
        self.executed += event.executed
        kind = facts.instruction.kind
        if kind == "end":
            wave.state = "ended"
            self.alive[wave.group] -= 1
            self._meet(wave)
            return
        wave.at += 1
        if facts.queue:
            self._issue(wave, facts, event.parts)
        elif kind == "barrier":
            wave.state = "barrier"
            self._meet(wave)
        elif facts.name == "S_WAITCNT":
            self._wait(wave, facts)
        else:
            self._invalidate(wave, facts)

    def _polls(self, wave: Wave, facts: Facts, parts: list[Part]) -> bool:
        """Whether an atomic would find what it found last time; then its wave is left alone until that has changed."""
        places, version, _ = wave.polled.get(facts.instruction.at, ((), -1, b""))
        if wave.urged or version < 0 or version != self._version(places) or tuple(parts[0][1].tolist()) != places:
            wave.urged = False
            return False
        wave.state = "polling"
        return True

    def _version(self, places: tuple[int, ...]) -> int:
        return sum(self.versions[place] for place in places)

    def _found(self, wave: Wave, facts: Facts, places: Any, data: Any) -> None:
        """Remember what an atomic that changed nothing has found."""
        where = tuple(places.tolist())
        for place in where:
            self.versions.setdefault(place, 0)
        before, at, data = wave.polled.get(facts.instruction.at), facts.instruction.at, data.tobytes()
        if before and before[2] != data:
            self.changes += 1
        wave.polled[at] = (where, self._version(where), data)

    def _issue(self, wave: Wave, facts: Facts, parts: list[Part]) -> None:
        local = facts.queue == "lgkm"
        wave.issued[local] += 1
        operation = Operation(facts, wave.issued[local], wave.clock, parts)
        if facts.name == "BUFFER_WBL2":
            before = np.where(wave.own[0], wave.clock.rows[DONE], 0)
            before[wave.number] = operation.index
            operation.received = [before]
        (wave.lgkm if local else wave.vm).append(operation)
        if self.mood.early > 0.4 and not parts:
            self._perform(wave, operation)

    def _perform(self, wave: Wave, operation: Operation) -> None:
        """Do what an operation does, after those of the same wave whose places or registers it shares."""
        if operation.performed:
            return
        queue = wave.lgkm if operation.facts.queue == "lgkm" else wave.vm
        for other in queue:
            if other is operation:
                break
            if not other.performed and _ordered(other, operation):
                self._perform(wave, other)
        operation.performed = True
        if operation.facts.name == "BUFFER_WBL2":
            self.hierarchy.write_back(wave.rank, wave.group, operation.facts.scope)
            self.changes += 1
        for number, part in enumerate(operation.parts):
            operation.loaded[number] = self._do(wave, operation, part)

    def _do(self, wave: Wave, operation: Operation, part: Part) -> Any:
        """Perform a part of an operation; what it loads."""
        facts, (what, places, size, given) = operation.facts, part
        event = (wave.number, facts.number, operation.index)
        if what.startswith("local"):
            return self._do_local(wave, operation, part)
        reads, writes, done = self._limits(operation.clock, wave.number, facts.scope >= AGENT)
        if what == "load":
            if facts.queue == "vm":
                found = self.races.read(part, reads, event)
            else:
                found = None
            self._tell_memory(found, event, wave.rank)
            data = self.hierarchy.load(wave.rank, wave.group, part, facts.scope)
            if facts.atomic and size <= ATOMIC_BYTES:
                self._receive(wave, operation, places)
                self._found(wave, facts, places, data)
            if not facts.written:  # straight to the LDS
                accesses = self._machine(wave).accesses
                assert isinstance(accesses, Recording)
                accesses.parts = []
                given(data)
                for one in accesses.parts:
                    self._do(wave, operation, one)
            return data
        self._tell_memory(self.races.write(part, (writes, done), event), event, wave.rank)
        if what == "store":
            self.hierarchy.store(wave.rank, wave.group, part, given, facts.scope)
            if facts.atomic and size <= ATOMIC_BYTES:
                self._send(wave, operation, places)
            self._changed(places)
            return None
        change, _ = given
        before, changed = self.hierarchy.modify(wave.rank, wave.group, part, change, facts.scope)
        self._receive(wave, operation, places)
        self._send(wave, operation, places)
        if changed:
            self._changed(places)
            wave.polled.pop(facts.instruction.at, None)
        else:
            self._found(wave, facts, places, before)
        return before

    def _do_local(self, wave: Wave, operation: Operation, part: Part) -> Any:
        """An access to the LDS.  Waves count twice there: what came straight from memory is complete by vmcnt."""
        machine, direct = self._machine(wave), operation.facts.queue == "vm"
        count = len(self.rank_of)
        event = (wave.number + direct * count, operation.facts.number, operation.index)
        lds = machine.accesses.lds
        limit = np.concatenate([operation.clock.rows[LOCAL], operation.clock.rows[DONE]])
        limit[wave.number] = ordering.ALWAYS
        if direct:
            limit[wave.number + count] = ordering.ALWAYS
        if part.what == "local load":
            found = self.lds[wave.group].read(part, limit, event)
        else:
            found = self.lds[wave.group].write(part, (limit, limit), event)
        if found:
            self._conflict("lds", wave.rank, f"LDS address {found.place:#x}", found, event)
        if part.what == "local load":
            return part.found_in(lds)
        part.put_into(lds, part.given)
        return None

    def _changed(self, places: Any) -> None:
        self.changes += 1
        watched = self.versions.keys() & set(places.tolist())
        for place in watched:
            self.versions[place] += 1
        if watched:
            self._wake(WAKES)

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

    def _keys(self, wave: Wave, operation: Operation, places: Any) -> list[tuple[int, int]]:
        """Where an atomic meets others: at a place in its rank's cache and, of the system, in memory."""
        scopes = (wave.rank, -1) if operation.facts.scope == SYSTEM else (wave.rank,)
        return [(place, scope) for place in places.tolist() for scope in scopes]

    def _receive(self, wave: Wave, operation: Operation, places: Any) -> None:
        """What an atomic learns from those who wrote there before."""
        operation.received += [
            self.messages[key] for key in self._keys(wave, operation, places) if key in self.messages
        ]

    def _send(self, wave: Wave, operation: Operation, places: Any) -> None:
        """What an atomic leaves for those who come later: what its wave knew when it was issued."""
        rows = operation.clock.rows[: ordering.AGENT_READ]
        for key in self._keys(wave, operation, places):
            self.messages[key] = np.maximum(self.messages.get(key, rows), rows)

    def _wait(self, wave: Wave, facts: Facts) -> None:
        given = []
        done = completed(facts, wave.vm, wave.lgkm)
        for operation in done:
            self._perform(wave, operation)
            self._complete(wave, operation)
            if operation.facts.written:
                given += [data for data in operation.loaded.values() if data is not None]
        if given:
            wave.stretch, wave.at = wave.path.next(wave.stretch, given), 0

    def _complete(self, wave: Wave, operation: Operation) -> None:
        if operation.facts.queue == "lgkm":
            wave.clock = wave.clock.done(LOCAL, wave.number, operation.index)
            return
        wave.clock = wave.clock.done(DONE, wave.number, operation.index)
        if operation.facts.name == "BUFFER_WBL2":
            wave.clock = wave.clock.written_back(operation.received[0], operation.facts.scope)
        else:
            for rows in operation.received:
                wave.clock = wave.clock.joined(rows)

    def _invalidate(self, wave: Wave, facts: Facts) -> None:
        self.hierarchy.invalidate(wave.rank, wave.group, facts.scope)
        wave.clock = wave.clock.invalidated(facts.scope)

    def _meet(self, wave: Wave) -> None:
        """Let a workgroup go on if all its waves that live are at a barrier; a launch ends with its last wave."""
        first = self.place[wave.group * self.warps]
        here = [one for one in self.waves[first : first + self.warps] if one.state == "barrier"]
        if here and len(here) == self.alive[wave.group]:
            rows = here[0].clock.rows.copy()
            for one in here[1:]:
                np.maximum(rows, one.clock.rows, out=rows)
            clock = Clock(rows)
            for one in here:
                one.clock, one.state = clock, "ready"
            self.changes += 1
        mine = range(wave.rank * self.groups, (wave.rank + 1) * self.groups)
        if not any(self.alive[group] for group in mine):
            self.changes += 1
            self._finish(wave.rank)

    # Ordering, and what is told.

    def _limits(self, clock: Clock, number: int, scoped: bool) -> tuple[Any, Any, Any]:
        """Of each wave: the last store that a load may see, that a store may replace, the last load it may replace."""
        found = clock.limits.get((number, scoped))
        if found:
            return found
        rows = clock.rows
        group, rank = self.group_of == self.group_of[number], self.rank_of == self.rank_of[number]
        writes = np.where(group, rows[DONE], np.where(rank, rows[ordering.AGENT_SEEN], rows[ordering.SYSTEM_SEEN]))
        reads = writes
        if not scoped:
            reads = np.where(group, rows[DONE], np.where(rank, rows[ordering.AGENT_READ], rows[ordering.SYSTEM_READ]))
        done = rows[DONE].copy()
        for limit in (writes, reads, done):
            limit[number] = ordering.ALWAYS
        clock.limits[number, scoped] = reads, writes, done
        return reads, writes, done

    def _tell_memory(self, found: Conflict | None, event: tuple[int, int, int], rank: int) -> None:
        if found:
            self._conflict("memory", rank, self.memory.named(found.place), found, event)

    def _conflict(self, kind: str, rank: int, where: str, found: Conflict, event: tuple[int, int, int]) -> None:
        first = f"{self._at(self.programs.facts[found.instruction])} of {self._who(found.wave)}"
        second = f"{found.what} by {self._at(self.programs.facts[event[1]])} of {self._who(event[0])}"
        self._tell(kind, rank, where, first, second, (found.instruction, event[1]))

    def _register_hazard(self, wave: Wave, first: Facts, second: Facts) -> None:
        register = min(first.written & second.touched)
        name = f"s{register - SCALAR}" if register >= SCALAR else f"v{register}"
        if ACCUMULATORS <= register < SCALAR:
            name = f"a{register - ACCUMULATORS}"
        events = self._event(wave, first), self._event(wave, second)
        self._tell("register", wave.rank, name, *events, (first.number, second.number))

    def _event(self, wave: Wave, facts: Facts) -> str:
        return f"{self._at(facts)} of {self._who(wave.number)}"

    @staticmethod
    def _at(facts: Facts) -> str:
        return f"{facts.name.lower()} at {facts.instruction.at:#x}" if facts.instruction.size else facts.name

    def _who(self, number: int) -> str:
        number %= len(self.rank_of)
        if number >= self.streams:
            return f"rank {number - self.streams}"
        workgroup = int(self.group_of[number]) % self.groups
        return f"rank {int(self.rank_of[number])}, workgroup {workgroup}, wave {number % self.warps}"

    def _tell(self, kind: str, rank: int, where: str, first: str, second: str, pair: tuple[int, int]) -> None:
        if (kind, *pair) not in self.seen:
            self.seen.add((kind, *pair))
            self.hazards.append(Hazard(kind, self.seed, rank, where, first, second))


def _ordered(first: Operation, second: Operation) -> bool:
    """Whether the second cannot be performed before the first, of one wave."""
    if first.facts.written & second.facts.written or second.facts.name == "BUFFER_WBL2":
        return True
    before, after = ([part.span for part in one.parts] for one in (first, second))
    return any(start < end and begin < stop for start, stop in before for begin, end in after)
