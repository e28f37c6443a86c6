"""The page of a pull request: what `ridgeline check`, `ab` or `gate` decided, case by case, from their report files.

A report may come from a stranger's pull request.  `ridgeline site --report` checks it against the schema of reports;
here only the fields that the page draws are taken, each by its type, and the page shows every text as text.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dashboards.views import SiteInput, View

SIZE_LIMIT = 8_000_000
"""Bytes, as `ci.report.json_report.SIZE_LIMIT`: 3,000 cases with evidence are about 2 MB."""

CASE_TEXTS = ("case", "kernel", "backend", "verdict")
CASE_NUMBERS = ("ratio", "ci_low", "ci_high", "p_value", "base_seconds", "head_seconds", "trials", "rounds")
CASE_LISTS = ("evidence", "warnings")
COLUMNS = ("machine", *CASE_TEXTS, *CASE_NUMBERS)
"""Columns of pull_request.csv; ratio is head time / base time, seconds of one call."""


class ReportFileError(ValueError):
    """A file is not a report; the text says which and why."""


def read(path: Path) -> dict[str, Any]:
    """What the page draws of a report file.  Raises ReportFileError, or OSError if it cannot be read."""
    with path.open("rb") as file:
        data = file.read(SIZE_LIMIT + 1)
    if len(data) > SIZE_LIMIT:
        raise ReportFileError(f"{path}: larger than {SIZE_LIMIT} bytes; a report of `ridgeline check` is smaller")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ReportFileError(f"{path}: not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict) or value.get("format") != "ridgeline-report":
        raise ReportFileError(
            f'{path}: not a report: no "format": "ridgeline-report"; give report.json of `ridgeline check`'
        )
    return taken(value)


def taken(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a report that the page draws."""
    return {
        **{name: _text(value, name) for name in ("verdict", "why", "title")},
        "base": _side(value.get("base")),
        "head": _side(value.get("head")),
        "machine": {
            str(name): str(fact) for name, fact in _dict(value.get("machine")).items() if fact not in (None, "")
        },
        "cases": [_case(case) for case in _dicts(value.get("cases"))],
        "groups": [_group(group) for group in _dicts(value.get("groups"))],
        "floors": [_floor(floor) for floor in _dicts(value.get("floors"))],
        "explanations": [_explanation(one) for one in _dicts(value.get("explanations"))],
        "links": {str(label): url for label, url in _dict(value.get("links")).items() if isinstance(url, str)},
        "warnings": list(dict.fromkeys([*_texts(value, "judgement_warnings"), *_texts(value, "warnings")])),
        "skipped": [
            {name: _text(skip, name) for name in ("what", "status", "why")} for skip in _dicts(value.get("skipped"))
        ],
    }


def _case(case: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: _number(case, name) for name in CASE_NUMBERS}
    return (
        {name: _text(case, name) for name in CASE_TEXTS} | numbers | {name: _texts(case, name) for name in CASE_LISTS}
    )


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: _number(group, name) for name in ("ratio", "ci_low", "ci_high")}
    texts = {name: _text(group, name) for name in ("kernel", "backend", "direction", "evidence")}
    return texts | numbers | {"cases": _texts(group, "cases")}


def _floor(floor: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: _number(floor, name) for name in ("bound", "share", "share_low", "share_high", "base_share")}
    return {name: _text(floor, name) for name in ("case", "baseline", "reason", "state")} | numbers


def _explanation(one: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: _text(one, name) for name in ("measured", "state", "sentence")}
    numbers = {name: _number(one, name) or 0 for name in ("experiments", "trials", "seconds")}
    lists = {name: _texts(one, name) for name in ("cases", "code")}
    return texts | numbers | lists | {"tried": [_tried(tried) for tried in _dicts(one.get("tried"))]}


def _tried(one: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: _text(one, name) for name in ("kind", "name", "change", "answer", "why", "part_of")}
    return texts | {name: _number(one, name) for name in ("share", "ratio", "low", "high", "trials")}


def _side(value: Any) -> dict[str, Any]:
    side = _dict(value)
    return {"commit": _text(side, "commit"), "name": _text(side, "name"), "dirty": side.get("dirty") is True}


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def _texts(value: Mapping[str, Any], name: str) -> list[str]:
    found = value.get(name)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def _number(value: Mapping[str, Any], name: str) -> float | None:
    found = value.get(name)
    sound = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
    return found if sound else None


# ---- the page --------------------------------------------------------------------------------------------------------


def data(site: SiteInput) -> Iterator[tuple[str, Any]]:
    """views/pull_request: {"reports": [one per report file]}."""
    yield "views/pull_request", {"reports": list(site.reports)}


def files(site: SiteInput) -> Iterator[tuple[str, bytes]]:
    """pull_request.json: what the page draws; pull_request.csv: its cases."""
    text = json.dumps({"reports": list(site.reports)}, indent=1, allow_nan=False)
    yield "pull_request.json", text.encode("ascii") + b"\n"
    yield "pull_request.csv", as_csv(site.reports)


def as_csv(reports: Sequence[Mapping[str, Any]]) -> bytes:
    """COLUMNS of every case; an apostrophe keeps a spreadsheet from running a text as a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for report in reports:
        machine = report["machine"].get("name", "")
        for case in report["cases"]:
            writer.writerow([_field(value) for value in (machine, *(case[name] for name in COLUMNS[1:]))])
    return out.getvalue().encode("utf-8", "backslashreplace")


def _field(value: Any) -> Any:
    risky = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if risky else value


VIEW = View(
    "pull_request",
    "Pull request",
    "views/pull_request.html",
    scripts=("views/why.js", "views/event_words.js", "views/pull_request.js"),
    data=data,
    files=files,
    shown=lambda site: bool(site.reports),
)
