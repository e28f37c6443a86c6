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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .memory import Change, modified
from .waves import U64, Memory, gathered, scattered

LINE, UNIT = 128, 2
"""Bytes of a cache line, and of what races are told apart by: an access of one byte counts as two."""

WORKGROUP, AGENT, SYSTEM = 0, 1, 2
"""Scopes of an access: sc1 is AGENT, sc0 and sc1 SYSTEM; of an atomic sc1 is SYSTEM, and none AGENT."""

ABSENT, CLEAN, DIRTY = 0, 1, 2

Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """What an access does at places, `size` bytes at each: "load", "store" or "atomic"; local: in the LDS.

    given: what a load gives its bytes to; the bytes [accesses, size] of a store; (change, use) of an atomic.  What
    follows from the places is found once: schedules repeat what they do.
    """

    what: str
    places: Places
    size: int
    given: Any = None
    local: bool = False

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

    def found_in(self, contents: NDArray[np.uint8]) -> Any:
        """The bytes [accesses, size] of these places."""
        return gathered(contents.reshape(-1), self.places, self.size)

    def put_into(self, contents: NDArray[np.uint8], values: Any) -> None:
        """Bytes [accesses, size] to these places."""
        scattered(contents.reshape(-1), self.places, values)


class FlatMemory(Memory):
    """Buffers side by side in one array of bytes, a place in any of them is one number.  They share no line.

    Each begins a line, as on a GPU, wherever this process has it: a seed gives the same schedule in every process.
    """

    def __init__(self, buffers: list[tuple[int, Any, str]]) -> None:
        super().__init__()
        starts = np.cumsum([0, *(-(-len(contents) // LINE) * LINE for _, contents, _ in buffers)])
        self.bytes = np.zeros(starts[-1], np.uint8)
        for (address, contents, name), start in zip(buffers, starts[:-1].tolist(), strict=True):
            self.bytes[start : start + len(contents)] = contents
            self.add(address, self.bytes[start : start + len(contents)], name)

    def places(self, addresses: U64, size: int) -> Places:
        """Where accesses of `size` bytes lie in `bytes`; Fault if one lies outside of every buffer."""
        found = np.empty(len(addresses), np.int64)
        for which, contents, offsets in self.at(addresses, size):
            found[which] = offsets + self._start(contents)
        return found

    def _start(self, contents: Any) -> int:
        return int(contents.ctypes.data - self.bytes.ctypes.data)

    def place(self, address: int) -> int:
        """Where a byte lies."""
        return int(self.places(np.array([address], np.uint64), 1)[0])

    def named(self, place: int) -> str:
        """The buffer, offset in it and address of a place."""
        for address, contents, name in self._buffers:
            if 0 <= (offset := place - self._start(contents)) < len(contents):
                return f"{name} + {offset:#x} (address {address + offset:#x})"
        return f"place {place:#x}"


class Cache:
    """Lines of bytes over those `below`, each byte absent, clean or dirty; the memory is one over which nothing is."""

    def __init__(self, data: NDArray[np.uint8], below: Any = None) -> None:
        self.data, self.below = data, below
        self.state = np.zeros(data.shape, np.uint8)
        self.whole = np.full(len(data), below is None)
        """Lines of which no byte is absent."""
        self.held, self.dirty = np.zeros((2, len(data)), np.bool_)

    def fill(self, lines: Places) -> None:
        """Get what is absent of these lines from below."""
        missing = lines[~self.whole[lines]]
        if len(missing):
            self.below.fill(missing)
            state = self.state[missing]
            self.data[missing] = np.where(state == ABSENT, self.below.data[missing], self.data[missing])
            self.state[missing] = np.maximum(state, CLEAN)
            self.whole[missing] = self.held[missing] = True

    def put(self, part: Part, values: Any, state: int) -> None:
        """Bytes [accesses, size] at places, dirty or clean."""
        part.put_into(self.data, values)
        part.put_into(self.state, np.full((len(part.places), part.size), state, np.uint8))
        self.held[part.lines] = True
        self.dirty[part.lines] |= state == DIRTY

    def drop(self, lines: Places) -> None:
        """Forget the clean bytes of these lines."""
        state = self.state[lines]
        state[state == CLEAN] = ABSENT
        self.state[lines] = state
        self.whole[lines] = False
        self.held[lines] = self.dirty[lines]

    def give(self, lines: Places) -> None:
        """Write back what is dirty of these lines; it is clean from now on."""
        if len(lines):
            state, below = self.state[lines], self.below
            dirty = state == DIRTY
            self.state[lines] = np.where(dirty, CLEAN, state)
            self.dirty[lines] = False
            below.data[lines] = np.where(dirty, self.data[lines], below.data[lines])
            below.state[lines] = np.where(dirty, DIRTY, below.state[lines])
            below.dirty[lines] |= dirty.any(1)
            below.held[lines] = True


class Hierarchy:
    """The memories of all ranks in one array, a cache of each rank over it, a cache of each workgroup over that.

    An access of scope WORKGROUP is done in the first of them, of AGENT in the second, of SYSTEM in memory.
    """

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.memory = memory.reshape(-1, LINE)
        self._memory = Cache(self.memory)
        self._ranks: dict[int, Cache] = {}
        self._groups: dict[tuple[int, int], Cache] = {}

    def _levels(self, rank: int, group: int) -> list[Cache]:
        """By scope: where accesses of a workgroup are done."""
        if rank not in self._ranks:
            self._ranks[rank] = Cache(np.empty_like(self.memory), self._memory)
        if (rank, group) not in self._groups:
            self._groups[rank, group] = Cache(np.empty_like(self.memory), self._ranks[rank])
        return [self._groups[rank, group], self._ranks[rank], self._memory]

    def load(self, rank: int, group: int, part: Part, scope: int) -> Any:
        """Bytes [accesses, size] as a load of this scope finds them."""
        levels = self._levels(rank, group)
        for cache in levels[:scope]:
            cache.drop(part.lines)
        levels[WORKGROUP].fill(part.lines)
        return part.found_in(levels[WORKGROUP].data)

    def store(self, rank: int, group: int, part: Part, values: Any, scope: int) -> None:
        """Bytes [accesses, size] to where a store of this scope leaves them."""
        *over, last = self._levels(rank, group)[: scope + 1]
        for cache in over:
            cache.put(part, values, CLEAN)
        last.put(part, values, DIRTY)

    def modify(self, rank: int, group: int, part: Part, change: Change, scope: int) -> tuple[Any, bool]:
        """An atomic of this scope, of AGENT or SYSTEM: what was there, and whether it is different now."""
        *over, last = self._levels(rank, group)[: scope + 1]
        for cache in over:
            cache.give(part.lines)
            cache.drop(part.lines)
        last.fill(part.lines)
        words = Memory()
        words.add(0, last.data.reshape(-1), "")
        before = modified(words, part.places.astype(np.uint64), part.size, change)
        after = part.found_in(last.data)
        last.put(part, after, DIRTY)
        return before, bool((after.view(before.dtype)[:, 0] != before).any())

    def write_back(self, rank: int, group: int, scope: int) -> None:
        """BUFFER_WBL2."""
        for cache in self._levels(rank, group)[:scope]:
            cache.give(np.flatnonzero(cache.dirty))

    def invalidate(self, rank: int, group: int, scope: int) -> None:
        """BUFFER_INV."""
        for cache in self._levels(rank, group)[:scope]:
            cache.drop(np.flatnonzero(cache.held))

    def evict(self, choose: Any) -> None:
        """Some lines leave a cache, as `choose` (random.Random) picks them."""
        caches = [*self._ranks.values(), *self._groups.values()]
        if not caches:
            return
        cache = choose.choice(caches)
        lines = np.flatnonzero(cache.held)
        if len(lines):
            start = choose.randrange(len(lines))
            lines = lines[start : start + choose.randint(1, 8)]
            cache.give(lines)
            cache.drop(lines)


LOCAL, DONE, AGENT_SEEN, SYSTEM_SEEN, AGENT_READ, SYSTEM_READ = range(6)
"""Rows of a clock: up to which operation of each wave LDS accesses and memory accesses are complete, stores are visible
to the agent, to the system, and to this workgroup's loads of its agent's and of others' stores."""

ALWAYS = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Clock:
    """What a wave knows of all waves: [6, waves]; never changed in place."""

    rows: NDArray[np.int64]
    _limits: dict[tuple[int, bool], Any] = field(default_factory=dict)

    def joined(self, *others: NDArray[np.int64]) -> Clock:
        """Also what other clocks know; the first rows only of those that have fewer."""
        rows = self.rows.copy()
        for other in others:
            np.maximum(rows[: len(other)], other, out=rows[: len(other)])
        return Clock(rows)

    def done(self, row: Any, wave: int, index: int) -> Clock:
        """The wave's operations up to index are complete, as this row (or these) counts them."""
        rows = self.rows.copy()
        rows[row, wave] = np.maximum(rows[row, wave], index)
        return Clock(rows)

    def written_back(self, before: NDArray[np.int64], scope: int) -> Any:
        """What is known, beside this, once the operations of `before` [waves] are visible in this scope: rows."""
        rows = np.zeros_like(self.rows[:AGENT_READ])
        rows[AGENT_SEEN : AGENT_SEEN + scope] = before
        return rows

    def invalidated(self, scope: int) -> Clock:
        """Later loads see all that was visible."""
        rows = self.rows.copy()
        rows[AGENT_READ : AGENT_READ + scope] = rows[AGENT_SEEN : AGENT_SEEN + scope]
        return Clock(rows)

    def limits(self, wave: int, own: Any, scoped: bool) -> tuple[Places, Places, Places]:
        """Of each wave: the last store that a load may see, that a store may replace, the last load it may replace.

        own: which waves are of its workgroup, and of its rank; scoped: the access goes past the caches.
        """
        if (wave, scoped) not in self._limits:
            rows, (group, rank) = self.rows, own
            writes = np.where(group, rows[DONE], np.where(rank, rows[AGENT_SEEN], rows[SYSTEM_SEEN]))
            reads = np.where(group, rows[DONE], np.where(rank, rows[AGENT_READ], rows[SYSTEM_READ]))
            found = (writes if scoped else reads), writes, rows[DONE].copy()
            for limit in found:
                limit[wave] = ALWAYS
            self._limits[wave, scoped] = found
        return self._limits[wave, scoped]


@dataclass(frozen=True)
class Conflict:
    """An access that is not ordered after another: place, the other's wave and instruction (its number)."""

    place: int
    wave: int
    instruction: int
    what: str


class Races:
    """The last accesses to every unit of a memory, and whether the next one is ordered after them."""

    def __init__(self, size: int, ranks: NDArray[np.int64], facts: list[Any]) -> None:
        """ranks: of each wave.  facts: programs.Facts of each instruction; there may come more."""
        self._writes, self._reads = np.zeros((2, size // UNIT + 1), np.int64)
        self._ranks, self._facts = ranks, facts

    def conflict(self, part: Part, limits: Any, event: tuple[int, int, int]) -> Conflict | None:
        """What an access is not ordered after.  limits: as of Clock.limits; event: wave, instruction, index."""
        reads, writes, done = limits
        if part.what == "load":
            found = self._late(part.units, self._writes, reads, "read", event)
        else:
            found = self._late(part.units, self._writes, writes, "overwritten", event) or self._late(
                part.units, self._reads, done, "overwritten before it was read", event
            )
        last = self._reads if part.what == "load" else self._writes
        last[part.units] = event[0] << 48 | event[1] << 32 | event[2]
        return found

    def _late(self, units: Places, last: Places, limit: Places, what: str, event: tuple[int, int, int]) -> Any:
        before = last[units]
        waves = before >> 48
        late = (before & 0xFFFFFFFF) > limit[waves]
        mine = self._facts[event[1]]
        if late.any() and mine.atomic:
            others = [self._facts[number] for number in (before >> 32 & 0xFFFF).tolist()]
            least = np.array([min(mine.scope, other.scope) if other.atomic else WORKGROUP for other in others])
            same = self._ranks[waves] == self._ranks[event[0]]
            late &= ~((least == SYSTEM) | (least == AGENT) & same)
        if not late.any():
            return None
        first = int(np.argmax(late))
        return Conflict(int(units[first]) * UNIT, int(waves[first]), int(before[first] >> 32 & 0xFFFF), what)
