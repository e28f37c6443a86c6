"""The text of a tuned table: entries are written, replaced and removed; every other line stays (tomlkit)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import ParseError

from ci.sweeps.choose import Action, EntryDecision
from ci.sweeps.measured import Measured, SweepError

PROVENANCE = "confirmed"
"""The table within an entry that says what confirmed it (kernels._shared.tuning.PROVENANCE)."""

WRITTEN = (Action.NEW, Action.CONFIRMED, Action.MOVED)
"""What becomes an entry."""


def rewritten(text: str, file: Path, decisions: Iterable[EntryDecision], measured: Measured) -> str:
    """The text of a file after some decisions about it.  SweepError where it is not TOML."""
    try:
        document = tomlkit.parse(text)
    except ParseError as error:
        raise SweepError(f"{file} is not TOML: {error}; repair it, or remove it for a new one") from None
    for decision in decisions:
        if decision.place.file != file:
            continue
        table: Any = document
        for name in decision.place.table:
            table = table.setdefault(name, tomlkit.table(is_super_table=True))
        if decision.action in WRITTEN and decision.entry is not None:
            _write_entry(table, decision, measured)
        elif decision.action is Action.REMOVED:
            table.pop(decision.place.key)
    return tomlkit.dumps(document).rstrip("\n") + "\n"


def _write_entry(table: Any, decision: EntryDecision, measured: Measured) -> None:
    """The knobs of an entry in the order that they had, and what confirmed it."""
    key, knobs = decision.place.key, dict(decision.entry or {})
    if key not in table:
        table[key] = tomlkit.table()
    entry = table[key]
    for name in [name for name in entry if name not in knobs and name != PROVENANCE]:
        entry.remove(name)
    if PROVENANCE in entry:
        entry.remove(PROVENANCE)
    entry.update(knobs)
    provenance = tomlkit.table()
    provenance.update(confirmation(decision, measured))
    entry[PROVENANCE] = provenance
    entry[PROVENANCE].add(tomlkit.nl())


def confirmation(decision: EntryDecision, measured: Measured) -> Mapping[str, Any]:
    """When, where and by how much an entry won: its time / the rule's, geometric mean over the cases, with interval."""
    machine, versions = measured.machine, measured.environment.requirements
    against = decision.against_rule
    assert against is not None
    facts = {
        "date": measured.day,
        "device": machine.market_name or machine.device or machine.cpu or "unknown device",
        "machine": machine.name,
        **{name: versions.get(name) for name in ("triton", "torch")},
        "driver": machine.driver,
        "cases": [case.case for case in decision.cases],
        "trials": decision.trials,
        **{name: round(getattr(against, name), 4) for name in ("ratio", "low", "high")},
    }
    return {name: value for name, value in facts.items() if value}


def difference(file: Path, before: str, after: str) -> str:
    """What a rewriting changes, as a diff; "" for nothing."""
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(file), str(file))
    return "".join(lines)
