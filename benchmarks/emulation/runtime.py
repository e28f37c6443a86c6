"""How native code reaches memory and the LDS, and counts what it does there as counts.Observer does.

Each function takes the launch's context, the instruction's record, the lanes' addresses, the mask of the lanes that
access them, and bytes of each; "reach" says whether all lie in one buffer, which the others take for granted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .code_builder import Code
from .context import (
    ALL_LDS,
    AT_GROUP,
    AT_WAVE,
    BLOCKS,
    BRANCHES,
    BUFFER_BYTES,
    BUFFERS,
    BYTES,
    COLUMNS,
    COUNT,
    COUNTERS,
    DELTA,
    ENTRY,
    GROUP_IDS,
    IDS,
    KEYS,
    LDS,
    LDS_BYTES,
    LIMITS,
    LINES,
    NOW,
    ROWS,
    SCALARS,
    SEEN,
    SHADOW,
    STAMP,
    START,
    V_BYTES,
    WARPS,
)
from .counts import _READ_16, BANK_BYTES, BANKS
from .layout import (
    ARRIVED,
    ASK,
    BUDGET,
    CACHE,
    CONTEXT,
    DONE,
    END,
    ISSUED,
    KNOWN,
    RECORD,
    SCC,
    SECOND,
    SPENT,
    STATE,
    STOPPED,
    WAITED,
    WAVE,
    WAVE_BYTES,
    WORKGROUP,
    V,
)
from .layout import COUNT as TIMES
from .programs import MOST
from .races import ALL, PART, move, move_together, race, watch
from .waves import LANES

WHATS = ("load", "store", "atomic")
COUNTER_NAMES = [
    *((name, what) for name in ("bytes", "touched", "requests") for what in WHATS),
    ("bytes", "lds"), ("lds_passes", ""), ("lds_cycles", ""),
]  # fmt: skip
"""Of Counts, in the order of the context's counters."""

SLOTS = 256
"""Of a set of what an instruction has reached; twice as many as there can be."""

SIZES = (1, 2, 4, 8, 12, 16)

MARKED_AT_ONCE = 57
"""Lines whose bits lie in 8 bytes, wherever the first one's is."""


def module() -> str:
    """The text of all of them."""
    from llvmlite import ir

    made = ir.Module()
    functions: dict[str, Any] = {}
    functions["stride"] = _stride(made)
    _reach(made, functions["stride"])
    _reach_scalar(made)
    functions["insert"] = _insert(made)
    functions["mark"] = _mark(made)
    functions["count"] = _count_memory(made, functions)
    functions["cycles"] = _cycles(made)
    functions["race"] = race(made)
    for size in SIZES:
        for what in ("load", "store"):
            _transfer(made, functions, what, size, False)
            _transfer(made, functions, what, size, True)
    _begin(made)
    _run_group(made)
    return str(made)


def _stride(made: Any) -> Any:
    """How many bytes each lane's address is after the one before, where the first lanes access memory; -1 if it differs
    or others do."""
    c = Code(made, "stride", "i", "pi")
    addresses, mask = c.args
    none, part, count = c.const(-1), c.ir.VectorType(c.i64, PART), c.b.ctpop(mask)
    c.returned_if(c.b.icmp_unsigned("!=", c.b.and_(mask, c.b.add(mask, c.const(1))), c.const(0)), none)
    first = c.get(addresses)
    step = c.b.sub(c.field(addresses, 8), first)
    step = c.b.select(c.b.icmp_unsigned("==", mask, c.const(1)), c.const(0), step)
    c.returned_if(c.b.icmp_unsigned(">", step, c.const((1 << 32) - 1)), none)
    last = c.get(c.element(addresses, c.b.sub(count, c.const(1))))
    end = c.b.add(first, c.b.mul(step, c.b.sub(count, c.const(1))))
    c.returned_if(c.b.icmp_unsigned("!=", last, end), none)
    places = c.ir.Constant(part, [*range(PART)])
    expected = c.b.add(c.splat(first, count=PART), c.b.mul(c.splat(step, count=PART), places))
    following, unlike = c.splat(c.b.mul(step, c.const(PART)), count=PART), c.ir.Constant(part, None)
    for start in range(0, LANES, PART):
        there = c.b.load(c.at(addresses, 8 * start), typ=part, align=8)
        on = c.b.icmp_signed("<", places, c.splat(c.b.sub(count, c.const(start)), count=PART))
        unlike = c.b.or_(unlike, c.b.select(on, c.b.xor(there, expected), c.ir.Constant(part, None)))
        expected = c.b.add(expected, following)
    c.b.ret(c.b.select(c.b.icmp_unsigned("==", c.reduced("or", unlike), c.const(0)), step, none))
    return c.function


def _reach(made: Any, stride: Any) -> None:
    for local in (False, True):
        c = Code(made, f"reach_{'local' if local else 'memory'}", "b", "pppii")
        context, record, addresses, mask, size = c.args
        yes, no = c.ir.Constant(c.i1, 1), c.ir.Constant(c.i1, 0)
        c.returned_if(c.b.icmp_unsigned("==", mask, c.const(0)), yes)
        last = c.get(c.element(addresses, c.b.sub(c.b.ctpop(mask), c.const(1))))
        ends = c.var(c.get(c.element(addresses, c.b.cttz(mask, no)))), c.var(last)
        with c.b.if_then(c.b.icmp_signed("<", c.b.call(stride, [addresses, mask]), c.const(0))):
            every, flags = c.vector(addresses), c.flags(mask)
            for end, what, beyond in zip(ends, ("smin", "smax"), ((1 << 63) - 1, -1 << 63), strict=True):
                c.b.store(c.reduced(what, c.b.select(flags, every, c.splat(c.const(beyond)))), end)
        low, high = map(c.get, ends)

        def fits(start: Any, length: Any, low=low, high=high, size=size, c=c) -> Any:
            """Signed: no buffer lies in the upper half of addresses."""
            within = c.b.icmp_signed("<=", high, c.b.sub(c.b.add(start, length), size))
            return c.b.and_(c.b.icmp_signed(">=", low, start), within)

        if local:
            c.b.ret(fits(c.const(0), c.field(context, LDS_BYTES)))
            continue
        c.returned_if(fits(c.field(record, CACHE), c.field(record, CACHE + 8)), yes)
        buffers = c.field(context, BUFFERS, c.pointer)
        with c.repeat(c.field(context, COUNT)) as index:
            buffer = c.at(buffers, c.b.mul(index, c.const(BUFFER_BYTES)))
            start, length = c.field(buffer, START), c.field(buffer, BYTES)
            with c.b.if_then(fits(start, length)):
                c.put(record, CACHE, start)
                c.put(record, CACHE + 8, length)
                c.put(record, CACHE + 16, buffer)
                c.b.ret(yes)
        c.b.ret(no)


def _reach_scalar(made: Any) -> None:
    """Where so many bytes from an address are; null if they are not in a buffer."""
    c = Code(made, "reach_scalar", "p", "pii")
    context, address, size = c.args
    buffers = c.field(context, BUFFERS, c.pointer)
    with c.repeat(c.field(context, COUNT)) as index:
        buffer = c.at(buffers, c.b.mul(index, c.const(BUFFER_BYTES)))
        start, length = c.field(buffer, START), c.field(buffer, BYTES)
        above = c.b.and_(c.b.icmp_unsigned(">=", address, start), c.b.icmp_unsigned(">=", length, size))
        with c.b.if_then(c.b.and_(above, c.b.icmp_unsigned("<=", c.b.sub(address, start), c.b.sub(length, size)))):
            c.b.ret(c.b.inttoptr(c.b.add(address, c.field(buffer, DELTA)), c.pointer))
    c.b.ret(c.ir.Constant(c.pointer, None))


def _insert(made: Any) -> Any:
    """Put a number into a set; whether it was not there: 1 or 0.  A set is SLOTS pairs of a number and a stamp."""
    c = Code(made, "insert", "i", "pii")
    table, key, stamp = c.args
    spread = c.b.lshr(c.b.mul(key, c.const(0x9E3779B97F4A7C15 - (1 << 64))), c.const(56))
    slot = c.var(spread)
    with c.while_(
        lambda: c.b.icmp_unsigned("==", c.field(table, c.b.add(c.b.shl(c.get(slot), c.const(4)), c.const(8))), stamp)
    ):
        c.returned_if(c.b.icmp_unsigned("==", c.field(table, c.b.shl(c.get(slot), c.const(4))), key), c.const(0))
        c.b.store(c.b.and_(c.b.add(c.get(slot), c.const(1)), c.const(SLOTS - 1)), slot)
    place = c.b.shl(c.get(slot), c.const(4))
    c.put(table, place, key)
    c.put(table, c.b.add(place, c.const(8)), stamp)
    c.b.ret(c.const(1))
    return c.function


def _mark(made: Any) -> Any:
    """Set the bits of some lines, at most MARKED_AT_ONCE of them."""
    c = Code(made, "mark", "v", "pii")
    bits, line, count = c.args
    place = c.at(bits, c.b.lshr(line, c.const(3)))
    ones = c.b.sub(c.b.shl(c.const(1), count), c.const(1))
    more = c.b.shl(ones, c.b.and_(line, c.const(7)))
    c.b.store(c.b.or_(c.b.load(place, typ=c.i64, align=1), more), place, align=1)
    c.b.ret_void()
    return c.function


def _counter(name: str, what: str) -> int:
    return 8 * COUNTER_NAMES.index((name, what))


def _count_memory(made: Any, functions: dict[str, Any]) -> Any:
    """Observer.memory; what: 8 times the place of what is done among WHATS; the last argument is as of "stride"."""
    c = Code(made, "count_memory", "v", "pppiiii")
    context, record, addresses, mask, size, what, stride = c.args
    counters = c.field(context, COUNTERS, c.pointer)
    c.add(counters, what, c.b.mul(size, c.b.ctpop(mask)))
    buffer = c.field(record, CACHE + 16, c.pointer)
    bits, first_line = (
        c.field(buffer, c.b.add(what, c.const(LINES)), c.pointer),
        c.b.lshr(c.field(buffer, START), c.const(6)),
    )
    with c.b.if_then(c.b.icmp_unsigned("<=", stride, c.const(64))):  # they leave out no line
        first = c.get(addresses)
        count = c.b.ctpop(mask)
        line, last = c.b.lshr(first, c.const(6)), c.get(c.element(addresses, c.b.sub(count, c.const(1))))
        many = c.b.sub(c.b.lshr(c.b.add(last, c.b.sub(size, c.const(1))), c.const(6)), c.b.sub(line, c.const(1)))
        with c.repeat(c.b.udiv(c.b.add(many, c.const(MARKED_AT_ONCE - 1)), c.const(MARKED_AT_ONCE))) as part:
            begun = c.b.mul(part, c.const(MARKED_AT_ONCE))
            left = c.b.sub(many, begun)
            some = c.b.select(c.b.icmp_unsigned("<", left, c.const(MARKED_AT_ONCE)), left, c.const(MARKED_AT_ONCE))
            c.b.call(functions["mark"], [bits, c.b.add(c.b.sub(line, first_line), begun), some])
        apart = c.b.icmp_unsigned("!=", stride, c.const(0))
        lanes = c.b.select(apart, count, c.const(1))
        c.add(counters, c.b.add(what, c.const(8 * len(WHATS))), c.b.mul(size, lanes))
        c.add(counters, c.b.add(what, c.const(16 * len(WHATS))), many)
        c.b.ret_void()
    touched, requests, last_address, last_line = (c.var(0) for _ in range(4))
    ascends = c.var(1)

    def scan(further: str, fresh: Callable[[int, Any], Any]) -> None:
        """Count addresses and lines; further: how one differs from the last; fresh: whether it is new, by its table."""
        for one in (touched, requests, last_address, last_line):
            c.b.store(c.const(0), one)
        with c.lanes(mask) as lane:
            address = c.get(c.element(addresses, lane))
            with c.b.if_then(c.b.icmp_unsigned("<", address, c.get(last_address))):
                c.b.store(c.const(0), ascends)
            with c.b.if_then(c.b.icmp_unsigned("!=", address, c.get(last_address))):
                c.bump(touched, fresh(0, address))
                c.b.store(address, last_address)
                for beyond in (c.const(0), c.b.sub(size, c.const(1))):
                    line = c.b.lshr(c.b.add(address, beyond), c.const(6))
                    with c.b.if_then(c.b.icmp_unsigned(further, line, c.get(last_line))):
                        c.bump(requests, fresh(1, line))
                        c.b.call(functions["mark"], [bits, c.b.sub(line, first_line), c.const(1)])
                        c.b.store(line, last_line)

    scan(">", lambda table, key: 1)
    with c.b.if_then(c.b.icmp_unsigned("==", c.get(ascends), c.const(0))):  # equal ones need not be neighbours
        stamp = c.b.add(c.field(context, STAMP), c.const(1))
        c.put(context, STAMP, stamp)
        tables = c.field(context, KEYS, c.pointer)
        scan("!=", lambda table, key: c.b.call(functions["insert"], [c.at(tables, 16 * SLOTS * table), key, stamp]))
    c.add(counters, c.b.add(what, c.const(8 * len(WHATS))), c.b.mul(size, c.get(touched)))
    c.add(counters, c.b.add(what, c.const(16 * len(WHATS))), c.get(requests))
    c.b.ret_void()
    return c.function


def _cycles(made: Any) -> Any:
    """Cycles of an access to the LDS, pass by pass: of the fullest bank of each."""
    from llvmlite import ir

    c = Code(made, "cycles", "i", "ppiii")
    context, addresses, mask, size, turned = c.args
    order = ir.GlobalVariable(made, ir.ArrayType(c.i64, 2 * LANES), "order")
    order.linkage, order.global_constant = "private", True
    order.initializer = ir.Constant(ir.ArrayType(c.i64, 2 * LANES), [*range(LANES), *_READ_16.tolist()])
    lanes_in_order = c.element(order, c.b.mul(turned, c.const(LANES)))
    words = c.b.lshr(c.b.add(size, c.const(3)), c.const(2))
    together = c.b.udiv(c.const(BANKS), c.b.select(c.b.icmp_unsigned("==", words, c.const(3)), c.const(4), words))
    wide = c.b.or_(c.b.icmp_unsigned("==", size, c.const(8)), c.b.icmp_unsigned("==", size, c.const(16)))
    every = c.b.select(c.flags(mask), c.vector(addresses), c.splat(c.const(0)))
    low = c.b.and_(c.reduced("or", every), c.b.sub(size, c.const(1)))
    grouped = c.b.and_(wide, c.b.icmp_unsigned("==", low, c.const(0)))
    shift = c.b.cttz(c.b.select(grouped, size, c.const(BANK_BYTES)), ir.Constant(c.i1, 1))
    words = c.b.select(grouped, c.const(1), words)
    banks = c.b.lshr(c.const(BANKS * BANK_BYTES), shift)
    with c.b.goto_entry_block():
        filled = c.b.alloca(c.i64, BANKS * 2)
    seen, cycles = c.field(context, SEEN, c.pointer), c.var(0)
    with c.repeat(BANKS) as bank:
        c.b.store(c.const(0), c.element(filled, c.b.shl(bank, c.const(1))))
    with c.repeat(c.b.udiv(c.const(LANES), together)) as group:
        stamp = c.b.add(c.field(context, STAMP), c.const(1))
        c.put(context, STAMP, stamp)
        fullest = c.var(0)
        c.b.store(c.const(0), fullest)
        with c.repeat(together) as place:
            lane = c.get(c.element(lanes_in_order, c.b.add(c.b.mul(group, together), place)))
            on = c.b.and_(c.b.lshr(mask, lane), c.const(1))
            with c.b.if_then(c.b.icmp_unsigned("!=", on, c.const(0))):
                first = c.b.lshr(c.get(c.element(addresses, lane)), shift)
                with c.repeat(words) as word:
                    row = c.b.add(first, word)
                    mark = c.element(seen, row)
                    with c.b.if_then(c.b.icmp_unsigned("!=", c.get(mark), stamp)):
                        c.b.store(stamp, mark)
                        bank = c.element(filled, c.b.shl(c.b.and_(row, c.b.sub(banks, c.const(1))), c.const(1)))
                        same = c.b.icmp_unsigned("==", c.get(bank), stamp)
                        times = c.element(bank, c.const(1))
                        now = c.b.add(c.b.select(same, c.get(times), c.const(0)), c.const(1))
                        c.b.store(stamp, bank)
                        c.b.store(now, times)
                        most = c.get(fullest)
                        c.b.store(c.b.select(c.b.icmp_unsigned(">", now, most), now, most), fullest)
        c.bump(cycles, c.get(fullest))
    c.b.ret(c.get(cycles))
    return c.function


def _count_local(made: Any, functions: dict[str, Any], size: int, reads: bool) -> Any:
    """Observer.local, counts.lds_cycles; the last argument is as of "stride"."""
    c = Code(made, f"count_local_{size}_{int(reads)}", "v", "pppii")
    context, record, addresses, mask, stride = c.args
    turned, words = reads and size == 16, max(1, size // BANK_BYTES)
    order, together = _READ_16.tolist() if turned else [*range(LANES)], BANKS // (words if words != 3 else 4)
    groups = [order[start : start + together] for start in range(0, LANES, together)]
    passes = c.const(0)
    for lanes in groups:
        some = c.b.icmp_unsigned("!=", c.b.and_(mask, c.const(sum(1 << lane for lane in lanes))), c.const(0))
        passes = c.b.add(passes, c.b.zext(some, c.i64))
    cycles = c.var(passes)
    if turned:
        aligned = c.b.icmp_unsigned("==", c.b.and_(c.get(addresses), c.const(size - 1)), c.const(0))
        even = c.b.and_(aligned, c.b.icmp_unsigned("==", stride, c.const(size)))
    else:
        even = c.b.icmp_unsigned("==", c.b.and_(stride, c.const(-1 - size)), c.const(0))
    with c.b.if_then(c.b.not_(even)), c.b.if_then(c.b.not_(_near(c, addresses, mask, groups, size))):
        given = [context, addresses, mask, c.const(size), c.const(int(turned))]
        c.b.store(c.b.call(functions["cycles"], given), cycles)
        c.add(record, SECOND, c.b.sub(c.get(cycles), passes))
    counted = {("bytes", "lds"): c.b.mul(c.const(size), c.b.ctpop(mask)), ("lds_passes", ""): passes}
    for names, value in (counted | {("lds_cycles", ""): c.get(cycles)}).items():
        c.add(c.field(context, COUNTERS, c.pointer), _counter(*names), value)
    c.b.ret_void()
    return c.function


def _near(c: Code, addresses: Any, mask: Any, groups: list[list[int]], size: int) -> Any:
    """Whether all lanes of a pass reach the same BANKS words, next to each other: no bank has two in any pass."""
    narrow = c.b.trunc(c.vector(addresses), c.ir.VectorType(c.i32, LANES))
    ends = []
    for what, beyond in (("smin", (1 << 31) - 1), ("smax", -1 << 31)):
        every = c.b.select(c.flags(mask), narrow, c.splat(c.ir.Constant(c.i32, beyond), c.i32))
        kind = c.ir.VectorType(c.i32, len(groups[0]))
        ends.append([
            c.b.sext(c.reduced(what, c.b.shuffle_vector(every, every, c.ir.Constant(kind, lanes))), c.i64)
            for lanes in groups
        ])  # fmt: skip
    near = c.ir.Constant(c.i1, 1)
    for low, high in zip(*ends, strict=True):
        first, last = (c.b.ashr(one, c.const(2)) for one in (low, c.b.add(high, c.const(size - 1))))
        near = c.b.and_(near, c.b.icmp_signed("<", c.b.sub(last, first), c.const(BANKS)))
    return near


def _transfer(made: Any, functions: dict[str, Any], what: str, size: int, local: bool) -> None:
    """Bytes of every lane into words [words, 64], or from there."""
    c = Code(made, f"{what}_{'local' if local else 'memory'}_{size}", "v", "pppipi")
    context, record, addresses, mask, data, queue = c.args
    with c.b.if_then(c.b.icmp_unsigned("==", mask, c.const(0))):
        c.b.ret_void()
    stride = c.b.call(functions["stride"], [addresses, mask])
    even = c.b.and_(c.b.icmp_unsigned("==", stride, c.const(size)), c.b.icmp_signed("==", mask, c.const(-1)))
    given = [context, record, addresses, mask]
    if local:
        count = _count_local(c.b.module, functions, size, what == "load")
        c.b.call(count, [*given, stride])
        delta = c.field(context, LDS)
        watched = c.b.icmp_unsigned("!=", c.field(context, SHADOW), c.const(0))
        with c.b.if_then(watched):
            watch(c, what, size, functions["race"], delta, even)
    else:
        c.b.call(functions["count"], [*given, c.const(size), c.const(8 * WHATS.index(what)), stride])
        delta = c.field(c.field(record, CACHE + 16, c.pointer), DELTA)
    with c.b.if_then(even):
        move_together(c, what, size, delta)
        c.b.ret_void()
    move(c, what, size, delta)
    c.b.ret_void()


# Running.

READY, PARKED, ENDED = 0, 1, 2
"""States of a wave."""


def _begin(made: Any) -> None:
    """All waves of a workgroup at their first instruction; registers are as `launch.started` has them."""
    c = Code(made, "begin", "v", "ppi")
    context, blocks, group = c.args
    copy = c.b.module.declare_intrinsic("llvm.memcpy", [c.pointer, c.pointer, c.i64])
    fill = c.b.module.declare_intrinsic("llvm.memset", [c.pointer, c.i64])
    no = c.ir.Constant(c.i1, 0)
    rows, columns = c.field(context, ROWS), c.field(context, COLUMNS)
    above = c.b.udiv(group, columns)
    ids = (c.b.urem(group, columns), c.b.urem(above, rows), c.b.udiv(above, rows))
    with c.repeat(c.field(context, WARPS)) as wave:
        block = c.at(blocks, c.b.mul(wave, c.const(WAVE_BYTES)))
        scalars = c.at(c.field(context, SCALARS, c.pointer), c.b.shl(wave, c.const(9)))
        c.b.call(copy, [block, scalars, c.const(512), no])
        for axis, number in enumerate(ids):
            place = c.field(context, GROUP_IDS + 8 * axis)
            with c.b.if_then(c.b.icmp_signed(">=", place, c.const(0))):
                c.put(block, place, c.b.trunc(number, c.i32))
        zero = c.ir.Constant(c.ir.IntType(8), 0)
        c.b.call(fill, [c.at(block, V), zero, c.field(context, V_BYTES), no])
        first = c.at(c.field(context, IDS, c.pointer), c.b.shl(wave, c.const(8)))
        c.b.call(copy, [c.at(block, V), first, c.const(256), no])
        for place, value in (
            (SCC, c.const(0)), (WORKGROUP, group), (WAVE, wave), (STATE, c.const(READY)),
            (STOPPED, c.field(context, ENTRY)), (CONTEXT, c.b.ptrtoint(context, c.i64)),
        ):  # fmt: skip
            c.put(block, place, value)
        for at in (0, 8):  # what a workgroup before this one has done is complete
            c.put(block, KNOWN + at, c.field(block, ISSUED + at))
    c.b.ret_void()


def _run_group(made: Any) -> None:
    """Run a workgroup until all its waves have ended (DONE), one has to ask, or those that can run had a turn (SPENT).

    from: the wave to begin with.
    """
    c = Code(made, "run_group", "i", "ppii")
    context, blocks, group, first = c.args
    warps = c.field(context, WARPS)
    c.put(context, AT_GROUP, group)
    c.put(context, BLOCKS, c.b.ptrtoint(blocks, c.i64))
    c.put(context, LDS, c.b.add(c.field(context, ALL_LDS), c.b.mul(group, c.field(context, LDS_BYTES))))
    kind = c.ir.FunctionType(c.i64, [c.pointer, c.pointer])
    begin, spent, alive = c.var(first), c.var(0), c.var(0)
    with c.while_(lambda: c.ir.Constant(c.i1, 1)):
        c.b.store(c.const(0), spent)
        wave = c.var(c.const(0))
        c.b.store(c.get(begin), wave)
        c.b.store(c.const(0), begin)
        with c.while_(lambda: c.b.icmp_unsigned("<", c.get(wave), warps)):
            block = c.at(blocks, c.b.mul(c.get(wave), c.const(WAVE_BYTES)))
            with c.b.if_then(c.b.icmp_unsigned("==", c.field(block, STATE), c.const(READY))):
                c.put(block, BUDGET, c.field(context, BRANCHES))
                c.put(context, NOW, c.get(wave))
                with c.repeat(warps) as each:
                    known = c.at(blocks, c.b.add(c.b.mul(each, c.const(WAVE_BYTES)), c.const(KNOWN)))
                    limits = c.at(context, c.b.add(c.b.shl(each, c.const(4)), c.const(LIMITS)))
                    own = c.b.icmp_unsigned("==", each, c.get(wave))
                    c.put(limits, 0, c.b.select(own, c.const(ALL), c.field(known, 0)))
                    c.put(limits, 8, c.field(known, 8))
                record = c.field(block, STOPPED, c.pointer)
                code = _called(c, kind, block, record)
                with c.b.if_then(c.b.icmp_unsigned("==", code, c.const(ASK))):
                    c.put(context, AT_WAVE, c.get(wave))
                    c.b.ret(c.const(ASK))
                with c.b.if_else(c.b.icmp_unsigned("==", code, c.const(SPENT))) as (then, otherwise):
                    with then:
                        c.b.store(c.const(1), spent)
                    with otherwise:
                        stopped = c.field(block, STOPPED, c.pointer)
                        c.add(stopped, TIMES, c.const(1))
                        c.put(block, STOPPED, c.b.add(c.field(block, STOPPED), c.const(RECORD)))
                        ended = c.b.icmp_unsigned("==", code, c.const(END))
                        c.put(block, STATE, c.b.select(ended, c.const(ENDED), c.const(PARKED)))
                        for at, most in ((0, MOST["lgkm"]), (8, MOST["vm"])):  # a full counter holds accesses back
                            issued, waited = c.field(block, ISSUED + at), c.field(block, WAITED + at)
                            least = c.b.sub(issued, c.const(most))
                            done = c.b.select(c.b.icmp_signed(">", waited, least), waited, least)
                            c.put(block, ARRIVED + at, c.b.select(ended, issued, done))
            c.bump(wave)
        c.returned_if(c.b.icmp_unsigned("!=", c.get(spent), c.const(0)), c.const(SPENT))
        c.b.store(c.const(0), alive)
        with c.repeat(warps) as each:
            state = c.at(blocks, c.b.add(c.b.mul(each, c.const(WAVE_BYTES)), c.const(STATE)))
            lives = c.b.icmp_unsigned("!=", c.get(state), c.const(ENDED))
            for at in (0, 8):
                c.put(state, KNOWN + at - STATE, c.field(state, ARRIVED + at - STATE))
            c.bump(alive, c.b.zext(lives, c.i64))
            with c.b.if_then(lives):
                c.b.store(c.const(READY), state)
        c.returned_if(c.b.icmp_unsigned("==", c.get(alive), c.const(0)), c.const(DONE))
    c.b.unreachable()
    _run_groups(made, c.function)


def _called(c: Code, kind: Any, block: Any, record: Any) -> Any:
    """The function of a record."""
    run = c.b.module.globals.get("run") or c.ir.Function(c.b.module, kind, "run")
    return c.b.call(run, [block, record])


def _run_groups(made: Any, run_group: Any) -> None:
    """Workgroups one after the other, up to a last one or the first that does not end: as run_group."""
    c = Code(made, "run_groups", "i", "ppii")
    context, blocks, first, last = c.args
    begin = made.globals["begin"]
    group = c.var(first)
    with c.while_(lambda: c.b.icmp_unsigned("<", c.get(group), last)):
        c.b.call(begin, [context, blocks, c.get(group)])
        code = c.b.call(run_group, [context, blocks, c.get(group), c.const(0)])
        c.returned_if(c.b.icmp_unsigned("!=", code, c.const(DONE)), code)
        c.bump(group)
    c.put(context, AT_GROUP, last)
    c.b.ret(c.const(DONE))
