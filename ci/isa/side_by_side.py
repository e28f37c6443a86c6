"""Machine code of two sides next to each other: the loop that changed, or the code outside loops.

Texts are what benchmarks.isa keeps: one instruction per line, and a line `; loop L3 depth 2` or `; no loop` where
another innermost loop begins.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence

CONTEXT = 3
"""Equal instructions shown around a change."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The instructions of one innermost loop, or of everything outside loops."""

    title: str
    lines: tuple[str, ...]

    @property
    def heat(self) -> tuple[int, int]:
        """Loops come before the rest, those with most matrix instructions and memory accesses first."""
        matrix = sum(bool(re.match(r"v_mfma|v_smfmac|\w*GMMA|\w*MMA\b", line)) for line in self.lines)
        return (self.title != "no loop", matrix * 1000 + len(self.lines))


def parts(text: str) -> list[Part]:
    """The loops of a text in program order, and what is outside them."""
    found: dict[str, list[str]] = {}
    title = "no loop"
    for line in text.splitlines():
        if line.startswith("; loop ") or line == "; no loop":
            title = line[2:]
        elif not line.startswith(";") and line.strip():
            found.setdefault(title, []).append(line.strip())
    return [Part(name, tuple(lines)) for name, lines in found.items()]


def changed(base: str, head: str) -> list[tuple[Part, Part]]:
    """Parts that differ, hottest first.  Loops are matched in program order at each depth; one side may be empty."""
    old, new = parts(base), parts(head)
    pairs: list[tuple[Part, Part]] = []
    for key in dict.fromkeys([_depth(p) for p in [*new, *old]]):
        left, right = [p for p in old if _depth(p) == key], [p for p in new if _depth(p) == key]
        for index in range(max(len(left), len(right))):
            one = left[index] if index < len(left) else Part("nothing", ())
            two = right[index] if index < len(right) else Part("nothing", ())
            if _plain(one.lines) != _plain(two.lines):
                pairs.append((one, two))
    return sorted(pairs, key=lambda pair: max(pair[0].heat, pair[1].heat), reverse=True)


def _depth(part: Part) -> str:
    return part.title.partition(" depth ")[2] or part.title


def _plain(lines: Sequence[str]) -> list[str]:
    """Mnemonics: register numbers and label names are noise when code is compared by eye."""
    return [line.split()[0] if not line.endswith(":") else "label" for line in lines]


def side_by_side(base: str, head: str, width: int = 120, most: int = 200) -> str:
    """The first changed part in two columns, `|` between changed lines, `<` and `>` for one-sided ones."""
    found = changed(base, head)
    if not found:
        return "The instructions are the same; only registers or labels differ.\n"
    one, two = found[0]
    column = max((width - 3) // 2, 20)
    lines = [_row(f"base: {_title(one)}", " ", f"head: {_title(two)}", column)]
    rows = _rows(one.lines, two.lines)
    lines += [_row(left, mark, right, column) for left, mark, right in rows[:most]]
    if len(rows) > most:
        lines.append(f"... {len(rows) - most} more lines")
    if len(found) > 1:
        lines.append(f"Also changed: {', '.join(_title(new if new.lines else old) for old, new in found[1:])}.")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _title(part: Part) -> str:
    return {"no loop": "outside loops", "nothing": "no such loop"}.get(part.title, part.title)


def _rows(base: Sequence[str], head: Sequence[str]) -> list[tuple[str, str, str]]:
    matcher = difflib.SequenceMatcher(None, _plain(base), _plain(head), autojunk=False)
    rows: list[tuple[str, str, str]] = []
    for group in matcher.get_grouped_opcodes(CONTEXT):
        rows += [("...", " ", "...")] if rows or group[0][1] else []
        for tag, a, b, c, d in group:
            left, right = list(base[a:b]), list(head[c:d])
            for index in range(max(len(left), len(right))):
                one = left[index] if index < len(left) else ""
                two = right[index] if index < len(right) else ""
                rows.append((one, " " if tag == "equal" else "<" if not two else ">" if not one else "|", two))
    return rows


def _row(left: str, mark: str, right: str, column: int) -> str:
    def cut(text: str) -> str:
        return text if len(text) <= column else text[: column - 1] + "…"

    return f"{cut(left):<{column}} {mark} {cut(right)}"
