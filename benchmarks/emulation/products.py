"""MFMA in native code: operands as fp64, rows of D as sums of multiples of rows of B, in the order of k.

Where each number lies is read off the executor's own maps (matrix.Product.tiles, matrix.by_registers), by giving them
numbers that say where they came from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .code_builder import Code
from .formats import small_floats, width
from .graph import Untraceable
from .layout import COUNT, PARAMETERS, RECORD, TITLE, V
from .library import SIMPLIFY
from .matrix import Product, by_registers
from .operands import VECTOR, Unknown, constant
from .waves import ACCUMULATORS, LANES

CHUNK = 16
"""Lanes that are converted at once."""

KINDS = ("f16", "bf16", "f32", "xf32", "f64", "i8", "fp8", "bf8")
"""Formats of operands that have native code."""


def product(one: Product) -> tuple[str, list[int]]:
    """(text of the function, its parameters): the first registers of A, B, C and D, C's bits where it is a constant."""
    if one.scales or not {one.left, one.right} <= set(KINDS):
        raise Untraceable("a product of small or scaled floats")
    starts = [code - VECTOR + ACCUMULATORS * accumulates for code, accumulates in (one.a, one.b, one.c)]
    fixed = one.c[0] < VECTOR
    bits = 0
    if fixed:
        try:
            bits = int(
                constant(one.c[0], "f64" if one.result == "F64" else "f32" if one.result == "F32" else "i32", None)[0]
            )
        except Unknown as error:
            raise Untraceable(str(error)) from error
        starts[2] = 0
    elif starts[2] < 0:
        raise Untraceable("C in a scalar register")
    if min(starts[:2]) < 0:
        raise Untraceable("A or B is no vector register")
    form = repr(replace(one, a=(0, 0), b=(0, 0), c=(0, 0), into=0)), fixed
    if form not in _texts:
        _texts[form] = _function(one, fixed)
    return _texts[form], [*starts, one.into, bits]


_texts: dict[tuple[str, bool], str] = {}
"""Functions of products, by all but their registers."""


def _places(one: Product, kind: str, registers: int) -> list[list[int]]:
    """[block][k]: where a row of `size` numbers begins in an operand's numbers, [numbers of a lane, 64]."""
    per = 32 * registers // width(kind)
    lanes, numbers = np.meshgrid(np.arange(LANES), np.arange(per), indexing="ij")
    tile = one.tiles((numbers * LANES + lanes)[None], kind)[0]
    rows = tile.transpose(0, 2, 1)
    if (np.diff(rows, axis=2) != 1).any():
        raise Untraceable("rows apart")
    return [[int(number) for number in block] for block in rows[:, :, 0]]


def _destinations(one: Product) -> list[list[int]]:
    """[block][row]: where a row of D begins in its registers, [registers, 64], of fp64 in pairs of them."""
    count = one.blocks * one.size * one.size
    tile = np.arange(count).reshape(1, one.blocks, one.size, one.size)
    where = np.empty(count, np.int64)
    where[by_registers(tile, one.result).reshape(-1)] = np.arange(count)
    rows = where.reshape(one.blocks, one.size, one.size)
    if (np.diff(rows, axis=2) != 1).any():
        raise Untraceable("rows apart")
    return [[int(number) for number in block] for block in rows[:, :, 0]]


def _function(one: Product, fixed: bool) -> str:
    from llvmlite import ir

    made = ir.Module()
    c = Code(made, TITLE, "i", "pp")
    st, record = c.args
    double, single, word = ir.DoubleType(), ir.FloatType(), ir.IntType(32)
    row = ir.VectorType(double, one.size)

    def table(name: str, values: Any) -> Any:
        return c.table(f"{TITLE}.{name}", c.i64, np.asarray(values).reshape(-1).tolist())

    def register(index: int) -> Any:
        number = c.field(record, PARAMETERS + 8 * index)
        return c.at(st, c.b.add(c.b.shl(number, c.const(8)), c.const(V)))

    def space(kind: Any, count: int) -> Any:
        with c.b.goto_entry_block():
            made_space = c.b.alloca(kind, count)
            made_space.align = 64
            return made_space if count == 1 else c.b.inttoptr(c.b.ptrtoint(made_space, c.i64), c.pointer)

    operands = []
    for index, (kind, registers) in enumerate(((one.left, one.registers[0]), (one.right, one.registers[1]))):
        numbers = space(double, LANES * 32 * registers // width(kind))
        _convert(c, made, register(index), numbers, kind, registers, one.arch)
        operands.append(numbers)
    left, right = operands
    of_a, of_b = (
        _places(one, kind, count) for kind, count in ((one.left, one.registers[0]), (one.right, one.registers[1]))
    )
    of_a = [of_a[int(block)] for block in one.chosen]
    a_table, b_table, d_table = table("a", of_a), table("b", of_b), table("d", _destinations(one))
    kind = {"F32": single, "F64": double, "I32": word}[one.result]
    size = 8 if one.result == "F64" else 4
    before = space(kind, one.blocks * one.size * one.size)
    _before(c, before, register(2), one, fixed, record)
    into = register(3)
    depth = len(of_a[0])
    fma = ir.Function(made, ir.FunctionType(row, [row] * 3), f"llvm.fma.v{one.size}f64")
    with c.repeat(one.blocks) as block, c.repeat(one.size // 2) as pair:
        totals = [space(row, 1), space(row, 1)]
        for total in totals:
            c.b.store(ir.Constant(row, [0.0] * one.size), total)
        first = c.b.shl(pair, c.const(1))
        with c.repeat(depth) as k:
            at = c.b.add(c.b.mul(block, c.const(depth)), k)
            mine = c.element(left, c.b.add(c.get(c.element(a_table, at)), first), double)
            theirs = c.b.load(c.element(right, c.get(c.element(b_table, at)), double), typ=row, align=8)
            for number, total in enumerate(totals):
                factor = c.b.load(c.element(mine, c.const(number), double), typ=double)
                many = c.splat(factor, double, one.size)
                c.b.store(c.b.call(fma, [many, theirs, c.b.load(total, typ=row)]), total)
        for number, total in enumerate(totals):
            line = c.b.add(c.b.mul(block, c.const(one.size)), c.b.add(first, c.const(number)))
            place = c.get(c.element(d_table, line))
            _store_row(c, one, c.b.load(total, typ=row), c.element(before, place, kind), into, place, size)
    c.add(record, COUNT, c.const(1))
    following = c.at(record, RECORD)
    signature = ir.FunctionType(c.i64, [c.pointer, c.pointer])
    code = c.b.load(following, typ=signature.as_pointer())
    c.b.ret(c.b.call(code, [st, following], tail="musttail"))
    return f"{SIMPLIFY}\n{made}"


def _convert(c: Code, made: Any, source: Any, numbers: Any, kind: str, registers: int, arch: str) -> None:
    """All numbers of an operand as fp64: [numbers of a lane, 64]."""
    from llvmlite import ir

    word, double = ir.IntType(32), ir.DoubleType()
    words, floats, doubles = (ir.VectorType(each, CHUNK) for each in (word, ir.FloatType(), double))
    per, bits = 32 // width(kind) if width(kind) < 64 else 1, width(kind)
    count = registers if bits < 64 else registers // 2
    values: Any = None
    if kind in ("fp8", "bf8"):
        entries = [float(one) for one in small_floats(arch)[kind]]
        values = c.table(f"{TITLE}.{kind}.{len(made.globals)}", double, entries)

    def many(value: int) -> Any:
        return ir.Constant(words, [value] * CHUNK)

    with c.repeat(count) as register, c.repeat(LANES // CHUNK) as chunk:
        start = c.b.mul(chunk, c.const(CHUNK))
        place = c.at(source, c.b.add(c.b.mul(register, c.const(256 if bits < 64 else 512)), c.b.shl(start, c.const(2))))
        raw = c.b.load(place, typ=words, align=4)
        for part in range(per):
            if kind == "f16":
                short = c.b.trunc(c.b.lshr(raw, many(16 * part)), ir.VectorType(ir.IntType(16), CHUNK))
                single = c.b.fpext(c.b.bitcast(short, ir.VectorType(ir.HalfType(), CHUNK)), floats)
                value = c.b.fpext(single, doubles)
            elif kind == "bf16":
                upper = c.b.shl(raw, many(16)) if part == 0 else c.b.and_(raw, many(0xFFFF0000))
                value = c.b.fpext(c.b.bitcast(upper, floats), doubles)
            elif kind in ("f32", "xf32"):
                single = _shortened(c, raw, many) if kind == "xf32" else raw
                value = c.b.fpext(c.b.bitcast(single, floats), doubles)
            elif kind == "i8":
                value = c.b.sitofp(c.b.ashr(c.b.shl(raw, many(24 - 8 * part)), many(24)), doubles)
            elif kind == "f64":
                high = c.b.load(c.at(place, 256), typ=words, align=4)
                longs = ir.VectorType(c.i64, CHUNK)
                up = c.b.shl(c.b.zext(high, longs), ir.Constant(longs, [32] * CHUNK))
                value = c.b.bitcast(c.b.or_(c.b.zext(raw, longs), up), doubles)
            else:
                codes = c.b.and_(c.b.lshr(raw, many(8 * part)), many(255))
                value = ir.Constant(doubles, ir.Undefined)
                for lane in range(CHUNK):
                    at = ir.Constant(word, lane)
                    code = c.b.zext(c.b.extract_element(codes, at), c.i64)
                    value = c.b.insert_element(value, c.b.load(c.element(values, code, double), typ=double), at)
            number = c.b.add(c.b.mul(register, c.const(per)), c.const(part))
            into = c.element(numbers, c.b.add(c.b.mul(number, c.const(LANES)), start), double)
            c.b.store(value, into, align=8)


def _shortened(c: Code, raw: Any, many: Any) -> Any:
    """fp32 numbers with the fraction of XF32, as formats.values has them."""
    up = c.b.add(c.b.add(raw, many(0xFFF)), c.b.and_(c.b.lshr(raw, many(13)), many(1)))
    finite = c.b.icmp_unsigned("!=", c.b.and_(raw, many(0x7F800000)), many(0x7F800000))
    return c.b.and_(c.b.select(finite, up, raw), many(0xFFFFE000))


def _before(c: Code, before: Any, source: Any, one: Product, fixed: bool, record: Any) -> None:
    """C, as it lies in registers: D may lie over a part of it."""
    from llvmlite import ir

    is_long, bits = one.result == "F64", c.field(record, PARAMETERS + 32)
    kind = c.i64 if is_long else c.i32
    words, longs = (ir.VectorType(each, LANES) for each in (c.i32, c.i64))
    with c.repeat(one.blocks * one.size * one.size // LANES) as number:
        place = c.at(source, c.b.mul(number, c.const(512 if is_long else 256)))
        if fixed:
            value = c.splat(bits if is_long else c.b.trunc(bits, kind), kind)
        else:
            value = c.b.load(place, typ=words, align=64)
        if is_long and not fixed:
            high = c.b.zext(c.b.load(c.at(place, 256), typ=words, align=64), longs)
            value = c.b.or_(c.b.zext(value, longs), c.b.shl(high, c.splat(c.const(32))))
        c.b.store(value, c.element(before, c.b.mul(number, c.const(LANES)), kind), align=64)


def _store_row(c: Code, one: Product, total: Any, before: Any, into: Any, place: Any, size: int) -> None:
    """A row of D: what was summed and C, rounded once."""
    from llvmlite import ir

    if one.result == "F32":
        singles = ir.VectorType(ir.FloatType(), one.size)
        added = c.b.fpext(c.b.load(before, typ=singles, align=4), total.type)
        c.b.store(c.b.fptrunc(c.b.fadd(total, added), singles), c.at(into, c.b.shl(place, c.const(2))), align=4)
    elif one.result == "I32":
        words, longs = ir.VectorType(ir.IntType(32), one.size), ir.VectorType(c.i64, one.size)
        product = c.b.trunc(c.b.fptosi(total, longs), words)
        c.b.store(
            c.b.add(product, c.b.load(before, typ=words, align=4)), c.at(into, c.b.shl(place, c.const(2))), align=4
        )
    else:
        longs, words = ir.VectorType(c.i64, one.size), ir.VectorType(ir.IntType(32), one.size)
        added = c.b.fadd(total, c.b.load(before, typ=total.type, align=8))
        raw = c.b.bitcast(added, longs)
        lane, pair = c.b.and_(place, c.const(LANES - 1)), c.b.lshr(place, c.const(6))
        target = c.at(into, c.b.add(c.b.shl(pair, c.const(9)), c.b.shl(lane, c.const(2))))
        c.b.store(c.b.trunc(raw, words), target, align=4)
        c.b.store(c.b.trunc(c.b.lshr(raw, ir.Constant(longs, [32] * one.size)), words), c.at(target, 256), align=4)
