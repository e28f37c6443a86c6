"""Files of other tools into records: which format a file is of, what it holds, and where that is kept.

Twice is once: a file that was imported as it is changes nothing, and one that has changed replaces what it gave.  A
log has no name of its own (they are all called all_reduce.txt), so its content names it; a result file of asv and a CSV
are known by their path within what was asked for.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from ci.records import foreign_csv, foreign_tools
from ci.records.foreign_csv import ForeignError, ImportOptions, Point, table
from ci.records.imported import PART_ROWS, ParsedUnit, imported, imported_machines
from ci.trials.file import Problem, RecordError

FORMATS = ("asv", "nccl-tests", "hyperfine", "google-benchmark", "csv")

BESIDE = ("benchmarks.json", "machine.json", "asv.conf.json")
"""Files of an asv tree that hold no results."""

SNIFFED = 1 << 16
"""Bytes from which a text's format is told."""

Progress = Callable[[int], None]
"""Called with the number of bytes done."""


@dataclasses.dataclass
class Brought:
    """What an import did.  added, known, refused: files; points: of the added ones; problems: what was left out."""

    added: int = 0
    known: int = 0
    refused: int = 0
    points: int = 0
    machines: set[str] = dataclasses.field(default_factory=set)
    problems: list[Problem] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class ForeignSource:
    """A file to import, and what it is called in the store."""

    path: Path
    name: str


def sources(paths: Sequence[Path]) -> list[ForeignSource]:
    """The files named and those in the folders named, in order; hidden ones and what holds no results are left out."""
    found = []
    for path in paths:
        root = path.resolve().parent
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            inside = file.relative_to(path).parts if path.is_dir() else ()
            if not inside:
                found.append(ForeignSource(file, file.name))
            elif (
                file.is_file()
                and file.name not in BESIDE
                and ".notes.jsonl" not in file.name
                and not any(part.startswith(".") for part in inside)
            ):
                found.append(ForeignSource(file, file.resolve().relative_to(root).as_posix()))
    return found


def size(source: ForeignSource) -> int:
    """Bytes of a file; 0 for one that is not there."""
    return source.path.stat().st_size if source.path.exists() else 0


def bring(
    files: Sequence[ForeignSource],
    results_dir: Path,
    given: ImportOptions,
    kind: str | None = None,
    dry_run: bool = False,
    progress: Progress = lambda done: None,
) -> Brought:
    """Import files; kind: one of FORMATS, None to tell it from each file.  Raises RecordError if it cannot write."""
    importing = _Import(results_dir, given, dry_run)
    done = importing.done
    for source in files:
        try:
            if (kind or _csv(source.path)) == "csv":
                importing.csv(source, progress)
            else:
                importing.whole(source, kind)
                progress(size(source))
        except (ForeignError, OSError) as error:
            why = f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error)
            done.refused += 1
            done.problems.append(Problem(str(source.path), why))
    importing.write()
    return done


class _Import:
    """One import.  Small files wait until they are worth a part together; of a CSV every block is kept at once."""

    def __init__(self, results_dir: Path, given: ImportOptions, dry_run: bool) -> None:
        self.results_dir, self.given, self.dry_run, self.done = results_dir, given, dry_run, Brought()
        self._waiting: dict[str, dict[str, pa.Table]] = {}
        self._units: dict[str, ParsedUnit] = {}

    @functools.cached_property
    def had(self) -> dict[str, dict[str, str]]:
        """What was imported before: digests by machine and name."""
        machines = imported_machines(self.results_dir)
        units = {machine: imported(self.results_dir, machine).units() for machine in machines}
        return {machine: {name: unit.digest for name, unit in held.items()} for machine, held in units.items()}

    def whole(self, source: ForeignSource, kind: str | None) -> None:
        """A file that is read as a whole."""
        content, done = source.path.read_bytes(), self.done
        said = json.dumps([kind, dataclasses.astuple(self.given)]).encode()
        digest = hashlib.blake2b(content + said, digest_size=16).hexdigest()
        tool, points, remarks = _found(content, source.path, self.given, kind)
        name = source.name if tool == "asv" else f"{source.name}-{digest[:8]}"
        by_machine: dict[str, list[Point]] = {}
        for point in points:
            by_machine.setdefault(str(point["machine"]), []).append(point)
        new = [machine for machine in by_machine if self.had.get(machine, {}).get(name) != digest]
        for machine in new:
            self._keep(machine, name, digest, table(by_machine[machine]))
        done.added, done.known = done.added + bool(new), done.known + (bool(by_machine) and not new)
        done.machines |= by_machine.keys()
        done.problems += [Problem(str(source.path), remark) for remark in remarks]

    def csv(self, source: ForeignSource, progress: Progress) -> None:
        """A CSV, block by block; blocks that the file had at an earlier import and has no longer are taken away."""
        so_far, names, done, before = foreign_csv.CsvSoFar(), set[str](), self.done, self.done.points
        for header, piece in foreign_csv.pieces(source.path, self.given):
            name = f"{source.name}@{piece.offset}"
            names.add(name)
            here = {machine for machine, digests in self.had.items() if digests.get(name) == piece.digest}
            if here and not foreign_csv.needs_order(header):
                done.machines |= here
            else:
                rows = foreign_csv.tables(header, piece.content, self.given, so_far)
                for machine in rows.keys() - here:
                    self._keep(machine, name, piece.digest, rows[machine])
                self.write()
                done.machines |= rows.keys()
            progress(len(piece.content))
        for machine, digests in self.had.items():
            gone = {name for name in digests if name.rpartition("@")[0] == source.name and name not in names}
            if gone and not self.dry_run:
                imported(self.results_dir, machine).put({}, {}, gone)
        new = done.points > before
        done.added, done.known = done.added + new, done.known + (not new)
        done.problems += [Problem(str(source.path), remark) for remark in so_far.remarks()]

    def _keep(self, machine: str, name: str, digest: str, rows: pa.Table) -> None:
        """Keep rows, at the latest with :meth:`write`."""
        self._waiting.setdefault(machine, {})[name] = rows
        self._units[name] = ParsedUnit(digest, put_ns=time.time_ns())
        self.done.points += len(rows)
        if sum(len(rows) for tables in self._waiting.values() for rows in tables.values()) >= PART_ROWS:
            self.write()

    def write(self) -> None:
        """Write what waits."""
        for machine, tables in self._waiting.items() if not self.dry_run else ():
            parts = imported(self.results_dir, machine)
            if not parts.put(tables, self._units):
                raise RecordError(
                    f"{parts.folder} cannot be written; what was kept is safe: make room or give a folder you may "
                    "write (--results DIR), and import it again"
                )
        self._waiting = {}


def _found(
    content: bytes, path: Path, given: ImportOptions, kind: str | None
) -> tuple[str, Sequence[Point], Sequence[str]]:
    """The tool that wrote a file, the points it holds, and what of it was left out.  Raises ForeignError."""
    text = content.decode("utf-8-sig", "replace")
    if text.lstrip()[:1] in ("{", "["):
        return _of_json(text, path, given, kind)
    if kind not in (None, "nccl-tests"):
        raise ForeignError(f"is no JSON, as {kind} writes it; give its format: --as {'|'.join(FORMATS)}")
    if kind is None and not foreign_tools.fits_log(text):
        raise ForeignError(f"is of no known format ({', '.join(FORMATS)}); if it is of one, say so: --as FORMAT")
    return "nccl-tests", *foreign_tools.read_log(text, path, given)


def _of_json(
    text: str, path: Path, given: ImportOptions, kind: str | None
) -> tuple[str, Sequence[Point], Sequence[str]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ForeignError(f"is no sound JSON, was its writer interrupted? ({error})") from None
    for tool, (fits, read) in foreign_tools.READERS.items():
        if kind in (None, tool) and fits(data):
            try:
                return tool, *read(data, path, given)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                raise ForeignError(f"lacks what {tool} writes ({type(error).__name__}: {error})") from None
    wanted = kind or ", ".join(FORMATS)
    raise ForeignError(f"is JSON, but not of {wanted}; if it is of another tool, write its numbers as a CSV")


def _csv(path: Path) -> str | None:
    """ "csv" if the beginning of a file says so."""
    with path.open("rb") as stream:
        text = stream.read(SNIFFED).decode("utf-8-sig", "replace")
    if text.lstrip()[:1] in ("{", "["):
        return None
    return "csv" if foreign_csv.fits(text) or path.suffix.lower() == ".csv" else None
