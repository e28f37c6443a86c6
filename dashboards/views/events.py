"""The events of the history: what the front page says first, the page of all events, their feed and their files.

The front page and the page `events.html` draw the same data; a kernel's page draws the steps of its own series, what
was released meanwhile, and the machine code.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import pandas as pd

from ci.history.exact import SERIES, CodePoint, CodeRecord
from ci.history.types import CommitFacts, HistoryEvent, Moved
from dashboards.lanes import KEY, natural, slug
from dashboards.values import minute, told
from dashboards.views import Made, SiteInput, View, as_csv

COLUMNS = (
    *("id", "state", "kind", "direction", "machine", "kernels", "cases", "ratio", "ratio_low", "ratio_high", "p_value"),
    *("first_bad", "first_bad_date", "author", "subject", "pull_request", "last_good", "between", "owner", "reason"),
    *("link", "causes", "ended_at"),
)
"""Columns of events.csv; ratio is new time / old time, dates are UTC days."""


def make(site: SiteInput) -> Made:
    """views/events: {"events"}; views/verdict: {"looked", "undecided", "notes"}; views/history-KERNEL: steps, versions,
    code.  feed.xml, events.json (`HistoryEvent.as_json`, as `ridgeline events --json` prints them) and events.csv.
    """
    found = newest_first(site.history.events)
    yield "views/events", {"events": [listed(event) for event in found]}
    notes = site.history.notes
    yield "views/verdict", {"looked": looked(site), "undecided": undecided(site, found), "notes": notes}
    steps, compiled, released = steps_by_kernel(site), by_kernel(site.history.code), versions(site)
    for kernel in sorted(map(str, site.frame["kernel"].unique())):
        page = {"steps": steps.get(kernel, []), "versions": released, "code": compiled.get(kernel) or no_code()}
        yield f"views/history-{slug(kernel)}", page
    yield "feed.xml", atom(found)
    whole = {"events": [told(event.as_json(), EXACT) for event in found]}
    yield "events.json", json.dumps(whole, indent=1, allow_nan=False).encode("ascii") + b"\n"
    yield "events.csv", as_csv(map(_fields, found), COLUMNS)


VIEW = View(
    "events", "Events", make, "views/events.html", scripts=("views/event_words.js", "views/events.js"), of_history=True
)


def newest_first(events: Iterable[HistoryEvent]) -> list[HistoryEvent]:
    """By the date of the first bad commit, then by id: the same events in any order give the same page."""
    return sorted(events, key=lambda event: (-event.first_bad.date_ms, event.id))


def listed(event: HistoryEvent) -> dict[str, Any]:
    """An event as the pages load it: `as_json`, but with one short row for each series that moved, largest step first.

    "moved": [[kernel, backend, case, ratio, low, high, judged by], ...]
    """
    rows = sorted(event.moved, key=lambda moved: (-_size(moved.step.ratio), moved.key))
    return event.as_json() | {"moved": [[*one.key[1:], *_ratios(one), one.judged_by] for one in rows]}


def _ratios(moved: Moved) -> tuple[float, float, float]:
    return moved.step.ratio, moved.step.ratio_low, moved.step.ratio_high


def _size(ratio: float) -> float:
    return abs(math.log(ratio)) if math.isfinite(ratio) and ratio > 0 else math.inf


# ---- what was looked at ----------------------------------------------------------------------------------------------


def looked(site: SiteInput) -> dict[str, Any]:
    """How much stands behind "nothing is open": machines, series and points with a time, and the newest commit."""
    timed = site.frame[site.frame["status"] == "ok"]
    if not len(timed):
        return {"machines": 0, "series": 0, "points": 0, "commits": 0, "newest": None}
    newest = timed.loc[timed["date"].idxmax()] if timed["date"].notna().any() else timed.iloc[-1]
    return {
        "machines": int(timed["machine"].nunique()),
        "series": len(timed[["machine", *KEY]].drop_duplicates()),
        "points": sum(ok for lane in site.lanes for ok, _ in lane.counts.values()),
        "commits": int(timed["commit"].nunique()),
        "newest": {
            "hash": newest["commit"],
            "date_ms": 0 if pd.isna(newest["date"]) else int(newest["date"].timestamp() * 1000),
        },
    }


# ---- undecided -------------------------------------------------------------------------------------------------------


def undecided(site: SiteInput, events: Sequence[HistoryEvent]) -> list[dict[str, Any]]:
    """Own series whose newest point lies apart from the one before, by the overview's marks, and has no event there.

    One point does not make a step: the next record decides.  The largest change comes first.
    """

    def place(row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(row[name] for name in ("machine", "kernel", "backend", "case", "at"))

    told = {(*moved.key, moved.first_bad) for event in events for moved in event.moved}
    rows = []
    for lane in site.lanes:
        found = site.overviews[lane.slug]
        for row in found["rows"]:
            step = row["step"] or {}
            if step.get("moved"):
                at, date = found["commits"][row["good_at"]]
                named = {"machine": lane.machine, **{name: row[name] for name in KEY}, "at": at, "date": date}
                rows.append(named | {name: step[name] for name in ("from", "speed")})
    return sorted(
        (row for row in rows if place(row) not in told), key=lambda row: (-_size(1 + row["speed"]), place(row))
    )


# ---- what was released -----------------------------------------------------------------------------------------------

RELEASED = {"driver": "driver", "runtime": "", "library": ""}
"""Columns of versions that no environment's name tells, and the word before them: a runtime is "HIP 7.1"."""


def versions(site: SiteInput) -> dict[str, dict[str, list[str]]]:
    """machine -> commit -> ["driver 550 → 560"]: where a version is not what the last commit that says it had."""
    columns = [name for name in RELEASED if name in site.frame.columns]
    found: dict[str, dict[str, list[str]]] = {}
    for lane in site.lanes:
        before: dict[str, str] = {}
        for row in lane.frame[["commit", *columns]].drop_duplicates("commit", keep="last").to_dict("records"):
            said = {name: str(row[name]) for name in columns if isinstance(row[name], str) and row[name]}
            steps = [
                f"{RELEASED[name]} {before[name]} → {new}".strip()
                for name, new in said.items()
                if before.get(name, new) != new
            ]
            if steps:
                found.setdefault(lane.machine, {})[str(row["commit"])] = steps
            before |= said
    return found


# ---- the steps of each series ----------------------------------------------------------------------------------------


def steps_by_kernel(site: SiteInput) -> dict[str, list[dict[str, Any]]]:
    """Every step of every timed series, under its kernel; "event": id of the event that it is part of, or None.

    A step seen in the ratio to the baseline and in the seconds is one: that of the ratio.
    """
    of_event = {(moved.key, moved.first_bad): event.id for event in site.history.events for moved in event.moved}
    found: dict[str, list[dict[str, Any]]] = {}
    for key, steps in sorted(site.history.steps.items()):
        surest = {moved.first_bad: moved for moved in sorted(steps, key=lambda moved: moved.judged_by, reverse=True)}
        found.setdefault(key.kernel, []).extend(_step(moved, of_event) for moved in surest.values())
    return found


def _step(moved: Moved, of_event: dict[tuple[Any, str], str]) -> dict[str, Any]:
    key = moved.key
    step = {"machine": key.machine, "backend": key.backend, "case": key.case, "direction": moved.direction}
    step |= {"by": moved.judged_by, "at": moved.first_bad, "from": moved.last_good}
    ends = zip(("ratio", "low", "high"), _ratios(moved), strict=True)
    return step | dict(ends) | {"event": of_event.get((key, moved.first_bad))}


# ---- files for other programs ----------------------------------------------------------------------------------------


def _fields(event: HistoryEvent) -> dict[str, Any]:
    """A row of events.csv; several names or causes in one field are divided by "; "."""
    return {
        **told(event.as_json(), EXACT),
        "kernels": "; ".join(dict.fromkeys(moved.key.kernel for moved in event.moved)),
        "cases": "; ".join(dict.fromkeys(moved.key.case for moved in event.moved)),
        "first_bad": event.first_bad.hash,
        "first_bad_date": stamp(event.first_bad.date_ms)[:10],
        "author": event.first_bad.author,
        "subject": event.first_bad.subject,
        "pull_request": event.first_bad.pull_request,
        "last_good": event.last_good.hash,
        "causes": "; ".join(f"{cause.kind}: {cause.text}" for cause in event.causes),
        "ended_at": event.ended_at.hash if event.ended_at else None,
    }


# The Atom feed of the events (RFC 4287), for a feed reader or a chat: one entry per event.
#
# An entry keeps its id; its date is that of the commit at which the event began, or ended.


TEMPLATE = Path(__file__).parent.parent / "templates" / "feed.xml"
EXACT = 17
"""Significant digits of any number as it is: other programs read events as `ridgeline events --json` prints them."""

ENTRIES = 200
"""Newest events in the feed.  A reader keeps what it has seen; events.json has all."""

NO_CHARACTER = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 (section 2.2) has no way to write: control characters and halves of surrogate pairs."""


def atom(events: Sequence[HistoryEvent], limit: int = ENTRIES) -> bytes:
    """The feed of events that come newest first; valid without any event too."""
    entries = [
        {
            "title": title(event),
            "id": quote(event.id, safe=""),
            "updated": stamp(_changed(event).date_ms),
            "published": stamp(event.first_bad.date_ms),
            "terms": [str(term) for term in (event.kind, event.direction, event.state)],
            "sentences": _sentences(event),
        }
        for event in events[:limit]
    ]
    template = jinja2.Template(TEMPLATE.read_text(), autoescape=True, trim_blocks=True, keep_trailing_newline=True)
    updated = stamp(max((_changed(event).date_ms for event in events), default=0))
    return NO_CHARACTER.sub("\ufffd", template.render(updated=updated, entries=entries)).encode()


def _changed(event: HistoryEvent) -> CommitFacts:
    return event.ended_at or event.first_bad


def stamp(date_ms: int) -> str:
    """A date as RFC 3339 writes it, in UTC."""
    zero = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    try:
        date = zero + datetime.timedelta(milliseconds=max(0, date_ms))
    except OverflowError:  # a clock set to nonsense
        date = zero
    return date.strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- words -----------------------------------------------------------------------------------------------------------


CALLED = {"code": "machine code changed", "configuration": "best configuration moved"}
"""What an event is called, where it is not its size and direction."""


def title(event: HistoryEvent) -> str:
    """One line: "gemm 8.1 % slower on h200x1: 3 shapes since 0123abcd, open"."""
    kernels = list(dict.fromkeys(moved.key.kernel for moved in event.moved))
    who = kernels[0] if len(kernels) == 1 else f"{len(kernels)} operators"
    shapes = len({(moved.key.kernel, moved.key.case) for moved in event.moved})
    what = CALLED.get(str(event.kind), f"{size(event.ratio)} {event.direction}")
    since = f"{shapes} shape{'s' * (shapes != 1)} since {event.first_bad.hash[:8]}"
    return f"{who} {what} on {event.machine}: {since}, {event.state}"


def size(ratio: float) -> str:
    """1.081 -> "8.1 %": how much longer, or by how much shorter, the new time is."""
    return f"{abs(100 * (ratio - 1)):.1f} %"


def _sentences(event: HistoryEvent) -> list[str]:
    begun, good = event.first_bad, event.last_good
    number = f" (pull request {begun.pull_request})" if begun.pull_request is not None else ""
    lines = [
        f"First seen at {begun.hash[:8]} {begun.subject}{number} by {begun.author or 'an unknown author'}.",
        f"Last good: {good.hash[:8]} {good.subject}; {event.between} commits between were not measured.",
    ]
    if event.kind != "code":
        lines.append(f"New time / old time: {event.ratio:.4f}, {event.ratio_low:.4f} to {event.ratio_high:.4f} (99 %).")
    lines += [f"Likely cause: {cause.kind}: {cause.text}" for cause in event.causes]
    owner = f"Owner: {event.owner}. {event.reason} {event.link}".strip()
    return [*lines, owner] if event.owner else lines


# The recorded machine code of a kernel as its page draws it: changes only, because counts seldom change.


ABSENT = "absent"
"""Stands in a list of changes where the record has no such series, so that a gap is not taken for a change."""

BYTES = re.compile(r"_bytes$")
"""Metrics that count bytes; the others count what their name says."""

_LABEL = re.compile(r"^(?P<case>.*?) \[(?P<label>.*)\]$")
"""A configuration is a case, and in brackets what the benchmark calls it where a case compiles to several."""

Line = tuple[str, str, str, str]
"""kernel, backend, configuration, arch"""


def by_kernel(records: Sequence[CodeRecord]) -> dict[str, dict[str, Any]]:
    """{kernel: {"commits": [[hash, "YYYY-MM-DD HH:MM"]], "units", "series": [{"backend", "case", "label", "arch",
    "metrics": {metric: [[index of a commit, value], ...]}}]}}.

    A value is a count, None where the code failed to compile, "absent" where no_code is recorded.  Where a commit was
    compiled by several versions of Triton, the last of them counts.
    """
    newest = list({record.commit: record for record in records}.values())
    newest.sort(key=lambda record: record.date_ms)
    commits = [[record.commit, minute(pd.Timestamp(record.date_ms, unit="ms"))] for record in newest]
    found: dict[str, dict[str, Any]] = {}
    for (kernel, backend, configuration, arch), metrics in sorted(_code_lines(newest).items(), key=_line_place):
        page = found.setdefault(kernel, {"commits": commits, "units": _code_units(), "series": []})
        case, label = _code_case(configuration)
        page["series"].append({"backend": backend, "case": case, "label": label, "arch": arch, "metrics": metrics})
    return found


def no_code() -> dict[str, Any]:
    """What the page of a kernel without recorded code loads."""
    return {"commits": [], "units": {}, "series": []}


def _line_place(item: tuple[Line, Any]) -> tuple[Any, ...]:
    (kernel, backend, configuration, arch), _ = item
    return kernel, natural(configuration), backend, arch


def _code_case(configuration: str) -> tuple[str, str]:
    found = _LABEL.match(configuration)
    return (found["case"], found["label"]) if found else (configuration, "")


def _code_units() -> dict[str, str]:
    return {name: "bytes" if BYTES.search(name) else "" for name in SERIES}


def _code_lines(records: Sequence[CodeRecord]) -> dict[Line, dict[str, list[list[Any]]]]:
    """The changes of every metric of every line, metrics in the order in which they are told."""
    points = sorted({point for record in records for point in record.values}, key=_rank)
    values = [record.values for record in records]
    found: dict[Line, dict[str, list[list[Any]]]] = {}
    for point in points:
        line = (point.kernel, point.backend, point.configuration, point.arch)
        found.setdefault(line, {})[point.series] = list(_metric_changes(point, values))
    return found


def _rank(point: CodePoint) -> tuple[int, CodePoint]:
    return (SERIES.index(point.series) if point.series in SERIES else len(SERIES)), point


def _metric_changes(point: CodePoint, values: Sequence[Mapping[CodePoint, float | None]]) -> Iterator[list[Any]]:
    before: float | str | None = ABSENT
    for index, of_commit in enumerate(values):
        now = of_commit.get(point, ABSENT)
        if now != before:
            yield [index, _whole(now)]
        before = now


def _whole(value: float | str | None) -> float | int | str | None:
    return int(value) if isinstance(value, float) and value.is_integer() else value
