"""A function of native code that is written with variables and loops."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from .waves import LANES


class Code:
    """One function under construction, with variables."""

    def __init__(self, module: Any, name: str, result: Any, arguments: Any) -> None:
        from llvmlite import ir

        self.ir, self.i64, self.i32, self.i1 = ir, ir.IntType(64), ir.IntType(32), ir.IntType(1)
        self.pointer = ir.PointerType()
        kinds = {"p": self.pointer, "i": self.i64}
        kind = ir.FunctionType(
            {"v": ir.VoidType(), "b": self.i1, "p": self.pointer, "i": self.i64}[result], [kinds[a] for a in arguments]
        )
        self.function = ir.Function(module, kind, name)
        self.b = ir.IRBuilder(self.function.append_basic_block())
        self.args = self.function.args

    def const(self, value: int) -> Any:
        return self.ir.Constant(self.i64, value)

    def var(self, value: Any) -> Any:
        with self.b.goto_entry_block():
            place = self.b.alloca(self.i64)
        self.b.store(value if not isinstance(value, int) else self.const(value), place)
        return place

    def get(self, place: Any) -> Any:
        return self.b.load(place, typ=self.i64)

    def at(self, base: Any, offset: Any) -> Any:
        if isinstance(offset, int):
            offset = self.const(offset)
        return self.b.gep(base, [offset], source_etype=self.ir.IntType(8))

    def field(self, base: Any, offset: Any, kind: Any = None) -> Any:
        return self.b.load(self.at(base, offset), typ=kind or self.i64)

    def put(self, base: Any, offset: Any, value: Any) -> None:
        self.b.store(value, self.at(base, offset))

    def add(self, base: Any, offset: Any, value: Any) -> None:
        self.put(base, offset, self.b.add(self.field(base, offset), value))

    def bump(self, place: Any, value: Any = 1) -> None:
        self.b.store(self.b.add(self.get(place), self.const(value) if isinstance(value, int) else value), place)

    @contextlib.contextmanager
    def repeat(self, count: Any) -> Iterator[Any]:
        """The numbers from 0."""
        count = self.const(count) if isinstance(count, int) else count
        index = self.var(0)
        with self.while_(lambda: self.b.icmp_unsigned("<", self.get(index), count)):
            yield self.get(index)
            self.bump(index)

    @contextlib.contextmanager
    def while_(self, test: Callable[[], Any]) -> Iterator[None]:
        head, body, after = (self.function.append_basic_block() for _ in range(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(test(), body, after)
        self.b.position_at_end(body)
        yield
        self.b.branch(head)
        self.b.position_at_end(after)

    @contextlib.contextmanager
    def lanes(self, mask: Any) -> Iterator[Any]:
        """Lanes of a mask, in their order."""
        left = self.var(mask)
        with self.while_(lambda: self.b.icmp_unsigned("!=", self.get(left), self.const(0))):
            now = self.get(left)
            lane = self.b.cttz(now, self.ir.Constant(self.i1, 1))
            self.b.store(self.b.and_(now, self.b.sub(now, self.const(1))), left)
            yield lane

    # All lanes at once.

    def vector(self, base: Any) -> Any:
        """Numbers of 64 bits of all lanes."""
        return self.b.load(base, typ=self.ir.VectorType(self.i64, LANES), align=8)

    def splat(self, value: Any, kind: Any = None, count: int = LANES) -> Any:
        """The same number for every lane."""
        many = self.ir.VectorType(kind or self.i64, count)
        first = self.b.insert_element(self.ir.Constant(many, self.ir.Undefined), value, self.ir.Constant(self.i32, 0))
        places = self.ir.Constant(self.ir.VectorType(self.i32, count), [0] * count)
        return self.b.shuffle_vector(first, self.ir.Constant(many, self.ir.Undefined), places)

    def flags(self, mask: Any) -> Any:
        """The bits of a mask, a flag for each lane."""
        return self.b.bitcast(mask, self.ir.VectorType(self.i1, LANES))

    def reduced(self, what: str, vector: Any) -> Any:
        """One number of all lanes': "smin", "smax" or "or"."""
        kind = vector.type
        name = f"llvm.vector.reduce.{what}.v{kind.count}i{kind.element.width}"
        known = self.b.module.globals.get(name)
        return self.b.call(
            known or self.ir.Function(self.b.module, self.ir.FunctionType(kind.element, [kind]), name), [vector]
        )

    def first(self, count: Any, many: int) -> Any:
        """Flags of so many numbers, of which the first `count` are set."""
        kind = self.ir.VectorType(self.i64, many)
        return self.b.icmp_signed("<", self.ir.Constant(kind, [*range(many)]), self.splat(count, count=many))

    def load_some(self, place: Any, kind: Any, flags: Any) -> Any:
        """The numbers from a place on whose flags are set; 0 for the others, which are not reached."""
        return self._some("load", kind, kind, [place, flags, self.ir.Constant(kind, None)])

    def store_some(self, value: Any, place: Any, flags: Any) -> None:
        """The other way."""
        self._some("store", value.type, self.ir.VoidType(), [value, place, flags])

    def _some(self, what: str, kind: Any, result: Any, given: list[Any]) -> Any:
        name = f"llvm.masked.{what}.v{kind.count}i{kind.element.width}.p0"
        shape = self.ir.FunctionType(result, [one.type for one in given])
        return self.b.call(self.b.module.globals.get(name) or self.ir.Function(self.b.module, shape, name), given)

    def element(self, base: Any, index: Any, kind: Any = None) -> Any:
        index = self.const(index) if isinstance(index, int) else index
        return self.b.gep(base, [index], source_etype=kind or self.i64)

    def table(self, name: str, kind: Any, numbers: list[Any]) -> Any:
        """Constants in memory."""
        shape = self.ir.ArrayType(kind, len(numbers))
        made = self.ir.GlobalVariable(self.b.module, shape, name)
        made.linkage, made.global_constant, made.initializer = "private", True, self.ir.Constant(shape, numbers)
        return made

    def is_zero(self, value: Any) -> Any:
        """Whether a number is 0."""
        return self.b.icmp_signed("==", value, self.const(0))

    def is_set(self, value: Any) -> Any:
        """Whether a number is another than 0."""
        return self.b.not_(self.is_zero(value))

    def larger(self, a: Any, b: Any) -> Any:
        """The larger one of two numbers with a sign."""
        return self.b.select(self.b.icmp_signed(">", a, b), a, b)

    def returned_if(self, test: Any, value: Any) -> None:
        with self.b.if_then(test):
            self.b.ret(value)
