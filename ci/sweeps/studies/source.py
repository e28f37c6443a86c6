"""The rows of a study from what was measured before: trial files, its own record, or the records of all operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.studies.types import Study, StudyError, StudyPart
from ci.history import kept
from ci.records import store
from ci.sweeps.measured import Measured, read_all
from ci.sweeps.studies.folder import RECORD, Guided
from ci.sweeps.studies.rows import KEYS, of_records, of_sweeps
from ci.trials.trial import Trial

ORDER = ["operator", "world", "case", "backend", "point", "regime"]
"""Of rows: the same lines give the same files, whatever order they come in."""


@dataclasses.dataclass(frozen=True, eq=False)
class StudyRows:
    """What one machine measured of a study.  lines: those that its record should keep; folders: with checks."""

    machine: str
    frame: pd.DataFrame
    found: tuple[Measured, ...] = ()
    lines: tuple[str, ...] = ()
    regime: str = "spaced"


def of_files(study: Study, paths: Iterable[Path]) -> list[StudyRows]:
    """The lines of a study in trial files, by machine and regime; of a point measured twice the newest counts."""
    return [one for found in _by_machine(read_all(paths)) for one in _of_machine(study, found)]


def _by_machine(found: Iterable[Measured]) -> Iterator[list[Measured]]:
    by: dict[str, list[Measured]] = {}
    for one in found:
        by.setdefault(one.origin.machine, []).append(one)
    yield from by.values()


def _of_machine(study: Study, found: Sequence[Measured]) -> Iterator[StudyRows]:
    ordered = sorted(found, key=lambda one: one.started_at)
    frame = of_sweeps(ordered)
    mine = frame[_belongs(frame, study.parts)].drop_duplicates(
        [name for name in KEYS if name not in ("env", "commit")], keep="last"
    )
    trials = [one for each in ordered for one in each.trials]
    for regime, rows in mine.groupby("regime", sort=True):
        cases = set(zip(rows["operator"], rows["case"], strict=True))
        lines = [
            one.text for one in trials if _regime(one) == regime and {(one.operator, c) for c in one.cases} & cases
        ]
        rows = rows.sort_values(ORDER, kind="stable").reset_index(drop=True)
        yield StudyRows(ordered[0].origin.machine, rows, tuple(ordered), tuple(lines), str(regime))


def _regime(trial: Trial) -> str:
    return trial.sweep.regime if trial.sweep else trial.regime


def _belongs(frame: pd.DataFrame, parts: Sequence[StudyPart]) -> list[bool]:
    rows = zip(frame["operator"], frame["case"], frame["world"], strict=True)
    return [
        any(part.operator == operator and part.has(case, int(world)) for part in parts)
        for operator, case, world in rows
    ]


def of_results(study: Study, results: Path) -> list[StudyRows]:
    """Plain arms of a study in the records of every machine: no knobs, and ratios without an interval."""
    rows = of_records(store.load(results), study.parts)
    rows = rows.astype(dict.fromkeys(("machine", "case", "backend"), str)).sort_values(ORDER, kind="stable")
    return [StudyRows(str(name), found.reset_index(drop=True)) for name, found in rows.groupby("machine", sort=True)]


def read(study: Study, sources: Sequence[Path]) -> list[StudyRows]:
    """What files and a folder of records hold of a study.  StudyError if that is nothing.

    A folder is one of records (`results`), or the folder of a study on a machine.
    """
    files = [path / RECORD if (path / RECORD).exists() else path for path in sources]
    found = of_files(study, [path for path in files if path.is_file()])
    for folder in (path for path in files if path.is_dir()):
        found += of_results(study, folder)
    if not any(len(one.frame) for one in found):
        said = ", ".join(map(str, sources))
        raise StudyError(f"{said}: nothing of the study {study.name}, which has {', '.join(study.operators)}")
    return found


# ---- equal bits ------------------------------------------------------------------------------------------------------


def bits(study: Study, folders: Iterable[Path], machine: str) -> list[Guided]:
    """What the checks under some folders say of a study's parts that are not timed: who gives the reference's bits."""
    parts = [part for part in study.parts if part.check]
    newest: dict[tuple[str, str], kept.CaseCheck] = {}
    for one in (each for folder in folders for each in kept.case_checks(folder)[0]):
        wanted = any(p.operator == one.kernel and p.has(one.case, one.world) and one.backend in _arms(p) for p in parts)
        if wanted and one.machine == machine:
            newest[one.case, one.backend] = one
    return [_said(one) for one in newest.values() if one.status != "unsupported"]


def _arms(part: StudyPart) -> tuple[str, ...]:
    return (part.anchor, *part.arms)


def _said(one: kept.CaseCheck) -> Guided:
    if one.status != kept.GOOD:
        text = f"{one.status}: {one.why}"
    else:
        text = "the reference's bits" if one.error == 0 else f"differs from the reference by {one.error:.2g} (norm)"
    rule = f"Equal bits, {one.case}, {one.backend}: {text}"
    return Guided(rule, float("nan"), f"{rule} (checked {one.at[:10]})")
