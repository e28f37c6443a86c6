"""A report on its way to the people: one section in the pull request's comment, one check run, one step summary."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ci.github.annotations import remarks
from ci.github.checks import CheckRun, changed_in, post_check
from ci.github.client import GitHub, GitHubError
from ci.github.comment import Comments, Posted, pull_requests
from ci.github.sections import TOPIC, Section
from ci.judging.types import Judgement, Verdict
from ci.report import json_report, markdown
from ci.report.json_report import ReportError
from ci.report.model import Report


@dataclasses.dataclass(frozen=True)
class PostTarget:
    """Where a report goes.  sha: the commit, 40 hex digits.  topic: the pool, "" for the pull-request job itself.

    check: name of the check run, "" for none.
    """

    sha: str
    topic: str = ""
    check: str = ""

    def __post_init__(self) -> None:
        if not TOPIC.fullmatch(self.topic):
            raise ReportError(f"topic {self.topic!r}: use at most 60 letters, digits, and . _ -")


def read_report(path: Path, links: Mapping[str, str], missing: str = "") -> Report:
    """The report in a file, with our links instead of its own.

    missing: what to say where there is no file (the machine is absent, the job did not start), "" to refuse.
    Raises ReportError for a file that is not a sound report, OSError if it cannot be read.
    """
    if path.is_symlink():
        raise ReportError(f"{path} is a link; a report is a plain file")
    if missing and not path.exists():
        return unmeasured(missing, links)
    return dataclasses.replace(json_report.read(path), links=dict(links))


def unmeasured(why: str, links: Mapping[str, str]) -> Report:
    """The report of a machine on which nothing was measured: "absent: no runner of this pool took the job"."""
    return Report(Judgement(Verdict.CANNOT_TELL, why), links=dict(links))


def post(report: Report, target: PostTarget, github: GitHub, root: Path) -> list[Posted]:
    """Put a report on the commit itself, and on every open pull request whose head it is.

    root: our own checkout, which says where kernels are declared.  What GitHub refuses (a check run, the comment on a
    locked pull request) keeps nothing else from being posted; then GitHubError names all of it.
    """
    numbers = pull_requests(github, target.sha)
    text = markdown.section(report, target.topic)
    comments, section = Comments(github), Section(target.topic, target.sha, text)
    refused: list[GitHubError] = []
    posted: list[Posted] = []
    with _kept(refused):
        if target.check:
            _check(report, target, github, numbers, text, root)
    for number in numbers:
        with _kept(refused):
            posted.append(comments.keep_section(number, markdown.MARKER, section))
    if refused:
        raise GitHubError("; ".join(map(str, refused)), refused[0].status)
    return posted


@contextlib.contextmanager
def _kept(refused: list[GitHubError]) -> Iterator[None]:
    """Keep an error for later."""
    try:
        yield
    except GitHubError as error:
        refused.append(error)


def _check(report: Report, target: PostTarget, github: GitHub, numbers: list[int], text: str, root: Path) -> None:
    notes = remarks(report, changed_in(github, target.sha, numbers), root)
    title = f"{report.verdict}: {report.judgement.why}"
    run = next(iter(report.links.values()), "")
    post_check(github, CheckRun(target.check, target.sha, report.verdict, title, text, notes, run))


def add_summary(report: Report, topic: str = "", environ: Mapping[str, str] = os.environ) -> bool:
    """Append a report to the summary of the workflow's step; whether there is one (GITHUB_STEP_SUMMARY)."""
    place = environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return False
    with open(place, "a", encoding="utf-8") as file:
        file.write(markdown.section(report, topic) + "\n")
    return True
