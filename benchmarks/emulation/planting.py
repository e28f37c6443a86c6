"""Faults of memory order planted in machine code, one at a time: does any schedule find them, and if none, why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .code_object import KernelCode
from .collective import Schedules, World
from .programs import Facts
from .schedule import Hazard

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


@dataclass(frozen=True)
class Outcome:
    """What became of a plant: the first hazard with how many schedules it took, or the reason why there is none."""

    plant: Plant
    schedules: int
    hazard: Hazard | None
    reason: str = ""


def plants(sound: Schedules) -> list[Plant]:
    """Everything that can be planted in what has been executed, in the order of addresses."""
    found = []
    for facts in sound.programs.facts[1:]:
        if facts.name in REMOVED:
            found.append(Plant(facts, "removed"))
        elif facts.atomic:
            found.append(Plant(facts, "relaxed"))
    return sorted(found, key=lambda plant: plant.facts.instruction.at)


def planted(of: World, plant: Plant) -> World:
    """The world with the fault in the code of all ranks."""
    launches = [[replace(one, code=plant.in_code(one.code)) for one in rank] for rank in of.launches]
    return replace(of, launches=launches)


def outcomes(sound: Schedules, seeds: Sequence[int]) -> Iterator[Outcome]:
    """Each plant under these seeds, until one finds it."""
    reference = sound.run(seeds[0])
    for plant in plants(sound):
        broken = Schedules(planted(sound.world, plant), sound)
        hazard, count, last = None, 0, None
        for seed in seeds:
            count, last = count + 1, broken.run(seed)
            if last.hazards:
                hazard = last.hazards[0]
                break
        reason = "" if hazard else _reason(plant, reference.completed, last.completed if last else {}, sound)
        yield Outcome(plant, count, hazard, reason)


def _reason(plant: Plant, sound: dict[int, set[int]], broken: dict[int, set[int]], schedules: Schedules) -> str:
    """Why this change changes nothing.  sound, broken: address of a wait -> operations that it completed."""
    at, name = plant.facts.instruction.at, plant.facts.name
    if plant.how == "relaxed" and "_LOAD_" in name:
        return "what it reads is visible to its workgroup already, by an invalidation before it"
    if plant.how == "relaxed":
        return "nobody else reads or writes its place while the kernel runs"
    if name == "S_WAITCNT":
        if not sound.get(at):
            return "nothing that it counts is outstanding there"
        others = sorted(wait for wait, done in broken.items() if done & sound[at])
        named = ", ".join(f"{other:#x}" for other in others[:3]) or "the end of the kernel"
        return f"what it waits for is waited for again, by {named}, before it matters"
    if name == "S_BARRIER":
        if schedules.world.launches[0][0].warps == 1:
            return "a workgroup has one wave"
        return "between the barriers around it the waves exchange nothing that it orders"
    if name == "BUFFER_INV":
        return "nothing that another has written is read between it and the next one, or the end of the kernel"
    return "nothing that others read is stored between the write-back before it and this one"
