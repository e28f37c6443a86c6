"""From records to events: the one function that pages, `ridgeline events` and the gate's history call.

A series is the paired ratio: our time / the library's in the same trial.  It cancels what a machine's clock and heat do
to both, so what steps it is a change to our code or to the library.  A series without a library beside it is drawn, and
opens nothing.  Where two neighbouring commits ran in the same trials, what the gate says of them holds.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ci.history import series
from ci.history.exact import CodeRecord, Surroundings
from ci.history.series import BoolArray, Tracks
from ci.history.triage import Triage
from ci.history.types import (
    CommitFacts,
    CommitOrder,
    Direction,
    EventKind,
    EventState,
    HistoryEvent,
    Moved,
    SeriesKey,
    SeriesStep,
    event_id,
    size_of,
)
from ci.stats import FloatArray, Step
from ci.stats.steps import find

SAME_CHANGE = 2
"""Recorded commits within which steps of one kernel are one event: the tolerance of the detector."""

SHORT, SURE = 16, 7.0
"""Points below which a step must also stand out of the noise of its machine, and by how many standard errors: of so few
the scatter of a series itself is not known well enough.  In made histories of a CPU (processes that differ by 25 %, 18
series) 1 in 20 had an event at 8 to 12 points without it, none with it (2026-11)."""

LEAST_NOISE = 0.001
"""Smallest noise (log) that is believed: how well a paired ratio repeats (A/A on an H200, 2026-11)."""

SURE_OF_LIBRARY = 3.0
"""Standard errors by which the library's own seconds must move before a step is charged to it."""

SPREAD = 1.4826 / math.sqrt(2)
"""Standard deviation of a point / median difference of two, of normal values."""


@dataclasses.dataclass(frozen=True)
class PairedStep:
    """What the gate says of a case with times of both commits in the same trials.

    direction: "slower", "faster", or "" where nothing is shown.  ratio: head's time / base's, its interval and p-value.
    """

    direction: str
    ratio: float
    low: float
    high: float
    p_value: float


Paired = Callable[[str, str, str], Mapping[str, PairedStep]]
"""(machine, base, head) -> by case ("gemm/triton/m64"), of those that were compared in pairs."""


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
    code: Sequence[CodeRecord] | None = None,
    commits: Mapping[str, CommitFacts] | None = None,
    triage: Triage | None = None,
    paired: Paired = lambda machine, base, head: {},
    aside: Collection[str] = (),
) -> History:
    """The history of a derived frame (ci.records.store.load, ci.records.derived.derive).

    code: the recorded machine code (ci.history.exact.records).  commits: what git knows (`read_commits`); without it
    commits stand in the order of their dates.  triage: what people decided.  paired: what was said of two commits that
    ran in lock-step (ci.history.reading).  aside: commits that are no part of this history.
    """
    triage = triage or Triage()
    dates = {commit: date for commit, date in _dates(frame, code or ()).items() if commit not in aside}
    order = CommitOrder(dates, commits or {})
    tracks = series.tracks(frame, order.place)
    around = Surroundings(frame, tracks, order, code or ())
    found = list(_series_steps(tracks, order, paired, around))
    events = _events_of([(group, _event(group, tracks, around, triage)) for group in _groups(tracks, found)])
    by_series = itertools.groupby(sorted(found, key=lambda step: (step.key, step.bad)), key=lambda step: step.key)
    return History(
        events=tuple(sorted(events, key=lambda event: (order.place[event.first_bad.hash], event.id))),
        steps={key: tuple(step.moved(order.names) for step in steps) for key, steps in by_series},
        notes=(*_notes(order, aside), *_several_environments(frame)),
        commits=order.names,
        series=len(tracks.of_key),
        points=len(tracks.values),
    )


def _dates(frame: pd.DataFrame, code: Sequence[CodeRecord]) -> dict[str, int]:
    """Milliseconds since 1970 UTC of every recorded commit: of its oldest record."""
    oldest = frame.groupby("commit", observed=True, sort=False)["date"].min().dropna().dt.as_unit("ms").astype("int64")
    return {record.commit: record.date_ms for record in code} | {str(name): int(date) for name, date in oldest.items()}


# ---- steps -----------------------------------------------------------------------------------------------------------


def _series_steps(tracks: Tracks, order: CommitOrder, paired: Paired, around: Surroundings) -> Iterator[SeriesStep]:
    """The steps of every series of ratios, oldest first, and what each is the doing of."""
    with_library = np.flatnonzero(tracks.by_ratio & ~tracks.is_baseline).tolist()
    noise = _machine_noise(tracks)
    together = _ran_together(tracks, order.names)
    for track in with_library:
        key, span = tracks.keys[track], tracks.span(track)
        place, values = tracks.place[span], tracks.values[span]
        verdicts = {
            index: verdict
            for index in (np.flatnonzero(together[span.start : span.stop - 1]) + 1).tolist()
            if (verdict := paired(key.machine, *(order.names[place[at]] for at in (index - 1, index))).get(key.name))
        }
        steps = {step.index: step for step in find(values) if _stands_out(step, len(place), noise[key.machine])}
        judged = _with_verdicts(steps, verdicts, values)
        for number, step in enumerate(judged):
            by = "pairs" if step.index in verdicts else "ratio"
            located = _located(tracks, track, judged, number, by)
            if not (located.kind is EventKind.KERNEL and around.same_code(located)):
                yield located


def _with_verdicts(steps: Mapping[int, Step], verdicts: Mapping[int, PairedStep], values: FloatArray) -> list[Step]:
    """The detected steps, overridden where two neighbours ran in the same trials: a verdict is a step with its numbers,
    and where it says that nothing moved there is none; a detected step that a verdict near it explains is that one."""
    kept = {
        index: step
        for index, step in steps.items()
        if index not in verdicts
        and not any(
            abs(index - at) <= SAME_CHANGE and verdict.direction and (verdict.ratio > 1) == (step.ratio > 1)
            for at, verdict in verdicts.items()
        )
    }
    for index, verdict in verdicts.items():
        if verdict.direction:
            before, after = values[index - 1 : index + 1].tolist()
            kept[index] = Step(index, before, after, verdict.ratio, verdict.low, verdict.high, verdict.p_value)
    return [kept[index] for index in sorted(kept)]


def _located(tracks: Tracks, track: int, steps: Sequence[Step], number: int, judged_by: str) -> SeriesStep:
    """A step with its commits, what it is the doing of, and where its old level came back.

    Of the ratio's two sides the one whose own seconds moved more between the two levels did it; the library only where
    its seconds moved beyond their own wander, which clocks and heat share out to both.
    """
    span, key, step = tracks.span(track), tracks.keys[track], steps[number]
    place, values, seconds = tracks.place[span], tracks.values[span], tracks.seconds[span]
    first = steps[number - 1].index if number else 0
    stop = steps[number + 1].index if number + 1 < len(steps) else len(place)
    levels = [np.log(part) for part in (seconds[first : step.index], seconds[step.index : stop])]
    ours = float(np.median(levels[1]) - np.median(levels[0]))
    library = ours - math.log(step.ratio)
    good, bad = int(place[step.index - 1]), int(place[step.index])
    returned = next((int(place[at]) for at in _returns(steps, number)), -1)
    wander = SPREAD * float(np.median(np.abs(np.diff(np.log(seconds[first:stop] / values[first:stop])))))
    error = wander * math.sqrt(1 / (step.index - first) + 1 / (stop - step.index))
    if abs(library) > max(abs(ours), SURE_OF_LIBRARY * error) and judged_by == "ratio":
        before, after, ratio, low, high = (
            1 / number for number in (step.before, step.after, step.ratio, step.ratio_high, step.ratio_low)
        )
        inverse = Step(step.index, before, after, ratio, low, high, step.p_value)
        way = Direction.SLOWER if library > 0 else Direction.FASTER
        vendor = SeriesKey(key.machine, key.kernel, tracks.vendor(track), key.case)
        return SeriesStep(EventKind.LIBRARY, way, vendor, track, inverse, judged_by, good, bad, returned)
    way = Direction.SLOWER if step.ratio > 1 else Direction.FASTER
    return SeriesStep(EventKind.KERNEL, way, key, track, step, judged_by, good, bad, returned)


def _returns(steps: Sequence[Step], number: int) -> Iterator[int]:
    """Indices of later steps the other way, after which the level is nearer to that before a step than to its own."""
    step = steps[number]
    level = math.log(step.ratio)
    half = level / 2
    for later in steps[number + 1 :]:
        level += math.log(later.ratio)
        if (level < half) if half > 0 else (level > half):
            yield later.index


def _stands_out(step: Step, points: int, noise: float | None) -> bool:
    """Whether a step of a short series is large for its machine; of one whose noise nobody knows none is."""
    if points >= SHORT:
        return True
    error = (noise or math.inf) * math.sqrt(1 / step.index + 1 / (points - step.index))
    return abs(math.log(step.ratio)) >= SURE * error


def _machine_noise(tracks: Tracks) -> Mapping[str, float | None]:
    """Standard deviation (log) of a ratio on each machine, from differences of neighbouring commits of all series; None
    for a machine with fewer than two such pairs, of which one may be a step."""
    noise: dict[str, float | None] = {}
    for machine, where in tracks.of_machine.items():
        ratios = where[tracks.by_ratio[where]]
        later = [np.arange(tracks.starts[track] + 1, tracks.starts[track + 1]) for track in ratios.tolist()]
        at = np.concatenate(later) if later else np.empty(0, np.int64)
        moved = np.abs(np.log(tracks.values[at] / tracks.values[at - 1]))
        known = len(np.unique(tracks.place[at])) >= 2
        noise[machine] = max(SPREAD * float(np.median(moved)), LEAST_NOISE) if known else None
    return noise


def _ran_together(tracks: Tracks, names: Sequence[str]) -> BoolArray:
    """Of each point but the first, whether its commit ran in the same trials as that of the point before.

    names: commits by place.
    """
    if "compared_with" not in tracks.frame:
        return np.zeros(max(len(tracks.row) - 1, 0), bool)
    partner = tracks.frame["compared_with"].iloc[tracks.row].to_numpy(object)
    return np.asarray(partner[1:] == np.array(names, object)[tracks.place[:-1]], bool)


# ---- events ----------------------------------------------------------------------------------------------------------


def _groups(tracks: Tracks, found: Sequence[SeriesStep]) -> list[list[SeriesStep]]:
    """Steps of one machine, kernel, kind and direction within SAME_CHANGE recorded commits of the first: one change."""

    def kernel(step: SeriesStep) -> tuple[str, str, EventKind, Direction]:
        return step.key.machine, step.key.kernel, step.kind, step.direction

    groups: list[list[SeriesStep]] = []
    for (machine, *_), same in itertools.groupby(sorted(found, key=lambda s: (*kernel(s), s.bad, s.key)), key=kernel):
        rank = functools.partial(np.searchsorted, tracks.places_of[machine])
        for step in same:
            last = groups[-1] if groups else []
            if last and kernel(last[0]) == kernel(step) and rank(step.bad) - rank(last[0].bad) <= SAME_CHANGE:
                last.append(step)
            else:
                groups.append([step])
    return groups


def _events_of(told: Sequence[tuple[Sequence[SeriesStep], HistoryEvent]]) -> list[HistoryEvent]:
    """The events of groups, without what became faster as the way back of slower steps: their events tell of it.

    From an accepted level there is no way back: it is the one to hold.
    """
    held = [group for group, event in told if event.direction is Direction.SLOWER and event.state != "accepted"]
    ends = {(step.track, step.returned) for group in held for step in group}

    def only_returns(group: Sequence[SeriesStep], event: HistoryEvent) -> bool:
        ours = event.kind is EventKind.KERNEL and event.direction is Direction.FASTER
        return ours and all((step.track, step.bad) in ends for step in group)

    return [event for group, event in told if not only_returns(group, event)]


def _event(group: Sequence[SeriesStep], tracks: Tracks, around: Surroundings, triage: Triage) -> HistoryEvent:
    """The event of a group: at the commit that most of its series name, the first of equals."""
    order, first = around.order, group[0]
    counts = Counter(step.bad for step in group)
    bad = min(counts, key=lambda place: (-counts[place], place))
    good = max(step.good for step in group if step.bad == bad)
    state, reason, ended = _ending(group, tracks)
    event = HistoryEvent(
        **size_of([step.step for step in group]),
        id=event_id(first.key.machine, first.key.kernel, first.kind, first.direction, order.names[bad]),
        kind=first.kind,
        direction=first.direction,
        machine=first.key.machine,
        moved=tuple(dict.fromkeys(step.moved(order.names) for step in group)),
        first_bad=order.facts(order.names[bad]),
        last_good=order.facts(order.names[good]),
        between=order.between(order.names[good], order.names[bad]),
        causes=around.causes(group, good, bad),
        state=state,
        reason=reason,
        ended_at=order.facts(order.names[ended]) if ended >= 0 else None,
    )
    recorded = tracks.places_of[event.machine]
    rank = int(np.searchsorted(recorded, bad))
    near = recorded[max(rank - SAME_CHANGE, 0) : rank + SAME_CHANGE + 1]
    return triage.applied(event, {order.names[place] for place in near})


def _ending(group: Sequence[SeriesStep], tracks: Tracks) -> tuple[EventState, str, int]:
    """(State, reason, place where it ended or -1): back where every series is, or what keeps it from being known."""
    if all(step.returned >= 0 for step in group):
        return EventState.BACK, "", max(step.returned for step in group)
    if all(_replaced(step, tracks) for step in group):
        return EventState.ACCEPTED, "its benchmark definition changed", -1
    newest = {step: int(tracks.place[tracks.span(step.track).stop - 1]) for step in group}
    places = tracks.operator_places(group[0].key.machine, group[0].key.kernel)
    missed = [int((places > place).sum()) for place in newest.values()]
    if all(count > max(tracks.longest_gap(step.track), SAME_CHANGE) for step, count in zip(group, missed, strict=True)):
        return EventState.ACCEPTED, "its cases are no longer measured", -1
    return EventState.OPEN, "", -1


def _replaced(step: SeriesStep, tracks: Tracks) -> bool:
    """Whether a series goes on under another benchmark definition, with which it does not compare."""
    return tracks.of_key[tracks.keys[step.track]][-1] != step.track


# ---- notes -----------------------------------------------------------------------------------------------------------


def _notes(order: CommitOrder, aside: Collection[str]) -> Iterator[str]:
    if order.unknown:
        text = f"{len(order.unknown)} of {len(order.names)} recorded commits are not in the history that git knows here"
        yield f"{text} (rewritten, or a shallow clone): they stand by the date of their records"
    if aside:
        names = ", ".join(sorted(commit[:8] for commit in aside)[:3]) + (", ..." if len(aside) > 3 else "")
        count = "1 recorded commit is" if len(aside) == 1 else f"{len(aside)} recorded commits are"
        yield f"{count} not on the main branch ({names}): what was measured there is shown, and opens no event"


def _several_environments(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence for each machine that recorded a commit in more than one environment."""
    environments = frame[["machine", "commit", "env"]].astype(str).drop_duplicates().value_counts(["machine", "commit"])
    for machine, count in environments[environments > 1].groupby("machine").size().items():
        yield (
            f"{machine}: {count} commits are recorded in several environments; the history follows the one that the"
            " machine had first"
        )
