"""The history of a repository, from its folders."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd

from ci.git.repository import on_main
from ci.history import code_events, commits, exact, triage
from ci.history.analysis import History, analyse
from ci.history.configuration_events import configuration_events
from ci.history.configurations import read as read_swept
from ci.history.explained import with_explanations
from ci.history.paired import PairedVerdicts
from ci.history.steps import series
from ci.records import store
from ci.records.derived import derive
from ci.records.ledger import causes_in

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
    swept, measured, main = read_swept(results), _commits(frame), on_main(folder)
    compiled = [one.commit for one in exact.records(code, folder)] if code else []
    causes, _ = causes_in(results)
    shown = [commit for one in causes for commit in (one.base, one.head)]
    known = commits.read(folder, [*measured, *shown, *compiled, *(one.commit for one in swept)])
    aside = set() if main is None else {one for one in (*measured, *compiled) if one in known and one not in main}
    recorded = exact.read(code, repository=folder, aside=aside) if code else []
    swept = [one for one in swept if main is None or one.commit in main or one.commit not in known]
    kept = results / KEPT if results.is_dir() else None
    paired = PairedVerdicts(results)
    found = analyse(frame, recorded, known, decisions, kept, paired, aside)
    decided = decisions or triage.Triage()
    events = code_events.with_machines(found.events, results, frame, known, decided)
    events = with_explanations(events, causes, known)
    moved = configuration_events(swept, known, decided)
    if moved:
        events = tuple(sorted((*events, *moved), key=lambda one: (one.first_bad.date_ms, one.id)))
    return dataclasses.replace(found, events=events, notes=(*found.notes, *paired.problems))


def _commits(frame: pd.DataFrame) -> dict[str, None]:
    """The recorded commits in the order of the rows: looked up once a run, of which there are few."""
    codes, names = series.coded(frame["commit"])
    return dict.fromkeys(str(names[code]) for code in codes[series.runs(codes)].tolist() if code >= 0)
