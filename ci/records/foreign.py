"""Files of other tools into records: which format a file is of, what it holds, and where that is kept.

Twice is once: a file that was imported as it is changes nothing, and one that has changed replaces what it gave.  A
log has no name of its own (they are all called all_reduce.txt), so its content names it; a result file of asv and a CSV
are known by their path within what was asked for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from ci.records import cache, foreign_csv, foreign_tools
from ci.records.cache import PART_ROWS, ImportedParts, ParsedUnit
from ci.records.foreign_csv import ForeignError, ForeignFile, ImportOptions, table
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
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        root = path.resolve().parent
        for file in inside:
            if path.is_dir() and (not file.is_file() or file.name in BESIDE or _hidden(file.relative_to(path))):
                continue
            found.append(
                ForeignSource(file, file.resolve().relative_to(root).as_posix() if path.is_dir() else file.name)
            )
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
    done, waiting = Brought(), _Waiting(results_dir, dry_run)
    for source in files:
        try:
            if (kind or _csv(source.path)) == "csv":
                _bring_csv(source, results_dir, given, done, dry_run, progress)
            else:
                _bring_whole(source, given, kind, done, waiting)
                progress(size(source))
        except (ForeignError, OSError) as error:
            why = f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error)
            done.refused += 1
            done.problems.append(Problem(str(source.path), why))
    waiting.write()
    return done


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


# ---- files that are read as a whole -----------------------------------------------------------------------------


class _Waiting:
    """Tables of small files, written some at a time."""

    def __init__(self, results_dir: Path, dry_run: bool) -> None:
        self.results_dir, self.dry_run, self.rows = results_dir, dry_run, 0
        self.tables: dict[str, dict[str, pa.Table]] = {}
        self.digests: dict[str, str] = {}
        self._known: dict[str, dict[str, str]] = {}

    def has(self, machine: str, name: str, digest: str) -> bool:
        """Whether a machine's rows of this file are kept already."""
        if machine not in self._known:
            self._known[machine] = cache.imported_digests(self.results_dir, machine)
        return self._known[machine].get(name) == digest

    def add(self, machine: str, name: str, digest: str, rows: pa.Table) -> None:
        """Keep rows, at the latest with :meth:`write`."""
        self.tables.setdefault(machine, {})[name] = rows
        self.digests[name] = digest
        self.rows += len(rows)
        if self.rows >= PART_ROWS:
            self.write()

    def write(self) -> None:
        """Write what waits."""
        for machine, tables in self.tables.items():
            if not self.dry_run:
                cache.keep_imported(self.results_dir, machine, tables, self.digests)
        self.tables, self.rows = {}, 0


def _bring_whole(
    source: ForeignSource, given: ImportOptions, kind: str | None, done: Brought, waiting: _Waiting
) -> None:
    content = source.path.read_bytes()
    said = json.dumps([kind, dataclasses.astuple(given)]).encode()
    digest = hashlib.blake2b(content + said, digest_size=16).hexdigest()
    tool, found = _found(content, source.path, given, kind)
    name = source.name if tool == "asv" else f"{source.name}-{digest[:8]}"
    by_machine: dict[str, list[int]] = {}
    for index, point in enumerate(found.points):
        by_machine.setdefault(point.origin.machine, []).append(index)
    new = [machine for machine in by_machine if not waiting.has(machine, name, digest)]
    for machine in new:
        waiting.add(machine, name, digest, table(found.points[index] for index in by_machine[machine]))
        done.points += len(by_machine[machine])
    done.added, done.known = done.added + bool(new), done.known + (bool(by_machine) and not new)
    done.machines |= by_machine.keys()
    done.problems += [Problem(str(source.path), remark) for remark in found.remarks]


def _found(content: bytes, path: Path, given: ImportOptions, kind: str | None) -> tuple[str, ForeignFile]:
    """The tool that wrote a file, and what it holds.  Raises ForeignError."""
    text = content.decode("utf-8-sig", "replace")
    if text.lstrip()[:1] in ("{", "["):
        return _of_json(text, path, given, kind)
    if kind not in (None, "nccl-tests"):
        raise ForeignError(f"is no JSON, as {kind} writes it; give its format: --as {'|'.join(FORMATS)}")
    if kind is None and not foreign_tools.fits_log(text):
        raise ForeignError(f"is of no known format ({', '.join(FORMATS)}); if it is of one, say so: --as FORMAT")
    return "nccl-tests", foreign_tools.read_log(text, path, given)


def _of_json(text: str, path: Path, given: ImportOptions, kind: str | None) -> tuple[str, ForeignFile]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ForeignError(f"is no sound JSON, was its writer interrupted? ({error})") from None
    readers = {
        "asv": (foreign_tools.fits_asv, foreign_tools.read_asv),
        "nccl-tests": (foreign_tools.fits_report, foreign_tools.read_report),
        "hyperfine": (foreign_tools.fits_hyperfine, foreign_tools.read_hyperfine),
        "google-benchmark": (foreign_tools.fits_google, foreign_tools.read_google),
    }
    for tool, (fits, read) in readers.items():
        if kind in (None, tool) and fits(data):
            try:
                return tool, read(data, path, given)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                raise ForeignError(f"lacks what {tool} writes ({type(error).__name__}: {error})") from None
    wanted = kind or ", ".join(FORMATS)
    raise ForeignError(f"is JSON, but not of {wanted}; if it is of another tool, write its numbers as a CSV")


# ---- CSV --------------------------------------------------------------------------------------------------------


def _csv(path: Path) -> str | None:
    """ "csv" if the beginning of a file says so."""
    with path.open("rb") as stream:
        text = stream.read(SNIFFED).decode("utf-8-sig", "replace")
    if text.lstrip()[:1] in ("{", "["):
        return None
    return "csv" if foreign_csv.fits(text) or path.suffix.lower() == ".csv" else None


def _bring_csv(
    source: ForeignSource, results_dir: Path, given: ImportOptions, done: Brought, dry_run: bool, progress: Progress
) -> None:
    """Import a CSV block by block; each is kept before the next is read."""
    tally, numbering, stores = foreign_csv.LeftOut(), foreign_csv.Numbering(), dict[str, ImportedParts]()
    had = {name: cache.imported_digests(results_dir, name) for name in cache.imported_machines(results_dir)}
    names, changed = set[str](), False
    for header, piece in foreign_csv.pieces(source.path, given):
        name = f"{source.name}@{piece.offset}"
        names.add(name)
        here = {machine for machine, digests in had.items() if digests.get(name) == piece.digest}
        if here and not foreign_csv.needs_order(header):
            done.machines |= here
        else:
            rows = foreign_csv.tables(header, piece, given, tally, numbering)
            fresh = {machine: found for machine, found in rows.items() if machine not in here}
            _keep(results_dir, stores, name, piece.digest, {} if dry_run else fresh)
            done.points += sum(map(len, fresh.values()))
            done.machines |= rows.keys()
            changed = changed or bool(fresh)
        progress(len(piece.content))
    _forget(results_dir, source.name, names, had, dry_run)
    done.added, done.known = done.added + changed, done.known + (not changed)
    done.problems += [Problem(str(source.path), remark) for remark in tally.remarks()]


def _keep(
    results_dir: Path, stores: dict[str, ImportedParts], name: str, digest: str, rows: Mapping[str, pa.Table]
) -> None:
    for machine, found in rows.items():
        parts = stores.setdefault(machine, ImportedParts(results_dir, machine))
        if not parts.put([parts.part({name: found}, {name: ParsedUnit(digest, put_ns=time.time_ns())})]):
            raise RecordError(f"{parts.folder} cannot be written; what was kept is safe: make room and import it again")


def _forget(
    results_dir: Path, source: str, names: set[str], had: Mapping[str, Mapping[str, str]], dry_run: bool
) -> None:
    """Take away the blocks that the file had at an earlier import and has no longer."""
    for machine, digests in had.items():
        gone = {name for name in digests if name.rpartition("@")[0] == source and name not in names}
        if gone and not dry_run:
            ImportedParts(results_dir, machine).put([], gone)
