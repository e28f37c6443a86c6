"""How native code reaches memory and the LDS, and counts what it does there as counts.Observer does.

Each function takes the launch's context, the instruction's record, the lanes' addresses, the mask of the lanes that
access them, and bytes of each; "reach" says whether all lie in one buffer, which the others take for granted.
"""

from __future__ import annotations

from typing import Any

from .code_builder import Code
from .context import (
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
    ENDS,
    ENTRY,
    GROUP_IDS,
    IDS,
    LDS,
    LDS_AT,
    LDS_BYTES,
    LIMITS,
    LINES,
    LINES_OF,
    NOW,
    PATTERNS,
    ROWS,
    SAFE,
    SCALARS,
    SCRATCH_AT,
    SEEN,
    SHADOW,
    STAMP,
    START,
    UNIT,
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
    NOWHERE,
    RECORD,
    SCC,
    SECOND,
    SPENT,
    STATE,
    STOPPED,
    WAITED,
    WAVE,
    V,
)
from .layout import COUNT as TIMES
from .memory import SCRATCH
from .programs import MOST
from .races import ALL, PART, look, move, move_together, of_wave, order, own_limit, race
from .waves import LANES

WHATS = ("load", "store", "atomic")
COUNTER_NAMES = [
    *((name, what) for name in ("bytes", "touched", "requests") for what in WHATS),
    ("bytes", "lds"), ("lds_passes", ""), ("lds_cycles", ""),
]  # fmt: skip
"""Of Counts, in the order of the context's counters."""

LINE_SHIFT = 6
"""Of an address, to the number of its line of memory."""

SLOT_BITS = 10
"""Of the number of a pattern."""

MASK, SHAPE, CYCLES, BASE, MANY, DISTINCT, PLACES, RUNS = range(8 * LANES, 8 * LANES + 8 * 8, 8)
"""A pattern of lanes' addresses, which comes again and again at other places; first the lanes' addresses, counted from
the start of the banks where the first one's lies; mask; "_shape"; what "cycles" gave; the number of the place where the
start is; how many runs it has (races.order), addresses, and places in all; the runs."""

PATTERN_BYTES = RUNS + 8 * LANES

SPREAD = 0x9E3779B97F4A7C15 - (1 << 64)
"""What a number is multiplied by for its slot."""


def module() -> str:
    """The text of what every launch needs."""
    from llvmlite import ir

    made = ir.Module()
    _reach(made, _stride(made))
    _reach_scalar(made)
    pattern = _pattern(made)
    _count_memory(made, pattern, _mark(made))
    _count_local(made, pattern, _cycles(made), [order(made, what) for what in ("store", "load")])
    race(made)
    _begin(made)
    _run_group(made)
    return str(made)


def access(name: str) -> str:
    """The text of one kind of access: "load_memory_4", of 4 bytes by each lane."""
    from llvmlite import ir

    made = ir.Module()
    what, where, size = name.split("_")
    _transfer(made, what, int(size), where == "local")
    return str(made)


def _stride(made: Any) -> Any:
    """How many bytes each lane's address is after the one before, where the first lanes access memory; -1 if it differs
    or others do."""
    c = Code(made, "stride", "i", "pi")
    addresses, mask = c.args
    none, part, count = c.const(-1), c.ir.VectorType(c.i64, PART), c.b.ctpop(mask)
    c.returned_if(c.is_set(c.b.and_(mask, c.b.add(mask, c.const(1)))), none)
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
    c.b.ret(c.b.select(c.is_zero(c.reduced("or", unlike)), step, none))
    return c.function


def _reach(made: Any, stride: Any) -> None:
    for local in (False, True):
        c = Code(made, f"reach_{'local' if local else 'memory'}", "i", "pppii")
        context, record, addresses, mask, size = c.args
        c.returned_if(c.is_zero(mask), c.const(-1))
        last = c.get(c.element(addresses, c.b.sub(c.b.ctpop(mask), c.const(1))))
        ends = c.var(c.get(c.element(addresses, c.b.cttz(mask, c.ir.Constant(c.i1, 0))))), c.var(last)
        step = c.b.call(stride, [addresses, mask])
        with c.b.if_then(c.b.icmp_signed("<", step, c.const(0))):
            every, flags = c.vector(addresses), c.flags(mask)
            for end, what, beyond in zip(ends, ("smin", "smax"), ((1 << 63) - 1, -1 << 63), strict=True):
                c.b.store(c.reduced(what, c.b.select(flags, every, c.splat(c.const(beyond)))), end)
        low, high = map(c.get, ends)

        def fits(start: Any, length: Any, low=low, high=high, size=size, c=c) -> Any:
            """Signed: no buffer lies in the upper half of addresses."""
            within = c.b.icmp_signed("<=", high, c.b.sub(c.b.add(start, length), size))
            return c.b.and_(c.b.icmp_signed(">=", low, start), within)

        if local:
            c.b.ret(c.b.select(fits(c.const(0), c.field(context, LDS_BYTES)), step, c.const(NOWHERE)))
            continue
        c.returned_if(fits(c.field(record, CACHE), c.field(record, CACHE + 8)), step)
        buffers = c.field(context, BUFFERS, c.pointer)
        with c.repeat(c.field(context, COUNT)) as index:
            buffer = c.at(buffers, c.b.mul(index, c.const(BUFFER_BYTES)))
            start, length = c.field(buffer, START), c.field(buffer, BYTES)
            with c.b.if_then(fits(start, length)):
                c.put(record, CACHE, start)
                c.put(record, CACHE + 8, length)
                c.put(record, CACHE + 16, buffer)
                c.b.ret(step)
        c.b.ret(c.const(NOWHERE))


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


def _mark(made: Any) -> Any:
    """Set the bits of some lines, whose bits lie in 8 bytes, wherever the first one's is."""
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


def _count_memory(made: Any, pattern: Any, mark: Any) -> None:
    """Observer.memory; what: 8 times the place of what is done among WHATS; the last argument is as of "stride"."""
    c = Code(made, "count_memory", "v", "pppiiii")
    context, record, addresses, mask, size, what, stride = c.args
    counters, buffer = c.field(context, COUNTERS, c.pointer), c.field(record, CACHE + 16, c.pointer)
    bits = c.field(buffer, c.b.add(what, c.const(LINES)), c.pointer)
    first_line = c.b.lshr(c.field(buffer, START), c.const(LINE_SHIFT))
    no_line_left_out = c.b.icmp_unsigned("<=", stride, c.const(1 << LINE_SHIFT))
    step = c.b.select(no_line_left_out, stride, c.const(-1))
    entry = c.b.call(pattern, [context, record, addresses, mask, _shape(c, size, LINE_SHIFT, 0), step])
    base = c.b.sub(c.field(entry, BASE), first_line)
    with c.repeat(c.field(entry, MANY)) as number:
        run = c.get(c.element(c.at(entry, RUNS), number))
        begin, length = c.b.add(base, c.b.ashr(run, c.const(16))), c.b.and_(run, c.const(0xFFFF))
        with c.repeat(c.b.lshr(c.b.add(length, c.const(31)), c.const(5))) as part:
            done = c.b.shl(part, c.const(5))
            left = c.b.sub(length, done)
            some = c.b.select(c.b.icmp_unsigned("<", left, c.const(32)), left, c.const(32))
            c.b.call(mark, [bits, c.b.add(begin, done), some])
    c.add(counters, what, c.b.mul(size, c.b.ctpop(mask)))
    c.add(counters, c.b.add(what, c.const(8 * len(WHATS))), c.b.mul(size, c.field(entry, DISTINCT)))
    c.add(counters, c.b.add(what, c.const(16 * len(WHATS))), c.field(entry, PLACES))
    c.b.ret_void()


def _cycles(made: Any) -> Any:
    """Passes of an access to the LDS, and, in bits from 32 on, their cycles: those of the fullest bank of each."""
    c = Code(made, "cycles", "i", "ppiii")
    context, addresses, mask, size, turned = c.args
    orders = c.table("order", c.i64, [*range(LANES), *_READ_16.tolist()])
    lanes_in_order = c.element(orders, c.b.mul(turned, c.const(LANES)))
    words = c.b.lshr(c.b.add(size, c.const(3)), c.const(2))
    together = c.b.udiv(c.const(BANKS), c.b.select(c.b.icmp_unsigned("==", words, c.const(3)), c.const(4), words))
    with c.b.goto_entry_block():
        filled = c.b.alloca(c.i64, BANKS * 2)
    seen, passes = c.field(context, SEEN, c.pointer), c.var(0)
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
            with c.b.if_then(c.is_set(on)):
                first = c.b.lshr(c.get(c.element(addresses, lane)), c.const(2))
                with c.repeat(words) as word:
                    row = c.b.add(first, word)
                    mark = c.element(seen, row)
                    with c.b.if_then(c.b.icmp_unsigned("!=", c.get(mark), stamp)):
                        c.b.store(stamp, mark)
                        bank = c.element(filled, c.b.shl(c.b.and_(row, c.const(BANKS - 1)), c.const(1)))
                        same = c.b.icmp_unsigned("==", c.get(bank), stamp)
                        times = c.element(bank, c.const(1))
                        now = c.b.add(c.b.select(same, c.get(times), c.const(0)), c.const(1))
                        c.b.store(stamp, bank)
                        c.b.store(now, times)
                        most = c.get(fullest)
                        c.b.store(c.b.select(c.b.icmp_unsigned(">", now, most), now, most), fullest)
        some = c.is_set(c.get(fullest))
        c.bump(passes, c.b.or_(c.b.shl(c.get(fullest), c.const(32)), c.b.zext(some, c.i64)))
    c.b.ret(c.get(passes))
    return c.function


def _shape(c: Code, size: Any, unit: Any, turned: Any) -> Any:
    """Bytes of an access, its places as a shift of addresses, and whether it has the order of a read of 16 bytes."""
    unit, turned = (c.const(one) if isinstance(one, int) else one for one in (unit, turned))
    return c.b.or_(c.b.or_(c.b.shl(size, c.const(8)), c.b.shl(unit, c.const(1))), turned)


def _pattern(made: Any) -> Any:
    """The pattern of an access, as it is known from the last time or worked out; of one whose step is given (not -1),
    which leaves out no place, there is one run."""
    c = Code(made, "pattern", "p", "pppiii")
    context, record, addresses, mask, shape, step = c.args
    size, unit = c.b.lshr(shape, c.const(8)), c.b.and_(c.b.lshr(shape, c.const(1)), c.const(127))
    patterns, ones = c.field(context, PATTERNS, c.pointer), c.b.ctpop(mask)

    def ends(address: Any) -> tuple[Any, Any]:
        """The first place and the one after the last."""
        last = c.b.lshr(c.b.add(address, c.b.sub(size, c.const(1))), unit)
        return c.b.lshr(address, unit), c.b.add(last, c.const(1))

    def put(entry: Any, values: dict[int, Any]) -> None:
        for place, value in values.items():
            c.put(entry, place, c.const(value) if isinstance(value, int) else value)

    with c.b.if_then(c.b.icmp_signed(">=", step, c.const(0))):
        entry = c.at(patterns, PATTERN_BYTES << SLOT_BITS)
        (begin, _), (_, end) = (ends(c.get(c.element(addresses, one))) for one in (0, c.b.sub(ones, c.const(1))))
        many, distinct = c.b.sub(end, begin), c.b.select(c.is_zero(step), c.const(1), ones)
        put(entry, {BASE: begin, MANY: 1, DISTINCT: distinct, PLACES: many, RUNS: many})
        c.b.ret(entry)
    leading = c.get(c.element(addresses, c.b.cttz(mask, c.ir.Constant(c.i1, 1))))
    within = c.const(BANKS * BANK_BYTES - 1)
    start, offset = (c.b.and_(leading, one) for one in (c.b.not_(within), within))
    base, every = c.b.lshr(start, unit), c.ir.VectorType(c.i64, LANES)
    apart = c.b.select(c.flags(mask), c.b.sub(c.vector(addresses), c.splat(start)), c.ir.Constant(every, [-1] * LANES))
    mixed = c.b.mul(c.b.add(c.b.ptrtoint(record, c.i64), c.b.shl(offset, c.const(32))), c.const(SPREAD))
    slot = c.b.lshr(mixed, c.const(64 - SLOT_BITS))
    entry = c.at(patterns, c.b.mul(slot, c.const(PATTERN_BYTES)))
    unlike = c.b.or_(c.b.xor(c.field(entry, MASK), mask), c.b.xor(c.field(entry, SHAPE), shape))
    unlike = c.b.or_(unlike, c.reduced("or", c.b.xor(apart, c.vector(entry))))
    c.put(entry, BASE, base)
    c.returned_if(c.is_zero(unlike), entry)
    c.b.store(apart, entry, align=8)
    with c.b.goto_entry_block():
        ordered = c.b.alloca(c.i64, LANES + 1)
    c.b.store(c.const(-1), ordered)
    count, many, distinct, places, begun, ended = (c.var(one) for one in (0, 0, 0, 0, 0, -1))
    with c.lanes(mask) as lane:
        address, slot = c.get(c.element(addresses, lane)), c.var(0)
        c.b.store(c.get(count), slot)
        with c.while_(lambda: c.b.icmp_signed(">", c.get(c.element(ordered, c.get(slot))), address)):
            here = c.element(ordered, c.get(slot))
            c.put(here, 8, c.get(here))
            c.bump(slot, -1)
        c.put(c.element(ordered, c.get(slot)), 8, address)
        c.bump(count)
    with c.repeat(ones) as number:
        before = c.element(ordered, number)
        address = c.field(before, 8)
        c.bump(distinct, c.b.zext(c.b.icmp_unsigned("!=", address, c.get(before)), c.i64))
        begin, end = ends(address)
        goes_on = c.b.icmp_signed("<=", begin, c.get(ended))
        c.bump(places, c.b.sub(end, c.b.select(goes_on, c.get(ended), begin)))
        c.b.store(c.b.select(goes_on, c.get(begun), begin), begun)
        c.bump(many, c.b.zext(c.b.not_(goes_on), c.i64))
        c.b.store(end, ended)
        run = c.b.or_(c.b.shl(c.b.sub(c.get(begun), base), c.const(16)), c.b.sub(end, c.get(begun)))
        c.put(c.element(entry, c.get(many)), RUNS - 8, run)
    known = {MASK: mask, SHAPE: shape, CYCLES: 0}
    put(entry, known | {MANY: c.get(many), DISTINCT: c.get(distinct), PLACES: c.get(places)})
    c.b.ret(entry)
    return c.function


def _count_local(made: Any, pattern: Any, cycles: Any, orders: Any) -> None:
    """Observer.local, counts.lds_cycles; whether something before the access may not be complete: 1, or 0.

    how: 2 of an access that vmcnt counts, and 1 of a load; the last argument is as of "stride"."""
    c = Code(made, "count_local", "i", "pppiiii")
    context, record, addresses, mask, size, how, stride = c.args
    reads, queue = c.b.and_(how, c.const(1)), c.b.lshr(how, c.const(1))
    turned = c.b.and_(reads, c.b.zext(c.b.icmp_unsigned("==", size, c.const(16)), c.i64))
    words = c.b.lshr(c.b.add(size, c.const(3)), c.const(2))
    words = c.b.select(c.b.icmp_unsigned("==", words, c.const(3)), c.const(4), words)
    aligned = c.is_zero(c.b.and_(c.get(addresses), c.b.sub(size, c.const(1))))
    whole = c.b.and_(c.b.icmp_unsigned("==", stride, size), c.b.icmp_signed("==", mask, c.const(-1)))
    near = c.is_zero(c.b.and_(stride, c.b.not_(size)))
    even = c.b.select(c.is_set(turned), c.b.and_(aligned, whole), near)
    shape, step = _shape(c, size, c.field(context, UNIT), turned), c.b.select(even, stride, c.const(-1))
    entry = c.b.call(pattern, [context, record, addresses, mask, shape, step])
    with c.b.if_then(even):
        passes = c.b.lshr(c.b.add(c.b.mul(c.b.ctpop(mask), words), c.const(BANKS - 1)), c.const(5))
        c.put(entry, CYCLES, c.b.or_(passes, c.b.shl(passes, c.const(32))))
    with c.b.if_then(c.is_zero(c.field(entry, CYCLES))):
        c.put(entry, CYCLES, c.b.call(cycles, [context, addresses, mask, size, turned]))
    both = c.field(entry, CYCLES)
    passes, needed = c.b.and_(both, c.const((1 << 32) - 1)), c.b.lshr(both, c.const(32))
    c.add(record, SECOND, c.b.sub(needed, passes))
    counted = {("bytes", "lds"): c.b.mul(size, c.b.ctpop(mask)), ("lds_passes", ""): passes, ("lds_cycles", ""): needed}
    for names, value in counted.items():
        c.add(c.field(context, COUNTERS, c.pointer), _counter(*names), value)
    c.returned_if(c.is_zero(c.field(context, SHADOW)), c.const(0))
    own_limit(c, queue)
    given = [context, record, c.at(entry, RUNS), c.field(entry, MANY), c.field(entry, BASE), queue]
    with c.b.if_then(c.is_zero(reads)):
        c.b.ret(c.b.call(orders[0], given))
    c.b.ret(c.b.call(orders[1], given))


def _transfer(made: Any, what: str, size: int, local: bool) -> None:
    """Bytes of every lane into words [words, 64], or from there."""
    from llvmlite import ir

    c = Code(made, f"{what}_{'local' if local else 'memory'}_{size}", "v", "pppipii")
    context, record, addresses, mask, _, queue, stride = c.args
    with c.b.if_then(c.is_zero(mask)):
        c.b.ret_void()

    def elsewhere(name: str, result: Any, kinds: str) -> Any:
        shape = ir.FunctionType(result, [{"p": c.pointer, "i": c.i64}[kind] for kind in kinds])
        return ir.Function(made, shape, name)

    given = [context, record, addresses, mask, c.const(size)]
    if local:
        delta = c.field(context, LDS)
        how = c.b.add(c.b.shl(queue, c.const(1)), c.const(int(what == "load")))
        late = c.b.call(elsewhere("count_local", c.i64, "pppiiii"), [*given, how, stride])
        with c.b.if_then(c.is_set(late)):
            look(c, what, size, elsewhere("race", ir.VoidType(), "pppiiii"), delta)
    else:
        count = elsewhere("count_memory", ir.VoidType(), "pppiiii")
        c.b.call(count, [*given, c.const(8 * WHATS.index(what)), stride])
        delta = c.field(c.field(record, CACHE + 16, c.pointer), DELTA)
    with c.b.if_then(c.b.icmp_unsigned("==", stride, c.const(size))):
        move_together(c, what, size, delta)
        c.b.ret_void()
    move(c, what, size, delta)
    c.b.ret_void()


# Running.

READY, PARKED, ENDED = 0, 1, 2
"""States of a wave."""


def _begin(made: Any) -> None:
    """All waves of a workgroup at their first instruction; registers are as `launch.started` has them, the LDS and
    scratch memory 0."""
    c = Code(made, "begin", "v", "ppi")
    context, blocks, group = c.args
    copy = c.b.module.declare_intrinsic("llvm.memcpy", [c.pointer, c.pointer, c.i64])
    fill = c.b.module.declare_intrinsic("llvm.memset", [c.pointer, c.i64])
    no = c.ir.Constant(c.i1, 0)
    rows, columns = c.field(context, ROWS), c.field(context, COLUMNS)
    above = c.b.udiv(group, columns)
    ids = (c.b.urem(group, columns), c.b.urem(above, rows), c.b.udiv(above, rows))
    zero, start = c.ir.Constant(c.ir.IntType(8), 0), c.field(context, LDS_AT)
    c.b.call(fill, [c.at(blocks, start), zero, c.b.sub(c.field(context, ENDS), start), no])
    with c.repeat(c.field(context, WARPS)) as wave:
        block = of_wave(c, blocks, wave)
        scalars = c.at(c.field(context, SCALARS, c.pointer), c.b.shl(wave, c.const(9)))
        c.b.call(copy, [block, scalars, c.const(512), no])
        for axis, number in enumerate(ids):
            place = c.field(context, GROUP_IDS + 8 * axis)
            with c.b.if_then(c.b.icmp_signed(">=", place, c.const(0))):
                c.put(block, place, c.b.trunc(number, c.i32))
        c.b.call(fill, [c.at(block, V), zero, c.field(context, V_BYTES), no])
        first = c.at(c.field(context, IDS, c.pointer), c.b.shl(wave, c.const(8)))
        c.b.call(copy, [c.at(block, V), first, c.const(256), no])
        for place, value in (
            (SCC, c.const(0)), (WAVE, wave), (STATE, c.const(READY)),
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
    memory = c.b.ptrtoint(blocks, c.i64)
    c.put(context, BLOCKS, memory)
    c.put(context, LDS, c.b.add(memory, c.field(context, LDS_AT)))
    scratch = c.field(context, BUFFERS, c.pointer)
    with c.b.if_then(c.b.icmp_unsigned("==", c.field(scratch, START), c.const(SCRATCH))):
        place = c.b.add(memory, c.field(context, SCRATCH_AT))
        c.put(scratch, DELTA, c.b.sub(place, c.const(SCRATCH)))
        bits = c.b.add(c.b.lshr(c.field(scratch, BYTES), c.const(LINE_SHIFT + 3)), c.const(1))
        for at in range(LINES, BUFFER_BYTES, 8):
            c.add(scratch, at, c.b.mul(bits, c.b.sub(group, c.field(context, LINES_OF))))
        c.put(context, LINES_OF, group)
    kind = c.ir.FunctionType(c.i64, [c.pointer, c.pointer])
    begin, spent, alive = c.var(first), c.var(0), c.var(0)
    with c.while_(lambda: c.ir.Constant(c.i1, 1)):
        c.b.store(c.const(0), spent)
        wave = c.var(c.const(0))
        c.b.store(c.get(begin), wave)
        c.b.store(c.const(0), begin)
        with c.while_(lambda: c.b.icmp_unsigned("<", c.get(wave), warps)):
            block = of_wave(c, blocks, c.get(wave))
            with c.b.if_then(c.b.icmp_unsigned("==", c.field(block, STATE), c.const(READY))):
                c.put(block, BUDGET, c.field(context, BRANCHES))
                c.put(context, NOW, c.get(wave))
                c.put(context, SAFE, c.const(ALL))
                with c.repeat(warps) as each:
                    known = c.at(of_wave(c, blocks, each), KNOWN)
                    limits = c.at(context, c.b.add(c.b.shl(each, c.const(4)), c.const(LIMITS)))
                    own = c.b.icmp_unsigned("==", each, c.get(wave))
                    limit, safe = c.b.select(own, c.const(ALL), c.field(known, 0)), c.field(context, SAFE)
                    c.put(limits, 0, limit)
                    c.put(context, SAFE, c.b.select(c.b.icmp_unsigned("<", limit, safe), limit, safe))
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
                            c.put(block, ARRIVED + at, c.b.select(ended, issued, c.larger(waited, least)))
            c.bump(wave)
        c.returned_if(c.is_set(c.get(spent)), c.const(SPENT))
        c.b.store(c.const(0), alive)
        with c.repeat(warps) as each:
            state = c.at(of_wave(c, blocks, each), STATE)
            lives = c.b.icmp_unsigned("!=", c.get(state), c.const(ENDED))
            for at in (0, 8):
                c.put(state, KNOWN + at - STATE, c.field(state, ARRIVED + at - STATE))
            c.bump(alive, c.b.zext(lives, c.i64))
            with c.b.if_then(lives):
                c.b.store(c.const(READY), state)
        c.returned_if(c.is_zero(c.get(alive)), c.const(DONE))
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
