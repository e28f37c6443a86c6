"""The history that the pages show: records, recorded machine code, git's commits and what people decided, together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ci.history import exact, reading, triage
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
    code_dir, decided = around / CODE_FOLDER, triage.load(around / triage.DEFAULT_FILE)
    found = reading.of_frame(frame, results_dir, code_dir, decided)
    return SiteHistory(found.events, found.steps, exact.records(code_dir, around))
