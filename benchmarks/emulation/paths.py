"""What one wave does between its accesses to memory, executed once and kept for all schedules.

A wave's registers are its own: what it executes follows from where it began and from what its loads gave it.  So its
program is a graph of stretches.  A stretch goes from one wait that gave it something to the next; it has the accesses,
waits and barriers on the way.  Stretches that begin with equal registers are one, whatever order led there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .launch import segment, started
from .machine import Machine
from .ordering import Part
from .programs import Facts, Programs, Recording
from .triton_driver import Launch
from .waves import Fault, Memory, Waves

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
    parts: list[Part]
    executed: int
    early: tuple[Facts, Facts] | None = None
    fault: str = ""


@dataclass(eq=False)
class Stretch:
    """Events up to the wait that gives `uses` something: functions that put data into registers.

    before and given: the stretch that was found to lead here first, and what its loads gave.  follow: what they gave,
    as bytes, to what comes next.
    """

    before: Stretch | None
    given: Sequence[Any]
    events: list[Event] = field(default_factory=list)
    uses: list[Any] = field(default_factory=list)
    follow: dict[bytes, Stretch] = field(default_factory=dict)
    outstanding: tuple[list[Event], list[Event]] = field(default_factory=lambda: ([], []))
    registers: tuple[int, Any, Any, Any] | None = None
    """At its end, if several stretches were found to follow: the next instruction, scalar and vector ones, and SCC."""

    def queues(self, index: int) -> tuple[list[Event], list[Event]]:
        """What is outstanding before one of its events."""
        vm, lgkm = (list(queue) for queue in (self.before.outstanding if self.before else ([], [])))
        for event in self.events[:index]:
            if event.facts.queue:
                (lgkm if event.facts.queue == "lgkm" else vm).append(event)
            elif event.facts.name == "S_WAITCNT":
                completed(event.facts, vm, lgkm)
        return vm, lgkm


class Path:
    """One wave of one call on one rank, through all that schedules make it do."""

    def __init__(self, programs: Programs, machine: Machine, w: Waves) -> None:
        self._programs, self._machine, self.w = programs, machine, w
        self._start = w.pc, w.s.copy(), w.v[:1].copy(), w.scc.copy()
        self._top = 1
        self._stretches: dict[bytes, Stretch] = {}
        self._here: Stretch | None = None
        """The stretch at whose end the registers are."""
        self.first = Stretch(None, ())
        self._execute(self.first)

    def stretches(self) -> list[Stretch]:
        """All that have been found."""
        return [self.first, *self._stretches.values()]

    def next(self, stretch: Stretch, given: Sequence[Any]) -> Stretch:
        """What follows after a stretch whose loads gave these data, one array for each of its uses."""
        key = b"".join(data.tobytes() for data in given)
        found = stretch.follow.get(key)
        if found is None:
            found = stretch.follow[key] = self._found(stretch, given)
        return found

    def _found(self, stretch: Stretch, given: Sequence[Any]) -> Stretch:
        if self._here is not stretch:
            self._go_to(stretch)
        self._here = None
        self._put(stretch, given)
        known = self._stretches.get(digest := self._digest(stretch))
        if known is None:
            known = self._stretches[digest] = Stretch(stretch, given)
            self._execute(known)
        return known

    def _digest(self, stretch: Stretch) -> bytes:
        w, now = self.w, hashlib.blake2b(digest_size=16)
        now.update(
            f"{w.pc} {w.scc[0]} {[[one.facts.number for one in queue] for queue in stretch.outstanding]}".encode()
        )
        now.update(w.s.tobytes())
        now.update(np.ascontiguousarray(w.v[: self._top]).data)
        for queue in stretch.outstanding:
            for event in queue:
                for _, places, _, _ in event.parts:
                    now.update(places.tobytes())
        return now.digest()

    def _reset(self, pc: int, s: Any, v: Any, scc: Any) -> None:
        w = self.w
        w.pc, w.s[:], w.scc[:] = pc, s, scc
        w.v[: len(v)], w.v[len(v) :] = v, 0
        w.mask_changed()

    def _go_to(self, stretch: Stretch) -> None:
        """Bring the registers to the end of a stretch, by executing what led to it once more."""
        chain = [stretch]
        while not chain[-1].registers and chain[-1].before:
            chain.append(chain[-1].before)
        self._reset(*(chain[-1].registers or self._start))
        for before, one in zip([None, *reversed(chain)], reversed(chain), strict=False):
            if before:
                self._put(before, one.given)
            if not one.registers:
                self._execute(one, again=True)
        w = self.w
        stretch.registers = w.pc, w.s.copy(), w.v[: self._top].copy(), w.scc.copy()

    @staticmethod
    def _put(stretch: Stretch, given: Sequence[Any]) -> None:
        for use, data in zip(stretch.uses, given, strict=True):
            use(data)

    def _execute(self, stretch: Stretch, again: bool = False) -> None:
        """Go on to the next wait that gives something; `again`: what is found is known already."""
        w, machine, events, executed = self.w, self._machine, [], 0
        accesses = machine.accesses
        assert isinstance(accesses, Recording)
        vm, lgkm = (list(queue) for queue in (stretch.before.outstanding if stretch.before else ([], [])))
        early, uses = None, []
        with np.errstate(all="ignore"):
            while not uses:
                facts = self._programs.told(machine, w.pc)
                instruction = facts.instruction
                executed += 1
                early = early or _early(facts, vm, lgkm)
                accesses.parts = []
                try:
                    if executed > LONGEST:
                        raise Fault(f"no end after {LONGEST} instructions without an access to memory")
                    result = instruction.do(w)
                except Fault as error:
                    events.append(Event(facts, [], executed, early, str(error)))
                    break
                w.pc = instruction.at + instruction.size
                if instruction.kind == "branch":
                    w.pc = instruction.target if result[0] else w.pc
                    continue
                if not (facts.queue or instruction.kind != "plain" or facts.name in ("S_WAITCNT", "BUFFER_INV")):
                    self._top = max(self._top, facts.top)
                    continue
                events.append(Event(facts, accesses.parts, executed, early))
                executed, early = 0, None
                if facts.queue:
                    self._top = max(self._top, facts.top)
                    (lgkm if facts.queue == "lgkm" else vm).append(events[-1])
                elif facts.name == "S_WAITCNT":
                    uses = [use for done in completed(facts, vm, lgkm) for use in _results(done)]
                elif instruction.kind == "end":
                    break
        if not again:
            stretch.events, stretch.uses, stretch.outstanding = events, uses, (vm, lgkm)
        self._here = stretch


def paths(programs: Programs, machine: Machine, one: Launch, rank: int) -> list[Path]:
    """Those of all waves of a launch on a rank; kept with the programs.  The machine's memory is that of all ranks."""
    if (rank, id(one)) not in programs.paths:
        # The argument segment is in that memory already: what is added here is thrown away.
        waves = started(one.code, Memory(), segment(one.code, one.arguments), one.grid, one.warps, rank)
        found = []
        for number in range(len(waves)):
            w = waves.taken(np.arange(len(waves)) == number)
            w.ids[:, 0] += rank * int(np.prod(one.grid))
            found.append(Path(programs, machine, w))
        programs.paths[rank, id(one)] = found
    return programs.paths[rank, id(one)]


def completed(facts: Facts, vm: list[Any], lgkm: list[Any]) -> list[Any]:
    """Take from the queues what a wait completes; scalar loads, which are done in any order, come last."""
    done = []
    for queue, most in ((vm, facts.waits[0]), (lgkm, facts.waits[1])):
        if most and queue is lgkm:
            queue.sort(key=lambda one: one.facts.name.startswith("S_"))
        count = max(0, len(queue) - most)
        done += queue[:count]
        del queue[:count]
    return done


def _results(one: Event) -> list[Any]:
    """Functions that put what an operation loaded into registers, in the order of its parts."""
    if not one.facts.written:
        return []
    return [given[1] if what == "atomic" else given for what, _, _, given in one.parts if not what.endswith("store")]


def _early(facts: Facts, vm: list[Event], lgkm: list[Event]) -> tuple[Facts, Facts] | None:
    for other in (*vm, *lgkm):
        if not other.facts.written.isdisjoint(facts.touched):
            return other.facts, facts
    return None
