"""The files of an operator's tuned tables: entries with what confirmed them, and what decisions make of the text."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ci.sweeps.catalogue import Table, TablePlace, TunedCase, by_place
from ci.sweeps.measured import SweepError
from ci.sweeps.tuned import provenance
from ci.sweeps.tuned.choose import Action, EntryDecision
from ci.sweeps.tuned.provenance import Confirmed
from ci.sweeps.tuned.text import TunedText


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
    found = table.get(provenance.NAME)
    if found is None:
        return None
    try:
        return provenance.parse(found, case.chosen, f"{case.place.file}: [{case.place}.{provenance.NAME}]")
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
            table = provenance.as_table(confirmed[one.place], launched)
            made = made.with_entry(one.place.path, one.entry, table, keys)
        elif one.action is Action.REMOVED:
            made = made.without(one.place.path)
    return str(made)


def difference(file: Path, before: str, after: str) -> str:
    """What a rewriting changes, as a diff; "" for nothing."""
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(file), str(file))
    return "".join(lines)
