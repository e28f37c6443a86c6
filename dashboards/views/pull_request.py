"""The page of a pull request: what `ridgeline check`, `ab` or `gate` decided, case by case, from their report files.

A report may come from a stranger's pull request.  `ridgeline site --report` checks it against the schema of reports;
here only the fields that the page draws are taken, each by its type, and the page shows every text as text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dashboards.views import Made, SiteInput, View, as_csv

SIZE_LIMIT = 8_000_000
"""Bytes, as `ci.report.json_report.SIZE_LIMIT`: 3,000 cases with evidence are about 2 MB."""

_SIDE = {"commit": str, "name": str, "dirty": bool}
_RANGE = {"ratio": float, "ci_low": float, "ci_high": float}
_TIMES = {"p_value": float, "base_seconds": float, "head_seconds": float, "trials": float, "rounds": float}
_CASE = dict.fromkeys(("case", "kernel", "backend", "verdict"), str) | _RANGE | _TIMES
_TRIED = dict.fromkeys(("kind", "name", "change", "answer", "why", "part_of"), str)
_TRIED |= dict.fromkeys(("share", "ratio", "low", "high", "trials"), float)
_FLOOR = dict.fromkeys(("case", "baseline", "reason", "state"), str)
SHAPE: Any = {
    "verdict": str,
    "why": str,
    "title": str,
    "base": _SIDE,
    "head": _SIDE,
    "cases": [{**_CASE, "evidence": [str], "warnings": [str]}],
    "groups": [{**dict.fromkeys(("kernel", "backend", "direction", "evidence"), str), **_RANGE, "cases": [str]}],
    "floors": [_FLOOR | dict.fromkeys(("bound", "share", "share_low", "share_high", "base_share"), float)],
    "explanations": [
        {
            **dict.fromkeys(("measured", "state", "sentence"), str),
            **dict.fromkeys(("experiments", "trials", "seconds"), int),
            "cases": [str],
            "code": [str],
            "tried": [_TRIED],
        }
    ],
    "skipped": [{"what": str, "status": str, "why": str}],
    "judgement_warnings": [str],
    "warnings": [str],
}
"""The fields of a report that the page draws.  A number that is none is null, or 0 where it is counted (int)."""

COLUMNS = ("machine", *_CASE)
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
    found = _taken(value, SHAPE)
    warnings = dict.fromkeys([*found.pop("judgement_warnings"), *found["warnings"]])
    machine, links = (told if isinstance(told := value.get(name), dict) else {} for name in ("machine", "links"))
    return found | {
        "machine": {str(name): str(fact) for name, fact in machine.items() if fact not in (None, "")},
        "links": {str(label): url for label, url in links.items() if isinstance(url, str)},
        "warnings": list(warnings),
    }


def _taken(value: Any, shape: Any) -> Any:
    """What of a value has a shape: a type, a list of one shape, or a dict of shapes by name."""
    if isinstance(shape, dict):
        held = value if isinstance(value, dict) else {}
        return {name: _taken(held.get(name), one) for name, one in shape.items()}
    if isinstance(shape, list):
        wanted = dict if isinstance(shape[0], dict) else shape[0]
        items = value if isinstance(value, list) else []
        return [_taken(item, shape[0]) for item in items if isinstance(item, wanted)]
    if shape in (float, int):
        sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return value if sound else None if shape is float else 0
    return value if isinstance(value, shape) else shape()


# ---- the page --------------------------------------------------------------------------------------------------------


def make(site: SiteInput) -> Made:
    """views/pull_request, pull_request.json: what the page draws of each report; pull_request.csv: its cases."""
    yield "views/pull_request", {"reports": list(site.reports)}
    text = json.dumps({"reports": list(site.reports)}, indent=1, allow_nan=False)
    yield "pull_request.json", text.encode("ascii") + b"\n"
    cases = [case | {"machine": one["machine"].get("name", "")} for one in site.reports for case in one["cases"]]
    yield "pull_request.csv", as_csv(cases, COLUMNS)


VIEW = View(
    "pull_request",
    "Pull request",
    make,
    "views/pull_request.html",
    scripts=("views/event_words.js", "views/pull_request.js"),
    shown=lambda site: bool(site.reports),
)
