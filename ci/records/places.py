"""The records of a machine by where they stand in the history: rows are read when, and as far as, they are wanted.

What is known without reading a row: every commit and environment that has rows, its date, and a digest of what the rows
were parsed from (the footers of the cache's parts, `ci.records.parts`).  Who keeps what it made of some commits can so
tell whether it still holds.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from ci.records import cache, imported
from ci.records.frame import FramePiece, assembled, cached_in, machine_folders, ms_apart, problems_in, units_in


@dataclasses.dataclass(frozen=True, order=True)
class RecordPlace:
    """Rows of a commit in an environment.  date_ms: the latest of its rows, ms since 1970; units: records with rows."""

    date_ms: int
    commit: str
    env: str
    units: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class MachineRows:
    """The rows of a machine whose records are all in the cache.  places: oldest first."""

    machine: str
    places: Sequence[RecordPlace]
    indexed: cache.Indexed
    repository: Path
    later: Mapping[tuple[str, int], int]

    def made_of(self, places: Iterable[RecordPlace]) -> str:
        """Digest of what the rows of some places were parsed from, and of how ties of their dates are broken."""
        said = [(p.date_ms, p.commit, p.env, [self.indexed.units[unit].digest for unit in p.units]) for p in places]
        return hashlib.sha256(repr(said).encode(errors="surrogatepass")).hexdigest()

    def rows(self, places: Iterable[RecordPlace]) -> pd.DataFrame:
        """Rows of some places, with the columns of :func:`ci.records.store.load`."""
        wanted = {(place.commit, place.env) for place in places}
        found = (place for place in self.places if (place.commit, place.env) in wanted)
        units = dict.fromkeys(unit for place in found for unit in place.units)
        pieces = [FramePiece(self.machine, table) for table in self.indexed.rows(list(units))]
        return assembled(pieces, self.repository, self.later)


@dataclasses.dataclass(frozen=True, eq=False)
class OpenedRecords:
    """A folder of records.  machines: those in the cache; mixed: those that have imported rows too, or only these.

    problems: what could not be used, without that of `mixed`.
    """

    machines: Sequence[MachineRows]
    mixed: Sequence[str]
    problems: Sequence[str]


def opened(results_dir: Path, notes_path: Callable[[Path], Path]) -> OpenedRecords:
    """See :func:`ci.records.store.opened`."""
    mixed = imported.machines(results_dir)
    found, problems = dict[str, cache.Indexed](), list[str]()
    for folder in machine_folders(results_dir):
        if folder.name not in mixed:
            units = units_in(folder, notes_path)
            found[folder.name] = cache.index(*cached_in(folder, units))
            said = [text for name in units for text in found[folder.name].units[name].problems]
            problems += problems_in(folder, units, said)
    dated = [(commit, date) for one in found.values() for commit, _, date in _all_places(one)]
    later = ms_apart(dated, results_dir)
    machines = [
        MachineRows(machine, _places(one, later), one, results_dir, later)
        for machine, one in found.items()
        if any(unit.places for unit in one.units.values())
    ]
    return OpenedRecords(machines, mixed, problems)


def _all_places(indexed: cache.Indexed) -> Iterable[tuple[str, str, int]]:
    return (place for unit in indexed.units.values() for place in unit.places or ())


def _places(indexed: cache.Indexed, later: Mapping[tuple[str, int], int]) -> list[RecordPlace]:
    """Every commit and environment, oldest first."""
    date: dict[tuple[str, str], int] = {}
    units: dict[tuple[str, str], dict[str, None]] = {}
    for name, unit in indexed.units.items():
        for commit, env, date_ms in unit.places or ():
            shown = date_ms + later.get((commit, date_ms), 0)
            date[commit, env] = max(shown, date.get((commit, env), shown))
            units.setdefault((commit, env), {})[name] = None
    return sorted(RecordPlace(date[key], *key, tuple(sorted(units[key]))) for key in date)
