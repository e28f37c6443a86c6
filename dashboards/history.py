"""The history that the pages show: records, recorded machine code, git's commits and what people decided, together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from ci.history import exact, reading, triage
from ci.history import health as apart
from ci.history.types import HistoryEvent, Moved, SeriesKey
from kernels import project

CODE_FOLDER = "results_isa"
"""Folder of the recorded machine code, beside that of the results (asv.isa.json)."""


@dataclasses.dataclass(frozen=True)
class SiteHistory:
    """Events, the steps of each series, and the values of the recorded machine code, oldest commit first.

    notes: sentences on what was left out.  peers: see `ci.history.health.peers`.
    """

    events: tuple[HistoryEvent, ...] = ()
    steps: Mapping[SeriesKey, tuple[Moved, ...]] = dataclasses.field(default_factory=dict)
    code: Sequence[exact.CodeRecord] = ()
    peers: pd.DataFrame = dataclasses.field(default_factory=pd.DataFrame)
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Awaited:
    """A history that is perhaps still being made: who looks at it waits for it."""

    found: Callable[[], SiteHistory]

    @property
    def events(self) -> tuple[HistoryEvent, ...]:
        """See SiteHistory."""
        return self.found().events

    @property
    def steps(self) -> Mapping[SeriesKey, tuple[Moved, ...]]:
        """See SiteHistory."""
        return self.found().steps

    @property
    def code(self) -> Sequence[exact.CodeRecord]:
        """See SiteHistory."""
        return self.found().code

    @property
    def notes(self) -> tuple[str, ...]:
        """See SiteHistory."""
        return self.found().notes

    def peers(self) -> pd.DataFrame:
        """See SiteHistory."""
        return self.found().peers


def read(frame: pd.DataFrame, results_dir: Path) -> SiteHistory:
    """The history of a derived frame whose records lie in `results_dir`.

    Git and the file of decisions are those of the folder around the results; without git a commit is only its hash.
    """
    around = results_dir.resolve().parent
    code_dir, decided = around / CODE_FOLDER, triage.load(project.around(around).events)
    found = reading.of_frame(frame, results_dir, code_dir, decided)
    return SiteHistory(found.events, found.steps, exact.records(code_dir, around), apart.peers(frame), found.notes)
