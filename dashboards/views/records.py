"""What was verified: every backend of every kernel, on how many ranks, when, at which commit, and what failed."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from ci.history import kept
from ci.history.kept import CaseCheck, Verified
from dashboards.lanes import KEY
from dashboards.views import SiteInput, View
from dashboards.views.beside import beside
from dashboards.views.machines import verified_row


def records_data(rows: Sequence[Verified], problems: Sequence[str]) -> dict[str, Any]:
    """{"rows": [verified row], "failures": [{"machine", "kernel", "backend", "case", "status", "why", "at"}],
    "problems": [text]}, which static/views/records.js reads."""
    failures = [
        {"machine": one.machine, "kernel": one.kernel, "backend": one.backend, "case": one.case}
        | {"status": one.status, "why": one.why, "at": one.at}
        for row in rows
        for one in row.failures
    ]
    return {"rows": [verified_row(row) for row in rows], "failures": failures, "problems": list(problems)}


@functools.lru_cache(maxsize=1)  # the page and its files are made of the same
def _read(site: SiteInput) -> tuple[list[Verified], list[str]]:
    found, problems = kept.case_checks(site.results_dir) if site.results_dir else ([], [])
    return kept.verified([*found, *_of_trials(site)]), [text.replace(f"{site.results_dir}/", "") for text in problems]


def _of_trials(site: SiteInput) -> Iterator[CaseCheck]:
    """A trial compares all that it times with the reference: the newest record of every arm is a check of it."""
    for lane in site.lanes:
        rows = lane.frame.drop_duplicates(KEY, keep="last")
        names = ("commit", "kernel", "case", "world", "dtype", "backend", "status", "why")
        dates = (moment.isoformat(timespec="seconds") for moment in rows["date"])
        for at, *texts in zip(dates, *(rows[name].tolist() for name in names), strict=True):
            commit, kernel, case, world, *others = texts
            yield CaseCheck(at, lane.machine, commit, kernel, case, int(world) if world == world else 1, *others, None)


def _data(site: SiteInput) -> Iterator[tuple[str, Any]]:
    yield "views/checks", records_data(*_read(site))


def _files(site: SiteInput) -> Iterator[tuple[str, bytes]]:
    rows = [verified_row(row) for row in _read(site)[0]]
    flat = [{**{k: v for k, v in row.items() if k != "counts"}, **_counts(row["counts"])} for row in rows]
    yield from beside("views/checks", flat)


def _counts(counts: dict[str, int]) -> dict[str, int]:
    """Every status, so that all rows have the same columns."""
    return {status: counts.get(status, 0) for status in (kept.GOOD, *kept.FAILED, "unsupported", "skipped")}


VIEW = View(
    "checks",
    "Checks",
    scripts=("views/checks.js", "views/records.js"),
    styles=("views/views.css", "views/machines.css"),
    data=_data,
    files=_files,
)
