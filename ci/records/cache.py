"""A derived table over many small files, kept as Parquet: parse each once, delete the cache whenever you like.

A unit is a group of files that is parsed together (a result file and its notes).  Its rows are good as long as the
digest of its files is the one they were parsed from.  Files whose size, inode and time of change are the same as last
time are not even opened.  The table itself is kept by :mod:`ci.records.parts`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from ci.records.parts import PART_ROWS, ParsedUnit, Parts, TablePart, oldest
from ci.whole_files import WriteError, replace

Parser = Callable[[str], tuple[pa.Table, list[str]]]
"""Unit name to (rows, problems)."""

_SEEN = ".files.json"
"""What the files of each unit looked like when their digest was taken: only saves opening them."""


@dataclasses.dataclass(frozen=True)
class Cached:
    """Rows of all units, as tables that may differ in their dictionaries, and the problems met with each unit."""

    tables: list[pa.Table]
    problems: list[str]


def table(units: Mapping[str, Sequence[Path]], parse: Parser, schema: pa.Schema, store: Path, version: int) -> Cached:
    """Rows of all units (columns of `schema` and UNIT), and the problems met; units in the order of their dates.

    Units that are parsed together are best given in that order, so that parts do not overlap.  `store` is a folder of
    parts that is read and, where something changed, written; a missing, damaged or unwritable one only costs time.
    Change `version` whenever `parse` or `schema` means something else.
    """
    parts = Parts(store, schema, version)
    held = parts.read()
    there = {name: unit for part in held for name, unit in part.units.items()}
    fresh, old, _ = _renewed(units, parse, parts, there)
    kept = _once([*fresh, *(part.without(old) for part in held)])
    kept.sort(key=lambda part: oldest(part.rows))
    problems = {name: unit.problems for part in kept for name, unit in part.units.items()}
    return Cached([part.rows for part in kept if len(part.rows)], [said for name in units for said in problems[name]])


@dataclasses.dataclass(frozen=True, eq=False)
class Indexed:
    """Units whose rows are read when they are asked for.

    units: what is known of each; held: rows of those that could not be kept; parse: for what a damaged part has lost.
    """

    parts: Parts
    units: Mapping[str, ParsedUnit]
    held: Mapping[str, pa.Table]
    parse: Parser

    def rows(self, names: Sequence[str]) -> list[pa.Table]:
        """The rows of some units, in this order."""
        found = {**dict(self.parts.rows_of(name for name in names if name not in self.held)), **self.held}
        tables = [found[name] if name in found else self.parse(name)[0] for name in names]
        return [table.select(self.parts.schema.names[:-1]) for table in tables if len(table)]


def index(units: Mapping[str, Sequence[Path]], parse: Parser, schema: pa.Schema, store: Path, version: int) -> Indexed:
    """As :func:`table`, but only what is new is parsed and no rows are read: what is known stands in the footers."""
    parts = Parts(store, schema, version)
    there = parts.units()
    fresh, _, wrote = _renewed(units, parse, parts, there)
    there = parts.units() if wrote else there
    new = {name: unit for part in fresh for name, unit in part.units.items()}
    lost = {name for name in new if there.get(name) != new[name]}
    held = {name: rows for part in fresh for name, rows in part.split(lost & part.units.keys())}
    return Indexed(parts, {name: new.get(name) or there[name] for name in units}, held, parse)


def _renewed(
    units: Mapping[str, Sequence[Path]], parse: Parser, parts: Parts, there: Mapping[str, ParsedUnit]
) -> tuple[list[TablePart], set[str], bool]:
    """Parse and write what is new: the new parts, the units whose old rows no longer count, whether it wrote.

    there: units as their parts have them.
    """
    digests, seen = _digests(units, _read_seen(parts.folder))
    stale = [name for name in units if name not in there or there[name].digest != digests[name]]
    gone = there.keys() - units.keys()
    fresh = list(_parsed(stale, parse, digests, parts))
    wrote = bool(fresh or gone or seen is not None)
    if wrote:
        _write(parts, fresh, gone, seen)
    return fresh, {*gone, *stale}, wrote


def _parsed(stale: Sequence[str], parse: Parser, digests: Mapping[str, str], parts: Parts) -> Iterator[TablePart]:
    """Units parsed anew, as parts of about PART_ROWS rows."""
    tables: dict[str, pa.Table] = {}
    known: dict[str, ParsedUnit] = {}
    for name in stale:
        tables[name], problems = parse(name)
        known[name] = ParsedUnit(digests[name], tuple(problems))
        if sum(map(len, tables.values())) >= PART_ROWS:
            yield parts.part(tables, known)
            tables, known = {}, {}
    if tables:
        yield parts.part(tables, known)


def _once(parts: Sequence[TablePart]) -> list[TablePart]:
    """Every unit once: two parts hold the same one for the moment in which a writer replaces them."""
    seen: set[str] = set()
    kept = []
    for part in parts:
        kept.append(part.without(seen & part.units.keys()))
        seen |= part.units.keys()
    return kept


def _digests(
    units: Mapping[str, Sequence[Path]], seen: Mapping[str, list[str]]
) -> tuple[dict[str, str], dict[str, list[str]] | None]:
    """The digest of each unit, and what is to be remembered of its files: None if all is as it was."""
    found = {}
    for name, files in units.items():
        stat = _stat(files)
        before = seen.get(name)
        found[name] = before if before and before[0] == stat else [stat, _digest(files)]
    digests = {name: digest for name, (_, digest) in found.items()}
    return digests, None if found == seen else found


def _stat(files: Sequence[Path]) -> str:
    """Size, inode and time of change of files; a missing file has none."""
    found = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            stat = os.stat(file)
            found.append(f"{file.name}:{stat.st_size}:{stat.st_ino}:{stat.st_mtime_ns}")
    return "|".join(found)


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        with contextlib.suppress(OSError):
            digest.update(f"{file.name}:{file.stat().st_size}:".encode() + file.read_bytes())
    return digest.hexdigest()


def _read_seen(store: Path) -> dict[str, list[str]]:
    with contextlib.suppress(OSError, ValueError, TypeError):
        found = json.loads((store / _SEEN).read_text())
        return {name: [str(stat), str(digest)] for name, (stat, digest) in found.items()}
    return {}


def _write(parts: Parts, fresh: Sequence[TablePart], gone: set[str], seen: Mapping[str, list[str]] | None) -> None:
    """A read-only folder or a full disk leaves the old parts, which are as good but for speed."""
    with contextlib.suppress(OSError):
        parts.folder.parent.mkdir(parents=True, exist_ok=True)
        (parts.folder.parent / ".gitignore").write_text("*\n")
    if not parts.put(fresh, gone) or seen is None:
        return
    with contextlib.suppress(WriteError):
        replace(parts.folder / _SEEN, json.dumps(seen))
