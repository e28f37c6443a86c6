"""Collectives on several ranks under orders that a seed picks: right as they are, found wrong with a fault planted."""

from __future__ import annotations

import itertools
from copy import copy
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.channel import Refused
from benchmarks.emulation import cases
from benchmarks.emulation.collective import Schedules, programs, world
from benchmarks.emulation.counts import Uncounted
from benchmarks.emulation.machine import known
from benchmarks.emulation.operands import Unknown
from benchmarks.emulation.programs import SCALAR, Facts, Recording, facts_of
from benchmarks.emulation.schedule import Hazard
from benchmarks.emulation.waves import Memory
from kernels.grouped_gemm import grouped_gemm_forward
from kernels.registry import discover
from kernels.spec import Tolerance

OPERATORS = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "gemm_all_scatter")


def variants(ranks, arch="gfx942"):
    """What the operators declare to be executed on so many ranks."""
    kernels = discover().kernels
    small_cases = cases.small_cases({name: kernels[name] for name in OPERATORS}, [arch], ranks)
    return [small for small in small_cases if small.case.world == ranks]


def built(variant, arch):
    """The variant on all ranks, its first schedule compared with the reference."""
    kernel = discover().kernels[variant.operator]
    return Schedules(world(kernel, variant.backend, variant.case, arch, dict(variant.knobs)))


VARIANTS = variants(cases.RANKS)
STAGED = next(one for one in VARIANTS if (one.operator, one.backend) == ("all_gather", "triton"))
SEEDS = range(1, 9)


@pytest.fixture(scope="module")
def sound():
    """The all-gather of 2 ranks on MI300X: two programs of two waves, a block staged and one stored directly."""
    return built(STAGED, "gfx942")


def first_hazard(sound, plant):
    broken = planted(sound, plant)
    return next(filter(None, (hazard(broken, seed) for seed in SEEDS)), None)


def last(sound, name):
    return [plant for plant in plants(sound) if plant.facts.name == name][-1]


@pytest.mark.nightly
def test_a_sound_collective_has_no_hazard_under_any_seed(sound):
    assert [hazard(sound, seed) for seed in SEEDS] == [None] * len(SEEDS)


def test_an_atomic_of_the_lds_is_refused():
    """It would read what the wave itself had left there, whatever the schedule."""
    recording = Recording(Memory(), np.zeros(8, np.uint8), 8, Uncounted())
    with pytest.raises(Unknown, match="DS_ADD_RTN_U32, of which schedules follow no order"):
        recording.local(SimpleNamespace(op=SimpleNamespace(name="DS_ADD_RTN_U32")))


@pytest.mark.parametrize(
    ("words", "touched"),
    [
        ((0x681E02FA, 0xFF01130F), {15, 1}),  # v_add_u32_dpp v15, v15, v1
        ((0x681E02FA, 0xFF011310), {15, 16, 1}),  # v_add_u32_dpp v15, v16, v1
        ((0x681E02F9, 0x06060610), {15, 16, 1}),  # v_add_u32_sdwa v15, v16, v1
        ((0x681E02F9, 0x06860610), {15, SCALAR + 16, 1}),  # v_add_u32_sdwa v15, s16, v1
    ],
)
def test_registers_of_an_instruction_that_moves_lanes_or_takes_parts(words, touched):
    image = b"".join(word.to_bytes(4, "little") for word in words)
    assert facts_of(1, known(image, 0, "gfx942")).touched == touched


@pytest.mark.nightly
def test_a_seed_repeats_its_schedule(sound):
    plant = last(sound, "BUFFER_WBL2")
    found = first_hazard(sound, plant)
    assert str(hazard(planted(sound, plant), found.seed)) == str(found)


@pytest.mark.nightly
def test_a_removed_write_back_is_found_with_both_instructions(sound):
    found = first_hazard(sound, last(sound, "BUFFER_WBL2"))
    assert found.kind == "memory"
    assert "heap of rank" in found.where
    assert "store_dwordx4" in found.first
    assert "read by" in found.second


@pytest.mark.nightly
def test_a_flag_without_its_scope_is_found(sound):
    assert first_hazard(sound, last(sound, "GLOBAL_ATOMIC_SWAP")).kind == "memory"


@pytest.mark.nightly
def test_a_removed_first_wait_is_a_register_used_too_early(sound):
    first = next(plant for plant in plants(sound) if plant.facts.name == "S_WAITCNT")
    found = first_hazard(sound, first)
    assert found.kind == "register"
    assert "s_load" in found.first


@pytest.mark.nightly
def test_a_removed_barrier_around_the_flags_is_a_race_in_the_lds(sound):
    barriers = [plant for plant in plants(sound) if plant.facts.name == "S_BARRIER"]
    found = (first_hazard(sound, plant) for plant in barriers)
    assert any(one and one.kind == "lds" for one in found)


@pytest.mark.nightly
def test_a_load_past_the_caches_may_be_plain_after_an_acquire(sound):
    plant = [one for one in plants(sound) if "LOAD_DWORDX4" in one.facts.name and one.how == "relaxed"][-1]
    assert first_hazard(sound, plant) is None


@pytest.mark.nightly
def test_an_invalidation_is_not_needed_where_data_are_read_past_the_caches(sound):
    assert first_hazard(sound, last(sound, "BUFFER_INV")) is None, "the stage is read with .cv"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("variant", "arch"),
    [
        pytest.param(variant, arch, id=f"{variant.operator} {variant.name} {arch}")
        for variant, arch in zip(VARIANTS, itertools.cycle(["gfx942", "gfx950"]), strict=False)
    ],
)
def test_every_collective_is_right_on_two_ranks(variant, arch):
    """Each operator on both targets."""
    schedules = built(variant, arch)
    assert [hazard(schedules, seed) for seed in range(1, 4)] == [None] * 3


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_every_algorithm_is_executed_on_so_many_ranks(ranks):
    found = [(one.operator, one.backend, one.knobs.get("algorithm")) for one in variants(ranks)]
    assert len(found) == 15
    assert {one[:2] for one in found} == {
        *((operator, "triton") for operator in ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")),
        *(("all_gather", "partitioned"), ("all_gather", "gluon"), ("gemm_all_scatter", "triton")),
    }
    algorithms = {algorithm for _, _, algorithm in found} - {None}
    assert algorithms >= {"two_shot", "two_shot_push", "one_shot_push", "one_shot_pull", "pull", "push", "push_chunks"}
    assert {one.case.tier for one in variants(ranks)} == {"sweep"}, "as other small cases"


def test_small_cases_are_those_of_a_declaration_not_of_a_name():
    """An operator of somebody else that is called as one of ours has its own."""
    theirs = grouped_gemm_forward
    found = cases.small_cases({"gemm": theirs, "all_reduce": theirs}, ["gfx950"])
    assert {one.case.dims for one in found if one.operator == "gemm"} == {
        one.case.dims for one in found if one.operator == "all_reduce"
    }


@pytest.mark.nightly
def test_verify_refuses_a_collective_whose_flag_has_no_scope(sound, monkeypatch):
    """One schedule finds what is planted; an undisturbed one that is not what the reference says is refused as well."""
    kernel, small = discover().kernels["all_gather"], STAGED
    found = cases.execute(kernel, small)
    assert found["instructions"] > 1000
    assert (found["norm"], found["peak"]) == (0, 0)
    plant = last(sound, "GLOBAL_ATOMIC_SWAP")
    with monkeypatch.context() as patch:
        patch.setattr(cases, "Schedules", lambda of: planted(sound, plant))
        with pytest.raises(Refused, match="seed .*: memory"):
            cases.execute(kernel, small)
    monkeypatch.setattr(type(kernel), "tolerance_for", lambda *given: Tolerance(peak=-1.0, norm=-1.0))
    with pytest.raises(Refused, match="rank 0, call 0: not what the reference says"):
        cases.execute(kernel, small)


# Faults of memory order planted in machine code, one at a time: does any schedule find them?


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

    def __str__(self):
        return f"{self.facts.name.lower()} at {self.facts.instruction.at:#x} {self.how}"

    def in_code(self, code):
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


def plants(sound):
    """Everything that can be planted in what has been executed, in the order of addresses."""
    found = {}
    for facts in sound.world.facts[1:]:
        if facts.name in REMOVED or facts.atomic:
            how = "removed" if facts.name in REMOVED else "relaxed"
            found.setdefault(facts.instruction.at, Plant(facts, how))
    return [found[at] for at in sorted(found)]


def planted(sound, plant):
    """The same schedules with the fault in the code of all ranks; outputs are compared with the sound ones."""
    broken, launches = copy(sound), [one.launch for one in sound.world.programs]
    changed, facts = programs(sound.world.memory, [replace(one, code=plant.in_code(one.code)) for one in launches])
    broken.world = replace(sound.world, programs=changed, facts=facts)
    return broken


def hazard(schedules, seed):
    """What is wrong under this seed."""
    try:
        schedules.run(seed)
    except Hazard as found:
        return found
    return None
