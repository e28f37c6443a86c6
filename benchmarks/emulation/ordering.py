"""What a memory operation of one wave means to the others: caches that hold it back, and who may know of it.

Every rank has memory, a cache of its own over the memories of all ranks (its L2), and each of its workgroups a cache
over that (the L1 of its CU and the L2 of its XCD, of which an MI300X has eight).  Stores stay where they are until
they are written back; loads fill whole lines, which stay as they are until they are invalidated.

Whether an access is ordered after another is told apart from what this schedule makes of it, by vector clocks of the
waves.  Rules: "User Guide for AMDGPU Backend" of LLVM, Memory Model GFX942: a store is complete when the wave that made
it has waited for it; BUFFER_WBL2 makes the complete stores of its workgroup, and all before it of its own wave, visible
to the agent (sc1) or the system (sc0 sc1), as soon as it has been waited for; an atomic that reads what another wrote
knows what that wave knew, as soon as it has been waited for; BUFFER_INV makes later loads see it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .memory import Change, modified
from .waves import U64, Bools, Memory, gathered, scattered, unit_of

LINE, UNIT = 128, 2
"""Bytes of a cache line, and of what races are told apart by: an access of one byte counts as two."""

WORKGROUP, AGENT, SYSTEM = 0, 1, 2
"""Scopes of an access: sc1 is AGENT, sc0 and sc1 SYSTEM; of an atomic sc1 is SYSTEM, and none AGENT."""

ABSENT, CLEAN, DIRTY = 0, 1, 2

Places = NDArray[np.int64]


class _Access(NamedTuple):
    what: str
    places: Places
    size: int
    given: Any = None


class Part(_Access):
    """What an access does at places, `size` bytes at each: "load", "store", "atomic", "local load" or "local store".

    given: what a load gives its bytes to; the bytes [accesses, size] of a store; (change, use) of an atomic.  What
    follows from the places is found once: schedules repeat what they do.
    """

    @cached_property
    def units(self) -> Places:
        """What races are told apart by."""
        return ((self.places[:, None] + np.arange(0, self.size, UNIT)) // UNIT).reshape(-1)

    @cached_property
    def lines(self) -> Places:
        """Cache lines, each once."""
        ends = np.concatenate([self.places // LINE, (self.places + self.size - 1) // LINE])
        return np.array(sorted(set(ends.tolist())), np.int64)  # a tenth of the time of np.unique

    @cached_property
    def span(self) -> tuple[int, int]:
        """The first byte, and the one after the last."""
        return (int(self.places.min()), int(self.places.max()) + self.size) if len(self.places) else (0, 0)

    @cached_property
    def _words(self) -> tuple[str, Places]:
        unit = unit_of(self.places, self.size)
        return f"u{unit}", (self.places // unit)[:, None] + np.arange(self.size // unit)

    def found_in(self, contents: NDArray[np.uint8]) -> Any:
        """The bytes [accesses, size] of these places; the array begins at a multiple of 8."""
        unit, index = self._words
        return contents.view(unit)[index].view(np.uint8).reshape(len(index), self.size)

    def put_into(self, contents: NDArray[np.uint8], values: Any) -> None:
        """Bytes [accesses, size], or one for all, to these places; the array begins at a multiple of 8."""
        unit, index = self._words
        if isinstance(values, int):
            values = np.full((1, self.size), values, np.uint8)
        contents.view(unit)[index] = np.ascontiguousarray(values).view(unit)


class FlatMemory(Memory):
    """Buffers side by side in one array of bytes, a place in any of them is one number.  They share no line."""

    def __init__(self, buffers: list[tuple[int, Any, str]]) -> None:
        super().__init__()
        places, end = [], 0
        for address, contents, _ in buffers:
            places.append(start := end + address % LINE)
            end = -(-(start + len(contents)) // LINE) * LINE
        self.bytes = np.zeros(end, np.uint8)
        for (address, contents, name), start in zip(buffers, places, strict=True):
            self.bytes[start : start + len(contents)] = contents
            self.add(address, self.bytes[start : start + len(contents)], name)
        order = sorted(range(len(buffers)), key=lambda index: buffers[index][0])
        self._shift = np.array([places[index] - buffers[index][0] for index in order], np.int64)

    def places(self, addresses: U64, size: int) -> Places:
        """Where accesses of `size` bytes lie in `bytes`; Fault if one lies outside of every buffer."""
        self.at(addresses, size)
        index = np.searchsorted(self._starts, addresses, side="right") - 1
        return addresses.astype(np.int64) + self._shift[index]

    def named(self, place: int) -> str:
        """The buffer, offset in it and address of a place."""
        for (start, contents, name), shift in zip(self._buffers, self._shift, strict=True):
            if 0 <= place - start - shift < len(contents):
                return f"{name} + {place - start - shift:#x} (address {place - shift:#x})"
        return f"place {place:#x}"


class Cache:
    """Lines over a memory; every byte is absent, clean or dirty."""

    def __init__(self, lines: int) -> None:
        self.data = np.empty((lines, LINE), np.uint8)
        self.state = np.zeros((lines, LINE), np.uint8)
        self.whole = np.zeros(lines, np.bool_)
        """Lines of which no byte is absent."""
        self.held = np.zeros(lines, np.bool_)
        self.dirty = np.zeros(lines, np.bool_)

    def take(self, lines: Places, values: Any) -> None:
        """Fill what is absent of these lines."""
        state = self.state[lines]
        self.data[lines] = np.where(state == ABSENT, values, self.data[lines])
        self.state[lines] = np.maximum(state, CLEAN)
        self.whole[lines] = self.held[lines] = True

    def put(self, part: Part, values: Any, state: int) -> None:
        """Bytes [accesses, size] at places, dirty or clean."""
        part.put_into(self.data.reshape(-1), values)
        part.put_into(self.state.reshape(-1), state)
        self.held[part.lines] = True
        if state == DIRTY:
            self.dirty[part.lines] = True

    def drop(self, lines: Places) -> None:
        """Forget the clean bytes of these lines."""
        state = self.state[lines]
        state[state == CLEAN] = ABSENT
        self.state[lines] = state
        self.whole[lines] = False
        self.held[lines] = self.dirty[lines]

    def given(self, lines: Places) -> tuple[Bools, Any]:
        """What of these lines is dirty, and the bytes; it is clean from now on."""
        state = self.state[lines]
        mask = state == DIRTY
        state[mask] = CLEAN
        self.state[lines] = state
        self.dirty[lines] = False
        return mask, self.data[lines]


class Hierarchy:
    """The memories of all ranks in one array, a cache of each rank, a cache of each workgroup."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.memory = memory.reshape(-1, LINE)
        self._ranks: dict[int, Cache] = {}
        self._groups: dict[int, Cache] = {}

    def _of(self, rank: int, group: int) -> tuple[Cache, Cache]:
        lines = len(self.memory)
        for caches, number in ((self._groups, group), (self._ranks, rank)):
            if number not in caches:
                caches[number] = Cache(lines)
        return self._groups[group], self._ranks[rank]

    def load(self, rank: int, group: int, part: Part, scope: int) -> Any:
        """Bytes [accesses, size] as a load of this scope finds them."""
        own, shared = self._of(rank, group)
        lines = part.lines
        if scope >= AGENT:
            own.drop(lines)
        if scope == SYSTEM:
            shared.drop(lines)
        whole = own.whole[lines]
        if not whole.all():
            missing = lines[~whole]
            self._fill(shared, missing)
            own.take(missing, shared.data[missing])
        return part.found_in(own.data.reshape(-1))

    def _fill(self, shared: Cache, lines: Places) -> None:
        missing = lines[~shared.whole[lines]]
        if len(missing):
            shared.take(missing, self.memory[missing])

    def store(self, rank: int, group: int, part: Part, values: Any, scope: int) -> None:
        """Bytes [accesses, size] to where a store of this scope leaves them."""
        own, shared = self._of(rank, group)
        own.put(part, values, DIRTY if scope == WORKGROUP else CLEAN)
        if scope >= AGENT:
            shared.put(part, values, DIRTY if scope == AGENT else CLEAN)
        if scope == SYSTEM:
            part.put_into(self.memory.reshape(-1), values)

    def modify(self, rank: int, group: int, part: Part, change: Change, scope: int) -> tuple[Any, bool]:
        """An atomic in the rank's cache (AGENT) or in memory (SYSTEM): what was there, and whether it is different."""
        own, shared = self._of(rank, group)
        lines = part.lines
        self._down(own, shared, lines)
        own.drop(lines)
        if scope == SYSTEM:
            self._to_memory(shared, lines)
            shared.drop(lines)
        else:
            self._fill(shared, lines)
        words = _Words(self.memory.reshape(-1) if scope == SYSTEM else shared.data.reshape(-1))
        before = modified(words, part.places.astype(np.uint64), part.size, change)
        after = words.load(part.places.astype(np.uint64), part.size)
        if scope != SYSTEM:
            shared.put(part, after, DIRTY)
        return before, bool((after.view(before.dtype)[:, 0] != before).any())

    def write_back(self, rank: int, group: int, scope: int) -> None:
        """BUFFER_WBL2."""
        own, shared = self._of(rank, group)
        if scope >= AGENT:
            self._down(own, shared, np.flatnonzero(own.dirty))
        if scope == SYSTEM:
            self._to_memory(shared, np.flatnonzero(shared.dirty))

    def invalidate(self, rank: int, group: int, scope: int) -> None:
        """BUFFER_INV."""
        own, shared = self._of(rank, group)
        if scope >= AGENT:
            own.drop(np.flatnonzero(own.held))
        if scope == SYSTEM:
            shared.drop(np.flatnonzero(shared.held))

    def ended(self, rank: int, groups: range) -> None:
        """The end of a kernel: all is written back, and nothing is cached."""
        for group in groups:
            self.write_back(rank, group, SYSTEM)
            self.invalidate(rank, group, SYSTEM)

    def evict(self, choose: Any) -> None:
        """Some lines leave a cache, as `choose` (random.Random) picks them."""
        rank_of = list(self._ranks.values())
        caches = [*rank_of, *self._groups.values()]
        if not caches:
            return
        cache = choose.choice(caches)
        lines = np.flatnonzero(cache.held)
        if not len(lines):
            return
        start = choose.randrange(len(lines))
        lines = lines[start : start + choose.randint(1, 8)]
        if cache in rank_of:
            self._to_memory(cache, lines)
        else:
            group = next(number for number, one in self._groups.items() if one is cache)
            self._down(cache, self._ranks[self.rank_of_group(group)], lines)
        cache.drop(lines)

    def rank_of_group(self, group: int) -> int:
        """The rank of a workgroup, counted over all ranks."""
        return group // self.groups_of_a_rank

    groups_of_a_rank = 1

    @staticmethod
    def _down(own: Cache, shared: Cache, lines: Places) -> None:
        if len(lines):
            mask, data = own.given(lines)
            shared.data[lines] = np.where(mask, data, shared.data[lines])
            shared.state[lines] = np.where(mask, DIRTY, shared.state[lines])
            shared.dirty[lines] |= mask.any(1)
            shared.held[lines] = True

    def _to_memory(self, shared: Cache, lines: Places) -> None:
        if len(lines):
            mask, data = shared.given(lines)
            self.memory[lines] = np.where(mask, data, self.memory[lines])


class _Words(Memory):
    """Bytes of one array as a memory whose addresses are places."""

    def __init__(self, contents: NDArray[np.uint8]) -> None:
        super().__init__()
        self._contents = contents

    def load(self, addresses: U64, size: int) -> NDArray[np.uint8]:
        return gathered(self._contents, addresses.astype(np.int64), size)

    def store(self, addresses: U64, values: NDArray[np.uint8]) -> None:
        scattered(self._contents, addresses.astype(np.int64), values)


LOCAL, DONE, AGENT_SEEN, SYSTEM_SEEN, AGENT_READ, SYSTEM_READ = range(6)
"""Rows of a clock: up to which operation of each wave LDS accesses and memory accesses are complete, stores are visible
to the agent, to the system, and to this workgroup's loads of its agent's and of others' stores."""

ALWAYS = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Clock:
    """What a wave knows of all waves: [6, waves]; never changed in place."""

    rows: NDArray[np.int64]
    limits: dict[tuple[int, bool], Any] = field(default_factory=dict)
    """What follows from it for the accesses of a wave, kept by who asks."""

    def joined(self, other: NDArray[np.int64]) -> Clock:
        """Also what another clock knows; the first rows only, if it has fewer."""
        rows = self.rows.copy()
        np.maximum(rows[: len(other)], other, out=rows[: len(other)])
        return Clock(rows)

    def done(self, row: int, wave: int, index: int) -> Clock:
        """The wave's operations up to index are complete."""
        rows = self.rows.copy()
        rows[row, wave] = max(rows[row, wave], index)
        return Clock(rows)

    def written_back(self, before: NDArray[np.int64], scope: int) -> Clock:
        """The operations of `before` [waves] are visible to the agent, or to the system."""
        rows = self.rows.copy()
        for row in (AGENT_SEEN, SYSTEM_SEEN)[:scope]:
            np.maximum(rows[row], before, out=rows[row])
        return Clock(rows)

    def invalidated(self, scope: int) -> Clock:
        """Later loads see all that was visible."""
        rows = self.rows.copy()
        for row in (AGENT_READ, SYSTEM_READ)[:scope]:
            rows[row] = rows[row - 2]
        return Clock(rows)


@dataclass(frozen=True)
class Conflict:
    """An access that is not ordered after another: place, the other's wave and instruction (its number)."""

    place: int
    wave: int
    instruction: int
    what: str


class Races:
    """The last access to every unit of a memory, and whether the next one is ordered after it."""

    def __init__(self, size: int, ranks: NDArray[np.int64], scopes: list[int], start: int = 0) -> None:
        """ranks: of each wave.  scopes: of each instruction, AGENT or SYSTEM of an atomic, else 0; it may grow.
        start: the memory's first place."""
        self._writes = np.zeros(size // UNIT + 1, np.int64)
        self._reads = np.zeros(size // UNIT + 1, np.int64)
        self._ranks, self._scopes, self._first = ranks, scopes, start // UNIT

    def read(self, part: Part, limit: Places, event: tuple[int, int, int]) -> Conflict | None:
        """A load; limit: of each wave, the last operation whose store it may see; event: wave, instruction, index."""
        units = part.units - self._first if self._first else part.units
        found = self._late(units, self._writes, limit, "read", event)
        self._reads[units] = event[0] << 48 | event[1] << 32 | event[2]
        return found

    def write(self, part: Part, limits: Any, event: tuple[int, int, int]) -> Conflict | None:
        """A store or atomic; limits: of each wave, the last store that it may replace, and the last load."""
        units = part.units - self._first if self._first else part.units
        found = self._late(units, self._writes, limits[0], "overwritten", event)
        found = found or self._late(units, self._reads, limits[1], "overwritten before it was read", event)
        self._writes[units] = event[0] << 48 | event[1] << 32 | event[2]
        return found

    def _late(self, units: Places, last: Places, limit: Places, what: str, event: tuple[int, int, int]) -> Any:
        before = last[units]
        waves = before >> 48
        late = (before & 0xFFFFFFFF) > limit[waves]
        if late.any() and self._scopes[event[1]]:
            other = np.array(self._scopes)[before >> 32 & 0xFFFF]
            least = np.minimum(other, self._scopes[event[1]])
            same = self._ranks[waves] == self._ranks[event[0]]
            late &= ~((least == SYSTEM) | (least == AGENT) & same)
        if not late.any():
            return None
        first = int(np.argmax(late))
        return Conflict(int(units[first]) * UNIT, int(waves[first]), int(before[first] >> 32 & 0xFFFF), what)
