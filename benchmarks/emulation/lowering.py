"""An instruction's graph as LLVM: a function of a wave and of a record, which holds the instruction's parameters.

The function does what the instruction does to all lanes, CHUNK of them at a time, and goes on to the next record.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .graph import BOOL, Node
from .layout import (
    ASK,
    BUDGET,
    CACHE,
    CONTEXT,
    COUNT,
    ISSUED,
    LANES_ON,
    NOWHERE,
    PARAMETERS,
    RECORD,
    SCC,
    SECOND,
    SPENT,
    STOPPED,
    TITLE,
)
from .lines import CHUNK, Body, ordered, scalar_type
from .tracing import Access, Effects, ScalarAccess
from .waves import LANES

# The function of an instruction.


MOST_NODES = 16
"""Of an instruction that has code of its own for waves all of whose lanes are on."""


def function(effects: Effects, counts_lanes: bool, divergence: str = "", queue: str = "") -> str:
    """The text of a function that does what these effects say, after a line for each function that it calls.

    counts_lanes: whether active lanes are counted.  divergence: of a branch on EXEC, "taken" or "left" where a part of
    the code begins that only some lanes need.  queue: the counter that waits for it.
    """
    made = _Function(TITLE, effects, counts_lanes, divergence, queue)
    text = made.text()
    return "\n".join([*sorted(made.declared), text])


class _Function(Body):
    def __init__(self, name: str, effects: Effects, counts_lanes: bool, divergence: str, queue: str) -> None:
        super().__init__(effects)
        self.title, self.counts_lanes, self.divergence, self.queue = name, counts_lanes, divergence, queue
        self.bases: dict[int, str] = {}
        self.pointers: dict[int, str] = {}
        self.chunk_start = self.offset32 = ""
        self.masks: dict[int, Node] = {}
        self.loops = 0

    def text(self) -> str:
        effects = self.effects
        scalars = [node for _, node in effects.s] + [node for node in (effects.scc, effects.goes) if node]
        by_lane = [node for _, value, mask in effects.v for node in (value, mask)]
        self.scalar_loads = [one for one in effects.accesses if isinstance(one, ScalarAccess)]
        self.accesses = [one for one in effects.accesses if isinstance(one, Access)]
        needed = [node for access in self.accesses for node in access.nodes]
        needed += [access.address for access in self.scalar_loads]
        nodes = ordered([*scalars, *by_lane, *effects.refused, *needed])
        last = max((node.level for node in nodes), default=0)
        last = max([last, *(access.level + 1 for access in self.accesses)])
        for node in nodes:
            if node.what == "v":
                self.bases[node.data] = self.register(node.data, True)
        for parameter, _, _ in effects.v:
            self.bases[parameter] = self.register(parameter, True)
        self.do("%context = load ptr, ptr " + self.at("%st", CONTEXT))
        self.datas = {access.number: self._data(access) for access in self.accesses}
        masks = {node.args[0].number: node for node in nodes if node.what == "mask"}
        for level in range(last + 1):
            if level == 1:
                for load in self.scalar_loads:
                    self._reach_scalar(load)
            for node in nodes:
                if not node.by_lane and node.level == level:
                    self.compute(node)
            self._refusals(level)
            self._access([access for access in self.accesses if access.level + 1 == level])
            if level == last:
                self._count_up()
            meeting = [
                node for node in nodes if node.what in ("mask", "across", "extract") and node.args[0].level == level
            ]
            given = [access for access in self.accesses if access.level == level]
            written = effects.v if level == last else []
            if meeting or written or given:
                self.masks = {number: node for number, node in masks.items() if node.level <= level}
                if not meeting and not given and self._simple(written):
                    self._two_loops(written)
                else:
                    self._loop(meeting, given, written)
        for parameter, node in effects.s:
            self._write_scalar(parameter, node)
        if effects.scc:
            flag = self.put(f"zext i1 {self.value(effects.scc, False)} to i32")
            self.do(f"store i32 {flag}, ptr {self.at('%st', SCC)}")
        if effects.goes:
            self._branch()
        else:
            self._go_on(self.at("%rec", RECORD))
        body = "\n".join(["entry:", *self.head, *self.lines])
        stopped = f"%stopped = getelementptr i8, ptr %st, i64 {STOPPED}"
        ask = f"ask:\n  {stopped}\n  store ptr %rec, ptr %stopped\n  ret i64 {ASK}"
        tables = []
        for (kind, contents), name in self.globals.items():
            numbers = np.frombuffer(contents, f"u{int(kind[1:]) // 8}")
            listed = ", ".join(f"{kind} {number}" for number in numbers)
            tables.append(f"{name} = private unnamed_addr constant [{len(numbers)} x {kind}] [{listed}], align 64")
        uses_ask = "label %ask" in body
        return "\n".join(
            [*tables, f"define i64 @{self.title}(ptr %st, ptr %rec) {{", body, ask if uses_ask else "", "}"]
        )

    def _simple(self, written: list[Any]) -> bool:
        """Whether it takes few nodes to write these in the lanes that are on: most waves have all of them on."""
        masks = all(mask.what == "lane_bit" and mask.args[0].what == "exec" for _, _, mask in written)
        return masks and len(ordered([value for _, value, _ in written])) <= MOST_NODES

    def _two_loops(self, written: list[Any]) -> None:
        """One for waves all of whose lanes are on, and one for others."""
        mask = self.value(written[0][2].args[0], False)
        every, some, both = (f"{one}{self._count}" for one in ("every", "some", "both"))
        self.do(f"br i1 {self.put(f'icmp eq i64 {mask}, -1')}, label %{every}, label %{some}")
        on = self.effects.graph.constant(1, BOOL)
        for name, lanes in ((every, [(*one[:2], on) for one in written]), (some, written)):
            self.lines.append(f"{name}:")
            self._loop([], [], lanes)
            self.do(f"br label %{both}")
        self.lines.append(f"{both}:")

    def _loop(self, meeting: list[Node], given: list[Any], written: list[Any]) -> None:
        """All chunks: what other lanes need is put where they find it, then registers are written."""
        self.loops += 1
        here, before, after = f"loop{self.loops}", f"enter{self.loops}", f"done{self.loops}"
        self.do(f"br label %{before}")
        self.lines.append(f"{before}:")
        self.do(f"br label %{here}")
        self.lines.append(f"{here}:")
        self._lane = {}
        start = self.chunk_start = f"%start{self.loops}"
        following = f"%next{self.loops}"
        self.do(f"{start} = phi i64 [ 0, %{before} ], [ {following}, %{here} ]")
        masks = [node for node in meeting if node.what == "mask"]
        for node in masks:
            self.do(f"%mask{node.number} = phi i64 [ 0, %{before} ], [ {self.mask(node)}, %{here} ]")
        self.offset32 = self.put(f"shl i64 {start}, 2")
        roots = [node.args[0] for node in meeting] + [node for _, value, mask in written for node in (value, mask)]
        roots += [node for access in given for node in access.by_lane]
        self._compute_lanes(roots)
        for node in masks:
            bits = self.put(f"bitcast <{CHUNK} x i1> {self.value(node.args[0], True)} to i{CHUNK}")
            upper = self.put(f"shl i64 {self.put(f'zext i{CHUNK} {bits} to i64')}, {LANES - CHUNK}")
            lower = self.put(f"lshr i64 %mask{node.number}, {CHUNK}")
            self.do(f"{self.mask(node)} = or i64 {upper}, {lower}")
        puts: dict[str, Node] = {self.slot(node): node for node in meeting if node.what != "mask"}
        for slot, node in puts.items():
            self._put_slot(slot, node)
        for access in given:
            self._put_access(access, *self.datas[access.number])
        for parameter, value, mask in written:
            self._write_lanes(parameter, value, mask)
        self.do(f"{following} = add i64 {start}, {CHUNK}")
        more = self.put(f"icmp ult i64 {following}, {LANES}")
        self.do(f"br i1 {more}, label %{here}, label %{after}")
        self.lines.append(f"{after}:")
        self._lane = {}

    def _compute_lanes(self, roots: list[Node]) -> None:
        """Nodes by lane that these need, in this loop."""
        found: dict[int, Node] = {}
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node.number in found or not node.by_lane:
                continue
            found[node.number] = node
            if node.number in self.masks:
                continue
            stack += (
                node.args[1:] if node.what == "across" else () if node.what in ("lane_bit", "staged") else node.args
            )
        for number in sorted(found):
            if number in self.masks:  # of an earlier loop
                self._lane[number] = self.lane_bits(self.value(self.masks[number], False))
            else:
                self.compute(found[number])

    def _put_slot(self, slot: str, node: Node) -> None:
        source = node.args[0]
        value = self.value(source, True)
        kind = self.memory_type(source)
        if source.dtype == BOOL:
            value = self.put(f"zext <{CHUNK} x i1> {value} to <{CHUNK} x i8>")
        place = self.put(f"getelementptr {kind}, ptr {slot}, i64 {self.chunk_start}")
        self.do(f"store <{CHUNK} x {kind}> {value}, ptr {place}")

    def _write_lanes(self, parameter: int, value: Node, mask: Node) -> None:
        kind = f"<{CHUNK} x i32>"
        place = self.at(self.bases[parameter], self.offset32)
        new = self.value(value, True)
        if not (mask.what == "constant" and mask.data):
            # volatile, or this becomes a masked store, which takes many times as long on some CPUs
            before = self.put(f"load volatile {kind}, ptr {place}, align 64")
            new = self.select(mask, kind, new, before)
        self.do(f"store {kind} {new}, ptr {place}, align 64")

    def _write_scalar(self, parameter: int, node: Node) -> None:
        kind = scalar_type(node.dtype)
        self.do(f"store {kind} {self.value(node, False)}, ptr {self.register(parameter, False)}, align 4")

    def _refusals(self, level: int) -> None:
        for node in [one for one in self.effects.refused if one.level == level]:
            self._ask_if(self.value(node, False))

    def _ask_if(self, flag: str) -> None:
        """Leave the instruction to the executor where a flag is set."""
        going = self.name()
        self.do(f"br i1 {flag}, label %ask, label {going}")
        self.lines.append(f"{going[1:]}:")

    def _add(self, place: int, value: str, base: str = "%rec") -> str:
        """Add to a number of the record or of the wave; what it is then."""
        pointer = self.at(base, place)
        after = self.put(f"add i64 {self.put(f'load i64, ptr {pointer}')}, {value}")
        self.do(f"store i64 {after}, ptr {pointer}")
        return after

    def _count_up(self) -> None:
        self._add(COUNT, "1")
        if self.queue:
            self._add(ISSUED + 8 * (self.queue == "vm"), "1", "%st")
        if self.counts_lanes:
            self._add(LANES_ON, self.intrinsic("llvm.ctpop.i64", "i64", ("i64", self.exec_mask())))

    def _go_on(self, record: str) -> None:
        code = self.put(f"load ptr, ptr {record}")
        result = self.put(f"musttail call i64 {code}(ptr %st, ptr {record})")
        self.do(f"ret i64 {result}")

    def _branch(self) -> None:
        """goes: to the record that parameter 0 holds."""
        goes = self.effects.goes
        assert goes is not None
        flag = self.value(goes, False)
        taken = self.put(f"zext i1 {flag} to i64")
        self._add(SECOND, taken)
        if self.divergence:
            some = self.put(f"icmp ne i64 {self.exec_mask()}, -1")
            inside = flag if self.divergence == "taken" else self.put(f"xor i1 {flag}, true")
            partly = self.put(f"and i1 {some}, {inside}")
            self._add(CACHE, self.put(f"zext i1 {partly} to i64"))
        target = self.field("ptr", "%rec", PARAMETERS)
        following = self.at("%rec", RECORD)
        record = self.put(f"select i1 {flag}, ptr {target}, ptr {following}")
        spent = self.put(f"icmp sle i64 {self._add(BUDGET, '-1', '%st')}, 0")
        self.do(f"br i1 {spent}, label %spent, label %go")
        self.lines.append("spent:")
        self.do(f"store ptr {record}, ptr {self.at('%st', STOPPED)}")
        self.do(f"ret i64 {SPENT}")
        self.lines.append("go:")
        self._go_on(record)

    # Memory.

    def _data(self, access: Any) -> tuple[str, str]:
        number = len(self.head)
        words = max(1, access.size // 4)
        self.head += [
            f"  %addresses{number} = alloca [{LANES} x i64], align 64",
            f"  %data{number} = alloca [{LANES * words} x i32], align 64",
        ]
        return f"%addresses{number}", f"%data{number}"

    def _put_access(self, access: Any, addresses: str, data: str) -> None:
        kind = f"<{CHUNK} x i64>"
        place = self.put(f"getelementptr i64, ptr {addresses}, i64 {self.chunk_start}")
        self.do(f"store {kind} {self.value(access.where, True)}, ptr {place}")
        for index, node in enumerate(access.words):
            first = self.put(f"add i64 {self.chunk_start}, {LANES * index}")
            place = self.put(f"getelementptr i32, ptr {data}, i64 {first}")
            self.do(f"store <{CHUNK} x i32> {self.value(node, True)}, ptr {place}")

    def _reach_scalar(self, load: Any) -> None:
        address = self.value(load.address, False)
        place = self.put(f"call ptr @reach_scalar(ptr %context, i64 {address}, i64 {4 * load.words})")
        self._ask_if(self.put(f"icmp eq ptr {place}, null"))
        self.declared.add("declare ptr @reach_scalar(ptr, i64, i64)")
        self.pointers[load.number] = place

    def _access(self, accesses: list[Any]) -> None:
        """Accesses, if all of them can be made here."""
        steps = {}
        for access in accesses:
            addresses, _ = self.datas[access.number]
            kind = "local" if access.local else "memory"
            given = f"ptr %context, ptr %rec, ptr {addresses}, i64 {self.value(access.mask, False)}, i64 {access.size}"
            step = steps[access.number] = self.put(f"call i64 @reach_{kind}({given})")
            self._ask_if(self.put(f"icmp eq i64 {step}, {NOWHERE}"))
            self.declared.add(f"declare i64 @reach_{kind}(ptr, ptr, ptr, i64, i64)")
        for access in accesses:
            addresses, data = self.datas[access.number]
            name = f"{access.what}_{'local' if access.local else 'memory'}_{access.size}"
            given = f"ptr %context, ptr %rec, ptr {addresses}, i64 {self.value(access.mask, False)}, ptr {data}"
            self.do(f"call void @{name}({given}, i64 {int(self.queue == 'vm')}, i64 {steps[access.number]})")
            self.declared.add(f"declare void @{name}(ptr, ptr, ptr, i64, ptr, i64, i64)")
