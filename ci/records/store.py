"""The only reader and writer of results/: asv's files, and beside each the trials it was made of.

`results/<machine>/<commit8>-<env>.notes.jsonl` holds the trial lines; `results/<machine>/<commit8>-<env>.json` is asv's
file, and every row of ours in it can be made again from the notes.  So recording is a union of trials by id: it does
not matter in which order, how often or by whom, and whatever asv or an interrupted writer left behind is put right by
recording once more.  Every file is replaced as a whole, under one lock per results folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from ci.records import rows as asv_files
from ci.records import unmeasured
from ci.records.ledger import SWEEPS, by_regime, folder_of
from ci.records.pooling import Place, PooledTrials, pool
from ci.trials.file import Problem, RecordError, TrialFile, read, same_results, set_aside
from ci.trials.trial import Trial
from ci.whole_files import WriteError, replace

if TYPE_CHECKING:
    import pandas as pd

    from ci.records.frame import OpenedRecords

__all__ = [
    "Place",
    "Problem",
    "RecordError",
    "Recorded",
    "keep_grids",
    "load",
    "opened",
    "places",
    "pool_at",
    "read_benchmarks",
    "record",
    "trials",
]

COMMIT = re.compile(r"[0-9a-f]{40}")

LOCK_SECONDS = 600.0
"""How long a writer waits for another.  A record takes seconds; ten minutes mean that the other one hangs."""


@dataclasses.dataclass
class Recorded:
    """What a call of :func:`record` did.  paths: asv files that now hold the trials, written or not."""

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
        wanted = _by_file(those, folder, commits or {}, done.problems, keep=not dry_run)
        with contextlib.nullcontext() if dry_run else _lock(folder):
            for swept, place, path in sorted(wanted):
                there, broken = _read_trials(path, keep=not dry_run)
                new, already, conflicts = _new(wanted[swept, place, path], there.trials, path)
                done.problems += [*broken, *conflicts]
                done.known, done.added = done.known + already, done.added + len(new)
                done.paths.append(path if swept else _asv_path(folder, place))
                done.places += [] if swept else [place]
                if new and swept and not dry_run:
                    ordered = sorted((*there.trials, *new), key=lambda trial: trial.order)
                    _replace(path, gzip.compress("".join(f"{trial.text}\n" for trial in ordered).encode(), mtime=0))
                elif not swept and not dry_run:
                    done.problems += _write_place(folder, TrialFile(there.path, (*there.trials, *new)), place)
                    measured = {(place.commit, trial.operator) for trial in wanted[swept, place, path]}
                    unmeasured.settle(folder / place.machine / unmeasured.NAME, measured)
    return done


def _new(wanted: Sequence[Trial], notes: Sequence[Trial], path: Path) -> tuple[list[Trial], int, list[Problem]]:
    """(trials to add, number of those that are there already, those whose id has other results there)."""
    there = {trial.id: trial for trial in notes}
    conflicts, known, new = [], set(), dict[str, Trial]()
    for trial in wanted:
        earlier = there.get(trial.id) or new.get(trial.id)
        if earlier is None:
            new[trial.id] = trial
        elif same_results(trial, earlier):
            known |= {trial.id} & there.keys()
        else:
            why = f"trial {trial.id} of {trial.operator} is recorded already with other results; the record stays"
            conflicts.append(Problem(str(path), why))
    return list(new.values()), len(known), conflicts


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
        found = json.loads((results_dir / "benchmarks.json").read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _by_file(
    files: Iterable[TrialFile], results_dir: Path, commits: Mapping[str, str], problems: list[Problem], keep: bool
) -> dict[tuple[bool, Place, Path], list[Trial]]:
    """The trials by where they belong: whether in a file of sweeps, the place, the file."""
    for role, commit in commits.items():
        if not COMMIT.fullmatch(commit):
            allowed = "give the full hash, 40 hex digits (git rev-parse NAME)"
            raise RecordError(f"the commit given for {role!r} is {commit!r}; {allowed}")
    wanted: dict[tuple[bool, Place, Path], list[Trial]] = {}
    for file in files:
        problems += file.problems(keep)
        for trial in (trial.with_commits(commits) for trial in file.trials):
            places, reasons = _places(trial)
            aside = set_aside(file.path, trial.text.encode()) if reasons and keep else ""
            problems += [Problem(str(file.path), why, aside) for why in reasons]
            for place in places:
                path = asv_files.notes_of(_asv_path(results_dir, place))
                if trial.sweep:
                    path = results_dir / SWEEPS / place.machine / f"{place.stem}-{trial.operator}.jsonl.gz"
                wanted.setdefault((trial.sweep is not None, place, path), []).append(trial)
    return wanted


def _places(trial: Trial) -> tuple[list[Place], list[str]]:
    """Where a trial belongs, and why a checkout of it cannot be recorded."""
    places, reasons = dict[Place, None](), []
    for role, checkout in trial.checkouts.items():
        commit = checkout.recordable
        if commit and COMMIT.fullmatch(commit):
            places[Place(trial.machine.name, commit, checkout.environment.name)] = None
        else:
            state = "has local changes" if checkout.dirty else f"has commit {commit!r}"
            reasons.append(
                f"trial {trial.id} of {trial.operator}: its checkout {role!r} {state}, so it belongs to no commit's "
                "record; commit and measure again, or name the commit as you measure: `ridgeline run --help`"
            )
    return list(places), reasons


def _texts(notes: TrialFile, pooled: PooledTrials, old: asv_files.Json, path: Path) -> dict[Path, str]:
    """The notes of a place and asv's file, which keeps what asv alone put in it, in the order of writing."""
    rows = {**(old.get("results") or {}), **asv_files.asv_rows(pooled)}
    file = {**asv_files.result_file(pooled, rows), "durations": old.get("durations") or {}}
    return {notes.path: _notes_text(notes), path: asv_files.dumps(file)}


def _notes_text(notes: TrialFile) -> str:
    """The notes of a place: its trials by time."""
    return "".join(f"{trial.text}\n" for trial in sorted(notes.trials, key=lambda one: one.order))


def _write_place(results_dir: Path, notes: TrialFile, place: Place) -> list[Problem]:
    """Bring the notes and asv's files of one place up to date with these trials."""
    path = _asv_path(results_dir, place)
    pooled = pool(notes.trials, place)
    old, problems = _own_file(path, place)
    for file, text in _texts(notes, pooled, old, path).items():
        _replace(file, text)
    machine = {**asv_files.machine_record(pooled.machine), "version": 1}
    _replace(path.with_name("machine.json"), json.dumps(machine, indent=4, sort_keys=True))
    new = asv_files.broken_benchmark()
    for declared in pooled.declarations.values():
        new |= asv_files.benchmarks_of(declared, pooled.date_ms)
    grids = asv_files.merged(read_benchmarks(results_dir), new)
    _replace(results_dir / "benchmarks.json", json.dumps(grids, indent=4, sort_keys=True))
    return problems


def _own_file(path: Path, place: Place) -> tuple[asv_files.Json, list[Problem]]:
    """The asv file at `path`; one that is torn, newer or of another machine is moved aside and {} returned."""
    if not path.exists():
        return {}, []
    content = path.read_bytes()
    data, why = asv_files.checked(content, place.machine)
    if why:
        aside = set_aside(path, content)
        if not aside:
            raise RecordError(f"{path}: {why}, and it cannot be put aside; move it away and record again")
        return {}, [Problem(str(path), f"{why}; made anew from its notes", aside)]
    if data["commit_hash"] != place.commit:
        raise RecordError(
            f"{path} belongs to commit {data['commit_hash']}, whose first 8 digits are those of "
            f"{place.commit}; asv cannot hold both: move one of them to another results folder"
        )
    return data, []


def _read_trials(path: Path, keep: bool) -> tuple[TrialFile, list[Problem]]:
    """A file of trial lines; with `keep`, lines that are not trials are put aside (else only reported)."""
    if not path.exists():
        return TrialFile(path), []
    file = read(path)
    if damaged := next((one for one in file.rejected if one.number == 0), None):
        raise RecordError(f"{path} {damaged.why}; nothing was changed: restore it, or move it away and record again")
    return file, file.problems(keep)


@contextlib.contextmanager
def _lock(results_dir: Path) -> Iterator[None]:
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


# ---- reading ----------------------------------------------------------------------------------------------------


def load(results_dir: Path, machine: str | None = None) -> pd.DataFrame:
    """All records as a long frame, one row per (machine, commit, env, kernel, backend, case), oldest commit first.

    Columns: see `ci.records.cache.SCHEMA`; times in seconds, NaN where status is not "ok".  A file that is torn, newer
    or foreign is left out and named in `frame.attrs["problems"]`; reading changes nothing but the Parquet cache in
    `results_dir/.cache`.  No records give an empty frame.
    """
    from ci.records import (
        frame as frames,
    )  # pandas and pyarrow take most of a second to import; recording needs neither

    return frames.load(results_dir, machine)


def opened(results_dir: Path, told: Callable[[TrialFile], None] = lambda _: None) -> OpenedRecords:
    """The records by where they stand in the history; their rows are read as they are asked for.

    told: is given the notes of each record that is not in the cache.
    """
    from ci.records import frame as frames

    return frames.opened(results_dir, told)


def pool_at(results_dir: Path, place: Place) -> PooledTrials | None:
    """Everything measured at a place, None if nothing was."""
    found = trials(results_dir, place)
    return pool(found, place) if found else None


def trials(results_dir: Path, place: Place) -> list[Trial]:
    """The trials of a place, oldest first, none if there are none.  Lines that are not trials are left out."""
    notes, _ = _read_trials(asv_files.notes_of(_asv_path(results_dir, place)), keep=False)
    return sorted(notes.trials, key=lambda trial: trial.order)


def places(results_dir: Path, machine: str, commit: str, env: str | None = None) -> list[Place]:
    """Places on a machine whose commit starts with `commit` (or whose first 8 digits do)."""
    found = []
    for path in sorted((results_dir / machine).glob(f"{commit[:8]}*.json")):
        data, why = asv_files.checked(path.read_bytes(), machine)
        if not why and data["commit_hash"].startswith(commit) and env in (None, data["env_name"]):
            found.append(Place(machine, data["commit_hash"], data["env_name"]))
    return found
