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
from ci.sweeps.catalogue import BackendOffer, Table, TablePlace, by_place
from ci.sweeps.choose import Action, EntryDecision, RunnerUp
from ci.sweeps.measured import SweepError
from ci.sweeps.rungs import Versus


@dataclasses.dataclass(frozen=True, eq=False)
class TableEntry:
    """An entry of a table.  cases: those that it is for.  confirmed: None where nobody has confirmed it."""

    place: TablePlace
    cases: tuple[BackendOffer, ...]
    confirmed: Confirmed | None

    @property
    def world(self) -> int:
        """The most ranks of its cases."""
        return max(case.world for case in self.cases)


def entries(cases: Sequence[BackendOffer]) -> list[TableEntry]:
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


def _confirmed(table: Table, case: BackendOffer) -> Confirmed | None:
    for name in case.place.path:
        table = table.get(name, {})
    where = f"{case.place.file}: [{case.place}.{NAME}]"
    return parse(table[NAME], case.whole({}), where) if NAME in table else None


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
    made = TunedText.of(text, str(file))
    for one in decisions:
        if one.place.file != file:
            continue
        if one.action in WRITTEN and one.entry is not None and one.knobs is not None:
            launched = {**one.cases[0].defaults, **one.knobs}
            made = made.with_entry(one.place.path, one.entry, as_table(confirmed[one.place], launched), keys)
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
    told = {
        **{name: getattr(confirmed, name) for name in ("date", "device", "machine")},
        **confirmed.versions,
        "cases": list(confirmed.cases),
        "trials": confirmed.trials,
        **{name: round(getattr(rule, name), 4) for name in ("ratio", "low", "high")},
        "runners_up": [
            {BEHIND: round(one.behind, 4)} | {n: v for n, v in one.knobs.items() if v != launched.get(n)}
            for one in confirmed.runners_up
        ],
        "code": confirmed.code,
    }
    return {name: value for name, value in told.items() if value or name == "trials"}


def parse(table: Table, launched: Knobs, where: str) -> Confirmed:
    """From values of TOML.  SweepError names what is missing or of a wrong type, and how to write the entry anew."""
    try:
        rule = Versus(*(float(table[name]) for name in ("ratio", "low", "high")))
        date = table["date"]
        if not isinstance(date, datetime.date):
            raise TypeError(f"date = {date!r}")
        return Confirmed(
            date,
            str(table["device"]),
            str(table["machine"]),
            {name: str(table[name]) for name in VERSIONS if name in table},
            tuple(map(str, table["cases"])),
            int(table["trials"]),
            rule,
            tuple(_runner_up(one, launched) for one in table.get("runners_up", [])),
            str(table.get("code", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        said = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise SweepError(
            f"{where}: {said}; remove this table, and `ridgeline tune all --verify` writes it again"
        ) from None


def _runner_up(table: Table, launched: Knobs) -> RunnerUp:
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
        """From text.  SweepError if it is not TOML."""
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SweepError(f"{source} is not TOML: {error}; repair it, or remove it for a new one") from None
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
        old = next((block.lines for block in self.blocks if block.names == names), ())
        above = [line for line in old if line.startswith("#")]
        order = [line.partition("=")[0].strip() for line in old if not line.startswith("#")]
        knobs = {name: knobs[name] for name in dict.fromkeys([*(name for name in order if name in knobs), *knobs])}
        new = [_block(names, knobs, above), *([_block((*names, NAME), confirmed)] if confirmed else [])]
        place = self._place(names, keys)
        left, right = (TunedText(part).without(names).blocks for part in (self.blocks[:place], self.blocks[place:]))
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
    texts = [(block.names, "\n".join(block.lines).rstrip()) for block in blocks if block.lines]
    return tuple(TextBlock(names, (*text.split("\n"), "")) for names, text in texts)


def _names(header: str) -> Names:
    return tuple(next(part for part in match.groups() if part is not None) for match in _PART.finditer(header))


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
