"""Machine code as a control-flow graph: instructions, basic blocks, natural loops.  The same for AMD and NVIDIA."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..shapes import JsonObject


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction: mnemonic, operands as written, and the guard of a predicated one ("@!P0" or "")."""

    mnemonic: str
    operands: tuple[str, ...] = ()
    guard: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.guard, self.mnemonic, ", ".join(self.operands)) if part)


@dataclasses.dataclass(frozen=True, slots=True)
class Jump:
    """Where an instruction may go: labels it names, and whether the next instruction may follow it."""

    targets: tuple[str, ...]
    falls_through: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A basic block: the labels at its start and its instructions, of which only the last may jump."""

    labels: tuple[str, ...]
    instructions: tuple[Instruction, ...]


@dataclasses.dataclass(frozen=True)
class Loop:
    """A natural loop: its header and all blocks of its body, by index; depth 1 is outermost."""

    header: int
    blocks: frozenset[int]
    depth: int
    innermost: bool


class Code:
    """Basic blocks in program order, where each may go, and the loops they form.

    lines: labels (str) and instructions in program order.  jump: None for an instruction that only falls through.
    """

    def __init__(self, lines: Iterable[str | Instruction], jump: Callable[[Instruction], Jump | None]) -> None:
        self.lines = tuple(lines)
        self._jump = jump
        self.blocks = _blocks(self.lines, jump)

    @property
    def instructions(self) -> list[Instruction]:
        """All instructions in program order."""
        return [line for line in self.lines if isinstance(line, Instruction)]

    @functools.cached_property
    def successors(self) -> list[list[int]]:
        """For each block the blocks that may follow it; a label that does not exist leads nowhere."""
        home = {label: index for index, block in enumerate(self.blocks) for label in block.labels}
        result = []
        for index, block in enumerate(self.blocks):
            jump = self._jump(block.instructions[-1]) if block.instructions else None
            after = [home[t] for t in (jump.targets if jump else ()) if t in home]
            if (jump is None or jump.falls_through) and index + 1 < len(self.blocks):
                after.append(index + 1)
            result.append(list(dict.fromkeys(after)))
        return result

    @functools.cached_property
    def loops(self) -> list[Loop]:
        """Natural loops, one per header, in program order.

        A back edge goes to a block that dominates its source; the body is all that reaches the source without passing
        the header (Aho, Lam, Sethi, Ullman: Compilers, section 9.6).
        """
        above = dominators(self.successors)
        live = [after if above[block] else [] for block, after in enumerate(self.successors)]
        before = _predecessors(live)
        bodies: dict[int, set[int]] = {}
        for source, targets in enumerate(self.successors):
            for header in targets:
                if above[source] >> header & 1:
                    bodies.setdefault(header, {header}).update(_reaching(source, header, before))
        return [
            Loop(
                header,
                frozenset(body),
                depth=sum(header in other for other in bodies.values()),
                innermost=not any(inner in body for inner in bodies if inner != header),
            )
            for header, body in sorted(bodies.items())
        ]

    @functools.cached_property
    def in_loops(self) -> frozenset[int]:
        """Blocks that lie in some loop."""
        return frozenset(block for loop in self.loops for block in loop.blocks)

    def within(self, blocks: Iterable[int]) -> list[Instruction]:
        """The instructions of those blocks in program order."""
        return self.through(sorted(blocks))

    def through(self, path: Iterable[int]) -> list[Instruction]:
        """The instructions of those blocks in the order of the path."""
        return [i for index in path for i in self.blocks[index].instructions]

    def heaviest_path(self, weights: Mapping[int, int]) -> int:
        """The greatest sum of block weights on a path from the entry that takes no edge backwards in program flow."""
        every = [weights.get(block, 0) for block in range(len(self.blocks))]
        return sum(every[block] for block in self.heaviest_pass(None, every)) if every else 0

    def innermost(self, block: int) -> Loop | None:
        """The innermost loop around a block."""
        around = [loop for loop in self.loops if block in loop.blocks]
        return max(around, key=lambda loop: loop.depth, default=None)

    def heaviest_pass(self, loop: Loop | None, weights: Sequence[int]) -> list[int]:
        """The blocks of one pass through a loop (None: through all the code), inner loops run once.

        Of the ways from its header back to it, the one with the greatest sum of weights; weights: by block.
        """
        inside = loop.blocks if loop else frozenset(range(len(self.blocks)))
        header = loop.header if loop else 0
        order = [block for block in _reverse_postorder(self.successors) if block in inside]
        rank = {block: position for position, block in enumerate(order)}
        best: dict[int, tuple[int, list[int]]] = {header: (weights[header], [header])}
        for block in order:
            for after in self.successors[block]:
                if block in best and rank.get(after, -1) > rank[block]:
                    total, path = best[block]
                    best[after] = max(best.get(after, (-1, [])), (total + weights[after], [*path, after]))
        ends = [b for b in best if header in self.successors[b]] if loop else []
        return max(best[block] for block in ends or best)[1]

    def text(self) -> str:
        """The code, one instruction per line, labels renamed L0, L1 ... in program order.

        A line `; loop L3 depth 2` (or `; no loop`) stands where another innermost loop begins.
        """
        names = {
            label: f"L{n}"
            for n, label in enumerate(dict.fromkeys(label for block in self.blocks for label in block.labels))
        }
        lines: list[str] = []
        before = ""
        for index, block in enumerate(self.blocks):
            loop = self.innermost(index)
            now = f"; loop {self._name(loop.header, names)} depth {loop.depth}" if loop else "; no loop"
            lines += [now] if now != before else []
            lines += [f"{names[label]}:" for label in block.labels]
            lines += [f"\t{_renamed(str(i), names)}" for i in block.instructions]
            before = now
        return "\n".join(lines) + "\n"

    def _name(self, block: int, names: dict[str, str]) -> str:
        labels = self.blocks[block].labels
        return names[labels[0]] if labels else "at the entry"


def dominators(successors: Sequence[Sequence[int]]) -> list[int]:
    """For each block those that every way to it from the entry, block 0, passes: one bit each, itself included.

    0 for a block that cannot be reached.  Aho, Lam, Sethi, Ullman: Compilers, section 9.6.1.
    """
    order, before = _reverse_postorder(successors), _predecessors(successors)
    found = [0] * len(successors)
    found[:1] = [1]
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            ways = (found[one] for one in before[block] if found[one])  # 0: not looked at yet, or never reached
            new = functools.reduce(operator.and_, ways) | 1 << block
            changed |= new != found[block]
            found[block] = new
    return found


def _reaching(source: int, header: int, before: Sequence[Sequence[int]]) -> set[int]:
    """Blocks from which `source` is reached without passing `header`."""
    seen, waiting = {header, source}, [source] if source != header else []
    while waiting:
        for block in before[waiting.pop()]:
            if block not in seen:
                seen.add(block)
                waiting.append(block)
    return seen


def _predecessors(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    before: list[list[int]] = [[] for _ in successors]
    for block, after in enumerate(successors):
        for target in after:
            before[target].append(block)
    return before


def _reverse_postorder(successors: Sequence[Sequence[int]]) -> list[int]:
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(successors[0]))] if successors else []
    while stack:
        block, rest = stack[-1]
        target = next((t for t in rest if t not in seen), None)
        if target is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(target)
            stack.append((target, iter(successors[target])))
    return order[::-1]


def _blocks(lines: Sequence[str | Instruction], jump: Callable[[Instruction], Jump | None]) -> list[Block]:
    blocks: list[Block] = []
    labels: list[str] = []
    body: list[Instruction] = []
    for line in lines:
        if isinstance(line, str):
            if body:
                blocks.append(Block(tuple(labels), tuple(body)))
                labels, body = [], []
            labels.append(line)
        else:
            body.append(line)
            if jump(line) is not None:
                blocks.append(Block(tuple(labels), tuple(body)))
                labels, body = [], []
    if labels or body:
        blocks.append(Block(tuple(labels), tuple(body)))
    return blocks


def _renamed(text: str, names: dict[str, str]) -> str:
    """The text with labels replaced; a symbol of the code is any run of letters, digits and . _ $."""
    return re.sub(r"[.\w$]+", lambda match: names.get(match[0], match[0]), text)


# ---- what is counted, alike for every vendor -----------------------------------------------------------------------


def common_metrics(
    code: Code,
    kind: Callable[[Instruction], str],
    access_bytes: Callable[[Instruction], int | None],
    matrix: str,
    private: str,
) -> JsonObject:
    """The metrics that every vendor's code has.  matrix, private: what `kind` calls a matrix instruction, and one that
    reads or writes private memory."""
    by_kind: dict[str, list[Instruction]] = defaultdict(list)
    for instruction in code.instructions:
        by_kind[kind(instruction)].append(instruction)
    loads, stores = by_kind["load"], by_kind["store"]
    return {
        "scratch_ops": len(by_kind[private]),
        "scratch_ops_in_loops": sum(kind(i) == private for i in code.within(code.in_loops)),
        "instructions": len(code.instructions),
        "mix": counted(map(kind, code.instructions)),
        "matrix": counted(i.mnemonic for i in by_kind[matrix]),
        "load_widths": widths(map(access_bytes, loads)),
        "store_widths": widths(map(access_bytes, stores)),
        "store_names": counted(i.mnemonic for i in stores),
        "barriers": len(by_kind["barrier"]),
        "waits": len(by_kind["wait"]),
        "atomics": counted(i.mnemonic for i in by_kind["atomic"]),
        "loops": len(code.loops),
        "loop": hot_loop(code, kind, matrix),
    }


def hot_loop(code: Code, kind: Callable[[Instruction], str], matrix: str) -> JsonObject:
    """Instruction mix of the hottest innermost loop, the one with the most matrix instructions, then the most accesses
    to memory, then the longest; empty without loops.  matrix: what `kind` calls a matrix instruction."""

    def weight(loop: Loop) -> tuple[int, ...]:
        kinds = Counter(map(kind, code.within(loop.blocks)))
        return kinds[matrix], sum(kinds[name] for name in ("load", "store", "atomic", "lds")), kinds.total()

    loop = max((one for one in code.loops if one.innermost), key=weight, default=None)
    if loop is None:
        return {}
    body = code.within(loop.blocks)
    mix = counted(map(kind, body))
    share = round(mix.get(matrix, 0) / max(len(body), 1), 4)
    return {"instructions": len(body), "depth": loop.depth, "mix": mix, "matrix_share": share}


def widths(sizes: Iterable[int | None]) -> dict[str, int]:
    """Instruction counts by bytes per lane, widest first; keys are strings as JSON has them."""
    counts = Counter(size for size in sizes if size is not None)
    return {str(size): counts[size] for size in sorted(counts, reverse=True)}


def counted(names: Iterable[str]) -> dict[str, int]:
    """How often each name occurs, by name."""
    return dict(sorted(Counter(names).items()))
