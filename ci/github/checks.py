"""A check run on the commit: the verdict, the report, and annotations on the lines of the kernels that moved."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from ci.github.annotations import Annotation, ChangedLines, changed_lines
from ci.github.client import GitHub
from ci.github.sections import shortened
from ci.judging.types import Verdict
from ci.report.words import plain

BATCH = 50
"""Annotations that one call may bring (docs.github.com, "Update a check run", 2026-11-22)."""
SUMMARY = 65_000
"""Bytes of UTF-8; GitHub refuses a summary of more than 65,535 characters."""
CONCLUSION = {Verdict.BROKEN: "failure", Verdict.SLOWER: "failure", Verdict.FASTER: "success", Verdict.SAME: "success"}
"""All else is neutral: it neither passes nor blocks."""


@dataclasses.dataclass(frozen=True)
class CheckRun:
    """What is said of a commit (40 hex digits) under a name; summary: Markdown."""

    name: str
    sha: str
    verdict: Verdict
    title: str
    summary: str
    annotations: Sequence[Annotation] = ()
    details_url: str = ""

    @property
    def digest(self) -> str:
        """The same for the same text: so that a lost answer, or a second run of a job, makes no second check run."""
        notes = [dataclasses.astuple(one) for one in self.annotations]
        return hashlib.sha256(repr((self.verdict, self.title, self.summary, notes)).encode()).hexdigest()[:40]


def post_check(github: GitHub, check: CheckRun) -> str:
    """Make the check run, unless it is there already; its address.  Needs `checks: write`."""
    found = _found(github, check)
    made = found or github.create("check-runs", _value(check), lambda: _found(github, check))
    have = int(made["output"].get("annotations_count") or 0) if found else len(check.annotations[:BATCH])
    for start in range(have, len(check.annotations), BATCH):
        _annotate(github, int(made["id"]), check, start)
    return str(made.get("html_url", ""))


def _found(github: GitHub, check: CheckRun) -> Any:
    """The check run with this very text."""
    listed = github.items(f"commits/{check.sha}/check-runs?filter=all", "check_runs", none_for=(404, 422))
    fitting = (one for one in listed if one.get("external_id") == check.digest and one.get("name") == check.name)
    return next(fitting, None)


def _value(check: CheckRun) -> dict[str, object]:
    output = _output(check) | {"annotations": _batch(check, 0)}
    value = {"name": check.name, "head_sha": check.sha, "external_id": check.digest, "status": "completed"}
    value |= {"details_url": check.details_url} if check.details_url else {}
    return {**value, "conclusion": CONCLUSION.get(check.verdict, "neutral"), "output": output}


def _output(check: CheckRun) -> dict[str, object]:
    return {"title": plain(check.title, 200), "summary": shortened(check.summary, SUMMARY)}


def _batch(check: CheckRun, start: int) -> list[dict[str, object]]:
    return [dataclasses.asdict(one) for one in check.annotations[start : start + BATCH]]


def _annotate(github: GitHub, number: int, check: CheckRun, start: int) -> None:
    """Add a batch; GitHub appends, so what was added already must not be added again."""
    path = f"check-runs/{number}"
    batch = _batch(check, start)

    def added() -> Any:
        one = github.get(path)
        return one if int(one["output"].get("annotations_count") or 0) >= start + len(batch) else None

    github.create(path, {"output": _output(check) | {"annotations": batch}}, added, method="PATCH")


def changed_in(github: GitHub, sha: str, pull_requests: Iterable[int]) -> list[ChangedLines]:
    """The files that a commit's first pull request changes, with their first changed lines; none without one."""
    for number in pull_requests:
        files = github.items(f"pulls/{number}/files", none_for=(404, 422))
        return [changed_lines(str(one["filename"]), str(one.get("patch") or "")) for one in files]
    return []
