"""A kernel's instructions as records of native code, and its launches: one wave at a time, from barrier to barrier.

A wave runs until it is at a barrier, ends, has taken BRANCHES, or comes to an instruction that the executor has to do:
one that has no native code, or an access that is not in one buffer.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import itertools
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from . import context, hazards, library, runtime
from .code_object import KernelCode
from .counts import VECTOR, class_of
from .layout import (
    ASK,
    BUDGET,
    CACHE,
    COUNT,
    FUNCTION,
    ISSUED,
    LANES_ON,
    PARAMETERS,
    RECORD,
    SCC,
    SECOND,
    SPENT,
    STATE,
    STOPPED,
    WAVE_BYTES,
    V,
)
from .machine import Instruction, Machine
from .memory import SCRATCH
from .operands import Unknown
from .programs import queue_of
from .waves import LANES, Fault, Waves, zeros

TAKEN, FIRST = 10_000, 200
"""Branches of a wave after which others have their turn; of workgroups that wait for each other, in their first one,
and twice as many in each after it: a grid that synchronises soon has all of them."""

SAMPLE, WHOLE = 32, 20_000_000
"""Workgroups of a sample: the first, the last and others by a seed; instructions of a launch that needs none."""

SLICE = 0.05
"""Seconds after which a launch looks whether it is to end (Ctrl-C)."""


@dataclass(frozen=True)
class Program:
    """A kernel's reachable instructions in the order of their addresses; None of what cannot be decoded.  early: as
    hazards.early_uses.  unit: places of the LDS by which its accesses are told apart, as a shift.  direct: whether it
    loads from memory to the LDS."""

    instructions: tuple[Instruction | None, ...]
    places: tuple[int, ...]
    compiled: tuple[library.Compiled, ...]
    index: dict[int, int]
    early: tuple[tuple[int, int], ...]
    unit: int
    direct: bool

    @cached_property
    def records(self) -> tuple[Any, Any, Any]:
        """The words of all records and one after them; of those that are branches the numbers, and where they go."""
        words = np.zeros((len(self.places) + 1, RECORD // 8), np.uint64)
        for record, one in zip(words, self.compiled, strict=False):
            record[FUNCTION // 8] = library.address(one.name)
            record[PARAMETERS // 8 : PARAMETERS // 8 + len(one.parameters)] = one.parameters
        words[-1, FUNCTION // 8] = library.address(library.UNKNOWN)
        branches = {
            number: self.index[one.target]
            for number, one in enumerate(self.instructions)
            if one and one.kind == "branch"
        }
        return words, np.array([*branches], np.intp), np.array([*branches.values()], np.uint64)


def program(code: KernelCode, machine: Machine) -> Program:
    """A kernel's program, as it is kept or translated now."""
    text = hashlib.blake2b(code.image, digest_size=16, key=f"{code.arch} {code.entry}".encode()).hexdigest()
    if listing := library.kept_program(text):
        found = _listed(listing)
        if library.provide({one.name for one in found.compiled}, {}):
            return found
    from .translation import translated  # takes a while to import

    listing = translated(code, machine)
    library.keep_program(text, listing)
    return _listed(listing)


def _listed(listing: Any) -> Program:
    """A program from what is kept of it."""
    (early, unit, direct), *rows = listing
    instructions = tuple(about and Instruction(at, *about) for at, about, *_ in rows)
    functions = tuple(library.Compiled(*how) for _, _, *how in rows)
    index = {at: number for number, (at, *_) in enumerate(rows)}
    return Program(instructions, tuple(index), functions, index, tuple(map(tuple, early)), unit, direct)


_programs: dict[tuple[bytes, int], Program] = {}


@cache
def _patterns(thread: int) -> Any:
    """Patterns of addresses that launches of a thread have met."""
    return zeros(runtime.PATTERN_BYTES * ((1 << runtime.SLOT_BITS) + 1))


class NativeMachine(Machine):
    """A launch of a kernel in native code: as Machine, wave by wave.

    sampled: where all workgroups would execute more than WHOLE instructions, SAMPLE of them stand for all.
    """

    at_once = sampled = False

    def run(self, waves: Waves) -> None:
        """Execute until all waves have ended."""
        key = (self.code.image, self.code.entry)
        if key not in _programs:
            collects = gc.isenabled()
            gc.disable()  # it makes many small objects and no garbage, beside all those that torch has
            try:
                _programs[key] = program(self.code, self)
            finally:
                if collects:
                    gc.enable()
        self._program = _programs[key]
        self._records = zeros(RECORD * (len(self._program.places) + 1))
        self._fill_records()
        self._context(waves)
        with np.errstate(all="ignore"):
            self._workgroups(waves)
        self._counted()
        if hazards.checked():
            self._ordered()

    def _ordered(self) -> None:
        """Race where accesses were made whose order nothing makes."""
        for first, second in self._program.early:
            if self._words[first, COUNT // 8] and self._words[second, COUNT // 8]:
                raise hazards.Race(f"{self._at(first)} is not waited for: {self._at(second)} uses its register")
        found, before, now, place, group = (int(one) for one in self._context_words[context.RACE // 8 :][:5])
        if found:
            (first, one), (second, other) = ((note >> 32 & 0x7FFFFF, note >> 56) for note in (before, now))
            if one == other:
                raise hazards.Race(
                    f"{self._at(first)} is not waited for: {self._at(second)}, wave {other}, of workgroup {group} of "
                    f"{self.code.name} reaches byte {place} of the LDS, where it loads to"
                )
            raise hazards.Race(
                f"nothing orders {self._at(first)}, wave {one}, before {self._at(second)}, wave {other}, of workgroup "
                f"{group} of {self.code.name}: both reach byte {place} of the LDS"
            )

    def _at(self, number: int) -> str:
        one = self._program.instructions[number]
        return f"{one.name if one else ''} at {self._program.places[number] - self.code.entry:#x}"

    # What native code reads.

    def _fill_records(self) -> None:
        words, branches, targets = self._program.records
        self._words = self._records.view(np.uint64).reshape(words.shape)
        self._words[:] = words
        self._base = self._records.ctypes.data
        self._words[branches, PARAMETERS // 8] = RECORD * targets + np.uint64(self._base)

    def _context(self, waves: Waves) -> None:
        self._warps = len(waves)
        scalars, lanes = np.zeros((len(waves), 128), np.uint32), np.ascontiguousarray(waves.v[0])
        used = np.flatnonzero(waves.s.any(1))
        scalars[:, used] = waves.s[used].T
        self._counters = np.zeros(len(runtime.COUNTER_NAMES), np.int64)
        seen = np.zeros((self.accesses.lds_bytes >> 2) + 4, np.int64)
        self._context_words = np.zeros(context.CONTEXT_BYTES // 8, np.uint64)
        self._lds = self._warps * WAVE_BYTES + 3 * self._notes_bytes() + 63 & -64
        self._scratch = self._lds + self.accesses.lds_bytes + 63 & -64
        self.accesses.add_scratch(self._warps, self.code.scratch_bytes)
        held = {
            context.LDS_BYTES: self.accesses.lds_bytes,
            context.COUNTERS: self._counters.ctypes.data,
            context.SEEN: seen.ctypes.data,
            context.PATTERNS: _patterns(threading.get_ident()).ctypes.data,
            context.STAMP: 1,
            context.LDS_AT: self._lds,
            context.SCRATCH_AT: self._scratch,
            context.ENDS: self._scratch + LANES * self._warps * self.code.scratch_bytes,
            context.WARPS: self._warps,
            context.SCALARS: scalars.ctypes.data,
            context.IDS: lanes.ctypes.data,
            context.ENTRY: self._base + RECORD * self._program.index[waves.pc],
            context.V_BYTES: 4 * LANES * max(1, *(one.registers for one in self._program.compiled)),
            context.BRANCHES: TAKEN,
            context.SHADOW: int(hazards.checked() and (self._warps > 1 or self._program.direct)),
            context.UNIT: self._program.unit,
            context.RECORDS: self._base,
            context.NOTES: self._notes_bytes(),
            context.COLUMNS: self.grid[0],
            context.ROWS: self.grid[1],
        }
        places = itertools.count(4 * self.code.user_sgpr_count, 4)
        for axis, enabled in enumerate(self.code.workgroup_ids):
            held[context.GROUP_IDS + 8 * axis] = next(places) if enabled else (1 << 64) - 1
        for place, value in held.items():
            self._context_words[place // 8] = value
        self._kept = (seen, scalars, lanes)
        self._table, self._lines = np.zeros((0, context.BUFFER_BYTES // 8), np.uint64), []
        self._list_buffers()

    def _list_buffers(self) -> None:
        """Buffers of the memory that native code does not know yet, after the others: it keeps where their rows are."""
        known, buffers = set(self._table[:, 0].tolist()), self.accesses.memory.buffers()
        table = np.zeros((len(buffers), context.BUFFER_BYTES // 8), np.uint64)
        table[: len(self._table)] = self._table
        self._table = table
        self._words[:, CACHE // 8 + 1] = 0  # of the rows that were reached last
        for start, contents, _ in reversed(buffers):
            if start in known:
                continue
            count = (start + len(contents) - 1 >> 6) - (start >> 6) + 1
            groups = len(self._alive) if start == SCRATCH else 1
            many = (count // 8 + 1) * groups + 8  # 8 are written at once
            bits = zeros(len(runtime.WHATS) * many).reshape(-1, many)
            delta = contents.ctypes.data - start & (1 << 64) - 1
            table[len(self._lines)] = start, len(contents), delta, *(one.ctypes.data for one in bits)
            self._lines.append((start >> 6, count, bits))
        self._context_words[context.BUFFERS // 8] = table.ctypes.data
        self._context_words[context.COUNT // 8] = len(self._lines)

    # Running.

    def _workgroups(self, waves: Waves) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._run_group = library.callable_of("run_group", number, pointer, pointer, number, number)
        self._begin = library.callable_of("begin", None, pointer, pointer, number)
        run_groups = library.callable_of("run_groups", number, pointer, pointer, number, number)
        count = len(self._alive)
        blocks, chosen = self._blocks(), _sample(count) if self.sampled and count > SAMPLE else []
        for group in chosen:
            self._range(run_groups, blocks, group, group + 1)
        spent = int(self._words[:, COUNT // 8].sum())
        if chosen and spent * count > WHOLE * len(chosen):
            self.share = count / len(chosen)
            return
        for first, last in itertools.pairwise([-1, *chosen, count]):
            self._range(run_groups, blocks, first + 1, last)

    def _range(self, run_groups: Any, blocks: Any, group: int, count: int) -> None:
        """Workgroups from `group` to before `count`, as many at once as take some SLICE: signals are seen between."""
        many = 1
        while group < count:
            self._context_words[context.BRANCHES // 8] = TAKEN
            begun, last = time.perf_counter(), min(group + many, count)
            code = run_groups(self._context_words.ctypes.data, blocks.ctypes.data, group, last)
            many = max(1, many // 2) if time.perf_counter() - begun > SLICE else 2 * many
            group = int(self._context_words[context.AT_GROUP // 8])
            if group == last:
                continue
            while code == ASK:
                code = self._answered(blocks, group)
            if code == SPENT:
                self._in_turns(blocks, group, count)
                return
            group += 1

    def _blocks(self) -> Any:
        """Memory of a workgroup: its waves, notes of who has accessed its LDS, the LDS and scratch memory."""
        return zeros(int(self._context_words[context.ENDS // 8]))

    def _notes_bytes(self) -> int:
        """Of one note for each place of the LDS."""
        return 8 * (self.accesses.lds_bytes + 16 >> self._program.unit)

    def _answered(self, blocks: Any, group: int) -> int:
        """Do what a wave asks for, and go on."""
        wave = _Wave(blocks, group, int(self._context_words[context.AT_WAVE // 8]))
        self._first, self.accesses.lds = group, blocks[self._lds : self._scratch]
        self._ask(wave)
        if len(self.accesses.memory.buffers()) > len(self._lines):
            self._list_buffers()
        left = int(wave.words.view(np.int64)[BUDGET // 8])  # what it asks for does not lengthen its turn
        self._context_words[context.BRANCHES // 8] = max(1, left)
        return int(self._run_group(self._context_words.ctypes.data, blocks.ctypes.data, group, wave.number))

    def _in_turns(self, blocks: Any, group: int, count: int) -> None:
        """Workgroups that wait for each other: one begins when those before it had their turn and have not ended."""
        running, following = deque([(blocks, group, 0)]), group + 1
        free: list[Any] = []
        while running:
            blocks, group, turns = running.popleft()
            self._context_words[context.BRANCHES // 8] = min(TAKEN, FIRST << min(turns, 10))
            code = int(self._run_group(self._context_words.ctypes.data, blocks.ctypes.data, group, 0))
            while code == ASK:
                code = self._answered(blocks, group)
            if code == SPENT:
                running.append((blocks, group, turns + 1))
            else:
                free.append(blocks)
            if following < count and (code == SPENT or not running):
                new = free.pop() if free else self._blocks()
                self._begin(self._context_words.ctypes.data, new.ctypes.data, following)
                running.appendleft((new, following, 0))
                following += 1
            elif code == SPENT:
                self._check_limit(running)

    def _check_limit(self, running: Any) -> None:
        """Fault where waves that live have executed too many instructions."""
        waves = [_Wave(blocks, group, wave) for blocks, group, _ in running for wave in range(self._warps)]
        waves = [one for one in waves if one.words[STATE // 8] != runtime.ENDED]
        spent = int(self._words[:, COUNT // 8].sum())
        if spent > self.limit * max(1, len(waves)):
            places = ", ".join(
                f"{self._program.places[self._number(wave)] - self.code.entry:#x} (wave {wave.number} of workgroup "
                f"{wave.group})"
                for wave in waves[:8]
            )
            raise Fault(f"no end after {self.limit} instructions of a wave; waves stand at {places}")

    def _number(self, wave: _Wave) -> int:
        """The instruction at which a wave stands."""
        return (int(wave.words[STOPPED // 8]) - self._base) // RECORD

    def _ask(self, wave: _Wave) -> None:
        """The executor does an instruction."""
        number = self._number(wave)
        if number == len(self._program.places):
            raise Fault(f"the end of the code of {self.code.name}, without an instruction that ends it")
        at = self._program.places[number]
        instruction = self.instructions.get(at) or self._decoded(at)
        w = wave.as_waves(at)
        self._words[number, COUNT // 8] += np.uint64(1)
        self._words[number, LANES_ON // 8] += np.uint64(np.count_nonzero(w.active))
        self.observer.at, self.observer.name = at - self.code.entry, instruction.name
        try:
            goes = instruction.do(w)
            if instruction.kind == "jump":
                self.check_call(goes, w)
        except (Fault, Unknown) as error:
            raised = type(error)(f"{error}; {self._where(instruction, w, error)}")
            raised.at = at
            raise raised from error
        wave.words[SCC // 8] = int(w.scc[0])
        if queue := queue_of(instruction):
            wave.words[ISSUED // 8 + (queue == "vm")] += np.uint64(1)
        following = self._base + RECORD * (number + 1)
        if instruction.kind == "branch":
            self.observer.branch(w, goes)
            if goes[0]:
                following = self._base + RECORD * self._program.index[instruction.target]
        if instruction.kind == "jump":
            if int(goes[0]) not in self._program.index:
                raise Fault(f"a jump to {int(goes[0]) - self.code.entry:#x}, where no function of {self.code.name} is")
            following = self._base + RECORD * self._program.index[int(goes[0])]
        wave.words[STOPPED // 8] = following

    # Counting.

    def _counted(self) -> None:
        """What native code has counted, as the observer and the machine have it."""
        found, here = self.observer._found, self._program
        counted = self._words[:-1, [COUNT // 8, LANES_ON // 8, SECOND // 8, CACHE // 8]].tolist()
        for instruction, one, (times, on, second, third) in zip(here.instructions, here.compiled, counted, strict=True):
            if not instruction or not times:
                continue
            self.executed[instruction.at] += times
            self.instructions.setdefault(instruction.at, instruction)
            if class_of(instruction.name) in VECTOR:
                found.idle += times * LANES - on
            if instruction.kind == "branch" and instruction.name != "S_BRANCH":
                if one.name != library.UNKNOWN:
                    found.branches += times
                    found.taken += second
                    found.divergent += third
            elif second and instruction.kind != "branch":
                found.conflicts[instruction.at - self.code.entry, instruction.name] += second
        for (name, what), value in zip(runtime.COUNTER_NAMES, self._counters.tolist(), strict=True):
            if what:
                getattr(found, name)[what] += value
            else:
                setattr(found, name, getattr(found, name) + value)
        found.lines.update(dict(zip(runtime.WHATS, self._touched().tolist(), strict=True)))

    def _touched(self) -> Any:
        """How many lines were touched, for each of WHATS, by native code, which has their bits, or by the executor."""
        for number, what in enumerate(runtime.WHATS):
            for lines in self.observer._lines.pop(what, []):
                for first, count, bits in self._lines:
                    here = lines[(lines >= first) & (lines < first + count)] - first
                    np.bitwise_or.at(bits[number], here >> 3, (1 << (here & 7)).astype(np.uint8))
        touched = sum(np.bitwise_count(bits).sum(1, dtype=np.int64) for *_, bits in self._lines)
        ends = Counter(first + place for first, count, _ in self._lines for place in {0, count - 1})
        for line in (line for line, times in ends.items() if times > 1):  # of several buffers
            places = [(bits, line - first) for first, count, bits in self._lines if first <= line < first + count]
            held = sum((bits[:, place >> 3] >> (place & 7) & 1).astype(np.int64) for bits, place in places)
            touched -= np.maximum(held - 1, 0)
        return touched


def _sample(count: int) -> list[int]:
    """SAMPLE of so many workgroups, in order."""
    others = np.random.default_rng(0).choice(np.arange(1, count - 1), SAMPLE - 2, replace=False)
    return [0, *sorted(others.tolist()), count - 1]


class _Wave:
    """A wave in its workgroup's memory, as the executor has waves."""

    def __init__(self, blocks: Any, group: int, number: int) -> None:
        block = blocks[WAVE_BYTES * number :][:WAVE_BYTES]
        self.group, self.number, self.words = group, number, block.view(np.uint64)
        self.s = block[:512].view(np.uint32).reshape(128, 1)
        self.v = block[V:SCC].view(np.uint32).reshape(512, 1, LANES)

    def as_waves(self, pc: int) -> Waves:
        """Registers are the same memory; its workgroup is the first in its memory."""
        scc = np.array([bool(self.words[SCC // 8] & np.uint64(1))])
        return Waves(pc, self.s, self.v, scc, np.array([[0, self.number]]))
