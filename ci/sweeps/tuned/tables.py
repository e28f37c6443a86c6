"""The files of an operator's tuned tables: entries with what confirmed them, and what decisions make of the text."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.points import Knobs
from ci.sweeps.catalogue import Table, TablePlace, TunedCase, Value, by_place
from ci.sweeps.measured import SweepError
from ci.sweeps.rungs import Versus
from ci.sweeps.tuned.choose import Action, EntryDecision, RunnerUp


@dataclasses.dataclass(frozen=True, eq=False)
class TableEntry:
    """An entry of a table.  cases: those that it is for.  confirmed: None where nobody has confirmed it."""

    place: TablePlace
    cases: tuple[TunedCase, ...]
    confirmed: Confirmed | None


def entries(cases: Sequence[TunedCase]) -> list[TableEntry]:
    """The entries that some cases have, in the order of their declaration.  SweepError for a table that is broken."""
    tables = {file: _table(file) for file in {one.place.file for one in cases}}
    return [
        TableEntry(place, tuple(those), _confirmed(tables[place.file], those[0]))
        for place, those in by_place(cases).items()
        if those[0].entry
    ]


def _table(file: Path) -> Table:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SweepError(f"{file} cannot be read: {error}; repair it first") from None


def _confirmed(table: Table, case: TunedCase) -> Confirmed | None:
    for name in case.place.path:
        table = table.get(name, {})
    found = table.get(NAME)
    if found is None:
        return None
    try:
        return parse(found, case.chosen, f"{case.place.file}: [{case.place}.{NAME}]")
    except ValueError as error:
        raise SweepError(str(error)) from None


WRITTEN = (Action.NEW, Action.CONFIRMED, Action.MOVED)
"""What becomes an entry with a provenance."""


def rewritten(
    text: str,
    file: Path,
    decisions: Iterable[EntryDecision],
    confirmed: Mapping[TablePlace, Confirmed],
    keys: Sequence[str],
) -> str:
    """The text of a file after some decisions about it.  keys: of the declaration, in its order."""
    try:
        made = TunedText.of(text, str(file))
    except ValueError as error:
        raise SweepError(str(error)) from None
    for one in decisions:
        if one.place.file != file:
            continue
        if one.action in WRITTEN and one.entry is not None and one.knobs is not None:
            launched = {**one.cases[0].defaults, **one.knobs}
            table = as_table(confirmed[one.place], launched)
            made = made.with_entry(one.place.path, one.entry, table, keys)
        elif one.action is Action.REMOVED:
            made = made.without(one.place.path)
    return str(made)


def difference(file: Path, before: str, after: str) -> str:
    """What a rewriting changes, as a diff; "" for nothing."""
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(file), str(file))
    return "".join(lines)


# Where, when and by how much an entry won: the table `confirmed` in it (kernels._shared.tuning.PROVENANCE).


NAME = "confirmed"
"""Of the table within an entry."""

BEHIND = "time"
"""In a runner-up, beside the knobs that differ from the entry's: its time / the winner's."""

VERSIONS = ("triton", "torch", "driver")
"""Packages that are named, and the driver."""

CODE_DIGITS = 16


@dataclasses.dataclass(frozen=True)
class Confirmed:
    """What confirmed an entry.

    machine: as records name it.  cases: those that it was measured in.  against_rule: its time / the rule's, geometric
    mean over the cases.  runners_up: what came next.  code: digest of the code objects of winner, rule and runners-up,
    "" if they were not compiled.
    """

    date: datetime.date
    device: str
    machine: str
    versions: Mapping[str, str]
    cases: tuple[str, ...]
    trials: int
    against_rule: Versus
    runners_up: tuple[RunnerUp, ...] = ()
    code: str = ""


def of_decision(
    made: EntryDecision, date: datetime.date, device: str, machine: str, versions: Mapping[str, str], code: str
) -> Confirmed:
    """The provenance of a decision that has knobs."""
    assert made.against_rule is not None
    cases = tuple(case.case for case in made.cases)
    known = {name: versions[name] for name in VERSIONS if versions.get(name)}
    return Confirmed(date, device, machine, known, cases, made.trials, made.against_rule, made.runners_up, code)


def as_table(confirmed: Confirmed, launched: Knobs) -> Table:
    """As values of TOML, in the order of the file.  launched: all knobs of the winner's launch."""
    rule = confirmed.against_rule
    told: dict[str, object] = {"date": confirmed.date, "device": confirmed.device, "machine": confirmed.machine}
    told |= dict(confirmed.versions)
    told |= {"cases": list(confirmed.cases), "trials": confirmed.trials}
    told |= {"ratio": round(rule.ratio, 4), "low": round(rule.low, 4), "high": round(rule.high, 4)}
    told["runners_up"] = [_runner_up(one, launched) for one in confirmed.runners_up]
    return {name: value for name, value in (told | {"code": confirmed.code}).items() if value or name == "trials"}


def _runner_up(one: RunnerUp, launched: Knobs) -> dict[str, Value]:
    other = {name: value for name, value in one.knobs.items() if value != launched.get(name)}
    return {BEHIND: round(one.behind, 4), **other}


def parse(table: Table, launched: Knobs, where: str) -> Confirmed:
    """From values of TOML.  ValueError names what is missing or of a wrong type, and how to write the entry anew."""
    try:
        rule = Versus(*(float(table[name]) for name in ("ratio", "low", "high")))
        date = table["date"]
        if not isinstance(date, datetime.date):
            raise TypeError(f"date = {date!r}")
        runners = tuple(_parsed_runner_up(one, launched) for one in table.get("runners_up", []))
        texts = {name: str(table[name]) for name in ("device", "machine")}
        return Confirmed(
            date=date,
            versions={name: str(table[name]) for name in VERSIONS if name in table},
            cases=tuple(map(str, table["cases"])),
            trials=int(table["trials"]),
            against_rule=rule,
            runners_up=runners,
            code=str(table.get("code", "")),
            **texts,
        )
    except (KeyError, TypeError, ValueError) as error:
        said = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{where}: {said}; remove this table, and `ridgeline tune all --verify` writes it again"
        ) from None


def _parsed_runner_up(table: Table, launched: Knobs) -> RunnerUp:
    knobs = {name: value for name, value in table.items() if name != BEHIND}
    return RunnerUp({**launched, **knobs}, float(table[BEHIND]))


# tuned.toml as text: entries are replaced, added and removed, and every other line stays as somebody wrote it.


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
