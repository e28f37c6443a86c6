"""Caches that hold stores back and go stale, and clocks that say who may see what: by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.emulation.ordering import (
    AGENT,
    AGENT_READ,
    AGENT_SEEN,
    DONE,
    LINE,
    SYSTEM,
    SYSTEM_READ,
    SYSTEM_SEEN,
    WORKGROUP,
    Clock,
    FlatMemory,
    Hierarchy,
    Part,
    Races,
)
from benchmarks.emulation.programs import STREAM
from benchmarks.emulation.waves import Fault

WORD = Part("load", np.array([0], np.int64), 4)


def bytes_of(value):
    return np.array([[value] * 4], np.uint8)


@pytest.fixture
def hierarchy():
    return Hierarchy(np.zeros(256, np.uint8))


def seen(hierarchy, rank, group, scope=WORKGROUP):
    return int(hierarchy.load(rank, group, WORD, scope)[0, 0])


def test_a_store_stays_in_its_workgroup_until_it_is_written_back(hierarchy):
    hierarchy.store(0, 0, WORD, bytes_of(7), WORKGROUP)
    assert (seen(hierarchy, 0, 0), seen(hierarchy, 0, 1, SYSTEM), seen(hierarchy, 1, 2, SYSTEM)) == (7, 0, 0)
    hierarchy.write_back(0, 0, AGENT)
    assert (seen(hierarchy, 0, 1, AGENT), seen(hierarchy, 1, 2, SYSTEM)) == (7, 0)
    hierarchy.write_back(0, 1, SYSTEM)
    assert seen(hierarchy, 1, 2, SYSTEM) == 7


def test_a_line_that_was_loaded_is_stale_until_it_is_invalidated(hierarchy):
    assert seen(hierarchy, 1, 2) == 0
    hierarchy.store(0, 0, WORD, bytes_of(7), SYSTEM)
    assert seen(hierarchy, 1, 2) == 0
    hierarchy.invalidate(1, 2, AGENT)
    assert seen(hierarchy, 1, 2) == 0, "the rank's cache still has it"
    hierarchy.invalidate(1, 2, SYSTEM)
    assert seen(hierarchy, 1, 2) == 7


def test_bytes_of_a_line_that_others_wrote_are_not_overwritten_by_a_write_back(hierarchy):
    hierarchy.store(0, 0, WORD, bytes_of(7), WORKGROUP)
    hierarchy.store(1, 1, replace(WORD, places=WORD.places + 4), bytes_of(9), SYSTEM)
    hierarchy.write_back(0, 0, SYSTEM)
    assert hierarchy.memory[0, :8].tolist() == [7] * 4 + [9] * 4


def test_an_atomic_of_the_agent_is_not_seen_by_others(hierarchy):
    before, changed = hierarchy.modify(0, 0, WORD, lambda old, which: old + np.uint32(1), AGENT)
    assert (before.tolist(), changed) == ([0], True)
    assert (seen(hierarchy, 0, 1), seen(hierarchy, 1, 2)) == (1, 0)


def test_a_write_back_makes_visible_what_is_known_to_be_done_and_no_more():
    clock = Clock(np.zeros((6, 2), np.int64)).done(DONE, 0, 5)
    after = clock.joined(clock.written_back(clock.rows[DONE], SYSTEM))
    assert after.rows[[AGENT_SEEN, SYSTEM_SEEN], 0].tolist() == [5, 5]
    assert after.rows[[AGENT_READ, SYSTEM_READ], 0].tolist() == [0, 0]
    assert after.invalidated(SYSTEM).rows[SYSTEM_READ, 0] == 5
    assert clock.written_back(clock.rows[DONE], AGENT)[SYSTEM_SEEN, 0] == 0


def test_a_read_of_what_is_not_known_to_be_visible_is_a_race():
    races = Races(64, np.array([0, 1]), [STREAM] * 3)
    none, store = np.zeros(2, np.int64), replace(WORD, what="store")
    assert races.conflict(store, (none, none, none), (0, 1, 3)) is None
    found = races.conflict(WORD, (np.array([2, 9]), none, none), (1, 2, 1))
    assert (found.wave, found.instruction, found.what) == (0, 1, "read")
    assert races.conflict(WORD, (np.array([3, 9]), none, none), (1, 2, 2)) is None
    assert races.conflict(store, (none, np.array([3, 0]), none), (0, 1, 4)).what == "overwritten before it was read"


@pytest.mark.parametrize("name", ["BUFFER_LOAD_DWORD", "BUFFER_ATOMIC_ADD", "GLOBAL_STORE_DWORD", "BUFFER_WBL2"])
def test_an_access_with_a_scope_may_meet_another_and_a_write_back_is_no_access(name):
    named = replace(STREAM, instruction=replace(STREAM.instruction, name=name))
    atomic = [replace(named, scope=scope).atomic for scope in (WORKGROUP, AGENT, SYSTEM)]
    assert atomic == [False, name != "BUFFER_WBL2", name != "BUFFER_WBL2"]


def test_places_outside_of_every_buffer_are_refused():
    memory = FlatMemory([(1000, np.ones(8, np.uint8), "x"), (5000, np.ones(8, np.uint8), "y")])
    place = int(memory.places(np.array([5004], np.uint64), 4)[0])
    assert memory.named(place) == "y + 0x4 (address 0x138c)"
    with pytest.raises(Fault, match="outside of every buffer"):
        memory.places(np.array([1006], np.uint64), 4)


def test_where_buffers_lie_does_not_depend_on_their_addresses():
    """A line's worth of 64 bytes, as allocators align, is not what a seed's schedule is made of."""
    places = []
    for address in (4096, 4096 + 64):
        memory = FlatMemory([(address, np.ones(96, np.uint8), "x"), (1 << 20, np.ones(LINE + 8, np.uint8), "y")])
        places.append((memory.place(address), memory.place((1 << 20) + LINE), len(memory.bytes)))
    assert places == [(0, 2 * LINE, 3 * LINE)] * 2
