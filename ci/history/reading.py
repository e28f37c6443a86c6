"""The history of a repository, from its folders."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd

from ci.history import commits, exact, health_events, triage
from ci.history.analysis import History, analyse
from ci.history.configuration_events import configuration_events
from ci.history.configurations.reading import read as read_swept
from ci.history.explained import with_explanations
from ci.history.steps import series
from ci.records import store
from ci.records.causes import keeping
from ci.records.derived import derive

KEPT = ".cache/history"
"""Where, below a folder of records, an analysis keeps what the next one need not compute again."""


def history(results: Path, code: Path | None = None, decisions: triage.Triage | None = None) -> History:
    """All records of a folder, analysed.  code: folder of recorded machine code; decisions: what people decided.

    git is asked in the folder of the records: they lie in the repository whose commits they are of.
    """
    return of_frame(derive(store.load(results)), results, code, decisions)


def of_frame(
    frame: pd.DataFrame, results: Path, code: Path | None = None, decisions: triage.Triage | None = None
) -> History:
    """The same, of a derived frame that somebody has loaded already."""
    folder = next(parent for parent in (results.absolute(), *results.absolute().parents) if parent.is_dir())
    recorded = exact.read(code, repository=folder) if code else []
    swept = read_swept(results)
    causes, _ = keeping.load(results)
    shown = [commit for one in causes for commit in (one.base, one.head)]
    hashes = [*_commits(frame), *shown, *(one.commit for one in recorded), *(one.commit for one in swept)]
    kept = results / KEPT if results.is_dir() else None
    known = commits.read(folder, hashes)
    found = analyse(frame, recorded, known, decisions, kept)
    decided = decisions or triage.Triage()
    events = health_events.with_machines(found.events, results, frame, known, decided)
    events = with_explanations(events, causes, known)
    moved = configuration_events(swept, known, decided)
    if moved:
        events = tuple(sorted((*events, *moved), key=lambda one: (one.first_bad.date_ms, one.id)))
    return dataclasses.replace(found, events=events)


def _commits(frame: pd.DataFrame) -> dict[str, None]:
    """The recorded commits in the order of the rows: looked up once a run, of which there are few."""
    codes, names = series.coded(frame["commit"])
    return dict.fromkeys(str(names[code]) for code in codes[series.runs(codes)].tolist() if code >= 0)
