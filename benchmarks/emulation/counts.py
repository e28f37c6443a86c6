"""What a launch executed, counted exactly: instructions by class, matrix cycles, memory requests, LDS conflicts, lanes.

The same code and inputs give the same numbers to the last digit.  They say what is done, never how long it takes; what
they bound from below is said by :func:`bound`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ..isa import amd
from ..isa.code import Instruction as Named
from .waves import LANES, Waves

# Matrix instructions.

PASSES = {
    **dict.fromkeys(("F16", "BF16", "I8", "FP8", "BF8", "F8F6F4 of 4 bits"), (4, 8)),
    **dict.fromkeys(("F32", "F8F6F4"), (8, 16)),
}
"""Passes of an MFMA of 16 x 16 and of 32 x 32 rows and columns, by the type of its first operand, whatever its K.

They make the peaks of AMD's data sheets (kernels/hardware.py), against which tests hold them.  gfx950's instructions of
half the K (16x16x16 of fp16) take as long as those of the full one.  F8F6F4 is as fast as its wider operand."""

CYCLES_PER_PASS = 4

_MATRIX = re.compile(r"V_MFMA(?:_SCALE)?_[FI]32_(16|32)X\1X\d+_([A-Z]+[0-9A-Z]*)")
_FOUR_BITS = 4
"""Code of FP4 in the fields cbsz and blgp."""


def matrix_cycles(name: str, formats: tuple[int, int] = (0, 0)) -> int | None:
    """Cycles for which an MFMA occupies the matrix unit of its SIMD; 0 for every other instruction.

    formats: cbsz and blgp of an F8F6F4.  None for an MFMA that is in no table (several blocks, XF32, fp64).
    """
    if not name.startswith("V_MFMA"):
        return 0
    found = _MATRIX.match(name)
    kind = found[2] if found else ""
    if kind == "F8F6F4" and formats == (_FOUR_BITS, _FOUR_BITS):
        kind = "F8F6F4 of 4 bits"
    return CYCLES_PER_PASS * PASSES[kind][found[1] == "32"] if found and kind in PASSES else None


# Requests to memory.

LINE = 64
"""Bytes of a request: what the L2 of CDNA3 and CDNA4 is asked for (TCP_TCC_READ_REQ of AMD's counters)."""


def distinct(values: Any, active: Any) -> Any:
    """Of each row the distinct values of its active columns, one after another: [n] from [rows, columns] of int64."""
    if not values.shape[1]:
        return np.zeros(0, np.int64)
    if active.all() and (values[:, 1:] >= values[:, :-1]).all():
        ordered = values
    else:
        ordered = np.sort(np.where(active, values, -1), axis=1)
    fresh = np.empty(ordered.shape, np.bool_)
    fresh[:, 0] = ordered[:, 0] >= 0
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=fresh[:, 1:])
    return ordered[fresh]


# Bank conflicts of the LDS.

BANKS, BANK_BYTES = 32, 4
"""Of the LDS of CDNA3 (ISA document, chapter Data Share Operations).  gfx950 has 64 banks, but which of its lanes go
together is not published: it is counted like gfx942, which is no less than what the same lanes would need there."""

SERVED = {"gfx942": 1, "gfx950": 2}
"""Passes of BANKS that an LDS can serve in a cycle at most: gfx950's has twice the banks."""

_READ_16 = np.arange(LANES).reshape(2, 8, 4)[:, [0, 5, 1, 4, 2, 7, 3, 6]].reshape(-1)
"""Lanes of a read of 16 bytes in the order of its passes, eight at a time."""


def lds_cycles(addresses: Any, active: Any, size: int, reads: bool) -> tuple[int, int]:
    """(cycles that the banks need, passes) of an access [waves, 64] of `size` bytes per active lane.

    A pass takes as many cycles as its fullest bank has distinct words; lanes at one word share it.  A pass without an
    active lane takes none.

    A pass serves as many lanes as fill the banks: 32 of up to 4 bytes, 16 of 8, 8 of 12 and 16, next to each other,
    but for reads of 16 bytes: lanes 0-3 with 20-23, 4-7 with 16-19, 8-11 with 28-31, 12-15 with 24-27, and 32 further.
    Source for 16 bytes: Composable Kernel's documentation, "Understanding AMD GPU LDS and Bank Conflicts".  For other
    sizes it is taken that lanes next to each other go together; no GPU has confirmed that.
    """
    lanes, words = _READ_16 if reads and size == 16 else slice(None), max(1, size // BANK_BYTES)
    together, unit = BANKS // (words if words != 3 else 4), BANK_BYTES
    if words in (2, 4) and not (addresses & size - 1)[active].any():
        unit, words = size, 1  # each lane has a group of banks to itself, which are full or empty together
    banks = BANKS * BANK_BYTES // unit
    rows = (addresses // unit)[:, lanes].reshape(-1, together, 1) + np.arange(words)
    there = active[:, lanes].reshape(-1, together)
    passes = np.arange(len(there))[:, None] << 32
    found = distinct(passes | rows.reshape(len(there), -1), np.repeat(there, words, axis=1))
    filled = np.bincount((found >> 32) * banks + found % banks, minlength=len(there) * banks).reshape(-1, banks)
    return int(filled.max(1).sum()), int(there.any(1).sum())


# The observer of a launch, and what it saw.


@dataclass
class Counts:
    """What all waves of a launch executed, or of several launches together (`+`).

    classes: instructions, by the classes of the machine code's metrics (benchmarks.isa.amd.kind).
    matrix: MFMA by name; matrix_cycles: for which they occupy matrix units, None if that is not known of one of them.
    bytes: asked for by lanes, by what is done (load, store, atomic; lds); touched: of the first three, those at
    distinct addresses of a wave's instruction; requests: its distinct lines of 64 bytes; lines: distinct ones of the
    whole launch.
    lds_passes, lds_cycles: of accesses to the LDS with and without what their banks add; conflicts: cycles that they
    add, by instruction and its place in the kernel.
    branches: conditional ones; taken: of these; divergent: into a part of the code that only some lanes need.
    vector: lanes of all vector instructions but MFMA; idle: of these, lanes that were off.
    """

    classes: Counter[str] = field(default_factory=Counter)
    matrix: Counter[str] = field(default_factory=Counter)
    matrix_cycles: int | None = 0
    bytes: Counter[str] = field(default_factory=Counter)
    touched: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)
    lds_passes: int = 0
    lds_cycles: int = 0
    conflicts: Counter[Any] = field(default_factory=Counter)
    branches: int = 0
    taken: int = 0
    divergent: int = 0
    vector: int = 0
    idle: int = 0

    @property
    def total(self) -> int:
        """Instructions."""
        return self.classes.total()

    @property
    def coalescing(self) -> float | None:
        """Bytes that are used / bytes that are requested from memory; None without a request."""
        asked = LINE * self.requests.total()
        return self.touched.total() / asked if asked else None

    def __add__(self, other: Counts) -> Counts:
        """Of both, one after the other: lines that both touch count twice, as each may have to fetch them."""
        both = {name: (mine, vars(other)[name]) for name, mine in vars(self).items()}
        return Counts(**{name: None if None in pair else pair[0] + pair[1] for name, pair in both.items()})

    def as_json(self) -> dict[str, Any]:
        """All of it by name, with the share of used bytes."""
        coalescing = self.coalescing
        return vars(self) | {"coalescing": coalescing if coalescing is None else round(coalescing, 6)}


VECTOR = ("valu", "load", "store", "atomic", "lds", "scratch")
"""Classes of instructions that the active lanes execute; an MFMA takes all lanes, whether they are active or not."""

_KEPT = 1 << 20
"""Lines that are kept before doublets among them are dropped."""


class Observer:
    """Sees every instruction that does not run in all lanes, every branch and every access of a launch.

    at: offset in the kernel of the instruction under way, name: its name; the machine sets them.
    """

    def __init__(self) -> None:
        self.at, self.name = 0, ""
        self._found = Counts()
        self._lines: dict[str, list[Any]] = {}
        self._new: Counter[str] = Counter()
        """Lines since doublets were dropped."""

    def partly(self, w: Waves) -> None:
        """The instruction runs with some lanes off."""
        if class_of(self.name) in VECTOR:
            self._found.idle += len(w) * LANES - int(np.count_nonzero(w.active))

    def branch(self, w: Waves, goes: Any) -> None:
        """A branch that the waves of `goes` take."""
        if self.name == "S_BRANCH":
            return
        inside = ~goes if self.name == "S_CBRANCH_EXECZ" else goes
        partly = inside & ~w.active.all(1) if "EXEC" in self.name else ()
        self._found.branches += len(w)
        self._found.taken += int(np.count_nonzero(goes))
        self._found.divergent += int(np.count_nonzero(partly))

    def memory(self, what: str, where: Any, active: Any, size: int) -> None:
        """An access of `size` bytes at addresses [waves, 64] in the active lanes: what is "load", "store", "atomic"."""
        where = where.view(np.int64)
        first, last = where // LINE, (where + (size - 1)) // LINE
        lines, where_active = first, active
        if (first != last)[active].any():
            lines, where_active = np.concatenate([first, last], axis=1), np.concatenate([active, active], axis=1)
        found = distinct(lines, where_active)
        self._found.bytes[what] += size * int(np.count_nonzero(active))
        self._found.touched[what] += size * len(distinct(where, active))
        self._found.requests[what] += len(found)
        kept = self._lines.setdefault(what, [])
        kept.append(found)
        self._new[what] += len(found)
        if self._new[what] > max(_KEPT, len(kept[0])):
            kept[:], self._new[what] = [np.unique(np.concatenate(kept))], 0

    def local(self, addresses: Any, active: Any, size: int, reads: bool) -> None:
        """An access to the LDS of each wave's workgroup, as in `memory`."""
        self._found.bytes["lds"] += size * int(np.count_nonzero(active))
        cycles, passes = lds_cycles(addresses, active, size, reads)
        self._found.lds_passes += passes
        self._found.lds_cycles += cycles
        self._found.conflicts[self.at, self.name] += cycles - passes

    def counts(self, executed: Sequence[tuple[str, int | None, int]], share: float = 1) -> Counts:
        """All of it; executed: name, cycles in the matrix unit and times of each instruction of the kernel.

        share: workgroups of the launch for each that this has seen, by which what it counts itself is multiplied.
        """
        found = self._found
        for what, kept in self._lines.items():
            found.lines[what] += len(distinct(np.concatenate(kept)[None], np.True_))
        if share != 1:
            for name, value in vars(found).items():
                many = isinstance(value, Counter)
                whole = {key: round(times * share) for key, times in value.items()} if many else round(value * share)
                setattr(found, name, Counter(whole) if many else whole)
        for name, issue, times in executed:
            kind = class_of(name)
            found.classes[kind] += times
            found.matrix[name.lower()] += times * (kind == "mfma")
            found.vector += times * LANES * (kind in VECTOR)
            unknown = found.matrix_cycles is None or issue is None
            found.matrix_cycles = None if unknown else found.matrix_cycles + issue * times
        done = Counts(**{name: _sorted(value) for name, value in vars(found).items()})
        places = done.conflicts.items()
        done.conflicts = Counter({f"{name.lower()} at {at:#x}": cycles for (at, name), cycles in places})
        return done


def _sorted(value: Any) -> Any:
    return Counter(dict(sorted((+value).items()))) if isinstance(value, Counter) else value


class Uncounted(Observer):
    """Sees nothing: where an order of accesses is tried, not their number."""

    def memory(self, what: str, where: Any, active: Any, size: int) -> None:
        """Nothing."""

    def local(self, addresses: Any, active: Any, size: int, reads: bool) -> None:
        """Nothing."""


@lru_cache(maxsize=4096)
def class_of(name: str) -> str:
    """The class of an instruction, as the metrics of contained code have it."""
    return amd.kind(Named(name.lower()))


# What the counts bound.


UNITS = ("MFMA issue", "LDS", "memory")


def least_seconds(counts: Counts, hardware: Any) -> dict[str, float]:
    """For how long each of UNITS is busy at its peak, with the work spread evenly over the device."""
    clock = hardware.clock_mhz * 1e6
    return {
        "MFMA issue": (counts.matrix_cycles or 0) / (hardware.compute_units * hardware.simds * clock),
        "LDS": counts.lds_cycles / (SERVED[hardware.arch] * hardware.compute_units * clock),
        "memory": LINE * sum(counts.lines.values()) / hardware.hbm_bandwidth,
    }


def bound(counts: Counts, hardware: Any, roofline_seconds: float, units: Sequence[str] = UNITS) -> Any:
    """The share of the roofline that remains if the busiest unit never waits, {"percent", "unit"}; None where nothing
    is to be done.

    hardware: kernels.hardware.Hardware.  roofline_seconds: of the same launch.  units: of which the busiest is taken.
    A bound, not a time: matrix units (one per SIMD), LDS (SERVED per cycle and CU) and HBM (each line of 64 bytes
    that the launch touches, once) are each taken at their peak, with the work spread evenly over the device.
    """
    least = least_seconds(counts, hardware)
    unit = max(units, key=lambda name: least[name])
    if not roofline_seconds or not least[unit]:
        return None
    return {"percent": round(min(100.0, 100 * roofline_seconds / least[unit]), 1), "unit": unit}
