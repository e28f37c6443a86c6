"""One wave that holds no numbers: an instruction's step is called with it, and what it writes is noted as nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partialmethod
from typing import Any

import numpy as np

from .counts import Observer
from .graph import BOOL, U8, U32, U64, Graph, Node, Symbols, Untraceable, lifted, typed, wrapped
from .memory import Accesses
from .waves import EXEC, Memory

SIZES = (1, 2, 4, 8, 12, 16)
"""Bytes of an access of a lane."""


@dataclass
class Effects:
    """What an instruction does: nodes that are written to registers, by the parameter that holds a register's number.

    v: (parameter, value, lanes that are written); s: (parameter, value) of 32 or 64 bits; scc; goes: of a branch.
    refused: where the executor is asked, which says why.
    accesses: those to memory.  rereads: a register is read after one was written, so that it matters which of the
    operands are the same.
    """

    graph: Graph
    v: list[tuple[int, Node, Node]] = field(default_factory=list)
    s: list[tuple[int, Node]] = field(default_factory=list)
    scc: Node | None = None
    goes: Node | None = None
    refused: list[Node] = field(default_factory=list)
    accesses: list[Any] = field(default_factory=list)
    rereads: bool = False

    def vectors(self) -> set[int]:
        """Parameters that hold the numbers of vector registers."""
        return {place for place, _, _ in self.v} | {one.data for one in self.graph.nodes() if one.what == "v"}


class _Scalars:
    def __init__(self, wave: SymbolicWave) -> None:
        self._wave = wave

    def __getitem__(self, place: Any) -> Symbols:
        if isinstance(place, slice):
            nodes = np.array([[self._wave.scalar(one)] for one in range(place.start, place.stop)], object)
            return Symbols(self._wave.graph, nodes, None)
        return Symbols(self._wave.graph, wrapped(self._wave.scalar(int(place))), None)

    def __setitem__(self, place: Any, value: Any) -> None:
        wave = self._wave
        if isinstance(place, slice):
            for index, register in enumerate(range(place.start, place.stop)):
                self[register] = value[index]
            return
        node = lifted(wave.graph, value).astype(U32).nodes.flat[0]
        wave.written_s[int(place)] = node
        wave.effects.s.append((wave.graph.parameter(int(place)), node))


class _Vectors:
    def __init__(self, wave: SymbolicWave) -> None:
        self._wave = wave

    def __getitem__(self, register: int) -> Symbols:
        wave = self._wave
        before = wave.effects.rereads
        wave.effects.rereads |= bool(wave.written_v)

        def put(place: Any, value: Any) -> None:
            wave.effects.rereads = before  # it was looked up to be written
            if isinstance(place, Symbols):
                wave.set_v(register, value, place)
            elif isinstance(place, tuple):  # [wave, lane]
                lane = lifted(wave.graph, np.arange(64, dtype=np.uint32))
                wave.set_v(register, value, lane == lifted(wave.graph, place[1]).astype(U32))
            else:
                raise Untraceable("a write to some lanes")

        return Symbols(wave.graph, wrapped(wave.vector(int(register)), 2), 1, put)


class SymbolicWave:
    """What waves.Waves is to a step, of one wave."""

    full = False

    def __init__(self) -> None:
        self.graph = Graph()
        self.effects = Effects(self.graph)
        self.s, self.v = _Scalars(self), _Vectors(self)
        self.written_s: dict[int, Node] = {}
        self.written_v: dict[int, Node] = {}
        self.effects.refused = self.graph.refused
        self.graph.effects = self.effects  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return 1

    def mask_changed(self) -> None:
        """Nothing is kept of EXEC."""

    @property
    def active(self) -> Symbols:
        """Lanes that are on."""
        return self.s64(EXEC).by_lane()

    @property
    def ids(self) -> Symbols:
        """Its workgroup, the only one in its memory, and wave in it."""
        nodes = [self.graph.constant(0, np.int64), self.graph.node("wave", (), np.int64)]
        return Symbols(self.graph, np.array([nodes], object), None)

    @property
    def scc(self) -> Symbols:
        """SCC."""
        node = self.effects.scc or self.graph.node("scc", (), BOOL)
        return Symbols(self.graph, wrapped(node), None, lambda place, value: self._set_scc(value))

    @scc.setter
    def scc(self, value: Any) -> None:
        self._set_scc(value)

    def _set_scc(self, value: Any) -> None:
        self.effects.scc = lifted(self.graph, value).astype(BOOL).nodes.flat[0]

    def scalar(self, register: int) -> Node:
        """A scalar register's value."""
        if register in self.written_s:
            return self.written_s[register]
        self.effects.rereads |= bool(self.effects.s)
        return self.graph.node("s", (), U32, self.graph.parameter(register))

    def vector(self, register: int) -> Node:
        """A vector register's value."""
        if register in self.written_v:
            return self.written_v[register]
        return self.graph.node("v", (), U32, self.graph.parameter(register))

    def s64(self, register: int) -> Symbols:
        """As Waves.s64."""
        if register == EXEC:
            return Symbols(self.graph, wrapped(self.graph.node("exec", (), U64)), None)
        if {register, register + 1} & self.written_s.keys():
            raise Untraceable("a pair that was written")
        self.effects.rereads |= bool(self.effects.s)
        return Symbols(self.graph, wrapped(self.graph.node("s64", (), U64, self.graph.parameter(register))), None)

    def v64(self, register: int) -> Symbols:
        """As Waves.v64."""
        low, high = self.v[register].astype(U64), self.v[register + 1].astype(U64)
        return low | high << np.uint64(32)  # type: ignore[no-any-return]

    def set_s64(self, register: int, value: Any) -> None:
        """As Waves.set_s64."""
        node = lifted(self.graph, value).astype(U64).nodes.flat[0]
        self.effects.s.append((self.graph.parameter(register), node))

    def set_v(self, register: int, value: Any, where: Any = None) -> None:
        """As Waves.set_v."""
        graph = self.graph
        value = typed(graph, value, lifted(graph, value), U32)
        chosen = self.active if where is None else where
        before = self.vector(register)
        node, mask = value.nodes.flat[0], chosen.nodes.flat[0]
        self.written_v[register] = graph.node("where", (mask, node, before), U32)
        self.effects.v.append((graph.parameter(register), node, mask))


@dataclass(eq=False)
class Access:
    """One that an instruction makes.  what: "load" or "store"; size: bytes of each lane; where: addresses by lane;
    mask: lanes that access; words: what a store has.  number: which of the instruction's it is."""

    what: str
    local: bool
    number: int
    size: int
    where: Node
    inside: Node
    mask: Node
    words: list[Node] = field(default_factory=list)

    @property
    def by_lane(self) -> list[Node]:
        """What is computed for it in each lane."""
        return [self.where, self.inside, *self.words]

    @property
    def nodes(self) -> list[Node]:
        """What it needs."""
        return [*self.by_lane, self.mask]

    @property
    def level(self) -> int:
        """As of nodes: the access is made after it."""
        return max(node.level for node in self.by_lane)


@dataclass(eq=False)
class ScalarAccess:
    """A load of words at one address."""

    number: int
    words: int
    address: Node


class TracedAccesses(Accesses):
    """Accesses that are noted."""

    def __init__(self) -> None:
        super().__init__(Memory(), np.zeros(8, np.uint8), 0, Observer())

    def _note(self, w: Any, what: str, local: bool, where: Any, inside: Any, size: int, words: Any = ()) -> Access:
        graph, effects = w.graph, w.effects
        node = graph.cast(where.nodes.flat[0], U64)
        if not node.by_lane:
            raise Untraceable("lanes at one address")
        mask = graph.node("mask", (inside.nodes.flat[0],), U64)
        access = Access(what, local, len(effects.accesses), size, node, inside.nodes.flat[0], mask, list(words))
        effects.accesses.append(access)
        return access

    def _read_clock(self, into: int, w: Any) -> None:
        raise Untraceable("a clock")

    def _loaded(self, local: bool, w: Any, where: Any, inside: Any, size: int, use: Any) -> None:
        if size not in SIZES:
            raise Untraceable(f"{size} bytes")
        access = self._note(w, "load", local, where, inside, size)
        nodes = [w.graph.node("staged", [access.mask], U32, (access.number, word)) for word in range(max(1, size // 4))]
        words = Symbols(w.graph, np.array([nodes], object), 0)
        use(words.view(U8) if size >= 4 else words.astype(f"u{size}").view(U8))

    def _stored(self, local: bool, w: Any, where: Any, inside: Any, data: Any) -> None:
        size = data.shape[1]
        if size not in SIZES:
            raise Untraceable(f"{size} bytes")
        words = data.view(U32) if size >= 4 else data.view(f"u{size}").astype(U32)
        self._note(w, "store", local, where, inside, size, lifted(w.graph, words).nodes.flat)

    _load, _local_load = partialmethod(_loaded, False), partialmethod(_loaded, True)
    _store, _local_store = partialmethod(_stored, False), partialmethod(_stored, True)

    def fetch(self, addresses: Any, size: int, use: Any) -> None:
        """Of a scalar load."""
        graph, effects = addresses.graph, addresses.graph.effects
        address = addresses.nodes.flat[0]
        number = len(effects.accesses)
        effects.accesses.append(ScalarAccess(number, size // 4, address))
        nodes = [graph.node("loaded", (address,), U32, (number, word)) for word in range(size // 4)]
        use(Symbols(graph, np.array([nodes], object), None).view(U8))


def traced(step: Callable[[Any], Any], branch: bool = False) -> Effects:
    """What a step does.  Raises what it raises where it does something of which no node is known.

    branch: the first parameter is kept for where it goes.
    """
    wave = SymbolicWave()
    if branch:
        wave.graph.parameter(0)
    result = step(wave)
    if result is not None:
        wave.effects.goes = lifted(wave.graph, result).astype(BOOL).nodes.flat[0]
    return wave.effects
