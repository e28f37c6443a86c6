"""The history that the pages show: records, recorded machine code, git's commits and what people decided, together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ci.history import analysis, commits, exact, health_events, triage
from ci.history.types import HistoryEvent, Moved, SeriesKey

CODE_FOLDER = "results_isa"
"""Folder of the recorded machine code, beside that of the results (asv.isa.json)."""


@dataclasses.dataclass(frozen=True)
class SiteHistory:
    """Events, the steps of each series, and the values of the recorded machine code, oldest commit first."""

    events: tuple[HistoryEvent, ...] = ()
    steps: Mapping[SeriesKey, tuple[Moved, ...]] = dataclasses.field(default_factory=dict)
    code: Sequence[exact.CodeRecord] = ()


def read(frame: pd.DataFrame, results_dir: Path) -> SiteHistory:
    """The history of a derived frame whose records lie in `results_dir`.

    Git and the file of decisions are those of the folder around the results; without git a commit is only its hash.
    """
    around = results_dir.resolve().parent
    code_dir = around / CODE_FOLDER
    code = exact.read(code_dir, repository=around)
    hashes = [*frame["commit"].astype(str).unique(), *(one.commit for one in code)]
    known, decided = commits.read(around, hashes), triage.load(around / triage.DEFAULT_FILE)
    found = analysis.analyse(frame, code, known, decided, results_dir / ".cache")
    events = health_events.with_machines(found.events, results_dir, frame, known, decided)
    return SiteHistory(events, found.steps, exact.records(code_dir, around))
