"""The recorded machine code of a kernel as its page draws it: changes only, because counts seldom change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ci.history.exact import SERIES, CodePoint, CodeRecord
from dashboards.lanes import natural
from dashboards.values import minute

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

    A value is a count, None where the code failed to compile, "absent" where nothing is recorded.  Where a commit was
    compiled by several versions of Triton, the last of them counts.
    """
    newest = list({record.commit: record for record in records}.values())
    newest.sort(key=lambda record: record.date_ms)
    commits = [[record.commit, minute(pd.Timestamp(record.date_ms, unit="ms"))] for record in newest]
    found: dict[str, dict[str, Any]] = {}
    for (kernel, backend, configuration, arch), metrics in sorted(_lines(newest).items(), key=_place):
        page = found.setdefault(kernel, {"commits": commits, "units": _units(), "series": []})
        case, label = _case(configuration)
        page["series"].append({"backend": backend, "case": case, "label": label, "arch": arch, "metrics": metrics})
    return found


def nothing() -> dict[str, Any]:
    """What the page of a kernel without recorded code loads."""
    return {"commits": [], "units": {}, "series": []}


def _place(item: tuple[Line, Any]) -> tuple[Any, ...]:
    (kernel, backend, configuration, arch), _ = item
    return kernel, natural(configuration), backend, arch


def _case(configuration: str) -> tuple[str, str]:
    found = _LABEL.match(configuration)
    return (found["case"], found["label"]) if found else (configuration, "")


def _units() -> dict[str, str]:
    return {name: "bytes" if BYTES.search(name) else "" for name in SERIES}


def _lines(records: Sequence[CodeRecord]) -> dict[Line, dict[str, list[list[Any]]]]:
    """The changes of every metric of every line, metrics in the order in which they are told."""
    points = sorted({point for record in records for point in record.values}, key=_rank)
    found: dict[Line, dict[str, list[list[Any]]]] = {}
    for point in points:
        line = (point.kernel, point.backend, point.configuration, point.arch)
        found.setdefault(line, {})[point.series] = list(_changes(point, [record.values for record in records]))
    return found


def _rank(point: CodePoint) -> tuple[int, CodePoint]:
    return (SERIES.index(point.series) if point.series in SERIES else len(SERIES)), point


def _changes(point: CodePoint, values: Sequence[Mapping[CodePoint, float | None]]) -> Iterator[list[Any]]:
    before: float | str | None = ABSENT
    for index, of_commit in enumerate(values):
        now = of_commit.get(point, ABSENT) if point in of_commit else ABSENT
        if now != before:
            yield [index, _whole(now)]
        before = now


def _whole(value: float | str | None) -> float | int | str | None:
    return int(value) if isinstance(value, float) and value.is_integer() else value
