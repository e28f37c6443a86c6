"""Loads, stores and atomics: scalar (SMEM), global, flat, buffer and scratch (VMEM), and local (DS).

Everything is compiled once per instruction to a function of the waves.  Source: AMD Instinct MI300 and MI350
Instruction Set Architecture, chapters Scalar Memory, Vector Memory, Flat Memory and Data Share Operations.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from .counts import Observer
from .matrix import sixes
from .operands import VECTOR, Unknown, scalar
from .vector import ALU
from .waves import ACCUMULATORS, LANES, M0, Fault, Memory, Waves, gathered, scattered

Step = Callable[[Waves], None]
Change = Callable[[Any, Any], Any]
"""(what was there, which of the accesses) -> what is there afterwards."""

SIZES = {
    "UBYTE": 1,
    "SBYTE": 1,
    "BYTE": 1,
    "USHORT": 2,
    "SSHORT": 2,
    "SHORT": 2,
    "DWORD": 4,
    "DWORDX2": 8,
    "DWORDX3": 12,
    "DWORDX4": 16,
    "DWORDX8": 32,
    "DWORDX16": 64,
}
ACCESS = re.compile(
    r"(?:GLOBAL|FLAT|BUFFER|SCRATCH)_(?P<what>LOAD|STORE)_(?:LDS_)?(?P<size>[US]?BYTE|[US]?SHORT|DWORD(?:X\d)?)(?P<d16>_D16)?(?P<hi>_HI)?$"
)
ATOMIC = re.compile(r"(?:GLOBAL|FLAT|BUFFER)_ATOMIC_(?P<what>[A-Z_0-9]+?)(?P<wide>_X2)?$")
LOCAL = re.compile(r"DS_(?P<what>READ|WRITE)(?P<two>2)?(?P<far>ST64)?_(?P<size>[BUI]\d+)(?P<d16>_D16)?(?P<hi>_HI)?$")

TRANSPOSED = {
    "DS_READ_B64_TR_B16": (8, 16),
    "DS_READ_B64_TR_B8": (8, 8),
    "DS_READ_B64_TR_B4": (8, 4),
    "DS_READ_B96_TR_B6": (12, 6),
}
"""Loads that transpose: bytes of a lane, bits of a value."""


SCRATCH, MOST_WAVES = 1 << 62, 16
"""Where scratch memory lies for the emulator, far from all buffers; most waves of a workgroup."""


def signed(value: int, bits: int) -> int:
    """A field of an instruction as a signed number."""
    return value - (value >> (bits - 1) << bits)


def destination(inst: Any, field: str) -> int:
    """Index of the vector register of a data field: an accumulation register where the instruction says so."""
    return getattr(inst, field).offset - VECTOR + (ACCUMULATORS if getattr(inst, "acc", 0) else 0)


def put(
    w: Waves, register: int, where: Any, data: Any, extend: bool = False, half: tuple[bool, bool] = (False, False)
) -> None:
    """Loaded bytes [accesses, size] into registers, in the lanes of `where`; half: (16 bits only, the upper ones)."""
    size = data.shape[1]
    if size >= 4:
        words = data.view(np.uint32)
        for index in range(size // 4):
            w.v[register + index][where] = words[:, index]
        return
    value = data.view(f"{'i' if extend else 'u'}{size}")[:, 0].astype(np.int32).view(np.uint32)
    if half[0]:
        before, value = w.v[register][where], value & np.uint32(0xFFFF)
        keep = np.uint32(0xFFFF if half[1] else 0xFFFF0000)
        value = before & keep | (value << np.uint32(16) if half[1] else value)
    w.v[register][where] = value


def taken(w: Waves, register: int, where: Any, size: int, upper: bool) -> Any:
    """Bytes [accesses, size] of registers, of the lanes of `where`."""
    if size >= 4:
        words = np.stack([w.v[register + index][where] for index in range(size // 4)], axis=1)
        return np.ascontiguousarray(words).view(np.uint8)
    value = w.v[register][where] >> np.uint32(16 if upper else 0)
    return np.ascontiguousarray(value.astype(f"u{size}"))[:, None].view(np.uint8)


@contextlib.contextmanager
def told_by_lane(inside: Any) -> Iterator[None]:
    """A Fault of one of these accesses names its wave and lane: inside is [waves, lanes], true where one is made."""
    try:
        yield
    except Fault as error:
        if not isinstance(error.place, int):
            raise
        wave, lane = (int(one) for one in np.argwhere(inside)[error.place])
        raise Fault(str(error), (wave, lane)) from error


class Accesses:
    """Compiles accesses to memory for one launch, each of which the observer sees."""

    def __init__(self, memory: Memory, lds: Any, lds_bytes: int, observer: Observer) -> None:
        self.memory, self.lds, self.lds_bytes, self.observer = memory, lds, lds_bytes, observer

    def add_scratch(self, workgroups: int, lane_bytes: int) -> None:
        """Private memory of every lane, zero at first: of a wave's lanes one after the other."""
        self.scratch_bytes = lane_bytes
        if lane_bytes:
            everything = np.zeros(workgroups * MOST_WAVES * LANES * lane_bytes, np.uint8)
            self.memory.add(SCRATCH, everything, "scratch memory")

    # Where memory is reached: complete when these return; a schedule makes it later.

    def fetch(self, addresses: Any, size: int, use: Callable[[Any], None]) -> None:
        """Give the bytes at addresses, [accesses, size], to `use`."""
        use(self.memory.load(addresses, size))

    def keep(self, addresses: Any, values: Any) -> None:
        """Store bytes [accesses, size] at addresses."""
        self.memory.store(addresses, values)

    def modify(self, addresses: Any, size: int, change: Change, use: Callable[[Any], None]) -> None:
        """Atomics: `change` what is at the addresses, and give what was there, [accesses], to `use`."""
        self.memory.at(addresses, size)  # a Fault comes before anything is changed
        use(modified(self.memory, addresses, size, change))

    def fetch_local(self, places: Any, size: int, use: Callable[[Any], None]) -> None:
        """As fetch, of the LDS of all workgroups."""
        use(gathered(self.lds, places, size))

    def keep_local(self, places: Any, values: Any) -> None:
        """As keep, into the LDS of all workgroups."""
        scattered(self.lds, places, values)

    def scalar_load(self, inst: Any) -> Step:
        """S_LOAD: into consecutive scalar registers."""
        name = inst.op.name
        kind = name.removeprefix("S_LOAD_")
        if not name.startswith("S_LOAD_") or kind not in SIZES:
            if name.startswith("S_DCACHE"):
                return lambda w: None
            raise Unknown(name)
        size, base, into = SIZES[kind], inst.sbase.offset, inst.sdata.offset
        offset = signed(inst.offset, 21) if inst.imm else 0
        register = inst.soffset.offset if inst.soffset_en or not inst.imm else None

        def load(w: Waves) -> None:
            address = w.s64(base) + np.int64(offset).astype(np.uint64)
            if register is not None:
                address = address + w.s[register].astype(np.uint64)

            def put_scalars(data: Any) -> None:
                w.s[into : into + size // 4] = data.view(np.uint32).T

            with told_by_lane(np.ones((len(w), 1), np.bool_)):
                self.fetch(address & ~np.uint64(3), size, put_scalars)

        return load

    def vector(self, inst: Any) -> Step:
        """GLOBAL, FLAT and MUBUF instructions."""
        name = inst.op.name
        if name in ("BUFFER_WBL2", "BUFFER_INV"):
            return lambda w: None
        address = self.address_of(inst)
        if found := ACCESS.match(name):
            return self._access(inst, found, address)
        if found := ATOMIC.match(name):
            return self._atomic(inst, found["what"], 8 if found["wide"] else 4, address)
        raise Unknown(name)

    def address_of(self, inst: Any) -> Callable[[Waves], tuple[Any, Any, Any]]:
        """Waves to (addresses, active lanes, bytes left in the buffer or None), each [waves, 64], of an instruction."""
        kinds = {"BUFFER": self._buffer, "SCRATCH": self._scratch}
        return kinds.get(inst.op.name.partition("_")[0], self._flat)(inst)

    def _scratch(self, inst: Any) -> Callable[[Waves], tuple[Any, Any, Any]]:
        """Private memory: a lane's own bytes, by an offset in a vector register, a scalar one, both or none."""
        size = next(SIZES[found["size"]] for found in [ACCESS.match(inst.op.name)] if found)
        fixed, base = signed(inst.offset, 13), inst.saddr.offset
        register = inst.addr.offset - VECTOR if inst.sve else None

        def address(w: Waves) -> tuple[Any, Any, Any]:
            offset = np.full((len(w), LANES), fixed, np.int64)
            if register is not None:
                offset += w.v[register]
            if base not in (124, 127):
                offset += w.s[base].astype(np.int64)[:, None]
            if ((offset < 0) | (offset + size > self.scratch_bytes))[w.active].any():
                where = int(offset[w.active].max())
                raise Fault(f"{size} bytes of scratch memory at {where}: a lane has {self.scratch_bytes} bytes")
            wave = w.ids[:, 0] * MOST_WAVES + w.ids[:, 1]
            lane = wave[:, None] * LANES + np.arange(LANES)
            return (lane * self.scratch_bytes + offset + SCRATCH).astype(np.uint64), w.active, None

        return address

    def _flat(self, inst: Any) -> Callable[[Waves], tuple[Any, Any, Any]]:
        offset = np.int64(signed(inst.offset, 13)).astype(np.uint64)
        base, register = inst.saddr.offset, inst.addr.offset - VECTOR

        def address(w: Waves) -> tuple[Any, Any, Any]:
            if base in (124, 127):
                return w.v64(register) + offset, w.active, None
            return w.s64(base)[:, None] + w.v[register].astype(np.uint64) + offset, w.active, None

        return address

    def _buffer(self, inst: Any) -> Callable[[Waves], tuple[Any, Any, Any]]:
        """Raw buffers: base + offsets; what lies past the number of records reads 0 and is not stored."""
        if inst.idxen:
            raise Unknown(f"{inst.op.name} with an index")
        resource, register, fixed = inst.srsrc.offset, inst.vaddr.offset - VECTOR, np.uint64(inst.offset)
        extra = scalar(inst.soffset.offset, "u32")

        def address(w: Waves) -> tuple[Any, Any, Any]:
            words = w.s[resource : resource + 4]
            if (words[1] >> np.uint32(16) & np.uint32(0x3FFF)).any() or (
                words[3] >> np.uint32(23) & np.uint32(1)
            ).any():
                raise Unknown(f"{inst.op.name} of a structured buffer")
            base = words[0].astype(np.uint64) | (words[1].astype(np.uint64) & np.uint64(0xFFFF)) << np.uint64(32)
            offset = (w.v[register].astype(np.uint64) if inst.offen else np.zeros((len(w), LANES), np.uint64)) + fixed
            offset = offset + extra(w).astype(np.uint64)[:, None]
            return base[:, None] + offset, w.active, words[2].astype(np.int64)[:, None] - offset.astype(np.int64)

        return address

    def _access(self, inst: Any, found: re.Match[str], address: Callable[[Waves], tuple[Any, Any, Any]]) -> Step:
        size, name = SIZES[found["size"]], inst.op.name
        extend, half = (
            found["size"].startswith("S") and found["size"] != "SHORT",
            (bool(found["d16"]), bool(found["hi"])),
        )
        if getattr(inst, "lds", 0) or "_LDS_" in name:
            return self._to_local(inst, size, address)
        if found["what"] == "LOAD":
            register = destination(inst, "vdata" if hasattr(inst, "vdata") else "vdst")

            def load(w: Waves) -> None:
                where, active, left = address(w)
                inside = active if left is None else active & (left >= size)
                self.observer.memory("load", where, inside, size)
                if left is not None and (active & ~inside).any():
                    self._partly(w, register, where, active & ~inside, left, size)
                if inside.any():
                    with told_by_lane(inside):
                        self.fetch(where[inside], size, lambda data: put(w, register, inside, data, extend, half))

            return load
        register = destination(inst, "vdata" if hasattr(inst, "vdata") else "data")

        def store(w: Waves) -> None:
            where, active, left = address(w)
            inside = active if left is None else active & (left >= size)
            if left is not None and ((left > 0) & active & ~inside).any():
                raise Unknown(f"{name} that crosses the end of its buffer")
            self.observer.memory("store", where, inside, size)
            if inside.any():
                with told_by_lane(inside):
                    self.keep(where[inside], taken(w, register, inside, size, half[1]))

        return store

    @staticmethod
    def _partly(w: Waves, register: int, where: Any, outside: Any, left: Any, size: int) -> None:
        """Loads past the end of a buffer give 0."""
        if ((left > 0) & outside).any():
            raise Unknown("a buffer load that crosses the end of its buffer")
        for index in range(max(1, size // 4)):
            w.v[register + index][outside] = 0

    def _to_local(self, inst: Any, size: int, address: Callable[[Waves], tuple[Any, Any, Any]]) -> Step:
        """From global memory straight to the LDS: at M0, each lane in turn."""

        def move(w: Waves) -> None:
            where, active, left = address(w)
            inside = active if left is None else active & (left >= size)
            self.observer.memory("load", where, inside, size)
            into = (w.s[M0] & np.uint32(0x3FFFC)).astype(np.int64)[:, None] + inst.offset + size * np.arange(LANES)
            outside = active & ~inside
            if outside.any():
                self._local_store(w, into, outside, np.zeros((int(outside.sum()), size), np.uint8))
            if inside.any():
                with told_by_lane(inside):
                    self.fetch(where[inside], size, lambda data: self._local_store(w, into, inside, data))

        return move

    def _atomic(self, inst: Any, what: str, size: int, address: Callable[[Waves], tuple[Any, Any, Any]]) -> Step:
        buffer = hasattr(inst, "vdata")
        register = destination(inst, "vdata" if buffer else "data")
        into = register if buffer else destination(inst, "vdst")
        function = atomic(what, size)
        registers = size // 4

        def both(w: Waves) -> None:
            where, active, left = address(w)
            inside = active if left is None else active & (left >= size)
            self.observer.memory("atomic", where, inside, size)
            dtype = f"u{size}"
            count = registers * (2 if what == "CMPSWAP" else 1)
            given = taken(w, register, inside, 4 * count, False).view(dtype)

            def change(old: Any, which: Any) -> Any:
                return function(old, *given[which].T)

            def put_before(before: Any) -> None:
                if inst.sc0:
                    put(w, into, inside, before[:, None].view(np.uint8))

            with told_by_lane(inside):
                self.modify(where[inside], size, change, put_before)

        return both

    # Local memory.

    def _local(self, w: Waves, addresses: Any, active: Any, size: int) -> Any:
        """Offsets of accesses in the LDS of all workgroups: [accesses]."""
        wrong = ((addresses < 0) | (addresses + size > self.lds_bytes)) & active
        if wrong.any():
            wave, lane = (int(one) for one in np.argwhere(wrong)[0])
            where = int(addresses[wave, lane])
            raise Fault(f"{size} bytes of LDS at {where}: the workgroup has {self.lds_bytes} bytes", (wave, lane))
        return (addresses + w.own()[:, None] * self.lds_bytes)[active]

    def _local_store(self, w: Waves, addresses: Any, active: Any, data: Any) -> None:
        self.observer.local(addresses, active, data.shape[1], reads=False)
        self.keep_local(self._local(w, addresses, active, data.shape[1]), data)

    def _local_load(self, w: Waves, addresses: Any, active: Any, size: int, use: Callable[[Any], None]) -> None:
        self.observer.local(addresses, active, size, reads=True)
        self.fetch_local(self._local(w, addresses, active, size), size, use)

    def local(self, inst: Any) -> Step:
        """DS instructions."""
        name = inst.op.name
        if name in ("DS_BPERMUTE_B32", "DS_PERMUTE_B32", "DS_SWIZZLE_B32"):
            return _permuted(inst)
        if name in TRANSPOSED:
            return self._transposed(inst)
        found = LOCAL.match(name)
        if not found:
            return self._local_atomic(inst)
        size = int(found["size"][1:]) // 8
        single = inst.offset0 | inst.offset1 << 8
        steps = [single]
        if found["two"]:
            unit = size * (64 if found["far"] else 1)
            steps = [inst.offset0 * unit, inst.offset1 * unit]
        address = inst.addr.offset - VECTOR
        extend, half = found["size"].startswith("I"), (bool(found["d16"]), bool(found["hi"]))
        if found["what"] == "READ":
            into = destination(inst, "vdst")

            def read(w: Waves) -> None:
                base = w.v[address].astype(np.int64)
                if not w.active.any():
                    return
                for index, step in enumerate(steps):
                    first = into + index * max(1, size // 4)
                    self._local_load(
                        w, base + step, w.active, size, partial(put, w, first, w.active, extend=extend, half=half)
                    )

            return read
        registers = [destination(inst, "data0"), destination(inst, "data1")]

        def write(w: Waves) -> None:
            base = w.v[address].astype(np.int64)
            for step, register in zip(steps, registers, strict=False):
                if w.active.any():
                    self._local_store(w, base + step, w.active, taken(w, register, w.active, size, half[1]))

        return write

    def _transposed(self, inst: Any) -> Step:
        """DS_READ_..._TR: 16 lanes read rows of a tile 16 wide, and each gets one of its columns."""
        size, bits = TRANSPOSED[inst.op.name]
        address, into, offset = inst.addr.offset - VECTOR, destination(inst, "vdst"), inst.offset0 | inst.offset1 << 8

        def read(w: Waves) -> None:
            if not w.full:
                raise Unknown(f"{inst.op.name} with inactive lanes")

            def turn(data: Any) -> None:
                tiles = split(data.reshape(len(w), 4, 16 * size), bits).reshape(len(w), 4, -1, 16)
                turned = tiles.transpose(0, 1, 3, 2).reshape(len(w), LANES, -1)
                words = joined_bits(turned, bits).view(np.uint32)
                for index in range(size // 4):
                    w.v[into + index] = words[..., index]

            self._local_load(w, w.v[address].astype(np.int64) + offset, w.active, size, turn)

        return read

    def _local_atomic(self, inst: Any) -> Step:
        name = inst.op.name.removeprefix("DS_")
        returns = "_RTN_" in name
        what, _, kind = name.replace("_RTN", "").rpartition("_")
        size = int(kind[1:]) // 8
        function = atomic(
            {"MIN": f"{kind[0]}MIN", "MAX": f"{kind[0]}MAX"}.get(what, what if kind[0] != "F" else f"{what}_F32"), size
        )
        address, register, offset = (
            inst.addr.offset - VECTOR,
            destination(inst, "data0"),
            inst.offset0 | inst.offset1 << 8,
        )

        def both(w: Waves) -> None:
            addresses = w.v[address].astype(np.int64) + offset
            places = self._local(w, addresses, w.active, size)
            self.observer.local(addresses, w.active, size, reads=False)
            given = taken(w, register, w.active, size, False).view(f"u{size}")[:, 0]
            before = np.empty(len(places), f"u{size}")
            words = self.lds.view(f"u{size}")
            for index, place in enumerate(places // size):
                before[index] = words[place]
                words[place] = function(words[place : place + 1], given[index : index + 1])[0]
            if returns:
                put(w, destination(inst, "vdst"), w.active, before[:, None].view(np.uint8))

        return both


def split(octets: Any, bits: int) -> Any:
    """Bytes [..., n] as numbers of 4, 6, 8 or 16 bits."""
    if bits == 6:
        return sixes(octets).astype(np.uint8)
    if bits == 4:
        return np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1)
    return np.ascontiguousarray(octets).view(f"u{bits // 8}")


def joined_bits(values: Any, bits: int) -> Any:
    """The other way."""
    if bits == 6:
        four = values.reshape(*values.shape[:-1], -1, 4).astype(np.uint32)
        word = four[..., 0] | four[..., 1] << 6 | four[..., 2] << 12 | four[..., 3] << 18
        return (
            np.stack([word >> place & 255 for place in (0, 8, 16)], axis=-1)
            .astype(np.uint8)
            .reshape(*values.shape[:-1], -1)
        )
    if bits == 4:
        return values[..., ::2] | values[..., 1::2] << 4
    return np.ascontiguousarray(values).view(np.uint8)


def modified(memory: Memory, addresses: Any, size: int, change: Change) -> Any:
    """What was at the addresses, [accesses], before `change`: lanes at the same one come in their order."""
    dtype = f"u{size}"
    before = np.empty(len(addresses), dtype)
    waiting = np.arange(len(addresses))
    while len(waiting):
        _, first = np.unique(addresses[waiting], return_index=True)
        now = waiting[first]
        before[now] = old = memory.load(addresses[now], size).view(dtype)[:, 0]
        new = np.ascontiguousarray(change(old, now))
        memory.store(addresses[now], new[:, None].view(np.uint8).reshape(len(now), size))
        waiting = np.delete(waiting, first)
    return before


def atomic(what: str, size: int) -> Callable[..., Any]:
    """(before, operand) -> after, on unsigned arrays."""
    dtype, other = np.dtype(f"u{size}"), np.dtype(f"i{size}")
    known: dict[str, Callable[..., Any]] = {
        "SWAP": lambda old, new: new,
        "ADD": lambda old, new: old + new,
        "SUB": lambda old, new: old - new,
        "AND": lambda old, new: old & new,
        "OR": lambda old, new: old | new,
        "XOR": lambda old, new: old ^ new,
        "UMIN": np.minimum,
        "UMAX": np.maximum,
        "SMIN": lambda old, new: np.minimum(old.view(other), new.view(other)).view(dtype),
        "SMAX": lambda old, new: np.maximum(old.view(other), new.view(other)).view(dtype),
        "CMPSWAP": lambda old, new, compared: np.where(old == compared, new, old),
        "ADD_F32": lambda old, new: (old.view(np.float32) + new.view(np.float32)).view(dtype),
        "PK_ADD_F16": lambda old, new: (_halves(old) + _halves(new)).view(np.uint32)[:, 0],
        "PK_ADD_BF16": _add_bf16,
    }
    if what not in known:
        raise Unknown(f"atomic {what}")
    return known[what]


def _halves(value: Any) -> Any:
    return np.ascontiguousarray(value)[:, None].view(np.float16)


def _add_bf16(old: Any, new: Any) -> Any:
    top = np.uint32(0xFFFF0000)

    def both(word: Any) -> tuple[Any, Any]:
        return (word << np.uint32(16)).view(np.float32), (word & top).view(np.float32)

    (a, b), (c, d) = both(np.ascontiguousarray(old)), both(np.ascontiguousarray(new))
    return ALU["V_CVT_PK_BF16_F32"][2](a + c, b + d)


def _permuted(inst: Any) -> Step:
    """Lanes exchange a register: BPERMUTE pulls, PERMUTE pushes (the highest lane that pushes to a place wins)."""
    name = inst.op.name
    if name == "DS_SWIZZLE_B32":
        raise Unknown(name)
    address, data, into = inst.addr.offset - VECTOR, destination(inst, "data0"), destination(inst, "vdst")
    offset = np.uint32(inst.offset0 | inst.offset1 << 8)

    def pull(w: Waves) -> None:
        lane = ((w.v[address] + offset) >> np.uint32(2) & np.uint32(63)).astype(np.int64)
        value = np.where(w.active, w.v[data], np.uint32(0))
        w.set_v(into, np.take_along_axis(value, lane, axis=1))

    def push(w: Waves) -> None:
        lane = ((w.v[address] + offset) >> np.uint32(2) & np.uint32(63)).astype(np.int64)
        result = np.zeros((len(w), LANES), np.uint32)
        wave = np.broadcast_to(np.arange(len(w))[:, None], lane.shape)
        result[wave[w.active], lane[w.active]] = w.v[data][w.active]
        w.set_v(into, result)

    return pull if name == "DS_BPERMUTE_B32" else push
