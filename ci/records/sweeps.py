"""The records of sweeps: their trial lines as they are, apart from the series of cases."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

from ci.trials.compact import same_results
from ci.trials.file import Problem, RecordError, TrialFile, read
from ci.trials.trial import Trial
from ci.whole_files import WriteError, replace

# What in results/ is a machine's folder, and what is kept beside the machines.


NO_MACHINES = ("imported", "sweeps", "studies", "canary", "checks", "curves", "causes")
"""Folders of results/ that have readers of their own."""


def machine_folders(results_dir: Path) -> list[Path]:
    """The folders of machines, in order; none without the folder."""
    found = sorted(results_dir.iterdir()) if results_dir.is_dir() else []
    return [one for one in found if one.is_dir() and not one.name.startswith(".") and one.name not in NO_MACHINES]


# The lines of sweeps in results/: a file for each machine, commit, environment and operator.
#
# `results/sweeps/MACHINE/COMMIT8-ENV-OPERATOR.jsonl.gz`; the same lines give the same bytes, in whatever order and how
# often they are recorded.  Samples stay in it: a sweep has few rounds of each point.


FOLDER = "sweeps"
"""In results/: no machine."""


@dataclasses.dataclass(frozen=True)
class KeptSweeps:
    """What recording lines of sweeps did.  paths: files that have them now."""

    paths: list[Path]
    added: int
    known: int
    problems: list[Problem]


def path_of(results_dir: Path, machine: str, stem: str, operator: str) -> Path:
    """Where the lines of an operator's sweeps are kept.  stem: COMMIT8-ENV."""
    return results_dir / FOLDER / machine / f"{stem}-{operator}.jsonl.gz"


def files(results_dir: Path) -> list[Path]:
    """Every file of sweeps."""
    return sorted((results_dir / FOLDER).glob("*/*.jsonl.gz"))


def keep_all(results_dir: Path, swept: Mapping[tuple[str, str], Sequence[Trial]], dry_run: bool = False) -> KeptSweeps:
    """Add lines to their files.  swept: by machine and COMMIT8-ENV."""
    by_path: dict[Path, list[Trial]] = {}
    for (machine, stem), trials in sorted(swept.items()):
        for trial in trials:
            by_path.setdefault(path_of(results_dir, machine, stem, trial.operator), []).append(trial)
    done = [keep(path, trials, dry_run) for path, trials in by_path.items()]
    problems = [problem for one in done for problem in one[2]]
    return KeptSweeps(list(by_path), sum(one[0] for one in done), sum(one[1] for one in done), problems)


def keep(path: Path, trials: Sequence[Trial], dry_run: bool = False) -> tuple[int, int, list[Problem]]:
    """Add lines to a file: how many are new, how many it had, and those that it has with other results.

    RecordError if the file is damaged, or cannot be written; it is then as before.
    """
    there = read(path) if path.exists() else TrialFile(path)
    if damaged := next((one for one in there.rejected if one.number == 0), None):
        raise RecordError(f"{path} {damaged.why}; nothing was changed: restore it, or move it away and record again")
    known = {trial.id: trial for trial in there.trials}
    new = {trial.id: trial for trial in trials if trial.id not in known}
    conflicts = [trial for trial in trials if trial.id in known and not same_results(trial, known[trial.id])]
    if new and not dry_run:
        _write(path, [*there.trials, *new.values()])
    said = [Problem(str(path), f"line {one.id} is recorded already with other results") for one in conflicts]
    problems = [*there.problems(keep=not dry_run), *said]
    return len(new), len({trial.id for trial in trials} & known.keys()) - len(conflicts), problems


def _write(path: Path, trials: Sequence[Trial]) -> None:
    lines = "".join(f"{trial.text}\n" for trial in sorted(trials, key=lambda one: one.order))
    try:
        replace(path, gzip.compress(lines.encode(), mtime=0), "the trial files are whole: record them again")
    except WriteError as error:
        raise RecordError(str(error)) from error


def load(results_dir: Path) -> tuple[list[Trial], list[str]]:
    """The lines of all sweeps, each once, and a sentence on each that cannot be used."""
    found: dict[str, Trial] = {}
    problems: list[str] = []
    for file in map(read, files(results_dir)):
        problems += [f"{one.at(file.path)}: {one.why}; left out" for one in file.rejected]
        found.update({trial.id: trial for trial in file.trials if trial.sweep})
    return list(found.values()), problems
