"""What an instruction computes, as a graph that its own function has drawn: arrays that note what is done to them.

The functions of an operation (vector.py, scalar.py, memory.py) are called once with arrays of one wave that hold no
numbers but nodes; numpy hands every operation on them to these arrays (its protocols __array_ufunc__ and
__array_function__).  So there is one description of an operation's meaning, and native code is derived from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .waves import LANES

BOOL, U8, U32, U64 = (np.dtype(name) for name in ("?", "u1", "u4", "u8"))


class Untraceable(TypeError):
    """Something that is done to an array and has no node."""


@dataclass(frozen=True, eq=False)
class Node:
    """One number of a wave, or one for each lane.

    what: a ufunc's name, "cast", "bits" (the same bits as another type), "where", or a leaf: "constant", "parameter"
    (an immediate), "s", "s64", "v" (a register, by its parameter), "scc", "exec", "wave", "lanes"
    (constants by lane), "staged" (a word of each lane's loaded bytes); between lanes: "mask" (flags as bits), "across"
    (values of the lanes of an index), "shuffle" (the same within a row), "extract" (the value of one lane), "lane_bit"
    (each lane's bit of a mask); "table" (an element of constants).
    data: of a leaf.  by_lane: whether it differs between lanes.  level: how many times lanes have met before it.
    """

    what: str
    args: tuple[Node, ...]
    dtype: Any
    data: Any
    by_lane: bool
    level: int
    number: int


ROW = 16
"""Lanes next to each other that are computed together."""

MEETING = ("mask", "across", "extract")
"""Nodes that need their first argument of all lanes."""

BY_LANE = ("v", "lanes", "staged", "lane_bit", "across")
OF_THE_WAVE = ("loaded", "mask", "extract")


def _holds(node: Node) -> bool:
    """Whether a flag is known to be set in every lane."""
    return node.what == "lanes" and all(node.data[1])


class Graph:
    """Nodes, each once."""

    def __init__(self) -> None:
        self._known: dict[Any, Node] = {}
        self.parameters: list[int] = []
        self.refused: list[Node] = []
        """What stands in each parameter of the instruction: a register's number or an immediate's bits."""

    def node(self, what: str, args: Sequence[Node] = (), dtype: Any = U32, data: Any = None) -> Node:
        """The node, new or known."""
        if what == "where" and args[0].what == "constant":
            return args[1] if args[0].data else args[2]
        if what == "bitwise_and" and any(one.what == "invert" and one.args[0] in args for one in args):
            return self.constant(0, dtype)
        if what == "bitwise_and" and dtype == BOOL and len(some := [one for one in args if not _holds(one)]) == 1:
            return some[0]
        if what == "mask" and (bits := self._mask_of(args[0])):
            return bits
        key = (what, tuple(arg.number for arg in args), np.dtype(dtype).str, data)
        if key not in self._known:
            by_lane = what in BY_LANE or what not in OF_THE_WAVE and any(arg.by_lane for arg in args)
            level = max((arg.level for arg in args), default=0)
            if what in MEETING:
                level = max(args[0].level + 1, level)
            if what in ("staged", "loaded"):
                level += 1
            self._known[key] = Node(what, tuple(args), np.dtype(dtype), data, by_lane, level, len(self._known))
        return self._known[key]

    def _mask_of(self, flag: Node) -> Node | None:
        """Bits of a flag that others make, of their bits."""
        if flag.what == "lane_bit":
            return flag.args[0]
        if flag.what in ("bitwise_and", "bitwise_or", "invert") and all(one.by_lane for one in flag.args):
            return self.node(flag.what, [self.node("mask", (one,), U64) for one in flag.args], U64)
        return None

    def nodes(self) -> Iterable[Node]:
        """All of them."""
        return self._known.values()

    def parameter(self, value: int) -> int:
        """A new parameter that holds this."""
        self.parameters.append(value)
        return len(self.parameters) - 1

    def across(self, node: Node, index: Node) -> Node:
        """The values of the lanes of an index; of lanes of the same row, always alike, they are near."""
        if index.what == "lanes":
            dtype, octets = index.data
            rows = np.frombuffer(octets, dtype).astype(np.int64).reshape(-1, ROW) - np.arange(0, LANES, ROW)[:, None]
            if ((rows >= 0) & (rows < ROW)).all() and (rows == rows[0]).all():
                return self.node("shuffle", (node,), node.dtype, tuple(rows[0].tolist()))
        return self.node("across", (node, index), node.dtype)

    def constant(self, value: Any, dtype: Any) -> Node:
        """A number, by its bits."""
        dtype = np.dtype(dtype)
        array = np.asarray(value).astype(dtype)
        return self.node("constant", (), dtype, int(array.view(f"u{dtype.itemsize}")) if dtype != BOOL else int(array))

    def cast(self, node: Node, dtype: Any) -> Node:
        """As another type, as numpy's astype does it."""
        dtype = np.dtype(dtype)
        if node.dtype == dtype:
            return node
        if node.what == "constant":
            kind = node.dtype if node.dtype != BOOL else np.dtype("u1")
            with np.errstate(all="ignore"):
                return self.constant(np.array(node.data, f"u{kind.itemsize}").view(kind).astype(dtype), dtype)
        if dtype == BOOL:
            return self.node("not_equal", (node, self.constant(0, node.dtype)), BOOL)
        return self.node("cast", (node,), dtype)

    def bits(self, node: Node, dtype: Any) -> Node:
        """The same bits as another type of the same size."""
        dtype = np.dtype(dtype)
        if node.what == "bits":
            node = node.args[0]
        if node.dtype == dtype:
            return node
        if node.what == "constant":
            return self.node("constant", (), dtype, node.data)
        return self.node("bits", (node,), dtype)


class Symbols(NDArrayOperatorsMixin):
    """An array [1, 64, ...] or [1, ...] of nodes: one wave's.  lanes: which axis is that of the lanes, of which `nodes`
    has only one; None for numbers of the wave."""

    __array_priority__ = 1000.0
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, graph: Graph, nodes: Any, lanes: int | None, put: Callable[..., None] | None = None) -> None:
        self.graph, self.nodes, self.lanes, self._put = graph, nodes, lanes, put

    def __repr__(self) -> str:
        return f"Symbols({self.dtype}, {self.shape})"

    @property
    def dtype(self) -> Any:
        return self.nodes.flat[0].dtype

    @property
    def itemsize(self) -> int:
        return int(self.dtype.itemsize)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(LANES if axis == self.lanes else size for axis, size in enumerate(self.nodes.shape))

    @property
    def ndim(self) -> int:
        return int(self.nodes.ndim)

    @property
    def T(self) -> Symbols:
        """Turned."""
        lanes = None if self.lanes is None else self.ndim - 1 - self.lanes
        return self._like(self.nodes.T, lanes)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[index] for index in range(len(self)))

    def __bool__(self) -> bool:
        """Code that is left out where no element needs it is executed: it leaves the others as they are."""
        return True

    def _like(self, nodes: Any, lanes: Any = "same") -> Symbols:
        return Symbols(self.graph, nodes, self.lanes if lanes == "same" else lanes)

    def _each(self, function: Callable[[Node], Node]) -> Symbols:
        return self._like(each(function, self.nodes))

    # What numpy's arrays have.

    def copy(self, order: str = "C") -> Symbols:
        return self

    def astype(self, dtype: Any, copy: bool = True) -> Symbols:
        return self._each(lambda node: self.graph.cast(node, dtype))

    def view(self, dtype: Any) -> Symbols:
        """Bits as another type; of another size along the last axis, which is not that of the lanes."""
        dtype, size = np.dtype(dtype), self.itemsize
        if dtype == BOOL:
            return self.astype(BOOL)
        if dtype.itemsize == size:
            return self._each(lambda node: self.graph.bits(node, dtype))
        if self.lanes is not None and self.lanes == self.ndim - 1:
            raise Untraceable("a view across lanes")
        if dtype.itemsize < size:
            parts = [self._part(dtype, index) for index in range(size // dtype.itemsize)]
            nodes = np.stack(parts, axis=-1).reshape(*self.nodes.shape[:-1], -1)
        else:
            per = dtype.itemsize // size
            nodes = self._joined(self.nodes.reshape(*self.nodes.shape[:-1], -1, per), dtype)
        return self._like(nodes)

    def _part(self, dtype: Any, index: int) -> Any:
        graph, unsigned = self.graph, np.dtype(f"u{self.itemsize}")

        def part(node: Node) -> Node:
            word = graph.bits(node, unsigned)
            moved = graph.node("right_shift", (word, graph.constant(8 * dtype.itemsize * index, unsigned)), unsigned)
            return graph.bits(graph.cast(moved if index else word, f"u{dtype.itemsize}"), dtype)

        return each(part, self.nodes)

    def _joined(self, rows: Any, dtype: Any) -> Any:
        graph, size, unsigned = self.graph, self.itemsize, np.dtype(f"u{dtype.itemsize}")
        found = np.empty(rows.shape[:-1], object)
        for place in np.ndindex(*found.shape):
            parts = [graph.bits(node, f"u{size}") for node in rows[place]]
            whole = _split_of(parts, size, unsigned)
            if whole is None:
                shifted = [
                    graph.node(
                        "left_shift", (graph.cast(node, unsigned), graph.constant(8 * size * i, unsigned)), unsigned
                    )
                    if i
                    else graph.cast(node, unsigned)
                    for i, node in enumerate(parts)
                ]
                whole = shifted[0]
                for one in shifted[1:]:
                    whole = graph.node("bitwise_or", (whole, one), unsigned)
            found[place] = graph.bits(whole, dtype)
        return found

    def reshape(self, *shape: int) -> Symbols:
        if self.lanes is None:
            return self._like(self.nodes.reshape(*shape))
        if self.lanes == 0 and shape == (1, LANES) and self.ndim == 1:
            return self._like(self.nodes.reshape(1, 1), 1)
        if self.lanes == 1 and shape == (-1, 1) and self.ndim == 2:
            return self._like(self.nodes.reshape(1, 1), 0)
        upto = self.lanes + 1
        if shape[:upto] != self.shape[:upto]:
            raise Untraceable("lanes in another shape")
        return self._like(self.nodes.reshape(*self.nodes.shape[:upto], *shape[upto:]))

    def sum(self, axis: int, dtype: Any = None) -> Symbols:
        """As numpy sums: integers of less than 64 bits in 64."""
        kind = np.dtype(dtype) if dtype else np.add.reduce(np.zeros(1, self.dtype)).dtype
        return np.add.reduce(self.astype(kind), axis=axis)  # type: ignore[no-any-return]

    def any(self, axis: int | None = None) -> Symbols:
        """Of lanes (axis 1): whether a bit of the mask is set."""
        if self.lanes == axis == 1:
            mask = self.graph.node("mask", (self.nodes.flat[0],), U64)
            return self._like(wrapped(self.graph.cast(mask, BOOL)), None)
        if axis in (-1, self.ndim - 1) and self.lanes != self.ndim - 1:
            return np.bitwise_or.reduce(self.astype(BOOL), axis=-1)  # type: ignore[no-any-return]
        if axis is None:
            return self
        raise Untraceable("any()")

    def all(self, axis: int | None = None) -> Symbols:
        return ~(~self).any(axis)

    def argmax(self, axis: int) -> Symbols:
        """Of lanes: the first in which a flag is set, 0 if there is none."""
        mask = self.graph.node("mask", (self.nodes.flat[0],), U64)
        return self._like(wrapped(self.graph.node("first", (mask,), np.int64)), None)

    def take(self, source: Any, axis: int) -> Symbols:
        """Of lanes (axis 1): those that `source` names."""
        if self.lanes != axis:
            raise Untraceable("take()")
        index = lifted(self.graph, source).nodes.flat[0]
        return self._each(lambda node: self.graph.across(node, index))

    def __getitem__(self, place: Any) -> Symbols:
        if place is Ellipsis:
            return self
        if isinstance(place, Symbols) and place.dtype == BOOL:  # lanes of a mask: of these the others are not used
            return self._like(self.nodes.reshape(-1, *self.nodes.shape[2:]), 0)
        if isinstance(place, tuple) and isinstance(place[0], np.ndarray):  # [wave, lane]
            lane = lifted(self.graph, place[1])
            extract = self.graph.node("extract", (self.nodes.flat[0], lane.nodes.flat[0]), self.dtype)
            return self._like(wrapped(extract), None)
        if isinstance(place, tuple) and any(isinstance(one, np.ndarray) for one in place):  # [:, source]
            return self.take(place[1], axis=1)
        marked = np.arange(self.nodes.size).reshape(self.nodes.shape)
        if self.lanes is not None:  # the axis of lanes, by its size
            marked = np.repeat(marked, 2, axis=self.lanes)
        chosen = marked[place]
        lanes = None
        if self.lanes is not None:
            axes = [axis for axis, size in enumerate(chosen.shape) if size == 2 and self._is_lanes(marked, place, axis)]
            if len(axes) == 1:
                lanes = axes[0]
                chosen = np.take(chosen, [0], axis=lanes)
            else:
                raise Untraceable(f"[{place}] of lanes")
        return self._like(np.array(self.nodes.reshape(-1)[chosen.reshape(-1)], object).reshape(chosen.shape), lanes)

    def _is_lanes(self, marked: Any, place: Any, axis: int) -> bool:
        """Whether an axis of what is chosen is that of the lanes: it is as long as that."""
        longer = np.repeat(np.take(marked, [0], axis=self.lanes), 3, axis=self.lanes)
        return bool(longer[place].shape[axis] == 3)

    def __setitem__(self, place: Any, value: Any) -> None:
        if self._put is None:
            raise Untraceable("a write")
        self._put(place, value)

    # What numpy's functions give to these arrays.

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        graph = self.graph
        if method == "reduce":
            (array,) = inputs
            axis = options.get("axis", 0)
            if axis not in (-1, array.ndim - 1) or array.lanes == array.ndim - 1:
                raise Untraceable(f"{ufunc.__name__} over axis {axis}")
            parts = [array[..., index] for index in range(array.nodes.shape[-1])]
            total = parts[0]
            for part in parts[1:]:
                total = ufunc(total, part)
            return total
        if "out" in options:  # a step of its own array
            (into,) = options.pop("out")
            into.nodes = self.__array_ufunc__(ufunc, method, *inputs, **options).nodes
            return into
        if method != "__call__" or options:
            raise Untraceable(f"{ufunc.__name__}.{method}")
        arrays = [lifted(graph, one) for one in inputs]
        if ufunc.__name__ in COMPOSED:
            return COMPOSED[ufunc.__name__](*arrays)
        kinds = [type(raw) if type(raw) in (int, float) else one.dtype for raw, one in zip(inputs, arrays, strict=True)]
        *loop, result = ufunc.resolve_dtypes((*kinds, None))
        arrays = [typed(graph, raw, one, kind) for raw, one, kind in zip(inputs, arrays, loop, strict=True)]

        def apply(*nodes: Node) -> Node:
            return simplified(graph, ufunc.__name__, nodes, result)

        return broadcast(apply, *arrays)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        implementation = FUNCTIONS.get(function.__name__)
        if implementation is None:
            raise Untraceable(f"numpy.{function.__name__}")
        return implementation(self.graph, *args, **options)

    # What has no function of numpy.

    def element_of(self, table: Any) -> Symbols:
        """Constants, of which these are the indices."""
        kept = (table.dtype.str, np.ascontiguousarray(table).tobytes())
        return self.astype(np.int64)._each(lambda node: self.graph.node("table", (node,), table.dtype, kept))

    def fused(self, a: Any, b: Any, c: Any) -> Symbols:
        """a * b + c with one rounding."""
        graph, kind = self.graph, self.dtype
        return broadcast(lambda *nodes: graph.node("fma", nodes, kind), *(lifted(graph, one) for one in (a, b, c)))

    def refuse(self) -> None:
        """The executor does the instruction where this holds."""
        node = self.nodes.flat[0] if self.lanes is None else self.any(1).nodes.flat[0]
        for other in self.nodes.flat[1:] if self.lanes is None else ():
            node = self.graph.node("bitwise_or", (node, other), BOOL)
        self.graph.refused.append(node)

    def by_lane(self) -> Symbols:
        """Bits of a mask, lane by lane."""
        return Symbols(self.graph, wrapped(self.graph.node("lane_bit", (self.nodes.flat[0],), BOOL), 2), 1)

    def as_mask(self) -> Symbols:
        """The other way."""
        return Symbols(self.graph, wrapped(self.graph.node("mask", (self.nodes.flat[0],), U64)), None)


def _split_of(parts: Sequence[Node], size: int, unsigned: Any) -> Node | None:
    """The word of which these are the parts, in their order."""

    def origin(node: Node) -> tuple[Node, int] | None:
        if node.what != "cast" or node.args[0].dtype != unsigned:
            return None
        (word,) = node.args
        if word.what == "right_shift" and word.args[1].what == "constant":
            return word.args[0], word.args[1].data
        return word, 0

    found = [origin(node) for node in parts]
    first = found[0]
    if first and all(one and one[0] is first[0] and one[1] == 8 * size * i for i, one in enumerate(found)):
        return first[0]
    return None


def each(function: Callable[..., Node], *nodes: Any) -> Any:
    """A function of every node, with the shape of the arrays."""
    found = np.empty(nodes[0].shape, object)
    for place, given in enumerate(zip(*(one.flat for one in nodes), strict=True)):
        found.flat[place] = function(*given)
    return found


def wrapped(node: Node, ndim: int = 1) -> Any:
    """An array of one."""
    found = np.empty((1,) * ndim, object)
    found.flat[0] = node
    return found


def lifted(graph: Graph, value: Any) -> Symbols:
    """An array as nodes: one of a single element is an immediate, one of 64 has an element for each lane."""
    if isinstance(value, Symbols):
        return value
    array = np.asarray(value)
    if isinstance(value, np.ndarray) and array.ndim and array.size == 1:
        raw = array.reshape(-1)
        unsigned = int(raw.view(f"u{raw.itemsize}")[0]) if raw.dtype != BOOL else int(raw[0])
        node = graph.node("parameter", (), raw.dtype, graph.parameter(unsigned))
        return Symbols(graph, wrapped(node, array.ndim), None)
    if array.ndim and array.shape in ((LANES,), (1, LANES)):
        flat = array.reshape(-1)
        node = graph.node("lanes", (), flat.dtype, (flat.dtype.str, flat.tobytes()))
        return Symbols(graph, wrapped(node, 2), 1)
    if array.size > LANES or array.dtype == object:
        raise Untraceable(f"constants of shape {array.shape}")
    found = np.empty(array.shape, object)
    for place in np.ndindex(*array.shape):
        found[place] = graph.constant(array[place], array.dtype)
    return Symbols(graph, found, None)


def typed(graph: Graph, raw: Any, array: Symbols, dtype: Any) -> Symbols:
    """Cast to a type; a number of Python's at once, so that nothing is lost on the way."""
    if type(raw) in (int, float, bool):
        return Symbols(graph, wrapped(graph.constant(raw, dtype), 0), None)
    return array.astype(dtype)


def broadcast(function: Callable[..., Node], *arrays: Symbols) -> Symbols:
    """A function of nodes that stand at the same place."""
    ndim = max(one.ndim for one in arrays)
    lanes = {one.lanes + ndim - one.ndim for one in arrays if one.lanes is not None}
    if len(lanes) > 1:
        raise Untraceable("lanes along different axes")
    nodes = np.broadcast_arrays(*(one.nodes for one in arrays), subok=True)
    return Symbols(arrays[0].graph, each(function, *nodes), lanes.pop() if lanes else None)


def simplified(graph: Graph, name: str, nodes: Sequence[Node], dtype: Any) -> Node:
    """A node of a ufunc; constants are folded."""
    if all(node.what == "constant" for node in nodes):
        given = [
            np.array(node.data, f"u{node.dtype.itemsize}").view(node.dtype if node.dtype != BOOL else U8)
            for node in nodes
        ]
        given = [one.astype(BOOL) if node.dtype == BOOL else one for one, node in zip(given, nodes, strict=True)]
        with np.errstate(all="ignore"):
            return graph.constant(getattr(np, name)(*given), dtype)
    return graph.node(name, nodes, dtype)


# Functions of numpy that are not of one element.


def _where(graph: Graph, test: Any, a: Any, b: Any) -> Symbols:
    dtype = np.result_type(*(one if type(one) in (int, float, bool) else lifted(graph, one).dtype for one in (a, b)))
    parts = [lifted(graph, test).astype(BOOL), *(typed(graph, one, lifted(graph, one), dtype) for one in (a, b))]
    return broadcast(lambda *nodes: graph.node("where", nodes, dtype), *parts)


def _select(graph: Graph, tests: Any, choices: Any, default: Any = 0) -> Symbols:
    kinds = [one if type(one) in (int, float, bool) else lifted(graph, one).dtype for one in (*choices, default)]
    dtype = np.result_type(*kinds)
    value = typed(graph, default, lifted(graph, default), dtype)
    for test, choice in reversed(list(zip(tests, choices, strict=True))):
        value = _where(graph, test, typed(graph, choice, lifted(graph, choice), dtype), value)
    return value


def _clip(graph: Graph, value: Any, least: Any, most: Any) -> Symbols:
    """A NaN stays one."""
    least, most = (np.asarray(one).astype(value.dtype)[()] for one in (least, most))
    above = _where(graph, (value >= least) | (value != value), value, least)
    return _where(graph, (above <= most) | (above != above), above, most)


def _nan_to_num(graph: Graph, value: Any, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Symbols:
    limits, kind = np.finfo(value.dtype), value.dtype.type
    up, down = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    tests = [value != value, value == kind(np.inf), value == kind(-np.inf)]
    return _select(graph, tests, [kind(nan), kind(up), kind(down)], value)


def _stack(graph: Graph, arrays: Any, axis: int = 0) -> Symbols:
    found = [lifted(graph, one) for one in arrays]
    dtype = np.result_type(*(one.dtype for one in found))
    found = [one.astype(dtype) for one in found]
    ndim = found[0].ndim
    axis = axis % (ndim + 1)
    lanes = found[0].lanes
    nodes = np.stack([one.nodes for one in found], axis=axis)
    return Symbols(graph, nodes, lanes if lanes is None or lanes < axis else lanes + 1)


def _concatenate(graph: Graph, arrays: Any, axis: int = 0) -> Symbols:
    found = [lifted(graph, one) for one in arrays]
    if found[0].lanes is not None and axis % found[0].ndim == found[0].lanes:
        raise Untraceable("more lanes")
    return Symbols(graph, np.concatenate([one.nodes for one in found], axis=axis), found[0].lanes)


def _broadcast_arrays(graph: Graph, *arrays: Any) -> list[Symbols]:
    found = [lifted(graph, one) for one in arrays]
    return [broadcast(lambda *nodes, index=index: nodes[index], *found) for index in range(len(found))]


def _broadcast_to(graph: Graph, array: Any, shape: Any) -> Symbols:
    if array.lanes is None and len(shape) == 2 and shape[1] == LANES:
        spread = lifted(graph, np.zeros(LANES, np.uint8))
        return broadcast(lambda node, _: node, array, spread)
    return array  # type: ignore[no-any-return]


def _take_along_axis(graph: Graph, array: Any, index: Any, axis: int) -> Symbols:
    array, index = lifted(graph, array), lifted(graph, index)
    axis %= array.ndim
    if array.lanes == axis:
        return broadcast(graph.across, array, index)
    if axis != array.ndim - 1:
        raise Untraceable("take_along_axis()")
    parts = [array[..., place : place + 1] for place in range(array.nodes.shape[-1])]
    value = parts[-1]
    for place in reversed(range(len(parts) - 1)):
        value = _where(graph, index == place, parts[place], value)
    return value


def _searchsorted(graph: Graph, table: Any, value: Symbols, side: str = "left") -> Symbols:
    """How many constants are less, by halving; none is less than a NaN beyond all."""
    padded = np.full(1 << int(len(table)).bit_length(), np.inf)
    padded[: len(table)] = table
    count = value.astype(np.int64) * 0
    step = len(padded) // 2
    while step:
        there = (count + (step - 1)).element_of(padded)
        less = (there < value) | (value != value) & (there < np.inf)
        count = count + less.astype(np.int64) * step
        step //= 2
    return count


def _unpackbits(graph: Graph, octets: Symbols, axis: int = -1, bitorder: str = "little") -> Symbols:
    bits = [(octets >> np.uint8(place)) & np.uint8(1) for place in range(8)]
    stacked = _stack(graph, bits, axis=-1)
    return Symbols(graph, stacked.nodes.reshape(*octets.nodes.shape[:-1], -1), octets.lanes)


def _packbits(graph: Graph, bits: Symbols, axis: int = -1, bitorder: str = "little") -> Symbols:
    if bits.lanes == bits.ndim - 1:
        raise Untraceable("lanes as bits")
    nodes = bits.astype(BOOL).astype(U8).nodes
    rows = Symbols(graph, nodes.reshape(*nodes.shape[:-1], -1, 8), bits.lanes)
    return np.bitwise_or.reduce(rows << np.arange(8, dtype=np.uint8), axis=-1)  # type: ignore[no-any-return]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": _where,
    "select": _select,
    "clip": _clip,
    "nan_to_num": _nan_to_num,
    "stack": _stack,
    "concatenate": _concatenate,
    "broadcast_arrays": _broadcast_arrays,
    "broadcast_to": _broadcast_to,
    "take_along_axis": _take_along_axis,
    "searchsorted": _searchsorted,
    "unpackbits": _unpackbits,
    "packbits": _packbits,
    "zeros_like": lambda graph, array, **_: array * array.dtype.type(0) if array.dtype.kind != "f" else array * 0,
    "ones_like": lambda graph, array: array * array.dtype.type(0) + array.dtype.type(1),
    "repeat": lambda graph, array, count, axis: Symbols(graph, np.repeat(array.nodes, count, axis), array.lanes),
    "copy": lambda graph, array, **_: array,
}


# Ufuncs that are made of others.


def _frexp(value: Symbols) -> tuple[Symbols, Symbols]:
    """Mantissa in [0.5, 1) and exponent; what is not finite, or 0, as it is with an exponent of 0."""
    if value.dtype == np.float16:
        mantissa, exponent = _frexp(value.astype(np.float32))
        return mantissa.astype(np.float16), exponent
    layout = np.finfo(value.dtype)
    unsigned = np.dtype(f"u{value.itemsize}").type
    tiny = np.abs(value) < layout.tiny
    scaled = np.where(tiny, value * value.dtype.type(2.0**64), value)
    bits, field = scaled.view(f"u{value.itemsize}"), (1 << layout.nexp) - 1
    bias = (1 << layout.nexp - 1) - 2
    exponent = (bits >> unsigned(layout.nmant) & unsigned(field)).astype(np.int32) - np.int32(bias)
    mantissa = bits & ~unsigned(field << layout.nmant) | unsigned(bias << layout.nmant)
    special = ~np.isfinite(value) | (value == 0)
    exponent = np.where(special, np.int32(0), exponent - np.where(tiny, np.int32(64), np.int32(0)))
    return np.where(special, value, mantissa.view(value.dtype)), exponent


def _ldexp(value: Symbols, power: Symbols) -> Symbols:
    """Steps that round once: only the last one can give a denormal."""
    if value.itemsize < 8:  # in fp64 a step that does not round: fp32 spans 2^-149 to 2^128
        n = np.clip(power.astype(np.int32), np.int32(-400), np.int32(400))
        scale = ((n + np.int32(1023)).astype(np.uint64) << np.uint64(52)).view(np.float64)
        return (value.astype(np.float64) * scale).astype(value.dtype)
    n = np.clip(power.astype(np.int64), np.int64(-3000), np.int64(3000))
    for _ in range(2):
        up, down = n > 1023, n < -1022
        value = np.where(up, value * 2.0**1023, np.where(down, value * 2.0**-969, value))
        n = np.where(up, n - 1023, np.where(down, n + 969, n))
    n = np.clip(n, np.int64(-1022), np.int64(1023))
    scale = ((n + 1023).astype(np.uint64) << np.uint64(52)).view(np.float64)
    return value * scale


COMPOSED: dict[str, Callable[..., Any]] = {
    "frexp": _frexp,
    "ldexp": _ldexp,
    "reciprocal": lambda value: value.dtype.type(1) / value,
    "signbit": lambda value: value.view(f"i{value.itemsize}") < 0,
    "isnan": lambda value: value != value,
    "isinf": lambda value: np.abs(value) == value.dtype.type(np.inf),
    "isfinite": lambda value: np.abs(value) < value.dtype.type(np.inf),
    "conjugate": lambda value: value,
    "square": lambda value: value * value,
}
