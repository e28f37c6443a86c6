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
from .machine import Machine
from .ordering import FlatMemory, Part
from .programs import Facts, Recording, facts_of
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
    registers: Any = None


class Path:
    """One wave of a launch, through all that schedules make it do."""

    def __init__(self, program: Program, w: Waves) -> None:
        self._program, self._w = program, w
        self.known: dict[bytes, Stretch] = {}
        """All that have been found but the first, by what decides them."""
        self.first = self._executed({"vm": [], "lgkm": []})

    def next(self, stretch: Stretch, given: Sequence[Any]) -> Stretch:
        """What follows after a stretch whose loads gave these data, one array for each of its uses."""
        key = b"".join(data.tobytes() for data in given)
        if key not in stretch.follow:
            stretch.follow[key] = self._found(stretch, given)
        return stretch.follow[key]

    def _found(self, stretch: Stretch, given: Sequence[Any]) -> Stretch:
        w = self._w
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
        if digest not in self.known:
            self.known[digest] = self._executed(stretch.outstanding)
        return self.known[digest]

    def _vector(self) -> Any:
        """Vector registers up to the last that is not zero."""
        used = np.flatnonzero(self._w.v.any((1, 2)))
        return self._w.v[: used[-1] + 1 if len(used) else 0]

    def _executed(self, before: Mapping[str, list[Event]]) -> Stretch:
        """From where the wave stands to the next wait that gives something."""
        w, accesses, executed, early = self._w, self._program.accesses, 0, None
        queues = {name: list(queue) for name, queue in before.items()}
        found = Stretch(before, queues)
        with np.errstate(all="ignore"):
            while not found.uses:
                facts = self._program.told(w.pc)
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


class Program:
    """What all waves of a rank's launch do: paths.  lds: of all its workgroups.

    facts: of the instructions of all ranks by number, to which this adds.
    """

    def __init__(self, memory: FlatMemory, one: Launch, rank: int, facts: list[Facts]) -> None:
        self.launch = one
        self.lds = np.zeros(max(8, int(np.prod(one.grid)) * one.lds_bytes), np.uint8)
        self.accesses = Recording(memory, self.lds, one.lds_bytes, Uncounted())
        self.accesses.add_scratch(0, 0)
        self._machine = Machine(one.code, Memory(), 1, one.lds_bytes, UNLIMITED)
        self._machine.accesses = self.accesses
        self._known: dict[int, Facts] = {}
        self._all = facts
        # The argument segment is in the ranks' memory already: what is added here is thrown away.
        arguments = launch.segment(one.code, one.arguments)
        waves = launch.started(one.code, Memory(), arguments, one.grid, one.warps, rank)
        numbers = np.arange(len(waves))
        self.paths = [Path(self, waves.taken(numbers == number)) for number in numbers]

    def told(self, at: int) -> Facts:
        """The facts of the instruction at an address."""
        if at not in self._known:
            instruction = self._machine.instructions.get(at) or self._machine._decoded(at)
            self._known[at] = facts_of(len(self._all), instruction)
            self._all.append(self._known[at])
        return self._known[at]


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
