"""What one wave does between its accesses to memory, executed once and kept for all schedules.

A wave's registers are its own: what it executes follows from where it began and from what its loads gave it.  So its
program is a graph of stretches.  A stretch goes from one wait that gave it something to the next; it has the accesses,
waits and barriers on the way.  Stretches that begin with equal registers are one, whatever order led there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import launch
from .counts import Uncounted
from .machine import Instruction, Machine
from .ordering import SYSTEM, FlatMemory, Part
from .programs import STREAM, Facts, Recording, facts_of
from .triton_driver import Launch
from .waves import Fault, Memory, Waves

UNLIMITED = 1 << 62
"""Instructions: schedules count their own."""

LONGEST = 100_000
"""Instructions of a stretch without an access after which it has no end."""


@dataclass(frozen=True, eq=False)
class Event:
    """What others could notice: an access, wait, invalidation, barrier or end.

    parts: of an access, what Recording recorded.  executed: instructions since the event before, with its own.
    early: the access whose register an instruction on the way uses too early, and that instruction.  fault: why there
    is no further.
    """

    facts: Facts
    parts: list[Part] = field(default_factory=list)
    executed: int = 0
    early: tuple[Facts, Facts] | None = None
    fault: str = ""


@dataclass(eq=False)
class Stretch:
    """Events up to the wait that gives `uses` something: functions that put data into registers.

    before and outstanding: accesses that are where it begins and ends, by the counter that waits for them.
    registers: at its end, the next instruction, scalar and vector ones, and SCC.  follow: what its loads gave, as
    bytes, to what comes next.
    """

    before: Mapping[str, list[Event]]
    outstanding: Mapping[str, list[Event]]
    events: list[Event] = field(default_factory=list)
    uses: list[Any] = field(default_factory=list)
    follow: dict[bytes, Stretch] = field(default_factory=dict)
    registers: tuple[int, Any, Any, Any] | None = None


class Path:
    """One wave of one launch on one rank, through all that schedules make it do."""

    def __init__(self, programs: Programs, machine: Machine, w: Waves) -> None:
        self._programs, self._machine, self._w = programs, machine, w
        self._known: dict[bytes, Stretch] = {}
        self.first = self._executed({"vm": [], "lgkm": []})

    def stretches(self) -> list[Stretch]:
        """All that have been found."""
        return [self.first, *self._known.values()]

    def next(self, stretch: Stretch, given: Sequence[Any]) -> Stretch:
        """What follows after a stretch whose loads gave these data, one array for each of its uses."""
        key = b"".join(data.tobytes() for data in given)
        if key not in stretch.follow:
            stretch.follow[key] = self._found(stretch, given)
        return stretch.follow[key]

    def _found(self, stretch: Stretch, given: Sequence[Any]) -> Stretch:
        w = self._w
        assert stretch.registers
        w.pc, w.s[:], vector, w.scc[:] = stretch.registers
        w.v[: len(vector)], w.v[len(vector) :] = vector, 0
        w.mask_changed()
        for use, data in zip(stretch.uses, given, strict=True):
            use(data)
        outstanding = [(name, event) for name, queue in stretch.outstanding.items() for event in queue]
        places = [part.places for _, event in outstanding for part in event.parts]
        numbers = f"{w.pc} {w.scc[0]} {[(name, event.facts.number) for name, event in outstanding]}".encode()
        state = b"".join([numbers, w.s.tobytes(), self._vector().tobytes(), *(each.tobytes() for each in places)])
        digest = hashlib.blake2b(state, digest_size=16).digest()
        if digest not in self._known:
            self._known[digest] = self._executed(stretch.outstanding)
        return self._known[digest]

    def _vector(self) -> Any:
        """Vector registers up to the last that is not zero."""
        used = np.flatnonzero(self._w.v.any((1, 2)))
        return self._w.v[: used[-1] + 1 if len(used) else 0]

    def _executed(self, before: Mapping[str, list[Event]]) -> Stretch:
        """From where the wave stands to the next wait that gives something."""
        w, machine, executed, early = self._w, self._machine, 0, None
        accesses: Any = machine.accesses
        queues = {name: list(queue) for name, queue in before.items()}
        found = Stretch(before, queues)
        with np.errstate(all="ignore"):
            while not found.uses:
                facts = self._programs.told(machine, w.pc)
                instruction = facts.instruction
                executed += 1
                early = early or _early(facts, queues)
                accesses.parts = []
                try:
                    if executed > LONGEST:
                        raise Fault(f"no end after {LONGEST} instructions without an access to memory")
                    goes = instruction.do(w)
                except Fault as error:
                    found.events.append(Event(facts, [], executed, early, str(error)))
                    return found
                jumps = instruction.kind == "branch" and goes[0]
                w.pc = instruction.target if jumps else instruction.at + instruction.size
                if not facts.noticed:
                    continue
                event = Event(facts, accesses.parts, executed, early)
                found.events.append(event)
                executed, early = 0, None
                if facts.queue:
                    queues[facts.queue].append(event)
                elif instruction.kind == "end":
                    return found
                found.uses = [use for done in completed(facts, queues) for use in _results(done)]
        found.registers = w.pc, w.s.copy(), self._vector().copy(), w.scc.copy()
        return found


class Programs:
    """What all waves of launches of one kernel do, one launch a rank: instructions are decoded once for all.

    paths: [rank][wave]; machines: of each rank, workgroups are numbered over all ranks.  facts and scopes: of
    instructions by number, as of Facts and Races.  Raises Fault for launches that differ in their grid or waves.
    """

    def __init__(self, memory: FlatMemory, launches: Sequence[Launch]) -> None:
        stream = Instruction(0, 0, "a copy of the stream", "plain", lambda w: None)
        self.facts = [Facts(STREAM, stream, "vm", SYSTEM)]
        self.scopes = [0]
        self._known: dict[tuple[bytes, int], Facts] = {}
        self.groups, self.warps = int(np.prod(launches[0].grid)), launches[0].warps
        if any((int(np.prod(one.grid)), one.warps) != (self.groups, self.warps) for one in launches):
            raise Fault("launches of the ranks differ in their grid or waves")
        self.machines: list[Machine] = []
        self.paths: list[list[Path]] = []
        by_code: dict[tuple[bytes, int], Machine] = {}
        for rank, one in enumerate(launches):
            key = one.code.image, one.lds_bytes
            if key not in by_code:
                lds = np.zeros(max(8, len(launches) * self.groups * one.lds_bytes), np.uint8)
                by_code[key] = Machine(one.code, Memory(), 1, one.lds_bytes, UNLIMITED)
                by_code[key].accesses = Recording(memory, lds, one.lds_bytes, Uncounted())
                by_code[key].accesses.add_scratch(0, 0)
            self.machines.append(by_code[key])
            # The argument segment is in that memory already: what is added here is thrown away.
            waves = launch.started(
                one.code, Memory(), launch.segment(one.code, one.arguments), one.grid, one.warps, rank
            )
            waves.ids[:, 0] += rank * self.groups
            each = (waves.taken(np.arange(len(waves)) == number) for number in range(len(waves)))
            self.paths.append([Path(self, by_code[key], w) for w in each])

    def told(self, machine: Machine, at: int) -> Facts:
        """The facts of the instruction at an address."""
        found = self._known.get((machine.code.image, at))
        if found is None:
            instruction = machine.instructions.get(at) or machine._decoded(at)
            found = self._known[machine.code.image, at] = facts_of(len(self.facts), machine, instruction)
            self.facts.append(found)
            self.scopes.append(found.scope if found.atomic else 0)
        return found


def completed(facts: Facts, queues: Mapping[str, list[Any]]) -> list[Any]:
    """Take from the queues what a wait completes; scalar loads, which are done in any order, come last."""
    done = []
    for name, most in facts.waits.items():
        queue = queues[name]
        if most and name == "lgkm":
            queue.sort(key=lambda one: one.facts.name.startswith("S_"))
        count = max(0, len(queue) - most)
        done += queue[:count]
        del queue[:count]
    return done


def _results(one: Event) -> list[Any]:
    """Functions that put what an operation loaded into registers, in the order of its parts."""
    if not one.facts.written:
        return []
    return [part.given[1] if part.what == "atomic" else part.given for part in one.parts if part.what != "store"]


def _early(facts: Facts, queues: Mapping[str, list[Event]]) -> tuple[Facts, Facts] | None:
    for queue in queues.values():
        for other in queue:
            if not other.facts.written.isdisjoint(facts.touched):
                return other.facts, facts
    return None
