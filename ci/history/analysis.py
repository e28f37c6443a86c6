"""From records to events: the one function that pages, feeds and `ridgeline events` call."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence

import pandas as pd

from ci.history import finding, series
from ci.history.events import code_events, told
from ci.history.exact import RecordedCommit, Surroundings
from ci.history.finding import MachineNoise, Paired, StepVerdicts, of_paths
from ci.history.grouping import Candidate, Evidence, StepGroup, group_of, grouped
from ci.history.series import Tracks
from ci.history.triage import Triage
from ci.history.types import CommitFacts, CommitOrder, EventKind, HistoryEvent, Moved, SeriesKey


@dataclasses.dataclass(frozen=True)
class History:
    """What the records say happened.  events: oldest first; steps: of each series, all of them, events or not.

    notes: sentences on what was left out or put in order by other means than usual.  commits: recorded ones, oldest
    first.  series, points: how much was looked at.  unread: records that could not be read.
    """

    events: tuple[HistoryEvent, ...]
    steps: Mapping[SeriesKey, tuple[Moved, ...]]
    notes: tuple[str, ...] = ()
    unread: int = 0
    commits: tuple[str, ...] = ()
    series: int = 0
    points: int = 0


def analyse(
    frame: pd.DataFrame,
    code: Sequence[RecordedCommit] | None = None,
    commits: Mapping[str, CommitFacts] | None = None,
    triage: Triage | None = None,
    paired: Paired = lambda machine, base, head: {},
    aside: Collection[str] = (),
) -> History:
    """The history of a derived frame (ci.records.store.load, ci.records.derived.derive).

    code: the recorded machine code (ci.history.exact.read).  commits: what git knows (`read_commits`); without it
    commits stand in the order of their dates.  triage: what people decided.  paired: what was said of two commits that
    ran in lock-step (ci.history.reading); events agree with it.  aside: commits that are no part of this history.
    """
    triage = triage or Triage()
    frame = series.joined(frame, triage.renamed)
    dates = {commit: date for commit, date in _dates(frame, code or ()).items() if commit not in aside}
    order = CommitOrder(dates, commits or {})
    plain = series.tracks(frame, order.place)
    paths = series.paths(plain)
    tracks = series.beside(plain, paths)
    noises, verdicts = finding.of_machines(tracks), StepVerdicts(tracks, order.names, paired)
    found = verdicts.settled(finding.with_early(tracks, finding.found(tracks), noises, verdicts), noises)
    around = Surroundings(frame, tracks, order, code or ())
    candidates = list(Evidence(tracks, found, around.same_below, verdicts.agrees).candidates())
    candidates += of_paths(tracks, paths, noises, around.same_compiler)
    groups = list(_ours(grouped(candidates, _alone(tracks), around.same_compiler), around, _cpus(frame)))
    events = [*told(groups, around, found, triage), *code_events(code or (), order, triage)]
    return History(
        events=tuple(sorted(events, key=lambda one: (order.place[one.first_bad.hash], one.id))),
        steps=_steps(candidates, order),
        notes=(*_notes(order, aside), *_unknown(noises), *_several_environments(frame), *series.suggestions(frame)),
        commits=order.names,
        series=len(tracks.of_key),
        points=len(tracks.values),
    )


def _dates(frame: pd.DataFrame, code: Sequence[RecordedCommit]) -> dict[str, int]:
    """Milliseconds since 1970 UTC of every recorded commit: of its oldest record."""
    oldest = frame.groupby("commit", observed=True, sort=False)["date"].min().dropna().dt.as_unit("ms").astype("int64")
    return {one.commit: one.date_ms for one in code} | {str(name): int(date) for name, date in oldest.items()}


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


def _ours(groups: Sequence[StepGroup], around: Surroundings, cpus: Collection[str]) -> Iterator[StepGroup]:
    """Without what ran the same code on both sides, which is no doing of the kernel's, and what a CPU did.

    cpus: machines without a GPU: what else runs there moves all that is timed, and no vendor's library is among it.
    """
    for group in groups:
        if group.kind is not EventKind.KERNEL:
            left = [one for one in group.members if group.machine not in cpus]
        else:
            left = [one for one in group.members if not around.same_code(one)]
        if left:
            yield group if len(left) == len(group.members) else group_of(left)


def _cpus(frame: pd.DataFrame) -> set[str]:
    if "kind" not in frame:
        return set()
    return set(frame.loc[frame["kind"] == "cpu", "machine"].unique())


def _notes(order: CommitOrder, aside: Collection[str]) -> Iterator[str]:
    if order.unknown:
        text = f"{len(order.unknown)} of {len(order.names)} recorded commits are not in the history that git knows here"
        yield f"{text} (rewritten, or a shallow clone): they stand by the date of their records"
    if aside:
        names = ", ".join(sorted(commit[:8] for commit in aside)[:3]) + (", ..." if len(aside) > 3 else "")
        count = "1 recorded commit is" if len(aside) == 1 else f"{len(aside)} recorded commits are"
        yield f"{count} not on the main branch ({names}): what was measured there is shown, and opens no event"


def _unknown(noises: Mapping[str, MachineNoise]) -> Iterator[str]:
    """A sentence for each machine whose noise is not known yet."""
    for machine, one in sorted(noises.items()):
        if one.sigma is None:
            more = "1 more recorded commit" if one.missing == 1 else f"{one.missing} more recorded commits"
            yield (
                f"{machine}: how well its times repeat is known after {more} of the same cases; until then only what"
                " was compared in pairs opens an event"
            )


def _several_environments(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence for each machine that recorded a commit in more than one environment."""
    pairs = frame[["machine", "commit", "env"]].drop_duplicates()[["machine", "commit"]].astype(str)
    twice = pairs[pairs.duplicated()].drop_duplicates()
    for machine, count in twice["machine"].value_counts().sort_index().items():
        yield (
            f"{machine}: {count} commits are recorded in several environments; the history follows the one that the"
            " machine had first"
        )
