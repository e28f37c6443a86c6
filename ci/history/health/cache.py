"""The health of every recorded trial, each file of notes read once: kept in `results/.cache`, safe to delete."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ci.history.health.readings import SessionNoise, TrialHealth, noise_of, of_trial
from ci.trials.file import read
from ci.whole_files import WriteError, replace

VERSION = 3
"""Of what is kept; raise it with any change of what is read."""


@dataclasses.dataclass(frozen=True)
class HealthRecord:
    """All that the notes of a results folder say of its machines, oldest first."""

    trials: tuple[TrialHealth, ...] = ()
    noise: tuple[SessionNoise, ...] = ()


def load(results_dir: Path) -> HealthRecord:
    """Of all machines.  A trial in the notes of two commits counts once; a broken line is left out."""
    trials: dict[tuple[str, int, str, str], TrialHealth] = {}
    noise: dict[tuple[str, str], SessionNoise] = {}
    for folder in sorted(results_dir.iterdir()) if results_dir.is_dir() else []:
        for entry in _machine(folder, results_dir / ".cache" / f"health-{folder.name}.note"):
            for one in entry.trials:
                trials.setdefault((one.session, one.at_ms, one.machine, one.operator), one)
            for found in entry.noise:
                noise.setdefault((found.machine, found.session), found)
    return HealthRecord(
        tuple(sorted(trials.values(), key=lambda one: (one.at_ms, one.machine, one.session, one.operator))),
        tuple(sorted(noise.values(), key=lambda one: (one.at_ms, one.machine, one.session))),
    )


def _machine(folder: Path, store: Path) -> Iterator[HealthRecord]:
    """One entry per file of notes of a machine; only files that changed are read."""
    files = sorted(folder.glob("*.notes.jsonl")) if folder.is_dir() and not folder.name.startswith(".") else []
    if not files:
        return
    kept = _kept(store)
    fresh = {path.name: _entry(path, kept.get(path.name)) for path in files}
    if fresh != kept:
        _keep(store, fresh)
    for entry in fresh.values():
        yield HealthRecord(
            tuple(map(TrialHealth.of_json, entry["trials"])), tuple(SessionNoise(**one) for one in entry["noise"])
        )


def _entry(path: Path, known: Any) -> Any:
    """What is kept of one file, with the size and time by which a change is seen."""
    stat = path.stat()
    stamp = [stat.st_size, stat.st_mtime_ns]
    if known and known["stamp"] == stamp:
        return known
    trials = read(path).trials
    made = [dataclasses.asdict(of_trial(trial)) for trial in trials]
    return json.loads(
        json.dumps({"stamp": stamp, "trials": made, "noise": [dataclasses.asdict(one) for one in noise_of(trials)]})
    )


def _kept(store: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        found = json.loads(store.read_text())
        return dict(found["files"]) if found["version"] == VERSION else {}
    return {}


def _keep(store: Path, files: dict[str, Any]) -> None:
    """Write what is kept; a folder that cannot be written only costs time."""
    with contextlib.suppress(WriteError):
        replace(store.parent / ".gitignore", "*\n")
        replace(store, json.dumps({"version": VERSION, "files": files}))
