"""From records to events: the one function that pages, feeds and `ridgeline events` call."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ci.history.attribution import Surroundings
from ci.history.code_events import code_events
from ci.history.commits import CommitOrder
from ci.history.events import told
from ci.history.exact import RecordedCommit
from ci.history.steps import common, finding, machines, series, thin
from ci.history.steps.evidence import Candidate, Evidence
from ci.history.steps.grouping import grouped
from ci.history.steps.machine_steps import of_paths
from ci.history.steps.series import Tracks
from ci.history.triage import Triage
from ci.history.types import CommitFacts, HistoryEvent, Moved, SeriesKey
from ci.stats import steps as detector

NEVER = int(np.iinfo(np.int64).max)
"""Milliseconds: the date of a commit without records."""


@dataclasses.dataclass(frozen=True)
class History:
    """What the records say happened.  events: oldest first; steps: of each series, all of them, events or not.

    notes: sentences on what was left out or put in order by other means than usual.  commits: recorded ones, oldest
    first.  series, points: how much was looked at.
    """

    events: tuple[HistoryEvent, ...]
    steps: Mapping[SeriesKey, tuple[Moved, ...]]
    notes: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    series: int = 0
    points: int = 0


def analyse(
    frame: pd.DataFrame,
    code: Sequence[RecordedCommit] | None = None,
    commits: Mapping[str, CommitFacts] | None = None,
    triage: Triage | None = None,
    kept: Path | None = None,
) -> History:
    """The history of a derived frame (ci.records.store.load, ci.records.derived.derive).

    code: the recorded machine code (ci.history.exact.read).  commits: what git knows (ci.history.commits.read); without
    it commits stand in the order of their dates.  triage: what people decided.  kept: a folder for what a next call
    with more records need not compute again; safe to delete.
    """
    triage = triage or Triage()
    frame = machines.joined(frame, triage.renamed)
    order = CommitOrder(_dates(frame, code or ()), commits or {})
    plain = series.tracks(frame, order.place)
    paths = common.paths(plain)
    tracks = common.beside(plain, paths)
    found = thin.with_early(tracks, finding.found(tracks, kept))
    around = Surroundings(frame, tracks, order, code or ())
    candidates = list(Evidence(tracks, found, around.same_below).candidates())
    candidates += of_paths(tracks, paths, detector.find, around.same_compiler)
    groups = grouped(candidates, _alone(tracks), around.same_compiler)
    events = [*told(groups, around, found, triage, kept), *code_events(code or (), order, triage)]
    return History(
        events=tuple(sorted(events, key=lambda one: (order.place[one.first_bad.hash], one.id))),
        steps=_steps(candidates, order),
        notes=(*_notes(order), *_several_environments(frame), *machines.suggestions(frame)),
        commits=order.names,
        series=len(tracks.of_key),
        points=len(tracks.values),
    )


def _dates(frame: pd.DataFrame, code: Sequence[RecordedCommit]) -> dict[str, int]:
    """Milliseconds since 1970 UTC of every recorded commit: of its oldest record."""
    codes, names = series.coded(frame["commit"])
    start = series.runs(codes)
    stamps = frame["date"].dt.tz_convert(None).to_numpy()
    first = np.minimum.reduceat(stamps, start) if len(start) else stamps
    oldest = np.full(len(names), NEVER)
    np.minimum.at(oldest, codes[start], first.astype("datetime64[ms]").astype(np.int64))
    measured = {str(name): int(date) for name, date in zip(names, oldest, strict=True) if date < NEVER}
    return {one.commit: one.date_ms for one in code} | measured


def _alone(tracks: Tracks) -> dict[str, int]:
    """Series that are judged by their seconds, by machine."""
    plain = ~tracks.by_ratio & ~tracks.is_baseline
    return {machine: int(plain[where].sum()) for machine, where in tracks.of_machine.items()}


def _steps(candidates: Sequence[Candidate], order: CommitOrder) -> dict[SeriesKey, tuple[Moved, ...]]:
    found: dict[SeriesKey, list[Candidate]] = {}
    for one in candidates:
        if one.number >= 0:
            found.setdefault(one.key, []).append(one)
    by_place = functools.partial(sorted, key=lambda one: (one.bad, one.judged_by))
    return {key: tuple(one.moved(order.names) for one in by_place(each)) for key, each in sorted(found.items())}


def _notes(order: CommitOrder) -> tuple[str, ...]:
    if not order.unknown:
        return ()
    text = f"{len(order.unknown)} of {len(order.names)} recorded commits are not in the history that git knows here"
    return (f"{text} (rewritten, or a shallow clone): they stand by the date of their records",)


def _several_environments(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence for each machine that recorded a commit in more than one environment."""
    rows = [series.first_rows(frame, columns) for columns in (("machine", "commit", "env"), ("machine", "commit"))]
    if len(rows[0]) == len(rows[1]):
        return
    pairs = frame[["machine", "commit"]].iloc[rows[0]].astype(str)
    twice = pairs[pairs.duplicated()].drop_duplicates()
    for machine, count in twice["machine"].value_counts().sort_index().items():
        yield (
            f"{machine}: {count} commits are recorded in several environments; the history follows the one that the"
            " machine had first"
        )
