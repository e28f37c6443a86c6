"""The only reader and writer of results/: the notes of each place, and asv's files, which are made of them.

`results/<machine>/<commit8>-<env>.<digest>.notes.jsonl.gz` holds trial lines (`ci.trials.file.packed_notes`) and is
never changed: what is recorded later is a file of its own, named by its content.  The record of a place is the union
of its files by the ids of trials, so it does not matter in which order, how often or by whom trials are recorded, and
records of different branches never conflict.  What asv reads (`<commit8>-<env>.json`, machine.json, benchmarks.json)
is derived from the notes, left out of git, and put right by :func:`make_asv_files`. Every file is replaced as a whole,
under one lock per results folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ci.records import rows as asv_files
from ci.records.ledger import SWEEPS, base_of, by_regime, folder_of, machine_folders, sweep_files
from ci.records.pooling import Place, PooledTrials, pool
from ci.trials.file import Problem, RecordError, TrialFile, digest_of, packed_notes, read, same_results, unpacked
from ci.trials.trial import Trial
from ci.whole_files import WriteError, replace

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Place",
    "Problem",
    "RecordError",
    "Recorded",
    "damage_of",
    "keep_grids",
    "load",
    "make_asv_files",
    "notes_files",
    "places",
    "pool_at",
    "problems_at",
    "read_benchmarks",
    "record",
    "rewrite",
    "trials",
]

COMMIT = re.compile(r"[0-9a-f]{40}")

LOCK_SECONDS = 600.0
"""How long a writer waits for another.  A record takes seconds; ten minutes mean that the other one hangs."""

NOTES = re.compile(r"(?P<stem>.+?)(\.[0-9a-f]{12})?\.notes\.jsonl(\.gz)?")
"""Names of notes; those of before 2026-11-28 are plain text and have no digest."""

GIT_IGNORES = "/benchmarks.json\n/*/machine.json\n/*/????????-*.json\n*.lock\n.*.draft\n.cache/\n"
"""`.gitignore` of a folder of records: asv's files, and what writers leave."""

GIT_MERGES = "*.jsonl merge=union\n"
"""`.gitattributes`: of a ledger, both sides of a merge count."""


@dataclasses.dataclass
class Recorded:
    """What a call of :func:`record` did.  paths: files that now hold the trials, written or not."""

    paths: list[Path] = dataclasses.field(default_factory=list)
    added: int = 0
    known: int = 0
    places: list[Place] = dataclasses.field(default_factory=list)
    problems: list[Problem] = dataclasses.field(default_factory=list)


# ---- writing ----------------------------------------------------------------------------------------------------


def record(
    files: Iterable[Path | TrialFile],
    results_dir: Path,
    commits: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> Recorded:
    """Add the trials of files to the records of their commits; a trial that is there already changes nothing.

    files: paths, or files that have been read.  commits: full hash by role ("head", "base") for checkouts that carry
    none or have local changes.  Trials of another regime than "spaced" go to its own folder (ci.records.ledger).
    Raises RecordError if results cannot be written: the trial files and the records are then as before or complete.
    """
    done = Recorded()
    for regime, those in by_regime([read(file) if isinstance(file, Path) else file for file in files]).items():
        folder = folder_of(results_dir, regime)
        trials_of = _by_record(those, folder, commits or {}, done.problems)
        with contextlib.nullcontext() if dry_run else _lock(folder):
            for base, place in sorted(trials_of, key=lambda key: key[0]):
                recorded = recorded_trials(base, done.problems)
                new, known, conflicts = _new(trials_of[base, place], recorded, base)
                done.problems += conflicts
                done.known, done.added = done.known + known, done.added + len(new)
                written = _write_notes(base, new, dry_run) if new else None
                if place is None:
                    done.paths += [written] if written else _files_of(base)
                    continue
                done.paths.append(_asv_path(folder, place))
                done.places.append(place)
                if not dry_run:
                    _write_asv_files(folder, {place: (*recorded, *new)})
    return done


def rewrite(results_dir: Path, dry_run: bool = False) -> tuple[int, list[Problem]]:
    """Write every record in the form of today: one file of notes a place, one of each swept operator; asv's files anew.

    Twice is the same as once.  Returns how many records were in another form.  One that cannot be read whole stays as
    it is, and is a problem.
    """
    written, problems = 0, list[Problem]()
    with contextlib.nullcontext() if dry_run else _lock(results_dir):
        for base in sorted({base_of(path) for path in (*notes_files(results_dir), *sweep_files(results_dir))}):
            files, unread = _files_of(base), list[Problem]()
            packed = packed_notes(recorded_trials(base, unread))
            path = _notes_path(base, packed.digest)
            problems += unread
            if unread or (files == [path] and path.read_bytes() == packed.content):
                continue
            written += 1
            if not dry_run:
                _replace(path, packed.content)
                for old in set(files) - {path}:
                    old.unlink()
    if not dry_run:
        make_asv_files(results_dir)
    return written, problems


def make_asv_files(results_dir: Path) -> list[Problem]:
    """Make what asv reads wherever it is missing or older than the notes; returns what is wrong with files of notes.

    Raises RecordError.
    """
    outdated: dict[Place, Sequence[Trial]] = {}
    whole = bool(read_benchmarks(results_dir))
    for folder in machine_folders(results_dir):
        for stem, files in notes_by_stem(folder).items():
            known, _ = _asv_file(folder / f"{stem}.json", folder.name)
            if whole and known.get("notes") == [path.name for path in files]:
                continue
            trials_there = recorded_trials(folder / stem, [])
            if place := place_of(folder.name, stem, trials_there):
                outdated[place] = trials_there
    if outdated:
        with _lock(results_dir):
            _write_asv_files(results_dir, outdated)
    return [problem for path in notes_files(results_dir) if (problem := damage_of(path))]


def keep_grids(results_dir: Path, earlier: asv_files.Json) -> None:
    """Unite benchmarks.json with what it was earlier: `asv run` rewrites it with only what it found in one commit."""
    path = results_dir / "benchmarks.json"
    with _lock(results_dir):
        now = read_benchmarks(results_dir)
        added = {name: entry for name, entry in earlier.items() if name != "version" and isinstance(entry, dict)}
        newest_last = asv_files.merged(added, {n: e for n, e in now.items() if n != "version"})
        _replace(path, json.dumps(newest_last, indent=4, sort_keys=True))


def read_benchmarks(results_dir: Path) -> asv_files.Json:
    """benchmarks.json as it is; empty if there is none or it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        document = json.loads((results_dir / "benchmarks.json").read_text())
        return document if isinstance(document, dict) else {}
    return {}


def _new(wanted: Sequence[Trial], recorded: Sequence[Trial], base: Path) -> tuple[list[Trial], int, list[Problem]]:
    """(trials to add, number of those that are there already, those whose id has other results there)."""
    there = {trial.id: trial for trial in recorded}
    conflicts, known, new = [], set(), dict[str, Trial]()
    for trial in wanted:
        earlier = there.get(trial.id) or new.get(trial.id)
        if earlier is None:
            new[trial.id] = trial
        elif same_results(trial, earlier):
            known |= {trial.id} & there.keys()
        else:
            why = f"trial {trial.id} of {trial.operator} is recorded already with other results; the record stays"
            conflicts.append(Problem(str(base), why))
    return list(new.values()), len(known), conflicts


def _by_record(
    files: Iterable[TrialFile], results_dir: Path, commits: Mapping[str, str], problems: list[Problem]
) -> dict[tuple[Path, Place | None], list[Trial]]:
    """The trials by the record they belong to: what the names of its files begin with, its place (None: of a sweep)."""
    for role, commit in commits.items():
        if not COMMIT.fullmatch(commit):
            allowed = "give the full hash, 40 hex digits (git rev-parse NAME)"
            raise RecordError(f"the commit given for {role!r} is {commit!r}; {allowed}")
    wanted: dict[tuple[Path, Place | None], list[Trial]] = {}
    for file in files:
        problems += file.problems()
        for trial in (trial.with_commits(commits) for trial in file.trials):
            of_trial, reasons = _places(trial)
            problems += [Problem(str(file.path), why) for why in reasons]
            for place in of_trial:
                key: tuple[Path, Place | None]
                if trial.sweep:
                    key = results_dir / SWEEPS / place.machine / f"{place.stem}-{trial.operator}", None
                else:
                    key = results_dir / place.machine / place.stem, place
                wanted.setdefault(key, []).append(trial)
    return wanted


def _places(trial: Trial) -> tuple[list[Place], list[str]]:
    """Where a trial belongs, and why a checkout of it cannot be recorded."""
    of_trial, reasons = dict[Place, None](), []
    for role, checkout in trial.checkouts.items():
        commit = checkout.recordable
        if commit and COMMIT.fullmatch(commit):
            of_trial[Place(trial.machine.name, commit, checkout.environment.name)] = None
        else:
            state = "has local changes" if checkout.dirty else f"has commit {commit!r}"
            reasons.append(
                f"trial {trial.id} of {trial.operator}: its checkout {role!r} {state}, so it belongs to no commit's "
                "record; commit and measure again, or name the commit as you measure: `ridgeline run --help`"
            )
    return list(of_trial), reasons


def _write_notes(base: Path, new: Sequence[Trial], dry_run: bool) -> Path:
    """The file of its own that holds these trials."""
    packed = packed_notes(new)
    path = _notes_path(base, packed.digest)
    if not dry_run:
        _replace(path, packed.content)
    return path


def _write_asv_files(results_dir: Path, trials_at: Mapping[Place, Sequence[Trial]]) -> None:
    """Make asv's files of these places; what asv alone put in them stays."""
    grids = asv_files.merged(read_benchmarks(results_dir), asv_files.broken_benchmark())
    for place, those in trials_at.items():
        pooled, path = pool(those, place), _asv_path(results_dir, place)
        known, _ = _asv_file(path, place.machine)
        if known and known["commit_hash"] != place.commit:
            raise RecordError(
                f"{path} belongs to commit {known['commit_hash']}, whose first 8 digits are those of "
                f"{place.commit}; asv cannot hold both: move one of them to another results folder"
            )
        rows = {**(known.get("results") or {}), **asv_files.asv_rows(pooled)}
        names = [file.name for file in _files_of(results_dir / place.machine / place.stem)]
        file = asv_files.result_file(pooled, rows) | {"durations": known.get("durations") or {}, "notes": names}
        _replace(path, asv_files.dumps(file))
        machine = {**asv_files.machine_record(pooled.machine), "version": 1}
        _replace(path.with_name("machine.json"), json.dumps(machine, indent=4, sort_keys=True))
        for declared in pooled.declarations.values():
            grids = asv_files.merged(grids, asv_files.benchmarks_of(declared, pooled.date_ms))
    _replace(results_dir / "benchmarks.json", json.dumps(grids, indent=4, sort_keys=True))
    for name, text in ((".gitignore", GIT_IGNORES), (".gitattributes", GIT_MERGES)):
        if not (results_dir / name).exists():
            _replace(results_dir / name, text)


def _asv_file(path: Path, machine: str) -> tuple[asv_files.Json, str]:
    """asv's file of a place; {} and why where there is none that asv would take."""
    try:
        return asv_files.checked(path.read_bytes(), machine)
    except OSError as error:
        return {}, f"cannot be read: {error.strerror}"


@contextlib.contextmanager
def _lock(results_dir: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout  # who only reads records needs none of it

    path = results_dir / ".ridgeline.lock"
    try:
        results_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(path, timeout=LOCK_SECONDS):
            yield
    except Timeout:
        raise RecordError(
            f"{path} has been held for {LOCK_SECONDS:.0f} s by another writer; end that one and record "
            "again, nothing was changed"
        ) from None
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise RecordError(
            f"{results_dir} cannot be written ({error.strerror}); give a folder you may write: --results DIR"
        ) from error


def _replace(path: Path, text: str | bytes) -> None:
    try:
        replace(path, text, "the trial files are whole: make room (or give --results DIR) and record them again")
    except WriteError as error:
        raise RecordError(str(error)) from error


def _asv_path(results_dir: Path, place: Place) -> Path:
    return results_dir / place.machine / f"{place.stem}.json"


# ---- where the files of a record are ------------------------------------------------------------------------------


def notes_files(results_dir: Path) -> list[Path]:
    """Every file of notes."""
    return [
        path for folder in machine_folders(results_dir) for paths in notes_by_stem(folder).values() for path in paths
    ]


def damage_of(path: Path) -> Problem | None:
    """What is wrong with a file of notes; one whose name has the digest of its lines is whole, and is not parsed."""
    try:
        content, damage = unpacked(path.read_bytes())
    except OSError as error:
        return Problem(str(path), f"cannot be read: {error.strerror or error}")
    if not damage and f".{digest_of(content)}." in path.name:
        return None
    file = read(path)
    return next(iter(file.problems()), None if file.trials else Problem(str(path), "holds no trial"))


def notes_by_stem(folder: Path) -> dict[str, list[Path]]:
    """The notes of a machine by what asv calls the record, `<commit8>-<env>`."""
    by_stem: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.notes.jsonl*")):
        if match := NOTES.fullmatch(path.name):
            by_stem.setdefault(match["stem"], []).append(path)
    return by_stem


def _is_swept(base: Path) -> bool:
    return base.parent.parent.name == SWEEPS


def _files_of(base: Path) -> list[Path]:
    """The files of a record."""
    return sorted(
        path for path in base.parent.glob(f"{base.name}.*jsonl*") if base_of(path) == base and path.name[0] != "."
    )


def _notes_path(base: Path, digest: str) -> Path:
    suffix = ".jsonl.gz" if _is_swept(base) else ".notes.jsonl.gz"
    return base.with_name(f"{base.name}.{digest}{suffix}")


def recorded_trials(base: Path, problems: list[Problem]) -> list[Trial]:
    """The trials of a record, each once, oldest first.  problems: gets what of its files is not used."""
    by_id: dict[str, Trial] = {}
    for path in _files_of(base):
        file = read(path, recorded=True)
        problems += file.problems()
        by_id.update((trial.id, trial) for trial in file.trials if trial.id not in by_id)
    return sorted(by_id.values(), key=lambda trial: trial.order)


def place_of(machine: str, stem: str, trials_there: Iterable[Trial]) -> Place | None:
    """The place that a record is of, by what its trials say of their commits; None if none of them belongs here."""
    of_trials = (place for trial in trials_there for place in _places(trial)[0])
    return next((place for place in of_trials if (place.machine, place.stem) == (machine, stem)), None)


# ---- reading ----------------------------------------------------------------------------------------------------


def load(results_dir: Path, machine: str | None = None) -> pd.DataFrame:
    """All records as a long frame, one row per (machine, commit, env, kernel, backend, case), oldest commit first.

    Columns: see `ci.records.frame.SCHEMA`; times in seconds, NaN where status is not "ok".  A file that is torn, newer
    or foreign is left out and named in `frame.attrs["problems"]`, the number of our own among them is
    `frame.attrs["unread"]`; reading changes nothing but the Parquet cache in
    `results_dir/.cache`.  No records give an empty frame.
    """
    from ci.records import (
        frame as frames,
    )  # pandas and pyarrow take most of a second to import; recording needs neither

    return frames.load(results_dir, machine)


def pool_at(results_dir: Path, place: Place) -> PooledTrials | None:
    """Everything measured at a place, None if nothing was."""
    there = trials(results_dir, place)
    return pool(there, place) if there else None


def trials(results_dir: Path, place: Place) -> list[Trial]:
    """The trials of a place, oldest first, none if there are none.  Lines that are not trials are left out."""
    return recorded_trials(results_dir / place.machine / place.stem, [])


def problems_at(results_dir: Path, machine: str, commits: Sequence[str]) -> list[Problem]:
    """What cannot be read of the records of commits on a machine."""
    problems: list[Problem] = []
    for stem in notes_by_stem(results_dir / machine):
        if any(commit.startswith(stem[:8]) for commit in commits):
            recorded_trials(results_dir / machine / stem, problems)
    return problems


def places(results_dir: Path, machine: str, commit: str, env: str | None = None) -> list[Place]:
    """Places on a machine whose commit starts with `commit` (or whose first 8 digits do)."""
    recorded = (
        place_of(machine, stem, recorded_trials(results_dir / machine / stem, []))
        for stem in notes_by_stem(results_dir / machine)
        if stem.startswith(commit[:8])
    )
    return [one for one in recorded if one and one.commit.startswith(commit) and env in (None, one.env)]
