"""The report as JSON, and back.  A report read from a file may come from a stranger's pull request.

``verdict`` and ``cases`` hold what .github/ARCHITECTURE.md promises to machines; the rest is what the renderings need.
Reading checks size, JSON, finite numbers and every annotation of `Report` before any value is used.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from benchmarks.shapes import Unfit, anything, built, finite, one_of, record
from ci.report.model import Report, ReportWarning

Json = dict[str, Any]
FORMAT, VERSION = "ridgeline-report", 1
SIZE_LIMIT = 8_000_000
"""Bytes.  3,000 cases with evidence are about 2 MB."""


class ReportError(ValueError):
    """A file is not a report; the text names the place and the reason."""


KEYS = (
    *("verdict", "why", "title", "cases", "groups", "floors", "judgement_warnings", "warnings", "base", "head"),
    *("machine", "links", "costs", "clocks", "skipped"),
)
"""What every report has, in this order."""

WHERE_ANY = ("case_warnings", "machine_code", "ran", "explanations", "programs", "again")
"""What is written only where there is any."""


SHAPE = record(
    {"format": one_of(FORMAT), "version": one_of(VERSION), **dict.fromkeys(KEYS, anything)},
    dict.fromkeys(WHERE_ANY, anything),
    closed=True,
)
"""The keys of a report; what they hold is what the annotations of `Report` say."""


def document(report: Report) -> Json:
    """The report as plain dicts and lists; numbers that are not finite become null."""
    told = dataclasses.asdict(report)
    judged = told.pop("judgement")
    for case in judged["cases"]:
        del case["more_trials"]  # only a live comparison needs it
    told["case_warnings"] = [warning for warning in told.pop("warnings") if warning["case"]]
    told |= {"judgement_warnings": judged.pop("warnings"), "warnings": list(map(str, report.warnings)), **judged}
    keys = [*KEYS, *(key for key in WHERE_ANY if told[key])]
    return {"format": FORMAT, "version": VERSION, **{key: finite(told[key]) for key in keys}}


def dumps(report: Report) -> str:
    """Readable JSON with a final newline; what UTF-8 cannot encode (lone surrogates) is escaped."""
    text = json.dumps(document(report), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def read(path: Path) -> Report:
    """The report in a file.  Raises ReportError for anything but a sound report, OSError if it cannot be read."""
    with path.open("rb") as file:
        data = file.read(SIZE_LIMIT + 1)
    try:
        return loads(data)
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from None


def loads(data: bytes) -> Report:
    """The report in `data`; it is not trusted.  Raises ReportError."""
    if len(data) > SIZE_LIMIT:
        raise ReportError(f"larger than {SIZE_LIMIT} bytes")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse, parse_float=_float)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"not JSON: {str(error)[:200]}") from None
    try:
        SHAPE(value, "")
        return _report(value)
    except Unfit as error:
        raise ReportError(str(error)) from None


def _refuse(token: str) -> float:
    raise ValueError(f"{token} is not JSON")


def _float(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise ValueError(f"{token[:20]} is too large")
    return value


def _report(value: Json) -> Report:
    """Warnings about a case are told as such where the report says so (reports before 2026-11-22 do not)."""
    of_cases = built(tuple[ReportWarning, ...], value.get("case_warnings", []), "case_warnings")
    known = {str(warning): dataclasses.asdict(warning) for warning in of_cases}
    texts = built(tuple[str, ...], value["warnings"], "warnings")
    warnings = [known.get(text, {"text": text}) for text in texts]
    judged = value | {"warnings": value["judgement_warnings"]}
    return built(Report, value | {"judgement": judged, "warnings": warnings})
