"""Loads, stores and atomics: scalar (SMEM), global, flat, buffer and scratch (VMEM), and local (DS).

Everything is compiled once per instruction to a function of the waves.  Source: AMD Instinct MI300 and MI350
Instruction Set Architecture, chapters Scalar Memory, Vector Memory, Flat Memory and Data Share Operations.
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from .counts import Observer
from .formats import bits_of, unsigned, values
from .operands import VECTOR, Unknown, refuse, scalar, signed
from .waves import ACCUMULATORS, LANES, M0, Fault, Memory, Waves, gathered, scattered, zeros

Step = Callable[[Waves], None]
Change = Callable[[Any, Any], Any]
"""(what was there, which of the accesses) -> what is there afterwards."""

Address = Callable[[Waves], tuple[Any, Any]]
"""Waves to (addresses, lanes that access them), each [waves, 64]."""

TRANSFER = re.compile(
    r"(?:GLOBAL|FLAT|BUFFER|SCRATCH|DS)_(?P<what>LOAD|STORE|READ|WRITE)(?P<two>2)?(?P<far>ST64)?_(?:LDS_)?"
    r"(?P<size>[US]?BYTE|[US]?SHORT|DWORD(?:X\d)?|[BUI]\d+)(?P<d16>_D16)?(?P<hi>_HI)?$"
)
SCALAR_LOAD = re.compile(r"S_LOAD_DWORD(X\d+)?$")
CLOCKS, TICKS = ("S_MEMTIME", "S_MEMREALTIME"), 1000
"""Readings of a clock, and by how much each is later than the one before: nothing else takes time here."""

TRANSPOSED = {"DS_READ_B64_TR_B16": 16, "DS_READ_B64_TR_B8": 8, "DS_READ_B64_TR_B4": 4, "DS_READ_B96_TR_B6": 6}
"""Loads that transpose: bits of a value."""

SCRATCH, MOST_WAVES = 1 << 62, 16
"""Where scratch memory lies for the emulator, far from all buffers; most waves of a workgroup."""

OFF = (124, 127)
"""Where a scalar register of an address would stand: there is none."""


QUEUES = {"SMEM": "lgkm", "DS": "lgkm", "GLOBAL": "vm", "FLAT": "vm", "MUBUF": "vm", "SCRATCH": "vm"}
"""By which counter a wave waits for an access, by the format of its instruction."""


def form_of(inst: Any) -> str:
    """The format of an instruction."""
    return type(inst).__name__.split("_")[0]


def bytes_of(name: str) -> int:
    """Bytes that one lane loads, stores or changes with an instruction, at each of its addresses."""
    if found := TRANSFER.match(name):
        kind, number = re.match(r"(\D+)(\d*)$", found["size"]).groups()  # type: ignore[union-attr]
        if kind in ("B", "U", "I"):
            return int(number) // 8
        return 4 * int(number or 1) if "DWORD" in kind else 2 if "SHORT" in kind else 1
    return 8 if name.endswith(("_X2", "64")) else 4


def destination(inst: Any, *fields: str) -> int:
    """Index of the vector register of the first data field that there is: an accumulation register where the
    instruction says so."""
    field = next(field for field in fields if hasattr(inst, field))
    return int(getattr(inst, field).offset) - VECTOR + ACCUMULATORS * getattr(inst, "acc", 0)


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
        return np.stack([w.v[register + index][where] for index in range(size // 4)], axis=1).copy().view(np.uint8)
    value = w.v[register][where] >> np.uint32(16 if upper else 0)
    return value.astype(f"u{size}").copy()[:, None].view(np.uint8)


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
        self._now = 0

    def add_scratch(self, waves: int, lane_bytes: int) -> None:
        """Private memory of every lane, zero at first: of a wave's lanes one after the other."""
        self.scratch_bytes = np.array([lane_bytes])
        if waves * lane_bytes:
            self.memory.add(SCRATCH, zeros(waves * LANES * lane_bytes), "scratch memory")

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
        found = SCALAR_LOAD.match(inst.op.name)
        if not found:
            if inst.op.name.startswith("S_DCACHE"):
                return lambda w: None
            if inst.op.name in CLOCKS:
                return partial(self._read_clock, inst.sdata.offset)
            raise Unknown(inst.op.name)
        count, base, into = int((found[1] or "X1")[1:]), inst.sbase.offset, inst.sdata.offset
        offset = np.array([signed(inst.offset, 21) if inst.imm else 0]).astype(np.uint64)
        register = inst.soffset.offset if inst.soffset_en or not inst.imm else None

        def load(w: Waves) -> None:
            address = w.s64(base) + offset
            if register is not None:
                address = address + w.s[register].astype(np.uint64)

            def put_scalars(data: Any) -> None:
                w.s[into : into + count] = data.view(np.uint32).T

            with told_by_lane(np.ones((len(w), 1), np.bool_)):
                self.fetch(address & ~np.uint64(3), 4 * count, put_scalars)

        return load

    def _read_clock(self, into: int, w: Waves) -> None:
        self._now += TICKS
        w.s[into], w.s[into + 1] = self._now & 0xFFFFFFFF, self._now >> 32

    def step(self, inst: Any) -> Step | None:
        """An access; None of an instruction that makes none."""
        form, kinds = form_of(inst), {"SMEM": self.scalar_load, "DS": self.local}
        return kinds.get(form, self.vector)(inst) if form in QUEUES else None

    def vector(self, inst: Any) -> Step:
        """GLOBAL, FLAT, SCRATCH and MUBUF instructions."""
        name = inst.op.name
        if name in ("BUFFER_WBL2", "BUFFER_INV"):
            return lambda w: None
        if TRANSFER.match(name):
            return self._transfer(inst, self._load, self._store)
        if "_ATOMIC_" in name:
            return self._atomic(inst, inst.sc0)
        raise Unknown(name)

    def local(self, inst: Any) -> Step:
        """DS instructions."""
        name = inst.op.name
        if name in ("DS_BPERMUTE_B32", "DS_PERMUTE_B32"):
            return _permuted(inst)
        if name == "DS_SWIZZLE_B32":
            return _swizzled(inst)
        if name in TRANSPOSED:
            return self._transposed(inst, TRANSPOSED[name])
        if TRANSFER.match(name):
            return self._transfer(inst, self._local_load, self._local_store)
        return self._local_atomic(inst)

    # Addresses.

    def address_of(self, inst: Any) -> Address:
        """Where an instruction accesses memory."""
        kinds = {"BUFFER": self._buffer, "SCRATCH": self._scratch, "DS": self._offset}
        return kinds.get(inst.op.name.partition("_")[0], self._flat)(inst)

    def _scratch(self, inst: Any) -> Address:
        """Private memory: a lane's own bytes, by an offset in a vector register, a scalar one, both or none."""
        size, fixed, base = bytes_of(inst.op.name), signed(inst.offset, 13), inst.saddr.offset
        register = inst.addr.offset - VECTOR if inst.sve else None

        def address(w: Waves) -> tuple[Any, Any]:
            offset = (np.zeros(LANES, np.int64) if register is None else w.v[register].astype(np.int64)) + fixed
            if base not in OFF:
                offset = offset + w.s[base].astype(np.int64)[:, None]
            outside = w.active & ((offset < 0) | (offset + size > self.scratch_bytes))

            def fault() -> Fault:
                where = np.broadcast_to(offset, outside.shape)[outside].max()
                return Fault(f"{size} bytes of scratch memory at {where}: a lane has {self.scratch_bytes[0]} bytes")

            refuse(outside, fault)
            wave = w.ids[:, 0] * MOST_WAVES + w.ids[:, 1]
            lane = wave[:, None] * LANES + np.arange(LANES)
            return (lane * self.scratch_bytes + offset + SCRATCH).astype(np.uint64), w.active

        return address

    def _flat(self, inst: Any) -> Address:
        offset = np.array([signed(inst.offset, 13)]).astype(np.uint64)
        base, register = inst.saddr.offset, inst.addr.offset - VECTOR
        if base in OFF:
            return lambda w: (w.v64(register) + offset, w.active)
        return lambda w: (w.s64(base)[:, None] + w.v[register].astype(np.uint64) + offset, w.active)

    def _buffer(self, inst: Any) -> Address:
        """Raw buffers: base + offsets, of lanes that are not past the number of records."""
        name = inst.op.name
        if inst.idxen:
            raise Unknown(f"{name} with an index")
        resource, register, size = inst.srsrc.offset, inst.vaddr.offset - VECTOR, bytes_of(name)
        fixed = np.array([inst.offset])
        extra = scalar(inst.soffset.offset, "u32")

        def address(w: Waves) -> tuple[Any, Any]:
            low, high, records, flags = w.s[resource : resource + 4].astype(np.int64)
            structured = ((high >> 16 & 0x3FFF) | (flags >> 23 & 1)) != 0
            refuse(structured, lambda: Unknown(f"{name} of a structured buffer"))
            offset = (extra(w).astype(np.int64) + fixed)[:, None]
            offset = offset + (w.v[register] if inst.offen else np.zeros(LANES, np.int64))
            left = records[:, None] - offset
            inside = w.active & (left >= size)
            crosses = w.active & (left > 0) & ~inside
            refuse(crosses, lambda: Unknown(f"{name} that crosses the end of its buffer"))
            return ((low | (high & 0xFFFF) << 32)[:, None] + offset).astype(np.uint64), inside

        return address

    @staticmethod
    def _offset(inst: Any) -> Address:
        """Offsets in the LDS of each wave's workgroup; of two accesses at once without what is added to each."""
        register, two = inst.addr.offset - VECTOR, inst.op.name.startswith(("DS_READ2", "DS_WRITE2"))
        fixed = np.array([0 if two else inst.offset0 | inst.offset1 << 8])
        return lambda w: (w.v[register].astype(np.int64) + fixed, w.active)

    # Loads and stores.

    def _transfer(self, inst: Any, load: Callable[..., None], store: Callable[..., None]) -> Step:
        """One or two values of each lane from or to memory; a load past the end of a buffer gives 0."""
        name, address = inst.op.name, self.address_of(inst)
        found, size = TRANSFER.match(name), bytes_of(name)
        assert found
        unit = size * (64 if found["far"] else 1)
        steps = [np.array([one * unit]) for one in (inst.offset0, inst.offset1)] if found["two"] else [np.array([0])]
        upper = bool(found["hi"])
        if found["what"] in ("STORE", "WRITE"):
            sources = [destination(inst, "vdata", "data", "data0"), destination(inst, "data1", "vdata", "data")]

            def put_out(w: Waves) -> None:
                where, inside = address(w)
                for step, register in zip(steps, sources, strict=False):
                    store(w, where + step.astype(where.dtype), inside, taken(w, register, inside, size, upper))

            return put_out
        into, direct = destination(inst, "vdata", "vdst"), getattr(inst, "lds", 0) or "_LDS_" in name
        extend = found["size"] in ("SBYTE", "SSHORT") or found["size"][0] == "I"
        half = (bool(found["d16"]), upper)

        def take_in(w: Waves) -> None:
            where, inside = address(w)
            outside = w.active & ~inside
            for index, step in enumerate(steps):
                give = partial(put, w, into + index * max(1, size // 4), extend=extend, half=half)
                if direct:  # to the LDS: at M0, each lane in turn
                    first = (w.s[M0] & np.uint32(0x3FFFC)).astype(np.int64)[:, None] + np.array([inst.offset])
                    give = partial(self._local_store, w, first + size * np.arange(LANES))
                if outside.any():
                    give(outside, np.zeros((1, size), np.uint8))
                load(w, where + step.astype(where.dtype), inside, size, partial(give, inside))

        return take_in

    def _load(self, w: Waves, where: Any, inside: Any, size: int, use: Callable[[Any], None]) -> None:
        self.observer.memory("load", where, inside, size)
        if inside.any():
            with told_by_lane(inside):
                self.fetch(where[inside], size, use)

    def _store(self, w: Waves, where: Any, inside: Any, data: Any) -> None:
        self.observer.memory("store", where, inside, data.shape[1])
        if inside.any():
            with told_by_lane(inside):
                self.keep(where[inside], data)

    def _local_load(self, w: Waves, where: Any, inside: Any, size: int, use: Callable[[Any], None]) -> None:
        if inside.any():
            self.observer.local(where, inside, size, reads=True)
            self.fetch_local(self._local(w, where, inside, size), size, use)

    def _local_store(self, w: Waves, where: Any, inside: Any, data: Any) -> None:
        if inside.any():
            self.observer.local(where, inside, data.shape[1], reads=False)
            self.keep_local(self._local(w, where, inside, data.shape[1]), data)

    def _local(self, w: Waves, addresses: Any, active: Any, size: int) -> Any:
        """Offsets of accesses in the LDS of all workgroups: [accesses].  Sums with a constant are of 32 bits."""
        addresses = addresses & 0xFFFFFFFF
        wrong = (addresses + size > self.lds_bytes) & active
        if wrong.any():
            wave, lane = (int(one) for one in np.argwhere(wrong)[0])
            where = int(addresses[wave, lane])
            raise Fault(f"{size} bytes of LDS at {where}: the workgroup has {self.lds_bytes} bytes", (wave, lane))
        return (addresses + w.own()[:, None] * self.lds_bytes)[active]

    def _transposed(self, inst: Any, bits: int) -> Step:
        """DS_READ_..._TR: 16 lanes read rows of a tile 16 wide, and each gets one of its columns."""
        size, address, into = 12 if bits == 6 else 8, self.address_of(inst), destination(inst, "vdst")
        per = 8 * size // bits
        place = np.arange(per)[:, None] * 16 + np.arange(LANES) % 16  # [number of a lane, lane] among those of 16 lanes
        lanes, shifts = np.arange(LANES) // 16 * 16 + place // per, (place % per * bits).astype(np.uint64)

        def read(w: Waves) -> None:
            refuse(~w.active, lambda: Unknown(f"{inst.op.name} with inactive lanes"))
            where, active = address(w)

            def turn_words(data: Any) -> None:
                words, turned = data.view(np.uint64)[:, 0].reshape(len(w), LANES), np.array([[0]], np.uint64)
                for number in range(per):
                    moved = words.take(lanes[number], axis=1) >> shifts[number] & np.uint64((1 << bits) - 1)
                    turned = turned | moved << np.uint64(bits * number)
                put(w, into, active, turned.reshape(-1, 1).view(np.uint8))

            def turn(data: Any) -> None:
                ones = np.unpackbits(data, axis=-1, bitorder="little").reshape(len(w), 4, -1, 16, bits)
                turned = ones.transpose(0, 1, 3, 2, 4).reshape(len(w) * LANES, -1)
                put(w, into, active, np.packbits(turned, axis=-1, bitorder="little"))

            self._local_load(w, where, active, size, turn_words if size == 8 else turn)

        return read

    # Atomics.

    def _atomic(self, inst: Any, returns: int) -> Step:
        name, address = inst.op.name, self.address_of(inst)
        size, function = bytes_of(name), atomic(name)
        register, into = destination(inst, "vdata", "data", "data0"), destination(inst, "vdata", "vdst")
        given_bytes = size * (2 if "CMPSWAP" in name else 1)
        modify = self._modify_local if name.startswith("DS") else self._modify

        def both(w: Waves) -> None:
            where, inside = address(w)
            given = taken(w, register, inside, given_bytes, False).view(f"u{size}")

            def put_before(before: Any) -> None:
                if returns:
                    put(w, into, inside, before[:, None].view(np.uint8))

            modify(w, where, inside, size, lambda old, which: function(old, *given[which].T), put_before)

        return both

    def _modify(self, w: Waves, where: Any, inside: Any, size: int, change: Change, use: Callable[[Any], None]) -> None:
        self.observer.memory("atomic", where, inside, size)
        with told_by_lane(inside):
            self.modify(where[inside], size, change, use)

    def _modify_local(self, w: Waves, where: Any, inside: Any, size: int, change: Change, use: Any) -> None:
        places = self._local(w, where, inside, size)
        self.observer.local(where, inside, size, reads=False)
        lds = Memory()
        lds.add(0, self.lds, "the LDS")
        whole = places // size * size  # the lowest bits are ignored
        use(modified(lds, whole.astype(np.uint64), size, change))

    def _local_atomic(self, inst: Any) -> Step:
        return self._atomic(inst, "_RTN_" in inst.op.name)


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


ATOMICS: dict[str, tuple[str, Callable[..., Any]]] = {
    "SWAP": ("u", lambda old, new: new),
    "CMPSWAP": ("u", lambda old, new, compared: np.where(old == compared, new, old)),
    "ADD": ("u", operator.add),
    "SUB": ("u", operator.sub),
    "AND": ("u", operator.and_),
    "OR": ("u", operator.or_),
    "XOR": ("u", operator.xor),
    **dict.fromkeys(("UMIN", "MIN"), ("u", np.minimum)),
    **dict.fromkeys(("UMAX", "MAX"), ("u", np.maximum)),
    **dict.fromkeys(("SMIN", "MIN_I"), ("i", np.minimum)),
    **dict.fromkeys(("SMAX", "MAX_I"), ("i", np.maximum)),
    "ADD_F": ("f", operator.add),
    "PK_ADD_F16": ("f16", operator.add),
    "PK_ADD_BF16": ("bf16", operator.add),
}
"""Name of an operation without its bits -> the format that it computes in, (before, operands) -> after."""


def atomic(name: str) -> Callable[..., Any]:
    """(before, operands) -> after, on unsigned arrays of what an instruction changes.  Unknown for others."""
    stem = re.sub(r"^DS_|^[A-Z]+_ATOMIC_|_X2$|_RTN|(_[BU])?(32|64)$", "", name)
    if stem not in ATOMICS:
        raise Unknown(f"atomic {stem}" if "_ATOMIC_" in name else name)
    kind, function = ATOMICS[stem]
    kind = kind if kind[1:] else f"{kind}{8 * bytes_of(name)}"

    def change(old: Any, *given: Any) -> Any:
        numbers = [values(np.ascontiguousarray(one)[:, None], kind, "") for one in (old, *given)]
        after = bits_of(function(*numbers), kind, "").astype(unsigned(kind))
        return after.view(old.dtype)[:, 0]

    return change


def _permuted(inst: Any) -> Step:
    """Lanes exchange a register: BPERMUTE pulls, PERMUTE pushes (the highest lane that pushes to a place wins)."""
    address, data, into = inst.addr.offset - VECTOR, destination(inst, "data0"), destination(inst, "vdst")
    offset = np.array([inst.offset0 | inst.offset1 << 8], np.uint32)

    def exchange(w: Waves) -> None:
        lane = ((w.v[address] + offset) >> np.uint32(2) & np.uint32(63)).astype(np.int64)
        if "BPERMUTE" in inst.op.name:
            result = np.take_along_axis(np.where(w.active, w.v[data], np.uint32(0)), lane, axis=1)
        else:
            result = np.zeros((len(w), LANES), np.uint32)
            result[np.nonzero(w.active)[0], lane[w.active]] = w.v[data][w.active]
        w.set_v(into, result)

    return exchange


def _swizzled(inst: Any) -> Step:
    """Lanes read another of their 32, by masks, or of their 4, by a table in the offset; 0 of a lane that is off."""
    lane, offset = np.arange(LANES), inst.offset0 | inst.offset1 << 8
    if offset < 0x8000:
        source = lane & 32 | (lane & offset & 31 | offset >> 5 & 31) ^ (offset >> 10)
    elif offset >> 8 == 0x80:
        source = lane // 4 * 4 + (offset >> 2 * (lane % 4) & 3)
    else:
        raise Unknown(f"DS_SWIZZLE_B32 with offset {offset:#x}")
    data, into = inst.addr.offset - VECTOR, destination(inst, "vdst")
    return lambda w: w.set_v(into, np.where(w.active[:, source], w.v[data].take(source, axis=1), np.uint32(0)))
