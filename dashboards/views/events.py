"""The events of the history: what the front page says first, the page of all events, their feed and their files.

The front page and the page `events.html` draw the same data; a kernel's page draws the steps of its own series, what
was released meanwhile, and the machine code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ci.history.exact import CodeRecord
from ci.history.types import HistoryEvent, Moved
from dashboards import code
from dashboards.lanes import KEY, slug
from dashboards.values import significant
from dashboards.views import SiteInput, View, feed
from dashboards.views.beside import as_csv, csv_lines

COLUMNS = (
    *("id", "state", "kind", "direction", "machine", "kernels", "cases", "ratio", "ratio_low", "ratio_high", "p_value"),
    *("first_bad", "first_bad_date", "author", "subject", "pull_request", "last_good", "between", "owner", "reason"),
    *("link", "causes", "ended_at"),
)
"""Columns of events.csv; ratio is new time / old time, dates are UTC days."""


def data(site: SiteInput) -> Iterator[tuple[str, Any]]:
    """views/events: {"events"}; views/verdict: {"looked", "undecided", "notes"}; views/history-KERNEL: steps, versions,
    code."""
    found = newest_first(site.history.events if site.history else ())
    yield "views/events", {"events": [listed(event) for event in found]}
    notes = site.history.notes if site.history else ()
    yield "views/verdict", {"looked": looked(site), "undecided": undecided(site, found), "notes": list(notes)}
    steps, compiled, released = steps_by_kernel(site), code.by_kernel(code_of(site)), versions(site)
    for kernel in sorted(map(str, site.frame["kernel"].unique())) if len(site.frame) else ():
        yield (
            f"views/history-{slug(kernel)}",
            {"steps": steps.get(kernel, []), "versions": released, "code": compiled.get(kernel) or code.nothing()},
        )


def code_of(site: SiteInput) -> Sequence[CodeRecord]:
    """The recorded machine code, as far as the history has it (`dashboards.history.SiteHistory`)."""
    return getattr(site.history, "code", ())


def files(site: SiteInput) -> Iterator[tuple[str, bytes]]:
    """feed.xml, events.json (`HistoryEvent.as_json`, as `ridgeline events --json` prints them) and events.csv."""
    found = newest_first(site.history.events if site.history else ())
    yield "feed.xml", feed.atom(found)
    whole = json.dumps({"events": [plain(event.as_json()) for event in found]}, indent=1, allow_nan=False)
    yield "events.json", whole.encode("ascii") + b"\n"
    yield "events.csv", as_csv(csv_lines(map(_fields, found), COLUMNS))


VIEW = View(
    "events",
    "Events",
    "views/events.html",
    scripts=("views/event_words.js", "views/events.js"),
    data=data,
    files=files,
    of_history=True,
)


def newest_first(events: Iterable[HistoryEvent]) -> list[HistoryEvent]:
    """By the date of the first bad commit, then by id: the same events in any order give the same page."""
    return sorted(events, key=lambda event: (-event.first_bad.date_ms, event.id))


def listed(event: HistoryEvent) -> dict[str, Any]:
    """An event as the pages load it: `as_json`, but with one short row for each series that moved, largest step first.

    "moved": [[kernel, backend, case, ratio, low, high, judged by], ...]
    """
    rows = sorted(event.moved, key=lambda moved: (-_size(moved.step.ratio), moved.key))
    told = {key: value for key, value in plain(event.as_json()).items() if key != "moved"}
    for commit in (told[name] for name in ("first_bad", "last_good", "ended_at") if told[name]):
        commit.pop("parents", None)
    return told | {"moved": [_row(moved) for moved in rows]}


def _row(moved: Moved) -> list[Any]:
    key, step = moved.key, moved.step
    numbers = significant([step.ratio, step.ratio_low, step.ratio_high])
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
        for row in lane.frame.drop_duplicates("commit", keep="last")[["commit", *columns]].to_dict("records"):
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
    if site.history is None:
        return {}
    of_event = {(moved.key, moved.first_bad): event.id for event in site.history.events for moved in event.moved}
    found: dict[str, list[dict[str, Any]]] = {}
    for key, steps in sorted(site.history.steps.items()):
        surest = {moved.first_bad: moved for moved in sorted(steps, key=lambda moved: moved.judged_by, reverse=True)}
        found.setdefault(key.kernel, []).extend(_step(moved, of_event) for moved in surest.values())
    return found


def _step(moved: Moved, of_event: dict[tuple[Any, str], str]) -> dict[str, Any]:
    key, step = moved.key, moved.step
    told = {"machine": key.machine, "backend": key.backend, "case": key.case, "direction": str(moved.direction)}
    told |= {"by": moved.judged_by, "at": moved.first_bad, "from": moved.last_good}
    ends = zip(("ratio", "low", "high"), significant([step.ratio, step.ratio_low, step.ratio_high]), strict=True)
    return told | dict(ends) | {"event": of_event.get((key, moved.first_bad))}


# ---- files for other programs ----------------------------------------------------------------------------------------


def _fields(event: HistoryEvent) -> dict[str, Any]:
    """A row of events.csv; several names or causes in one field are divided by "; "."""
    return {
        **plain(event.as_json()),
        "kernels": "; ".join(dict.fromkeys(moved.key.kernel for moved in event.moved)),
        "cases": "; ".join(dict.fromkeys(moved.key.case for moved in event.moved)),
        "first_bad": event.first_bad.hash,
        "first_bad_date": feed.stamp(event.first_bad.date_ms)[:10],
        "author": event.first_bad.author,
        "subject": event.first_bad.subject,
        "pull_request": event.first_bad.pull_request,
        "last_good": event.last_good.hash,
        "causes": "; ".join(f"{cause.kind}: {cause.text}" for cause in event.causes),
        "ended_at": event.ended_at.hash if event.ended_at else None,
    }
