"""The events of the history: what the front page says first, the page of all events, their feed and their files.

The front page and the page `events.html` draw the same data; a kernel's page draws the steps of its own series.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from ci.history.types import HistoryEvent, Moved
from dashboards import overview
from dashboards.lanes import KEY, slug
from dashboards.values import one
from dashboards.views import SiteInput, View, feed

COLUMNS = (
    "id",
    "state",
    "kind",
    "direction",
    "machine",
    "kernels",
    "cases",
    "ratio",
    "ratio_low",
    "ratio_high",
    "p_value",
    "first_bad",
    "first_bad_date",
    "author",
    "subject",
    "pull_request",
    "last_good",
    "between",
    "owner",
    "reason",
    "link",
    "causes",
    "ended_at",
)
"""Columns of events.csv, in this order; ratio is new time / old time, dates are UTC days."""


def data(site: SiteInput) -> Iterator[tuple[str, Any]]:
    """views/events: {"events", "looked", "undecided"}; views/steps-KERNEL: the steps of the series of a kernel."""
    found = newest_first(site.history.events if site.history else ())
    yield "views/events", {
        "events": [listed(event) for event in found],
        "looked": looked(site),
        "undecided": undecided(site, found),
    }
    for kernel, steps in steps_by_kernel(site).items():
        yield f"views/steps-{slug(kernel)}", {"steps": steps}


def files(site: SiteInput) -> Iterator[tuple[str, bytes]]:
    """feed.xml, events.json (`HistoryEvent.as_json`, as `ridgeline events --json` prints them) and events.csv."""
    found = newest_first(site.history.events if site.history else ())
    yield "feed.xml", feed.atom(found)
    whole = json.dumps({"events": [plain(event.as_json()) for event in found]}, indent=1, allow_nan=False)
    yield "events.json", whole.encode("ascii") + b"\n"
    yield "events.csv", as_csv(found)


VIEW = View(
    "events",
    "Events",
    "views/events.html",
    scripts=("views/event_words.js", "views/event_table.js", "views/events.js"),
    data=data,
    files=files,
)


def newest_first(events: Iterable[HistoryEvent]) -> list[HistoryEvent]:
    """By the date of the first bad commit, then by id: the same events in any order give the same page."""
    return sorted(events, key=lambda event: (-event.first_bad.date_ms, event.id))


def listed(event: HistoryEvent) -> dict[str, Any]:
    """An event as the pages load it: `as_json`, but with one short row for each series that moved, largest step first.

    "moved": [[kernel, backend, case, ratio, low, high, judged by], ...]
    """
    rows = sorted(event.moved, key=lambda moved: (-_size(moved.step.ratio), moved.key))
    told = {key: value for key, value in event.as_json().items() if key != "moved"}
    return plain(told) | {"moved": [_row(moved) for moved in rows]}


def _row(moved: Moved) -> list[Any]:
    key, step = moved.key, moved.step
    numbers = [one(value) for value in (step.ratio, step.ratio_low, step.ratio_high)]
    return [key.kernel, key.backend, key.case, *numbers, moved.judged_by]


def _size(ratio: float) -> float:
    return abs(math.log(ratio)) if math.isfinite(ratio) and ratio > 0 else math.inf


def plain(value: Any) -> Any:
    """What JSON knows: numbers that are not finite become None; a machine-code count may rise from zero."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


# ---- what was looked at ----------------------------------------------------------------------------------------------


def looked(site: SiteInput) -> dict[str, Any]:
    """How much stands behind "nothing is open": machines, series and points with a time, and the newest commit."""
    timed = site.frame[site.frame["status"] == "ok"] if len(site.frame) else site.frame
    if not len(timed):
        return {"machines": 0, "series": 0, "points": 0, "commits": 0, "newest": None}
    newest = timed.loc[timed["date"].idxmax()] if timed["date"].notna().any() else timed.iloc[-1]
    return {
        "machines": int(timed["machine"].nunique()),
        "series": len(timed[["machine", *KEY]].drop_duplicates()),
        "points": len(timed),
        "commits": int(timed["commit"].nunique()),
        "newest": {"hash": newest["commit"], "date_ms": milliseconds(newest["date"])},
    }


def milliseconds(date: pd.Timestamp) -> int:
    """Milliseconds since 1970, 0 where there is no date."""
    return 0 if pd.isna(date) else int(date.timestamp() * 1000)


# ---- undecided -------------------------------------------------------------------------------------------------------


_PLACE = ("machine", "kernel", "backend", "case", "at")


def undecided(site: SiteInput, events: Sequence[HistoryEvent]) -> list[dict[str, Any]]:
    """Own series whose newest point lies apart from the one before, by the overview's marks, and has no event there.

    One point does not make a step: the next record decides.  The largest change comes first.
    """
    told = {(*moved.key, moved.first_bad) for event in events for moved in event.moved}
    rows = [row for lane in site.lanes for row in _apart(lane.machine, lane.frame)]
    left = [row for row in rows if tuple(row[name] for name in _PLACE) not in told]
    return sorted(left, key=lambda row: (-abs(math.log(row["ratio"])), row["machine"], row["kernel"], row["case"]))


def _apart(machine: str, frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """`overview._moved` for all series of a lane at once."""
    own = frame[(frame["status"] == "ok") & frame["seconds"].notna() & ~frame["baseline"]]
    pairs = own.groupby(KEY, sort=False).tail(2)
    place = pairs.groupby(KEY, sort=False).cumcount(ascending=False)
    last, before = pairs[place == 0].set_index(KEY), pairs[place == 1].set_index(KEY)
    last = last.loc[before.index]
    apart = (last["seconds_low"] > before["seconds_high"]) | (last["seconds_high"] < before["seconds_low"])
    alone = before["seconds"] / last["seconds"] - 1
    beside = last["baseline_ratio"] / before["baseline_ratio"] - 1
    least = pd.concat([alone, beside], axis=1).abs().min(axis=1)
    both = (alone * beside > 0) & (least >= overview.MOVED_BESIDE_BASELINE)
    moved = apart & both.where(beside.notna(), alone.abs() >= overview.MOVED_ALONE) & _comparable(last, before)
    for key in last.index[moved]:
        new, old = last.loc[key], before.loc[key]
        yield {
            "machine": machine,
            **dict(zip(KEY, key, strict=True)),
            "at": new["commit"],
            "from": old["commit"],
            "date_ms": milliseconds(new["date"]),
            "ratio": one(new["seconds"] / old["seconds"]),
        }


def _comparable(last: pd.DataFrame, before: pd.DataFrame) -> pd.Series:
    """`lanes.same_definition`, row by row."""
    known = (last["case_yardstick"] != "") & (before["case_yardstick"] != "")
    return (last["case_yardstick"] == before["case_yardstick"]).where(known, last["yardstick"] == before["yardstick"])


# ---- the steps of each series ----------------------------------------------------------------------------------------


def steps_by_kernel(site: SiteInput) -> dict[str, list[dict[str, Any]]]:
    """Every step of every timed series, under its kernel; "event": id of the event that it is part of, or None."""
    if site.history is None:
        return {}
    of_event = {(moved.key, moved.first_bad): event.id for event in site.history.events for moved in event.moved}
    found: dict[str, list[dict[str, Any]]] = {}
    for key, steps in sorted(site.history.steps.items()):
        found.setdefault(key.kernel, []).extend(_step(moved, of_event) for moved in steps if moved.judged_by != "code")
    return found


def _step(moved: Moved, of_event: dict[tuple[Any, str], str]) -> dict[str, Any]:
    step = moved.step
    return {
        "machine": moved.key.machine,
        "backend": moved.key.backend,
        "case": moved.key.case,
        "direction": str(moved.direction),
        "by": moved.judged_by,
        "at": moved.first_bad,
        "from": moved.last_good,
        "ratio": one(step.ratio),
        "low": one(step.ratio_low),
        "high": one(step.ratio_high),
        "event": of_event.get((moved.key, moved.first_bad)),
    }


# ---- files for other programs ----------------------------------------------------------------------------------------


def as_csv(events: Iterable[HistoryEvent]) -> bytes:
    """COLUMNS of each event; several names or causes in one field are divided by "; "."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for event in events:
        fields = _fields(event)
        writer.writerow([_field(fields[name]) for name in COLUMNS])
    return out.getvalue().encode("utf-8", "backslashreplace")


def _fields(event: HistoryEvent) -> dict[str, Any]:
    return {
        **event.as_json(),
        "kernels": _names(moved.key.kernel for moved in event.moved),
        "cases": _names(moved.key.case for moved in event.moved),
        "first_bad": event.first_bad.hash,
        "first_bad_date": feed.stamp(event.first_bad.date_ms)[:10],
        "author": event.first_bad.author,
        "subject": event.first_bad.subject,
        "pull_request": event.first_bad.pull_request,
        "last_good": event.last_good.hash,
        "causes": "; ".join(f"{cause.kind}: {cause.text}" for cause in event.causes),
        "ended_at": event.ended_at.hash if event.ended_at else None,
    }


def _names(names: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(names))


def _field(value: Any) -> Any:
    """A number or a text; an apostrophe keeps a spreadsheet from running a text as a formula."""
    if isinstance(value, float):
        return plain(value)
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
