"""Native code that watches the LDS: whether an access comes after those that it must not overtake.

Of each place the last store, the last load and the last load of another wave before it are noted.
"""

from __future__ import annotations

from typing import Any

from .code_builder import Code
from .context import AT_GROUP, BLOCKS, LIMITS, NOTES, NOW, RACE, RECORDS, UNIT, WARPS
from .layout import ISSUED, RECORD, WAITED, WAVE_BYTES
from .programs import MOST
from .waves import LANES

ALL = (1 << 32) - 1
"""A limit of accesses that are all complete."""

PART = 16
"""Lanes next to each other that are moved together, and notes that are compared together."""


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
    mine = c.at(c.field(context, BLOCKS, c.pointer), c.b.mul(me, c.const(WAVE_BYTES)))
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
        first = c.b.icmp_unsigned("==", c.field(context, RACE), c.const(0))
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
            with c.b.if_then(c.b.icmp_unsigned("!=", changes, c.const(0))):
                check(c.get(stores), place)
            with c.b.if_else(c.b.icmp_unsigned("!=", writes, c.const(0))) as (then, otherwise):
                with then:
                    with c.b.if_then(c.b.icmp_unsigned("!=", changes, c.const(0))):
                        check(c.get(loads), place)
                        check(c.get(others), place)
                    c.b.store(note, stores)
                with otherwise:
                    with c.b.if_then(c.b.icmp_unsigned("!=", c.b.lshr(c.get(loads), c.const(56)), me)):
                        c.b.store(c.get(loads), others)
                    c.b.store(note, loads)
    c.b.ret_void()
    return c.function


def _order(made: Any, what: str, size: int, shift: int) -> Any:
    """What "race" does with lanes of an aligned access before which all is complete; the other lanes.

    Places that one instruction has accessed have the same note: it is looked at once, and then compared.  even: whether
    each lane's bytes come after those of the one before it.
    """
    c = Code(made, f"order_{what}_{size}_{shift}", "i", "pppiii")
    context, _, addresses, mask, queue, even = c.args
    note, me, notes = _note(c, queue), c.field(context, NOW), _notes(c)
    left, complete = c.var(0), [c.var(0) for _ in notes]
    together = 1 << (max(1, PART // (size >> shift)).bit_length() - 1)
    with c.b.if_else(c.b.icmp_unsigned("!=", even, c.const(0))) as (then, otherwise):
        with then, c.repeat(LANES // together) as part:
            address = c.b.add(c.get(addresses), c.b.mul(part, c.const(together * size)))
            lanes = c.b.shl(c.const((1 << together) - 1), c.b.mul(part, c.const(together)))
            _noted(c, what, address, shift, together * size >> shift, note, me, notes, complete, left, lanes)
        with otherwise, c.lanes(mask) as lane:
            lanes, address = c.b.shl(c.const(1), lane), c.get(c.element(addresses, lane))
            _noted(c, what, address, shift, size >> shift, note, me, notes, complete, left, lanes)
    c.b.ret(c.get(left))
    return c.function


def _noted(
    c: Code, what: str, address: Any, shift: int, count: int, note: Any, me: Any, notes: Any, complete: Any, left: Any,
    lanes: Any,
) -> None:  # fmt: skip
    """Note an access to `count` places from an address on if all before it is complete; else its lanes are left.

    complete: the last note of stores, loads and loads of others that is known to be.
    """
    many = c.ir.VectorType(c.i64, count)
    every, mine = c.splat(note, count=count), c.splat(c.b.shl(me, c.const(56)), count=count)
    at = [c.element(base, c.b.lshr(address, c.const(shift))) for base in notes]
    stores, loads, others = at
    late = c.var(0)
    c.b.store(c.b.and_(address, c.const((1 << shift) - 1)), late)
    for noted, fine in zip(at if what == "store" else [stores], complete, strict=False):
        before = c.b.load(noted, typ=many, align=8)
        unlike = c.reduced("or", c.b.xor(before, c.splat(c.get(fine), count=count)))
        with c.b.if_then(c.b.icmp_unsigned("!=", unlike, c.const(0))):
            for place in range(count):
                one = c.b.extract_element(before, c.const(place))
                c.b.store(c.b.or_(c.get(late), c.b.zext(_is_late(c, one), c.i64)), late)
                c.b.store(one, fine)
    with c.b.if_else(c.b.icmp_unsigned("!=", c.get(late), c.const(0))) as (then, otherwise):
        with then:
            for fine in complete:
                c.b.store(c.const(0), fine)
            c.b.store(c.b.or_(c.get(left), lanes), left)
        with otherwise:
            if what == "load":
                before = c.b.load(loads, typ=many, align=8)
                unlike = c.b.lshr(c.b.xor(before, mine), c.ir.Constant(many, [56] * count))
                with c.b.if_then(c.b.icmp_unsigned("!=", c.reduced("or", unlike), c.const(0))):
                    another = c.b.icmp_unsigned("!=", unlike, c.ir.Constant(many, [0] * count))
                    c.b.store(c.b.select(another, before, c.b.load(others, typ=many, align=8)), others, align=8)
            c.b.store(every, stores if what == "store" else loads, align=8)


def watch(c: Code, what: str, size: int, race: Any, delta: Any, even: Any) -> None:
    """The order of an access to the LDS, which is about to be made; even: as of "order"."""
    context, record, addresses, mask, data, queue = c.args
    mine = c.at(c.field(context, BLOCKS, c.pointer), c.b.mul(c.field(context, NOW), c.const(WAVE_BYTES)))
    full, waited = c.b.sub(c.field(mine, ISSUED + 8), c.const(MOST["vm"])), c.field(mine, WAITED + 8)
    landed = c.b.select(c.b.icmp_signed(">", full, waited), full, waited)
    local = c.b.icmp_unsigned("==", queue, c.const(0))
    own = c.b.add(c.b.shl(c.field(context, NOW), c.const(4)), c.const(LIMITS + 8))
    c.put(context, own, c.b.select(local, landed, c.const(ALL)))
    left = c.var(mask)
    for shift in (one for one in range(3) if size >> one):
        with c.b.if_then(c.b.icmp_unsigned("==", c.field(context, UNIT), c.const(shift))):
            order = _order(c.b.module, what, size, shift)
            c.b.store(c.b.call(order, [context, record, addresses, mask, queue, c.b.zext(even, c.i64)]), left)
    with c.b.if_then(c.b.icmp_unsigned("!=", c.get(left), c.const(0))):
        how = c.b.add(c.b.shl(queue, c.const(1)), c.const(int(what == "store")))
        differs = c.get(left) if what == "load" else _changed(c, size, c.get(left), delta)
        c.b.call(race, [context, record, addresses, c.get(left), c.const(size), how, differs])


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
    _, _, addresses, mask, data, _ = c.args
    part = c.ir.IntType(8 * min(4, size))
    with c.lanes(mask) as lane:
        place = c.b.inttoptr(c.b.add(c.get(c.element(addresses, lane)), delta), c.pointer)
        for word in range(max(1, size // 4)):
            held, there = c.element(data, c.b.add(lane, c.const(LANES * word)), c.i32), c.at(place, 4 * word)
            if what == "load":
                value = c.b.load(there, typ=part, align=1)
                c.b.store(value if size >= 4 else c.b.zext(value, c.i32), held)
            else:
                value = c.b.load(held, typ=c.i32)
                c.b.store(value if size >= 4 else c.b.trunc(value, part), there, align=1)


def move_together(c: Code, what: str, size: int, delta: Any) -> None:
    """As `move`, of all lanes, each of which accesses the bytes after those of the one before it."""
    _, _, addresses, _, data, _ = c.args
    start, words, word = c.b.inttoptr(c.b.add(c.get(addresses), delta), c.pointer), max(1, size // 4), c.i32
    part = c.ir.IntType(8 * min(4, size))
    many, some, twice = (c.ir.VectorType(*one) for one in ((part, PART * words), (word, PART), (word, 2 * PART)))
    with c.repeat(LANES // PART) as number:
        there = c.at(start, c.b.mul(number, c.const(PART * size)))
        held = [
            c.element(data, c.b.add(c.b.mul(number, c.const(PART)), c.const(LANES * each)), word)
            for each in range(words)
        ]
        if what == "load":
            value = c.b.load(there, typ=many, align=1)
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
            c.b.store(value if size >= 4 else c.b.trunc(value, many), there, align=1)
