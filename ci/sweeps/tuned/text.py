"""tuned.toml as text: entries are replaced, added and removed, and every other line stays as somebody wrote it."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any

from benchmarks.points import Knobs
from ci.sweeps.catalogue import Table
from ci.sweeps.tuned.provenance import NAME

Names = tuple[str, ...]
"""Names of nested tables, from the outside."""

_HEADER = re.compile(r"^\[([^\[\]]+)\]\s*(#.*)?$")
_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([A-Za-z0-9_-]+)')
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclasses.dataclass(frozen=True)
class TextBlock:
    """A table with the comments above it.  names: () for what stands above the first table."""

    names: Names
    lines: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class TunedText:
    """The blocks of a file, in its order."""

    blocks: tuple[TextBlock, ...]

    @classmethod
    def of(cls, text: str, source: str) -> TunedText:
        """From text.  ValueError if it is not TOML."""
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{source} is not TOML: {error}; repair it, or remove it for a new one") from None
        return cls(_blocks(text))

    def __str__(self) -> str:
        """The text; that of an unchanged file is the same to the byte."""
        return "\n".join(line for block in self.blocks for line in block.lines)

    def without(self, names: Names) -> TunedText:
        """The same without an entry and the tables in it."""
        kept = tuple(block for block in self.blocks if block.names[: len(names)] != names)
        return TunedText(_ended(kept))

    def with_entry(self, names: Names, knobs: Knobs, confirmed: Table, keys: Sequence[str] = ()) -> TunedText:
        """The same with an entry and its provenance in place of what it has, or behind the nearest before it in `keys`.

        Comments above the entry stay, and knobs stand in the order that they had.
        """
        old = [block for block in self.blocks if block.names == names]
        above = _comments(old[0]) if old else ()
        order = [name for name in _keys(old[0]) if name in knobs] if old else []
        knobs = {name: knobs[name] for name in [*order, *(name for name in knobs if name not in order)]}
        provenance = [_block((*names, NAME), confirmed)] if confirmed else []
        new = [_block(names, knobs, above), *provenance]
        place = self._place(names, keys)
        left = [block for block in self.blocks[:place] if block.names[: len(names)] != names]
        right = [block for block in self.blocks[place:] if block.names[: len(names)] != names]
        return TunedText(_ended((*left, *new, *right)))

    def _place(self, names: Names, keys: Sequence[str]) -> int:
        """Where an entry goes: where it is, or behind the last of its table that stands before it in `keys`."""
        heads = [block.names[: len(names)] for block in self.blocks]
        if names in heads:
            return heads.index(names)
        table = [n for n, head in enumerate(heads) if len(head) == len(names) and head[:-1] == names[:-1]]
        if not table:
            return len(heads)
        rank = {key: n for n, key in enumerate(keys)}
        before = [n for n in table if rank.get(heads[n][-1], -1) <= rank.get(names[-1], len(rank))]
        return before[-1] + 1 if before else table[0]


def _blocks(text: str) -> tuple[TextBlock, ...]:
    """Comments right above a table, without a blank line between, belong to it."""
    found, lines, waiting = list[TextBlock](), list[str](), list[str]()
    names: Names = ()
    for line in text.split("\n"):
        if header := _HEADER.match(line):
            start = max((n + 1 for n, one in enumerate(waiting) if not one.strip()), default=0)
            found.append(TextBlock(names, (*lines, *waiting[:start])))
            names, lines, waiting = _names(header.group(1)), [*waiting[start:], line], []
        elif not line.strip() or line.startswith("#"):
            waiting.append(line)
        else:
            lines, waiting = [*lines, *waiting, line], []
    return (*found, TextBlock(names, (*lines, *waiting)))


def _ended(blocks: Sequence[TextBlock]) -> tuple[TextBlock, ...]:
    """One blank line between blocks, one line break at the end of the file."""
    filled = [block for block in blocks if block.lines]
    trimmed = [TextBlock(block.names, _trimmed(block.lines)) for block in filled]
    apart = [dataclasses.replace(block, lines=(*block.lines, "")) for block in trimmed]
    return tuple(apart)


def _trimmed(lines: Sequence[str]) -> tuple[str, ...]:
    kept = list(lines)
    while kept and not kept[-1].strip():
        kept.pop()
    return tuple(kept)


def _names(header: str) -> Names:
    return tuple(next(part for part in match.groups() if part is not None) for match in _PART.finditer(header))


def _comments(block: TextBlock) -> tuple[str, ...]:
    return tuple(line for line in block.lines if line.startswith("#"))


def _keys(block: TextBlock) -> list[str]:
    return [line.partition("=")[0].strip() for line in block.lines if "=" in line and not line.startswith(("#", "["))]


def _block(names: Names, values: Table, above: Sequence[str] = ()) -> TextBlock:
    header = ".".join(name if _BARE.fullmatch(name) else json.dumps(name) for name in names)
    return TextBlock(names, (*above, f"[{header}]", *(line for name in values for line in _line(name, values[name]))))


def _line(name: str, value: Any) -> list[str]:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        rows = [f"    {{ {', '.join(f'{k} = {_value(v)}' for k, v in row.items())} }}," for row in value]
        return [f"{name} = [", *rows, "]"]
    return [f"{name} = {_value(value)}"]


def _value(value: Any) -> str:
    """A value of TOML: JSON's texts, numbers and truth values are TOML's as well."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=True)
