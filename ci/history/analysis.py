"""From records to events: the one function that pages, feeds and `ridgeline events` call."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ci.history import common, identity, series, thin
from ci.history.attribution import Surroundings
from ci.history.code_events import code_events
from ci.history.commits import CommitOrder
from ci.history.events import EventMaker
from ci.history.evidence import Candidate, Evidence
from ci.history.exact import RecordedCommit
from ci.history.grouping import Group, grouped
from ci.history.machine_steps import of_paths
from ci.history.series import Tracks
from ci.history.states import outcome
from ci.history.triage import Triage
from ci.history.types import CommitFacts, EventState, HistoryEvent, Moved, SeriesKey
from ci.stats import steps as detector
from ci.stats.types import Step


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
    order = CommitOrder(_dates(frame, code or ()), commits or {})
    plain = series.tracks(frame, order.place)
    paths = common.paths(plain)
    tracks = common.beside(plain, paths)
    found = thin.with_early(tracks, _found(tracks))
    around = Surroundings(frame, tracks, order, code or ())
    candidates = list(Evidence(tracks, found, around.same_below).candidates())
    candidates += of_paths(tracks, paths, detector.find, around.same_compiler)
    groups = grouped(candidates, _alone(tracks), around.same_compiler)
    events = _events(groups, around, found, triage or Triage())
    events += code_events(code or (), order, triage or Triage())
    return History(
        events=tuple(sorted(events, key=lambda one: (order.place[one.first_bad.hash], one.id))),
        steps=_steps(candidates, order),
        notes=_notes(order),
        commits=order.names,
        series=len(tracks.of_key),
        points=len(tracks.values),
    )


def _found(tracks: Tracks) -> list[list[Step]]:
    return detector.find_many(tracks.arrays())


def _dates(frame: pd.DataFrame, code: Sequence[RecordedCommit]) -> dict[str, int]:
    """Milliseconds since 1970 UTC of every recorded commit."""
    oldest = frame[["commit", "date"]].drop_duplicates().groupby("commit", observed=True)["date"].min()
    stamps = oldest.dt.tz_convert(None).to_numpy().astype("datetime64[ms]").astype(np.int64) if len(oldest) else []
    measured = dict(zip(oldest.index.astype(str), map(int, stamps), strict=True))
    return {one.commit: one.date_ms for one in code} | measured


def _alone(tracks: Tracks) -> dict[str, int]:
    """Series that are judged by their seconds, by machine."""
    plain = ~tracks.by_ratio & ~tracks.is_baseline
    return {machine: int(plain[where].sum()) for machine, where in tracks.of_machine.items()}


def _events(
    groups: Sequence[Group], around: Surroundings, found: Sequence[Sequence[Step]], triage: Triage
) -> list[HistoryEvent]:
    names = around.order.names
    places = [identity.EventPlace(g.machine, g.kind, g.direction, names[g.bad]) for g in groups]
    named = identity.ids(places, known_places(triage), _machine_order(around))
    entries = {number: triage.entries[name] for number, name in enumerate(named) if name in triage.entries}
    accepted = {number for number, entry in entries.items() if entry.state is EventState.ACCEPTED}
    ends = outcome(groups, around.tracks, found, accepted)
    make = EventMaker(around.order, around.causes)
    return [
        make.event(group, named[number], ends.endings[number], entries.get(number))
        for number, group in enumerate(groups)
        if number not in ends.way_back
    ]


def known_places(triage: Triage) -> dict[str, identity.EventPlace]:
    """The places of events that somebody decided about."""
    return {name: place for name, entry in triage.entries.items() if (place := entry.place)}


def _machine_order(around: Surroundings) -> dict[str, dict[str, int]]:
    """By machine, the index of each commit it recorded."""
    tracks, names = around.tracks, around.order.names
    starts, machines = tracks.starts, tracks.of_machine
    owner = pd.Series(np.repeat([key.machine for key in tracks.keys], np.diff(starts)), dtype=object)
    places = {machine: np.unique(tracks.place[(owner == machine).to_numpy()]) for machine in machines}
    return {machine: {names[place]: rank for rank, place in enumerate(found)} for machine, found in places.items()}


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
