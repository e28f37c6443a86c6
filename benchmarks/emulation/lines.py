"""Nodes of an instruction's graph as lines of LLVM: one number of the wave, or CHUNK lanes at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partialmethod
from typing import Any

import numpy as np

from .graph import BOOL, ROW, Node
from .layout import PARAMETERS, SCC, WAVE, S, V
from .tracing import Effects
from .waves import EXEC, LANES

CHUNK = ROW
"""Lanes of a vector of LLVM's."""

_INT = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}
_FLOAT = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}
_LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor", "multiply": "and", "add": "or"}
_COMPARE = {
    "equal": ("oeq", "eq"), "not_equal": ("une", "ne"), "less": ("olt", "lt"), "less_equal": ("ole", "le"),
    "greater": ("ogt", "gt"), "greater_equal": ("oge", "ge"),
}  # fmt: skip
_ROUND = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundeven", "sqrt": "sqrt"}
_SUFFIX = {2: "f16", 4: "f32", 8: "f64"}


class Unlowered(TypeError):
    """A node that has no code."""


def scalar_type(dtype: Any) -> str:
    """LLVM's type of one number."""
    if dtype == BOOL:
        return "i1"
    return {2: "half", 4: "float", 8: "double"}[dtype.itemsize] if dtype.kind == "f" else f"i{8 * dtype.itemsize}"


def ordered(roots: Iterable[Node]) -> list[Node]:
    """All nodes that these need, each after what it needs: in the order in which they were made."""
    found: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.number not in found:
            found[node.number] = node
            stack += node.args
    return [found[number] for number in sorted(found)]


def _rows_of(index: Node) -> tuple[Any, Any] | None:
    """From which row each row of lanes reads, and from which of its places, if these are constant and alike in all."""
    if index.what != "lanes":
        return None
    dtype, contents = index.data
    lanes = np.frombuffer(contents, dtype).astype(np.int64).reshape(-1, CHUNK)
    rows, places = lanes // CHUNK, lanes % CHUNK
    return (rows[:, 0], places[0]) if (rows == rows[:, :1]).all() and (places == places[0]).all() else None


MOST_TESTS = 4
"""Of which a choice is made one after the other."""


def _tests(node: Node) -> int:
    """How many flags a flag is made of."""
    made = node.dtype == BOOL and node.what in ("bitwise_and", "logical_and", "bitwise_or", "logical_or", "invert")
    return sum(map(_tests, node.args)) if made else 1


class Body:
    """Text of one function.  values: node and whether it is wanted by lane -> name."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.lines: list[str] = []
        self.head: list[str] = []
        self.globals: dict[Any, str] = {}
        self.declared: set[str] = set()
        self._count = 0
        self._uniform: dict[int, str] = {}
        self._spread: dict[tuple[int, int], str] = {}
        self._lane: dict[int, str] = {}
        self._slots: dict[int, str] = {}
        self._chunk = ""

    # Lines.

    def name(self) -> str:
        """A new value."""
        self._count += 1
        return f"%t{self._count}"

    def put(self, text: str) -> str:
        """A line that gives a value."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """A line that gives none."""
        self.lines.append(f"  {text}")

    def intrinsic(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """A call of a function of LLVM's."""
        kinds = ", ".join(kind for kind, _ in arguments)
        self.declared.add(f"declare {result} @{name}({kinds})")
        return self.put(f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def at(self, base: str, offset: str | int) -> str:
        """An address."""
        return self.put(f"getelementptr i8, ptr {base}, i64 {offset}")

    def field(self, kind: str, base: str, offset: int) -> str:
        """What lies at an address."""
        return self.put(f"load {kind}, ptr {self.at(base, offset)}")

    def exec_mask(self) -> str:
        """EXEC."""
        return self.field("i64", "%st", S + 4 * EXEC)

    def parameter(self, index: int) -> str:
        """A parameter of the record."""
        return self.field("i64", "%rec", PARAMETERS + 8 * index)

    def register(self, index: int, vector: bool) -> str:
        """The address of the register whose number a parameter holds."""
        number = self.parameter(index)
        scaled = self.put(f"shl i64 {number}, {8 if vector else 2}")
        return self.at("%st", self.put(f"add i64 {scaled}, {V if vector else S}"))

    def table(self, dtype: str, contents: bytes) -> str:
        """Constants."""
        key = (dtype, contents)
        if key not in self.globals:
            self.globals[key] = f"@{self.title}.{len(self.globals)}"
        return self.globals[key]

    # Values.

    def type(self, node: Node, by_lane: bool) -> str:
        """LLVM's type of a node's value."""
        one = scalar_type(node.dtype)
        return f"<{CHUNK} x {one}>" if by_lane else one

    def value(self, node: Node, by_lane: bool) -> str:
        """A node's value, one number or one for each lane of the chunk."""
        if node.by_lane:
            return self._lane[node.number]
        if not by_lane:
            return self._uniform[node.number]
        if node.what == "constant":
            return f"splat ({self.type(node, False)} {self._uniform[node.number]})"
        key = node.number
        if key not in self._lane:
            one, many = self.type(node, False), self.type(node, True)
            first = self.put(f"insertelement {many} poison, {one} {self._uniform[key]}, i64 0")
            self._lane[key] = self.put(f"shufflevector {many} {first}, {many} poison, <{CHUNK} x i32> zeroinitializer")
        return self._lane[key]

    def compute(self, node: Node) -> None:
        """The line or lines of a node."""
        by_lane = node.by_lane
        name = Lower(self, node).line()
        (self._lane if by_lane else self._uniform)[node.number] = name

    def lane_bits(self, mask: str) -> str:
        """Bits of a mask, for each lane of the chunk."""
        part = self.put(f"trunc i64 {self.put(f'lshr i64 {mask}, {self.chunk_start}')} to i{CHUNK}")
        return self.put(f"bitcast i{CHUNK} {part} to <{CHUNK} x i1>")

    def select(self, test: Node, kind: str, yes: str, no: str) -> str:
        """yes or no, by a flag of each lane.

        Flags that two tests give are not combined: vectors of flags would be packed for it, and unpacked to choose.
        """
        parts = test.args if test.by_lane and test.dtype == BOOL and _tests(test) <= MOST_TESTS else ()
        if parts and test.what in ("bitwise_and", "logical_and"):
            return self.select(parts[0], kind, self.select(parts[1], kind, yes, no), no)
        if parts and test.what in ("bitwise_or", "logical_or"):
            return self.select(parts[0], kind, yes, self.select(parts[1], kind, yes, no))
        if parts and test.what in ("invert", "logical_not"):
            return self.select(parts[0], kind, no, yes)
        return self.put(f"select <{CHUNK} x i1> {self.value(test, True)}, {kind} {yes}, {kind} {no}")

    def slot(self, node: Node) -> str:
        """Where the first argument of a node that needs all lanes is put."""
        source = node.args[0]
        if source.number not in self._slots:
            name = self._slots[source.number] = f"%slot{len(self._slots)}"
            self.head.append(f"  {name} = alloca [{LANES} x {self.memory_type(source)}], align 64")
        return self._slots[source.number]

    def mask(self, node: Node) -> str:
        """The bits of all lanes, once they are all there; not put into memory by parts, of which a load has to wait."""
        return f"%bits{node.number}"

    def memory_type(self, node: Node) -> str:
        """How a value lies in memory."""
        return "i8" if node.dtype == BOOL else scalar_type(node.dtype)


class Lower:
    """One node's line."""

    def __init__(self, body: Body, node: Node) -> None:
        self.body, self.node = body, node
        self.by_lane, self.kind = node.by_lane, body.type(node, node.by_lane)
        self.size = node.dtype.itemsize

    def arg(self, index: int) -> str:
        return self.body.value(self.node.args[index], self.by_lane)

    def arg_type(self, index: int) -> str:
        return self.body.type(self.node.args[index], self.by_lane)

    def like(self, kind: str) -> str:
        """A type, of one number or by lane."""
        return f"<{CHUNK} x {kind}>" if self.by_lane else kind

    def vector_name(self, kind: str) -> str:
        """As names of LLVM's functions end."""
        return f"v{CHUNK}{kind}" if self.by_lane else kind

    def const(self, value: Any) -> str:
        return f"splat ({self.kind_of_one()} {value})" if self.by_lane else str(value)

    def kind_of_one(self) -> str:
        return scalar_type(self.node.dtype)

    def line(self) -> str:
        what = self.node.what
        if method := getattr(self, f"do_{what}", None):
            return str(method())
        if what in _COMPARE:
            return self.compared()
        if what in _ROUND and self.node.dtype.kind == "f":
            return self.rounded(_ROUND[what])
        if self.node.dtype == BOOL:
            if op := {**_INT, **_LOGIC}.get(what):
                return self.body.put(f"{op} {self.kind} {self.arg(0)}, {self.arg(1)}")
        elif self.node.dtype.kind == "f":
            if op := _FLOAT.get(what):
                return self.of_float(op)
        elif op := _INT.get(what):
            return self.body.put(f"{op} {self.kind} {self.arg(0)}, {self.arg(1)}")
        raise Unlowered(f"{what} of {self.node.dtype}")

    # Leaves.

    def do_constant(self) -> str:
        node = self.node
        if node.dtype.kind != "f":
            return str(node.data)
        if node.dtype.itemsize == 2:
            return f"0xH{node.data:04X}"
        bits = node.data
        if node.dtype.itemsize == 4:
            with np.errstate(all="ignore"):
                number = np.array(bits, np.uint32).view(np.float32)
                if np.isnan(number):
                    return f"bitcast (i32 {bits} to float)"
                bits = struct.unpack("<Q", struct.pack("<d", float(number)))[0]
        return f"0x{bits:016X}"

    def do_parameter(self) -> str:
        body = self.body
        value = body.parameter(self.node.data)
        raw = f"i{8 * self.size}" if self.node.dtype != BOOL else "i1"
        if raw != "i64":
            value = body.put(f"trunc i64 {value} to {raw}")
        return value if self.node.dtype.kind != "f" else body.put(f"bitcast {raw} {value} to {self.kind}")

    def do_s(self) -> str:
        return self.body.put(f"load i32, ptr {self.body.register(self.node.data, False)}")

    def do_s64(self) -> str:
        return self.body.put(f"load i64, ptr {self.body.register(self.node.data, False)}, align 4")

    def do_exec(self) -> str:
        return self.body.exec_mask()

    def do_scc(self) -> str:
        value = self.body.field("i32", "%st", SCC)
        return self.body.put(f"trunc i32 {value} to i1")

    def do_wave(self) -> str:
        return self.body.field("i64", "%st", WAVE)

    def do_v(self) -> str:
        body = self.body
        return body.put(f"load {self.kind}, ptr {body.at(body.bases[self.node.data], body.offset32)}, align 64")

    def do_staged(self) -> str:
        body = self.body
        access, word = self.node.data
        place = body.at(body.at(body.datas[access][1], 4 * LANES * word), body.offset32)
        return body.put(f"load {self.kind}, ptr {place}, align 64")

    def do_loaded(self) -> str:
        access, word = self.node.data
        return self.body.field("i32", self.body.pointers[access], 4 * word)

    def do_lanes(self) -> str:
        dtype, contents = self.node.data
        values = np.frombuffer(contents, dtype)
        body = self.body
        if values.dtype == BOOL:
            place = body.at(body.table("i8", contents), body.chunk_start)
            return body.put(f"trunc <{CHUNK} x i8> {body.put(f'load <{CHUNK} x i8>, ptr {place}')} to {self.kind}")
        place = body.at(
            body.table(f"i{8 * values.itemsize}", contents), body.put(f"mul i64 {body.chunk_start}, {values.itemsize}")
        )
        return body.put(f"load {self.kind}, ptr {place}, align {values.itemsize}")

    # Between lanes.

    def do_lane_bit(self) -> str:
        return self.body.lane_bits(self.body.value(self.node.args[0], False))

    def do_mask(self) -> str:
        return self.body.mask(self.node)

    def do_extract(self) -> str:
        body, (source, lane) = self.body, self.node.args
        kind = body.memory_type(source)
        index = body.value(lane, False)
        width = scalar_type(lane.dtype)
        if width != "i64":
            index = body.put(f"zext {width} {index} to i64")
        place = body.put(f"getelementptr {kind}, ptr {body.slot(self.node)}, i64 {index}")
        return self.from_memory(source, body.put(f"load {kind}, ptr {place}"))

    def do_shuffle(self) -> str:
        places = ", ".join(f"i32 {place}" for place in self.node.data)
        return self.body.put(f"shufflevector {self.kind} {self.arg(0)}, {self.kind} poison, <{CHUNK} x i32> <{places}>")

    def from_memory(self, source: Node, value: str) -> str:
        if source.dtype != BOOL:
            return value
        return self.body.put(f"trunc {self.like('i8')} {value} to {self.kind}")

    def do_across(self) -> str:
        body, (source, index) = self.body, self.node.args
        kind, wide = body.memory_type(source), scalar_type(index.dtype)
        if rows := _rows_of(index):
            return self.from_memory(source, self.of_row(kind, *rows))
        places = body.value(index, True)
        if wide != "i64":
            places = body.put(f"zext <{CHUNK} x {wide}> {places} to <{CHUNK} x i64>")
        return self.from_memory(source, self.gathered(kind, body.slot(self.node), places))

    def of_row(self, kind: str, rows: Any, places: Any) -> str:
        """Lanes of one row for each, in the same order."""
        body, many = self.body, f"<{CHUNK} x {kind}>"
        table = body.table("i64", (rows * CHUNK).tobytes())
        place = body.at(table, body.put(f"lshr i64 {body.chunk_start}, 1"))
        start = body.put(f"load i64, ptr {place}")
        slot = body.put(f"getelementptr {kind}, ptr {body.slot(self.node)}, i64 {start}")
        row, order = body.put(f"load {many}, ptr {slot}"), ", ".join(f"i32 {one}" for one in places)
        return body.put(f"shufflevector {many} {row}, {many} poison, <{CHUNK} x i32> <{order}>")

    def gathered(self, kind: str, base: str, places: str) -> str:
        body = self.body
        pointers = body.put(f"getelementptr {kind}, ptr {base}, <{CHUNK} x i64> {places}")
        many = f"<{CHUNK} x {kind}>"
        short = {"float": "f32", "double": "f64", "half": "f16"}.get(kind, kind)
        return body.intrinsic(
            f"llvm.masked.gather.v{CHUNK}{short}.v{CHUNK}p0", many, (f"<{CHUNK} x ptr>", pointers),
            (f"<{CHUNK} x i1>", "splat (i1 true)"), (many, "poison"),
        )  # fmt: skip

    def do_table(self) -> str:
        body = self.body
        dtype, contents = self.node.data
        size = np.dtype(dtype).itemsize
        base = body.table(f"i{8 * size}", contents)
        if self.by_lane:
            return self.gathered(self.kind_of_one(), base, self.arg(0))
        place = body.put(f"getelementptr {self.kind}, ptr {base}, i64 {self.arg(0)}")
        return body.put(f"load {self.kind}, ptr {place}")

    def do_first(self) -> str:
        mask = self.arg(0)
        found = self.body.intrinsic("llvm.cttz.i64", "i64", ("i64", mask), ("i1", "false"))
        return self.body.put(f"and i64 {found}, 63")

    # Numbers.

    def called(self, name: str, short: str, kind: str, *given: str) -> str:
        """A function of LLVM's, of numbers that are all of one kind; short: as its name ends."""
        pairs = [(kind, value) for value in given]
        return self.body.intrinsic(f"llvm.{name}.{self.vector_name(short)}", kind, *pairs)

    def compared(self) -> str:
        floats, whole = _COMPARE[self.node.what]
        source = self.node.args[0].dtype
        if source.kind == "f":
            a, b = (self.widened(index) for index in (0, 1))
            kind = self.like("float") if source.itemsize == 2 else self.arg_type(0)
            return self.body.put(f"fcmp {floats} {kind} {a}, {b}")
        sign = "" if whole in ("eq", "ne") else "s" if source.kind == "i" else "u"
        return self.body.put(f"icmp {sign}{whole} {self.arg_type(0)} {self.arg(0)}, {self.arg(1)}")

    def widened(self, index: int) -> str:
        """An argument of 16 bits as fp32, in which it is computed."""
        if self.node.args[index].dtype.itemsize != 2:
            return self.arg(index)
        return self.body.put(f"fpext {self.like('half')} {self.arg(index)} to {self.like('float')}")

    def narrowed(self, value: str) -> str:
        if self.size != 2:
            return value
        return self.body.put(f"fptrunc {self.like('float')} {value} to {self.kind}")

    def of_float(self, op: str) -> str:
        kind = self.like("float") if self.size == 2 else self.kind
        return self.narrowed(self.body.put(f"{op} {kind} {self.widened(0)}, {self.widened(1)}"))

    def rounded(self, name: str) -> str:
        one, short = ("float", "f32") if self.size == 2 else (self.kind_of_one(), _SUFFIX[self.size])
        return self.narrowed(self.called(name, short, self.like(one), self.widened(0)))

    def do_fma(self) -> str:
        return self.called("fma", _SUFFIX[self.size], self.kind, *map(self.arg, range(3)))

    def do_where(self) -> str:
        kind = self.kind
        if self.by_lane and self.node.args[0].by_lane and self.node.dtype != BOOL:
            return self.body.select(self.node.args[0], kind, self.arg(1), self.arg(2))
        return self.body.put(f"select {self.arg_type(0)} {self.arg(0)}, {kind} {self.arg(1)}, {kind} {self.arg(2)}")

    def do_bits(self) -> str:
        return self.body.put(f"bitcast {self.arg_type(0)} {self.arg(0)} to {self.kind}")

    def do_invert(self) -> str:
        return self.body.put(f"xor {self.kind} {self.arg(0)}, {self.const('true' if self.node.dtype == BOOL else -1)}")

    do_logical_not = do_invert

    def do_negative(self) -> str:
        if self.node.dtype.kind == "f":
            if self.size == 2:
                return self.narrowed(self.body.put(f"fneg {self.like('float')} {self.widened(0)}"))
            return self.body.put(f"fneg {self.kind} {self.arg(0)}")
        return self.body.put(f"sub {self.kind} {self.const(0)}, {self.arg(0)}")

    def do_absolute(self) -> str:
        body, kind = self.body, self.kind
        if self.node.dtype.kind == "f":
            return self.called("fabs", _SUFFIX[self.size], kind, self.arg(0))
        if self.node.dtype.kind == "u":
            return self.arg(0)
        name = f"llvm.abs.{self.vector_name(self.kind_of_one())}"
        return body.intrinsic(name, kind, (kind, self.arg(0)), ("i1", "false"))

    def do_copysign(self) -> str:
        return self.called("copysign", _SUFFIX[self.size], self.kind, self.arg(0), self.arg(1))

    def do_bitwise_count(self) -> str:
        kind = self.arg_type(0)
        found = self.called("ctpop", scalar_type(self.node.args[0].dtype), kind, self.arg(0))
        return found if kind == self.kind else self.body.put(f"trunc {kind} {found} to {self.kind}")

    def extreme(self, wins: str) -> str:
        """A NaN wins."""
        body, kind = self.body, self.kind
        a, b = self.arg(0), self.arg(1)
        if self.node.dtype.kind != "f":
            return self.called(("s" if self.node.dtype.kind == "i" else "u") + wins, self.kind_of_one(), kind, a, b)
        x, y = self.widened(0), self.widened(1)
        wide = self.like("float") if self.size == 2 else kind
        better = body.put(f"fcmp {'ole' if wins == 'min' else 'oge'} {wide} {x}, {y}")
        none = body.put(f"fcmp uno {wide} {x}, {x}")
        test = body.put(f"or {self.like('i1')} {better}, {none}")
        return body.put(f"select {self.like('i1')} {test}, {kind} {a}, {kind} {b}")

    do_minimum, do_maximum = partialmethod(extreme, "min"), partialmethod(extreme, "max")

    def shift(self, op: str) -> str:
        """As numpy does it: by more places than there are, nothing is left."""
        body, by = self.body, self.node.args[1]
        bits = 8 * self.size
        if by.what == "constant":
            if by.data >= bits:
                raise Unlowered("a shift by more than all places")
            return body.put(f"{op} {self.kind} {self.arg(0)}, {self.arg(1)}")
        inside = body.put(f"icmp ult {self.kind} {self.arg(1)}, {self.const(bits)}")
        most = self.const(bits - 1)
        limited = body.put(f"select {self.like('i1')} {inside}, {self.kind} {self.arg(1)}, {self.kind} {most}")
        value = body.put(f"{op} {self.kind} {self.arg(0)}, {limited}")
        if op == "ashr":
            return value
        return body.put(f"select {self.like('i1')} {inside}, {self.kind} {value}, {self.kind} {self.const(0)}")

    do_left_shift = partialmethod(shift, "shl")

    def do_right_shift(self) -> str:
        return self.shift("ashr" if self.node.dtype.kind == "i" else "lshr")

    def do_cast(self) -> str:
        body, source, into = self.body, self.node.args[0].dtype, self.node.dtype
        value, kind, was = self.arg(0), self.kind, self.arg_type(0)
        if source.kind == "f" and into.kind == "f":
            return self.float_cast(value, source, into)
        if source.kind == "f":
            if source.itemsize == 2:
                value, was = self.widened(0), self.like("float")
            return body.put(f"fpto{'s' if into.kind == 'i' else 'u'}i {was} {value} to {kind}")
        signed = source.kind == "i"
        if into.kind == "f":
            op = "sitofp" if signed else "uitofp"
            if into.itemsize == 2:
                return self.narrowed(body.put(f"{op} {was} {value} to {self.like('float')}"))
            return body.put(f"{op} {was} {value} to {kind}")
        if source != BOOL and source.itemsize == into.itemsize:
            return value
        if source != BOOL and source.itemsize > into.itemsize:
            return body.put(f"trunc {was} {value} to {kind}")
        return body.put(f"{'sext' if signed else 'zext'} {was} {value} to {kind}")

    def float_cast(self, value: str, source: Any, into: Any) -> str:
        body, was = self.body, self.arg_type(0)
        if source.itemsize < into.itemsize:
            if source.itemsize == 2 and into.itemsize == 8:
                value, was = self.widened(0), self.like("float")
            return body.put(f"fpext {was} {value} to {self.kind}")
        if into.itemsize == 4 or source.itemsize == 4:
            return body.put(f"fptrunc {was} {value} to {self.kind}")
        # fp64 to fp16: through fp32 with what is lost in its last bit
        single, double, words, flags = (self.like(one) for one in ("float", "double", "i32", "i1"))
        one = (lambda kind, number: f"splat ({kind} {number})") if self.by_lane else (lambda kind, number: str(number))
        near = body.put(f"fptrunc {double} {value} to {single}")
        back = body.put(f"fpext {single} {near} to {double}")
        inexact = body.put(f"fcmp one {double} {back}, {value}")
        sizes = [self.called("fabs", "f64", double, number) for number in (back, value)]
        above = body.put(f"fcmp ogt {double} {sizes[0]}, {sizes[1]}")
        raw = body.put(f"bitcast {single} {near} to {words}")
        less = body.put(f"sub {words} {raw}, {one('i32', 1)}")
        down = body.put(f"select {flags} {above}, {words} {less}, {words} {raw}")
        odd = body.put(f"or {words} {down}, {one('i32', 1)}")
        chosen = body.put(f"select {flags} {inexact}, {words} {odd}, {words} {raw}")
        return body.put(f"fptrunc {single} {body.put(f'bitcast {words} {chosen} to {single}')} to {self.kind}")
