"""Faults of memory order planted in machine code, one at a time: does any schedule find them?"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

from benchmarks.emulation.code_object import KernelCode
from benchmarks.emulation.collective import Schedules, programs
from benchmarks.emulation.programs import Facts
from benchmarks.emulation.schedule import Hazard

NOP = (0xBF800000).to_bytes(4, "little")
"""S_NOP 0: what a removed instruction is replaced by, word by word."""

REMOVED = ("BUFFER_WBL2", "BUFFER_INV", "S_WAITCNT", "S_BARRIER")


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
