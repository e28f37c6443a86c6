"""The only reader and writer of results/: asv's files, and beside each the trials it was made of.

`results/<machine>/<commit8>-<env>.notes.jsonl` holds the trial lines; `results/<machine>/<commit8>-<env>.json` is asv's
file, and every row of ours in it can be made again from the notes.  So recording is a union of trials by id: it does
not matter in which order, how often or by whom, and whatever asv or an interrupted writer left behind is put right by
recording once more.  Every file is replaced as a whole, under one lock per results folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from ci.records import asv_files
from ci.records.pooling import Cell, FloatArray, Key, Place, Pool, commit_of, pool
from ci.trials.file import Problem, RecordError, TrialLine, env_name, problems_of, read_trials, set_aside

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Cell",
    "Pair",
    "Place",
    "Problem",
    "RecordError",
    "Recorded",
    "comparison_inputs",
    "keep_grids",
    "load",
    "load_notes",
    "places",
    "pool_at",
    "read_benchmarks",
    "record",
    "samples",
    "trials",
]

LOCK_SECONDS = 600.0
"""How long a writer waits for another.  A record takes seconds; ten minutes mean that the other one hangs."""


@dataclasses.dataclass(frozen=True)
class Recorded:
    """What a call of :func:`record` did.  paths: asv files that now hold the trials, written or not."""

    paths: list[Path]
    added: int
    known: int
    places: list[Place]
    problems: list[Problem]


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """One case of two recorded commits in one environment; None for a side that has not measured it.

    The two sides come from separate sessions: their trials are not paired.
    """

    env: str
    kernel: str
    backend: str
    case: str
    base: Cell | None
    head: Cell | None


# ---- writing ----------------------------------------------------------------------------------------------------


def record(
    files: Iterable[Path], results_dir: Path, commits: Mapping[str, str] | None = None, dry_run: bool = False
) -> Recorded:
    """Add the trials of files to the records of their commits; a trial that is there already changes nothing.

    commits: full hash by role ("head", "base") for trees that carry none or have local changes.
    Raises RecordError if results cannot be written: the trial files and the records are then as before or complete.
    """
    wanted, problems = _sorted_by_place(files, commits or {}, keep=not dry_run)
    known = added = 0
    paths: list[Path] = []
    with contextlib.nullcontext() if dry_run else _lock(results_dir):
        for place in sorted(wanted, key=dataclasses.astuple):
            path = _asv_path(results_dir, place)
            notes, torn = _read_notes(path, keep=not dry_run)
            problems += torn
            ids = {line.id for line in notes}
            new = {line.id: line for line in wanted[place] if line.id not in ids}
            known, added = known + len({line.id for line in wanted[place]} & ids), added + len(new)
            if not dry_run:
                problems += _write_place(results_dir, place, [*notes, *new.values()])
            paths.append(path)
    return Recorded(paths, added, known, sorted(wanted, key=dataclasses.astuple), problems)


def keep_grids(results_dir: Path, earlier: Mapping[str, Any]) -> None:
    """Unite benchmarks.json with what it was earlier: `asv run` rewrites it with only what it found in one commit."""
    path = results_dir / "benchmarks.json"
    with _lock(results_dir):
        now = read_benchmarks(results_dir)
        added = {name: entry for name, entry in earlier.items() if name != "version" and isinstance(entry, dict)}
        newest_last = asv_files.merged(added, {n: e for n, e in now.items() if n != "version"})
        _replace(path, json.dumps(newest_last, indent=4, sort_keys=True))


def read_benchmarks(results_dir: Path) -> dict[str, Any]:
    """benchmarks.json as it is; empty if there is none or it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((results_dir / "benchmarks.json").read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _sorted_by_place(
    files: Iterable[Path], commits: Mapping[str, str], keep: bool
) -> tuple[dict[Place, list[TrialLine]], list[Problem]]:
    wanted: dict[Place, list[TrialLine]] = {}
    problems: list[Problem] = []
    for role, commit in commits.items():
        if not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise RecordError(
                f"the commit given for {role!r} is {commit!r}; give the full hash, 40 hex digits (git rev-parse NAME)"
            )
    for file in files:
        good, bad = read_trials(file)
        problems += problems_of(file, bad, keep)
        for line in good:
            line = _named(line, commits)
            for place, why in _places(line):
                if place is None:
                    problems.append(Problem(str(file), why, set_aside(file, line.text.encode()) if keep else ""))
                else:
                    wanted.setdefault(place, []).append(line)
    return wanted, problems


def _named(line: TrialLine, commits: Mapping[str, str]) -> TrialLine:
    """The trial with the commits that were given by name written into its trees."""
    if not commits.keys() & line.data["trees"].keys():
        return line
    trees = {
        role: {**tree, "recorded_as": commits[role]} if role in commits else tree
        for role, tree in line.data["trees"].items()
    }
    data = {**line.data, "trees": trees}
    return TrialLine(json.dumps(data), data)


def _places(line: TrialLine) -> Iterator[tuple[Place | None, str]]:
    """Where a trial belongs, once per tree; None and the reason for a tree that cannot be recorded."""
    found = set()
    for role, tree in line.data["trees"].items():
        commit = commit_of(tree)
        if commit is None or not re.fullmatch(r"[0-9a-f]{40}", commit):
            state = "has local changes" if tree.get("dirty") else f"has commit {commit!r}"
            yield (
                None,
                (
                    f"trial {line.id} of {line.data['kernel']}: its tree {role!r} {state}, so it is no commit's "
                    "record; commit and measure again, or name the commit: ridgeline run --commit HASH --out FILE"
                ),
            )
        else:
            found.add(Place(str(line.data["machine"]["name"]), commit, env_name(tree["environment"])))
    yield from ((place, "") for place in found)


def _write_place(results_dir: Path, place: Place, lines: Sequence[TrialLine]) -> list[Problem]:
    """Bring the notes and asv's files of one place up to date with these trials."""
    path = _asv_path(results_dir, place)
    pooled = pool(lines, place)
    old, problems = _own_file(path, place)
    rows = {**(old.get("results") or {}), **asv_files.rows_of(pooled)}
    file = {**asv_files.result_file(pooled, rows), "durations": old.get("durations") or {}}
    _replace(_notes_path(path), "".join(f"{line.text}\n" for line in sorted(lines, key=lambda line: line.order)))
    _replace(path, asv_files.dumps(file))
    machine = {**asv_files.machine_record(pooled.machine), "version": 1}
    _replace(path.with_name("machine.json"), json.dumps(machine, indent=4, sort_keys=True))
    new = asv_files.broken_benchmark()
    for declared in pooled.declarations.values():
        new |= asv_files.benchmarks_of(declared, pooled.date_ms)
    grids = asv_files.merged(read_benchmarks(results_dir), new)
    _replace(results_dir / "benchmarks.json", json.dumps(grids, indent=4, sort_keys=True))
    return problems


def _own_file(path: Path, place: Place) -> tuple[dict[str, Any], list[Problem]]:
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


def _read_notes(path: Path, keep: bool) -> tuple[list[TrialLine], list[Problem]]:
    """The trials beside an asv file; with `keep`, lines that are none are put aside (else only reported)."""
    notes = _notes_path(path)
    if not notes.exists():
        return [], []
    good, bad = read_trials(notes)
    if bad and bad[0][0] == 0:
        raise RecordError(f"{notes} {bad[0][2]}; nothing was changed")
    return good, problems_of(notes, bad, keep)


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


def _replace(path: Path, text: str) -> None:
    """Write the whole file or leave it as it is; an unchanged file is not touched."""
    content = text.encode()
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        if path.exists() and path.read_bytes() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise RecordError(
            f"{path} cannot be written: {error.strerror}. Nothing is lost: the old file and the trial "
            "files are as they were. Make room (or give --results DIR) and run it again."
        ) from error


def _asv_path(results_dir: Path, place: Place) -> Path:
    return results_dir / place.machine / f"{place.stem}.json"


def _notes_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}.notes.jsonl")


# ---- reading ----------------------------------------------------------------------------------------------------


def load(results_dir: Path, machine: str | None = None) -> pd.DataFrame:
    """All records as a long frame, one row per (machine, commit, env, kernel, backend, case), oldest commit first.

    Columns: see `ci.records.frame.SCHEMA`; times in seconds, NaN where status is not "ok".  A file that is torn, newer
    or foreign is left out and named in `frame.attrs["problems"]`; reading changes nothing but the Parquet cache in
    `results_dir/.cache`.  No records give an empty frame.
    """
    from ci.records import (
        frame as frames,
    )  # pandas and pyarrow take most of a second to import; recording needs neither

    return frames.load(results_dir, machine, _notes_path)


def load_notes(results_dir: Path, machine: str, commit: str, env: str) -> list[Mapping[str, Any]]:
    """The trials of a record as they were measured, oldest first, none if there are none; `commit` may be a prefix."""
    return [line.data for place in places(results_dir, machine, commit, env) for line in trials(results_dir, place)]


def samples(
    results_dir: Path, machine: str, commit: str, env: str, kernel: str, backend: str, case: str
) -> list[FloatArray]:
    """Seconds of one case, one array per trial, oldest first; empty if it was not measured or is not ok."""
    for place in places(results_dir, machine, commit, env):
        found = pool_at(results_dir, place)
        if found and (kernel, backend, case) in found.cells:
            return list(found.cells[kernel, backend, case].trials)
    return []


def comparison_inputs(
    results_dir: Path, machine: str, base_commit: str, head_commit: str, env: str | None = None
) -> list[Pair]:
    """Every case that either commit has measured on a machine, in each environment that both have (or in `env`)."""
    bases = {place.env: place for place in places(results_dir, machine, base_commit, env)}
    heads = {place.env: place for place in places(results_dir, machine, head_commit, env)}
    pairs: list[Pair] = []
    for name in sorted(bases.keys() & heads.keys()):
        base, head = (_cells(results_dir, place) for place in (bases[name], heads[name]))
        pairs += [Pair(name, *key, base=base.get(key), head=head.get(key)) for key in sorted(base.keys() | head.keys())]
    return pairs


def pool_at(results_dir: Path, place: Place) -> Pool | None:
    """Everything measured at a place, None if nothing was."""
    lines = trials(results_dir, place)
    return pool(lines, place) if lines else None


def _cells(results_dir: Path, place: Place) -> Mapping[Key, Cell]:
    found = pool_at(results_dir, place)
    return found.cells if found else {}


def trials(results_dir: Path, place: Place) -> list[TrialLine]:
    """The trial lines of a place, oldest first, none if there are none; lines that are no trials are left out."""
    return sorted(_read_notes(_asv_path(results_dir, place), keep=False)[0], key=lambda line: line.order)


def places(results_dir: Path, machine: str, commit: str, env: str | None = None) -> list[Place]:
    """Places on a machine whose commit starts with `commit` (or whose first 8 digits do)."""
    found = []
    for path in sorted((results_dir / machine).glob(f"{commit[:8]}*.json")):
        data, why = asv_files.checked(path.read_bytes(), machine)
        if not why and data["commit_hash"].startswith(commit) and env in (None, data["env_name"]):
            found.append(Place(machine, data["commit_hash"], data["env_name"]))
    return found
