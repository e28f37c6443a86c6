"""Native code that watches the LDS: whether an access comes after those that it must not overtake.

Of each place the last store, the last load and the last load of another wave before it are noted.
"""

from __future__ import annotations

from typing import Any

from .code_builder import Code
from .context import AT_GROUP, BLOCKS, LIMITS, NOTES, NOW, RACE, RECORDS, SAFE, UNIT, WARPS
from .layout import ISSUED, RECORD, WAITED, WAVE_BYTES
from .programs import MOST
from .waves import LANES

ALL = (1 << 32) - 1
"""A limit of accesses that are all complete."""

PART, NOTED = 16, 8
"""Lanes next to each other that are moved together; notes that are compared together."""

UNROLLED = 8
"""Lanes of all that are moved in a step of a loop."""


def of_wave(c: Code, blocks: Any, number: Any) -> Any:
    """A wave's block in its workgroup's memory."""
    return c.at(blocks, c.b.mul(number, c.const(WAVE_BYTES)))


def _notes(c: Code) -> tuple[Any, Any, Any]:
    """Where a workgroup's notes begin of the last stores, of loads, and of loads before those by another wave."""
    context = c.args[0]
    waves, many = c.b.mul(c.field(context, WARPS), c.const(WAVE_BYTES)), c.field(context, NOTES)
    stores = c.at(c.field(context, BLOCKS, c.pointer), waves)
    loads = c.at(stores, many)
    return stores, loads, c.at(loads, many)


def _note(c: Code, queue: Any) -> Any:
    """Of an access that is made now: the wave (8 bits), the counter (1), the number of the record (23) and of the
    access by its counter (32).
    """
    context, record = c.args[:2]
    me = c.field(context, NOW)
    mine = of_wave(c, c.field(context, BLOCKS, c.pointer), me)
    index = c.b.add(c.field(mine, c.b.add(c.b.shl(queue, c.const(3)), c.const(ISSUED))), c.const(1))
    number = c.b.udiv(c.b.sub(c.b.ptrtoint(record, c.i64), c.field(context, RECORDS)), c.const(RECORD))
    who = c.b.or_(c.b.shl(me, c.const(56)), c.b.shl(queue, c.const(55)))
    return c.b.or_(c.b.or_(who, c.b.shl(number, c.const(32))), c.b.and_(index, c.const(0xFFFFFFFF)))


def _is_late(c: Code, before: Any) -> Any:
    """Whether an access may not be complete."""
    who = c.b.lshr(before, c.const(55))
    limit = c.field(c.args[0], c.b.add(c.b.shl(who, c.const(3)), c.const(LIMITS)))
    return c.b.icmp_signed(">", c.b.and_(before, c.const(0xFFFFFFFF)), limit)


def race(made: Any) -> Any:
    """Note an access to the LDS, and whether it is ordered after those of other waves to the same place.

    how: 2 of an access that vmcnt counts, and 1 of a store.  differs: the lanes of a store that change what is there;
    waves that store the same value, as those of a replicated tensor do, need no order.
    """
    c = Code(made, "race", "v", "pppiiii")
    context, record, addresses, mask, size, how, differs = c.args
    queue, writes = c.b.lshr(how, c.const(1)), c.b.and_(how, c.const(1))
    note, me, notes = _note(c, queue), c.field(context, NOW), _notes(c)

    def check(before: Any, place: Any) -> None:
        first = c.is_zero(c.field(context, RACE))
        with c.b.if_then(c.b.and_(_is_late(c, before), first)):
            for offset, value in enumerate((c.const(1), before, note, place, c.field(context, AT_GROUP))):
                c.put(context, RACE + 8 * offset, value)

    shift = c.field(context, UNIT)
    with c.lanes(mask) as lane:
        address = c.get(c.element(addresses, lane))
        first = c.b.lshr(address, shift)
        last = c.b.lshr(c.b.sub(c.b.add(address, size), c.const(1)), shift)
        with c.repeat(c.b.add(c.b.sub(last, first), c.const(1))) as step:
            unit = c.b.add(first, step)
            stores, loads, others = (c.element(base, unit) for base in notes)
            place, changes = c.b.shl(unit, shift), c.b.and_(c.b.lshr(differs, lane), c.const(1))
            with c.b.if_then(c.is_set(changes)):
                check(c.get(stores), place)
            with c.b.if_else(c.is_set(writes)) as (then, otherwise):
                with then:
                    with c.b.if_then(c.is_set(changes)):
                        check(c.get(loads), place)
                        check(c.get(others), place)
                    c.b.store(note, stores)
                with otherwise:
                    with c.b.if_then(c.b.icmp_unsigned("!=", c.b.lshr(c.get(loads), c.const(56)), me)):
                        c.b.store(c.get(loads), others)
                    c.b.store(note, loads)
    c.b.ret_void()
    return c.function


def order(made: Any, what: str) -> Any:
    """Note an access to runs of places before which all is complete; 1 if something may not be, and "race" has to look.

    runs: of each the first place, from `base` on, in bits from 16 on, and how many in those below.  What is
    complete of every wave is not looked at; places of one instruction have the same note, which is looked at once.
    """
    c = Code(made, f"order_{what}", "i", "pppiii")
    context, record, runs, count, base, queue = c.args
    note, notes, kind = _note(c, queue), _notes(c), c.ir.VectorType(c.i64, NOTED)
    mine, every = (c.splat(one, count=NOTED) for one in (c.b.shl(c.field(context, NOW), c.const(56)), note))
    late, unlike, safe = c.var(0), c.var(0), c.splat(c.field(context, SAFE), count=NOTED)
    counted = c.ir.Constant(kind, [1 << 55 | (1 << 32) - 1] * NOTED)
    with c.repeat(count) as number:
        run = c.get(c.element(runs, number))
        begin, length = c.b.add(base, c.b.ashr(run, c.const(16))), c.b.and_(run, c.const(0xFFFF))
        with c.repeat(c.b.lshr(c.b.add(length, c.const(NOTED - 1)), c.const(3))) as part:
            done = c.b.shl(part, c.const(3))
            some = c.first(c.b.sub(length, done), NOTED)
            stores, loads, others = at = [c.element(noted, c.b.add(begin, done)) for noted in notes]
            for noted in at if what == "store" else [stores]:
                before = c.load_some(noted, kind, some)
                above = c.b.icmp_unsigned(">", c.b.and_(before, counted), safe)
                c.b.store(c.b.zext(c.b.bitcast(above, _bits(c)), c.i64), unlike)
                with c.while_(lambda: c.is_set(c.get(unlike))):
                    one = c.get(c.element(noted, c.b.cttz(c.get(unlike), c.ir.Constant(c.i1, 1))))
                    c.b.store(c.b.or_(c.get(late), c.b.zext(_is_late(c, one), c.i64)), late)
                    differ = c.b.icmp_unsigned("!=", before, c.splat(one, count=NOTED))
                    c.b.store(c.b.and_(c.get(unlike), c.b.zext(c.b.bitcast(differ, _bits(c)), c.i64)), unlike)
            c.returned_if(c.is_set(c.get(late)), c.const(1))
            if what == "load":
                before = c.load_some(loads, kind, some)
                of_another = c.b.icmp_unsigned(">", c.b.xor(before, mine), c.ir.Constant(kind, [(1 << 56) - 1] * NOTED))
                c.store_some(before, others, c.b.and_(of_another, some))
            c.store_some(every, stores if what == "store" else loads, some)
    c.b.ret(c.const(0))
    return c.function


def _bits(c: Code) -> Any:
    """The type of the flags of a part."""
    return c.ir.IntType(NOTED)


def own_limit(c: Code, queue: Any) -> None:
    """Set what is complete to the wave that runs of what it has loaded from memory to the LDS: an access counted by
    vmcnt comes after all of it, others after what has been waited for."""
    context = c.args[0]
    mine = of_wave(c, c.field(context, BLOCKS, c.pointer), c.field(context, NOW))
    full, waited = c.b.sub(c.field(mine, ISSUED + 8), c.const(MOST["vm"])), c.field(mine, WAITED + 8)
    own = c.b.add(c.b.shl(c.field(context, NOW), c.const(4)), c.const(LIMITS + 8))
    c.put(context, own, c.b.select(c.is_zero(queue), c.larger(full, waited), c.const(ALL)))


def look(c: Code, what: str, size: int, race: Any, delta: Any) -> None:
    """The order of an access to the LDS, which is about to be made, lane by lane."""
    context, record, addresses, mask, _, queue, _ = c.args
    how = c.b.add(c.b.shl(queue, c.const(1)), c.const(int(what == "store")))
    differs = mask if what == "load" else _changed(c, size, mask, delta)
    c.b.call(race, [context, record, addresses, mask, c.const(size), how, differs])


def _changed(c: Code, size: int, left: Any, delta: Any) -> Any:
    """The lanes, of those that are left, at whose places a store leaves something else than there was, which takes that
    it is made: of several lanes at one place the last one's value stays."""
    words, part = max(1, size // 4), c.ir.IntType(8 * min(4, size))
    with c.b.goto_entry_block():
        before = c.b.alloca(part, LANES * words)
    changed = c.var(0)

    def each(lane: Any) -> list[tuple[Any, Any]]:
        place = c.b.inttoptr(c.b.add(c.get(c.element(c.args[2], lane)), delta), c.pointer)
        held = [c.element(before, c.b.add(lane, c.const(LANES * word)), part) for word in range(words)]
        return [(c.at(place, 4 * word), one) for word, one in enumerate(held)]

    with c.lanes(left) as lane:
        for there, held in each(lane):
            c.b.store(c.b.load(there, typ=part, align=1), held)
    move(c, "store", size, delta)
    with c.lanes(left) as lane:
        for there, held in each(lane):
            other = c.b.icmp_unsigned("!=", c.b.load(there, typ=part, align=1), c.b.load(held, typ=part))
            c.b.store(c.b.or_(c.get(changed), c.b.shl(c.b.zext(other, c.i64), lane)), changed)
    return c.get(changed)


def move(c: Code, what: str, size: int, delta: Any) -> None:
    """An access by lanes, whose function has the context, the record, addresses, mask and data as its arguments."""
    _, _, addresses, mask, data, *_ = c.args
    part = c.ir.IntType(8 * min(4, size))

    def move_lane(lane: Any) -> None:
        place = c.b.inttoptr(c.b.add(c.get(c.element(addresses, lane)), delta), c.pointer)
        for word in range(max(1, size // 4)):
            held, there = c.element(data, c.b.add(lane, c.const(LANES * word)), c.i32), c.at(place, 4 * word)
            if what == "load":
                value = c.b.load(there, typ=part, align=1)
                c.b.store(value if size >= 4 else c.b.zext(value, c.i32), held)
            else:
                value = c.b.load(held, typ=c.i32)
                c.b.store(value if size >= 4 else c.b.trunc(value, part), there, align=1)

    with c.b.if_else(c.b.icmp_signed("==", mask, c.const(-1))) as (then, otherwise):
        with then, c.repeat(LANES // UNROLLED) as number:
            for lane in range(UNROLLED):
                move_lane(c.b.add(c.b.mul(number, c.const(UNROLLED)), c.const(lane)))
        with otherwise, c.lanes(mask) as lane:
            move_lane(lane)


def move_together(c: Code, what: str, size: int, delta: Any) -> None:
    """As `move`, of the first lanes, each of which accesses the bytes after those of the one before it."""
    _, _, addresses, mask, data, *_ = c.args
    start, words, word = c.b.inttoptr(c.b.add(c.get(addresses), delta), c.pointer), max(1, size // 4), c.i32
    part = c.ir.IntType(8 * min(4, size))
    many, some, twice = (c.ir.VectorType(*one) for one in ((part, PART * words), (word, PART), (word, 2 * PART)))
    accessed = c.b.mul(c.b.ctpop(mask), c.const(words))
    with c.repeat(LANES // PART) as number:
        there = c.at(start, c.b.mul(number, c.const(PART * size)))
        held = [
            c.element(data, c.b.add(c.b.mul(number, c.const(PART)), c.const(LANES * each)), word)
            for each in range(words)
        ]
        on = c.first(c.b.sub(accessed, c.b.mul(number, c.const(PART * words))), PART * words)
        if what == "load":
            value = c.load_some(there, many, on)
            for each, into in enumerate(held):
                places = c.ir.Constant(some, [*range(each, PART * words, words)])
                one = c.b.shuffle_vector(value, value, places)
                c.b.store(one if size >= 4 else c.b.zext(one, some), into, align=64)
        else:
            values = [c.b.load(one, typ=some, align=64) for one in held]
            while len(values) > 2:
                pairs = zip(values[::2], values[1::2] + values[-1:], strict=False)
                values = [c.b.shuffle_vector(*pair, c.ir.Constant(twice, [*range(2 * PART)])) for pair in pairs]
            order = [each * PART + lane for lane in range(PART) for each in range(words)]
            value = c.b.shuffle_vector(values[0], values[-1], c.ir.Constant(c.ir.VectorType(word, len(order)), order))
            c.store_some(value if size >= 4 else c.b.trunc(value, many), there, on)
