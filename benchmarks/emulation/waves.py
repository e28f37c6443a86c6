"""Waves of 64 lanes that stand at the same instruction, the local memory of their workgroups, and global memory.

A register is an array over all these waves, so one numpy operation executes an instruction for all of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .code_object import NotExecutable

U32, U64, Bools = NDArray[np.uint32], NDArray[np.uint64], NDArray[np.bool_]

LANES, VCC, M0, EXEC = 64, 106, 124, 126
"""Numbers of scalar registers with a meaning: the condition mask, the LDS base, the mask of active lanes."""

MODE = 125
"""Where each wave's MODE is kept among its scalar registers: a number that no instruction has."""

ACCUMULATORS = 256
"""Index of the first accumulation register; vector registers are 0 to 255."""


class Fault(NotExecutable):
    """What a kernel must not do, with the wave, lane and instruction that did it.

    place: of an access, (which of the waves, which lane of it); before the lanes are known, which access it is.
    at: offset of the instruction in the code's image, None where there is not one.
    """

    at: int | None = None

    def __init__(self, message: str, place: tuple[int, int] | int | None = None) -> None:
        super().__init__(message)
        self.place = place


@dataclass(eq=False)
class Waves:
    """Some waves at one instruction.

    s: [128, waves] scalar registers; v: [512, waves, 64]; scc: [waves]; ids: [waves, 2] workgroup and wave in it;
    steps: instructions that they have executed; of waves that met, the most of one.
    """

    pc: int
    s: U32
    v: U32
    scc: Bools
    ids: NDArray[np.int64]
    steps: int = 0

    def __post_init__(self) -> None:
        self.mask_changed()

    def __len__(self) -> int:
        return len(self.scc)

    def mask_changed(self) -> None:
        """Read the active lanes again, after a write to EXEC."""
        self.active = lanes_of(self.s64(EXEC))
        self.full = bool(self.active.all())

    def s64(self, register: int) -> U64:
        """A pair of scalar registers: [waves]."""
        return np.array(self.s[register : register + 2].T, order="C").view(np.uint64)[:, 0]

    def v64(self, register: int) -> U64:
        """A pair of vector registers: [waves, 64]."""
        return self.v[register].astype(np.uint64) | self.v[register + 1].astype(np.uint64) << np.uint64(32)

    def set_s64(self, register: int, value: U64) -> None:
        """Write a pair of scalar registers."""
        self.s[register : register + 2] = np.ascontiguousarray(value).view(np.uint32).reshape(-1, 2).T
        if register == EXEC:
            self.mask_changed()

    def set_v(self, register: int, value: Any, where: Bools | None = None) -> None:
        """Write a vector register in the active lanes, or in those of `where`."""
        if where is None and self.full:
            self.v[register] = value
        else:
            np.copyto(self.v[register], value, where=self.active if where is None else where)

    def taken(self, chosen: Bools) -> Waves:
        """Those of them that are chosen, as waves of their own; themselves if all are."""
        if chosen.all():
            return self
        return Waves(self.pc, self.s[:, chosen], self.v[:, chosen], self.scc[chosen], self.ids[chosen], self.steps)

    def own(self) -> NDArray[np.int64]:
        """Workgroup of each wave: [waves]."""
        return self.ids[:, 0]


def joined(several: Sequence[Waves]) -> Waves:
    """Waves that met at an instruction, in the order of their workgroups."""
    if len(several) == 1:
        return several[0]
    ids = np.concatenate([one.ids for one in several])
    order = np.lexsort((ids[:, 1], ids[:, 0]))
    return Waves(
        several[0].pc,
        np.concatenate([one.s for one in several], axis=1)[:, order],
        np.concatenate([one.v for one in several], axis=1)[:, order],
        np.concatenate([one.scc for one in several])[order],
        ids[order],
        max(one.steps for one in several),
    )


def lanes_of(masks: U64) -> Bools:
    """Bits of masks, lane by lane: [waves] to [waves, 64]."""
    if not isinstance(masks, np.ndarray):  # of a wave that is traced (graph.py)
        return masks.by_lane()
    if len(masks) == 1:
        return _lanes_of_one(masks.tobytes())
    octets = np.ascontiguousarray(masks).view(np.uint8).reshape(len(masks), 8)
    return np.unpackbits(octets, axis=1, bitorder="little").view(np.bool_)


@lru_cache(1 << 12)
def _lanes_of_one(octets: bytes) -> Bools:
    """Of one mask, [1, 64], to be read only."""
    lanes = np.unpackbits(np.frombuffer(octets, np.uint8)[None], axis=1, bitorder="little").view(np.bool_)
    lanes.flags.writeable = False
    return lanes


def mask_of(lanes: Bools) -> U64:
    """The other way: [waves, 64] to [waves]."""
    if not isinstance(lanes, np.ndarray):
        return lanes.as_mask()
    return np.packbits(lanes, axis=1, bitorder="little").view(np.uint64)[:, 0]


FULL = "DefaultCPUAllocator: can't allocate memory"
"""What torch says on the CPU."""


def is_full(error: Exception) -> bool:
    """Whether it says that this machine has not enough memory."""
    return isinstance(error, MemoryError) or FULL in str(error)


def in_memory(perform: Callable[[], Any]) -> Any:
    """What it gives, also where memory for it is in garbage alone: a failed test's tensors, which its traceback holds
    in a cycle."""
    try:
        return perform()
    except (MemoryError, RuntimeError) as error:
        if not is_full(error):
            raise
    gc.collect()
    return perform()


def zeros(count: int) -> NDArray[np.uint8]:
    """Bytes for a launch, from a multiple of 64 on."""
    raw = in_memory(lambda: np.zeros(count + 64, np.uint8))
    start = -raw.ctypes.data % 64
    return raw[start : start + count]  # type: ignore[no-any-return]


HOSTCALL = 1 << 46
"""Where a kernel finds the host that prints for it: no memory."""


class Memory:
    """Buffers at addresses: what loads and stores reach.  Nothing else can be reached."""

    def __init__(self) -> None:
        self._buffers: list[tuple[int, NDArray[np.uint8], str]] = []
        self.beyond: Callable[[int], tuple[int, NDArray[np.uint8], str] | None] = lambda address: None
        """What lies at an address that is in no buffer, as `add` takes it: kernels find pointers in memory, too."""

    def add(self, address: int, contents: NDArray[np.uint8], name: str) -> None:
        """A buffer of bytes at an address; its contents change as kernels store into it."""
        self._buffers.append((address, contents, name))
        self._buffers.sort(key=lambda buffer: buffer[0])
        self._starts = np.array([start for start, _, _ in self._buffers], np.uint64)

    def buffers(self) -> list[tuple[int, NDArray[np.uint8], str]]:
        """Address, contents and name of each buffer, in the order of their addresses."""
        return list(self._buffers)

    def knows(self, address: int) -> bool:
        """Whether a buffer begins there."""
        return any(start == address for start, _, _ in self._buffers)

    def at(self, addresses: U64, size: int) -> list[tuple[Bools | slice, NDArray[np.uint8], NDArray[np.int64]]]:
        """Where accesses of `size` bytes lie: (which of them, the buffer's bytes, offset in it of each).

        addresses: [accesses].  Fault if one lies outside of every buffer.
        """
        index = np.searchsorted(self._starts, addresses, side="right") - 1
        numbers = index[:1] if (index == index[:1]).all() else np.unique(index)
        found: list[tuple[Bools | slice, NDArray[np.uint8], NDArray[np.int64]]] = []
        for number in numbers:
            which: Bools | slice = index == number if len(numbers) > 1 else slice(None)
            start, contents, _ = self._buffers[number]  # below all of them: before the last one
            offsets = (addresses[which] - np.uint64(start)).astype(np.int64)
            wrong = (offsets < 0) | (offsets + size > len(contents))
            if wrong.any():
                first = int(np.arange(len(addresses))[which][np.argmax(wrong)])
                where = int(addresses[first])
                if (more := self.beyond(where)) and not self.knows(more[0]):
                    self.add(*more)
                    return self.at(addresses, size)
                raise Fault(f"{size} bytes at {where:#x}: outside of every buffer ({self._nearest(where)})", first)
            found.append((which, contents, offsets))
        return found

    def _nearest(self, address: int) -> str:
        if HOSTCALL <= address < HOSTCALL + LANES * LANES:
            return "a kernel that prints calls the host, which is not emulated: leave out tl.device_print or printf"
        start, contents, name = min(self._buffers, key=lambda buffer: abs(buffer[0] - address))
        return f"the nearest is {name}, {len(contents)} bytes from {start:#x}"

    def load(self, addresses: U64, size: int) -> NDArray[np.uint8]:
        """Bytes from addresses: [accesses] to [accesses, size]."""
        result = np.empty((len(addresses), size), np.uint8)
        for which, contents, offsets in self.at(addresses, size):
            result[which] = gathered(contents, offsets, size)
        return result

    def store(self, addresses: U64, values: NDArray[np.uint8]) -> None:
        """Bytes to addresses; of several at one address the last stays: values is [accesses, size]."""
        for which, contents, offsets in self.at(addresses, values.shape[1]):
            scattered(contents, offsets, values[which])


def gathered(contents: NDArray[np.uint8], offsets: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    """`size` bytes from each offset: [accesses, size]."""
    words, index = _words(contents, offsets, size)
    return words[index].view(np.uint8).reshape(len(offsets), size)


def scattered(contents: NDArray[np.uint8], offsets: NDArray[np.int64], values: NDArray[np.uint8]) -> None:
    """Bytes [accesses, size] to each offset."""
    words, index = _words(contents, offsets, values.shape[1])
    words[index] = np.ascontiguousarray(values).view(words.dtype)


def _words(contents: NDArray[np.uint8], offsets: NDArray[np.int64], size: int) -> tuple[Any, NDArray[np.int64]]:
    """The contents in the largest units that fit, and which of them lie at each offset."""
    unit = unit_of(offsets, size | contents.ctypes.data & 7)
    words = contents[: len(contents) // unit * unit].view(f"u{unit}")
    return words, (offsets // unit)[:, None] + np.arange(size // unit)


def unit_of(offsets: NDArray[np.int64], size: int) -> int:
    """The largest unit of 1 to 8 bytes of which all these offsets and the size are multiples."""
    together = int(np.bitwise_or.reduce(offsets, initial=size))
    return next(unit for unit in (8, 4, 2, 1) if not together & unit - 1)
