"""What a kernel's code does not wait for, on whatever path: registers that are used too early.

An access is complete when a wait of its wave covers it: those of a counter are counted back from the youngest, scalar
loads, which come in any order, only by a wait for all.  A counter that is full (vmcnt 63, lgkmcnt 15) holds the next
access back, so what is older than that is complete.  Paths that meet take the youngest access of each.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .machine import Instruction
from .programs import MOST, Facts, facts_of
from .waves import Fault


class Race(Fault):
    """Two accesses, or an access and an instruction, whose order nothing makes."""


OFF = "RIDGELINE_NO_HAZARDS"
"""Variable of the environment that leaves the checks out: processes of a run inherit it."""


def checked() -> bool:
    """Whether launches are checked."""
    return not os.environ.get(OFF)


@dataclass
class _State:
    """pending: of each counter, register -> (accesses since, of which index, whether a scalar load)."""

    pending: dict[str, dict[int, tuple[int, int, bool]]]

    def copy(self) -> _State:
        return _State({name: dict(held) for name, held in self.pending.items()})

    def joined(self, other: _State) -> bool:
        """Take what another path has outstanding; whether that is more."""
        more = False
        for name, held in other.pending.items():
            mine = self.pending[name]
            for register, entry in held.items():
                if register not in mine or entry[0] < mine[register][0]:
                    mine[register], more = entry, True
        return more

    def step(self, index: int, facts: Facts, early: set[tuple[int, int]]) -> None:
        """What an instruction uses, waits for and issues."""
        for held in self.pending.values():
            if held:
                early.update((held[register][1], index) for register in facts.touched & held.keys())
        for name, most in facts.waits.items():
            self.pending[name] = {
                register: entry
                for register, entry in self.pending[name].items()
                if (most > 0 if entry[2] else entry[0] < most)
            }
        if name := facts.queue:
            scalar = facts.name.startswith("S_")
            self.pending[name] = {
                register: (since + 1, access, of_scalar)
                for register, (since, access, of_scalar) in self.pending[name].items()
                if of_scalar or since + 1 < MOST[name]
            }
            self.pending[name].update(dict.fromkeys(facts.written, (0, index, scalar)))


def early_uses(instructions: Sequence[Instruction | None], index: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """(access, the instruction that uses its register before a wait) by their places among a kernel's reachable
    instructions, which are in the order of their addresses; index: by address.

    A function begins, and a call returns, with nothing outstanding, as LLVM has it.
    """
    facts = [facts_of(number, one) if one else None for number, one in enumerate(instructions)]
    leaders = {0, *(index[one.target] for one in instructions if one and one.kind == "branch")}
    leaders |= {number + 1 for number, one in enumerate(instructions[:-1]) if one and one.kind == "branch"}
    empty = _State({"vm": {}, "lgkm": {}})
    ends = {number for number, one in enumerate(instructions[:-1]) if one and one.kind in ("jump", "end")}
    begun = {0: empty, **{number + 1: empty.copy() for number in ends}}
    waiting = list(begun)
    early = set[tuple[int, int]]()
    while waiting:
        number = waiting.pop()
        state, following = begun[number].copy(), list[int]()
        while True:
            one, known = instructions[number], facts[number]
            if one is None or known is None or one.kind in ("end", "jump"):
                break
            state.step(number, known, early)
            if one.kind == "branch":
                following.append(index[one.target])
            number += 1
            if one.name == "S_BRANCH" or number == len(instructions):
                break
            if number in leaders:
                following.append(number)
                break
        for place in following:
            if place not in begun:
                begun[place] = state.copy()
            elif not begun[place].joined(state):
                continue
            waiting.append(place)
    return tuple(sorted(early))
