"""A report on its commit, as a check run, and on its pull requests, as one comment made of all check runs.

Each pool posts a check run with its whole report.  The comment has a section for each check run that the commit has, so
it is a function of what GitHub holds: whoever posts a check run writes the comment anew, the last one has them all, and
nothing is merged.  A report file of a pool does not travel to another job for that: a run's artifacts can be written by
the machine that ran a stranger's code, its check runs cannot.

The report comes from a job that ran a stranger's code.  So it is read as something hostile (ci.report.json_report), its
links are replaced by ours, and the pull request is asked of GitHub by the commit the platform itself names.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ci.github.client import GitHub, GitHubError
from ci.judging.types import Judgement, Verdict
from ci.report import json_report, markdown
from ci.report.json_report import ReportError
from ci.report.markdown import LIMIT, MARKER, shortened
from ci.report.model import Report
from ci.report.words import plain

CHECK = "Ridgeline"
"""Name of the check run of a report, before the pool."""
OURS = "ridgeline"
"""External id of our check runs, or how it begins; that of a workflow's job is GitHub's, and nobody can choose it."""
SUMMARY_LIMIT = 65_000
"""Bytes of UTF-8; GitHub refuses a summary of more than 65,535 characters."""
CONCLUSION = {Verdict.BROKEN: "failure", Verdict.SLOWER: "failure", Verdict.FASTER: "success", Verdict.SAME: "success"}
"""All else is neutral: it neither passes nor blocks."""
ROUNDS = 10
"""Times that the comment is written because check runs were added meanwhile; eight pools may end at once."""


def post(report: Report, sha: str, pool: str, numbers: Sequence[int], github: GitHub) -> None:
    """Put a report on its commit (40 hex digits) and on the pull requests whose head that is.

    pool: that measured it, "" for the pull-request job itself.
    """
    post_check(report, sha, pool, github)
    for number in numbers:
        write_report_comment(github, number, sha)


def pull_requests(github: GitHub, sha: str) -> list[int]:
    """The open pull requests whose head is this commit (40 hex digits), in order.

    GitHub's own list by commit does not know every fork, so all open pull requests are searched.
    """
    pulls = github.items("pulls?state=open&sort=created&direction=asc")
    return sorted(int(pull["number"]) for pull in pulls if pull["head"]["sha"] == sha)


# ---- check runs: a report on its commit ------------------------------------------------------------------------------


def post_check(report: Report, sha: str, pool: str, github: GitHub) -> None:
    """Make the check run of a report, which counts in place of earlier ones of its name.  Needs `checks: write`."""
    value = {
        "name": f"{CHECK} {pool}".strip(),
        "head_sha": sha,
        "external_id": OURS,
        "status": "completed",
        "conclusion": CONCLUSION.get(report.verdict, "neutral"),
        "output": {
            "title": plain(f"{report.verdict}: {report.judgement.why}", 200),
            "summary": shortened(markdown.section(report, pool), SUMMARY_LIMIT),
        },
    }
    if report.links:
        value["details_url"] = next(iter(report.links.values()))
    github.post("check-runs", value, repeatable=True)  # one that is there twice does no harm


def check_runs(github: GitHub, sha: str) -> list[Any]:
    """Our check runs of a commit, oldest first."""
    listed = github.items(f"commits/{sha}/check-runs?filter=all", "check_runs", none_for=(404, 422))
    ours = (check for check in listed if str(check.get("external_id") or "").startswith(OURS))
    return sorted(ours, key=lambda check: int(check["id"]))


# ---- the comment -----------------------------------------------------------------------------------------------------


def write_report_comment(github: GitHub, number: int, sha: str) -> None:
    """Make the comment of a pull request what the check runs of its head say.

    What was written is compared with the check runs again: another pool may have posted its own meanwhile.
    """
    for _ in range(ROUNDS):
        newest = {check["name"]: check["output"]["summary"] for check in check_runs(github, sha)}
        if not write_comment(github, number, MARKER, comment_text(newest)):
            return
    raise GitHubError(f"pull request {number}: check runs were added in each of {ROUNDS} rounds; run this again")


def comment_text(sections: Mapping[str, str], limit: int = LIMIT) -> str:
    """The comment, at most `limit` bytes of UTF-8: a section that is longer than its share is cut.

    sections: Markdown by name of the check run.
    """
    share = (limit - len(MARKER)) // max(len(sections), 1) - 2
    texts = (shortened(text.strip(), share) for _, text in sorted(sections.items()))
    return "\n\n".join([MARKER, *texts]) + "\n"


def write_comment(github: GitHub, number: int, marker: str, body: str) -> bool:
    """Make `body` the one comment of ours that begins with `marker`; whether something was changed.

    A workflow's token and an App write as bots.  Of several the oldest stays, which GitHub lists first.  Comments of
    people stay as they are, whatever marker they carry: who wrote one can edit it.
    """
    comments = [
        comment
        for comment in github.items(f"issues/{number}/comments")
        if (comment["user"] or {}).get("type") == "Bot" and (comment["body"] or "").startswith(marker)
    ]
    if not comments:
        github.post(f"issues/{number}/comments", {"body": body}, repeatable=True)
        return True
    for duplicate in comments[1:]:
        github.delete(f"issues/comments/{duplicate['id']}")
    is_changed = _normal(comments[0]["body"]) != _normal(body)
    if is_changed:
        github.patch(f"issues/comments/{comments[0]['id']}", {"body": body})
    return is_changed


def _normal(body: str) -> str:
    """Without what GitHub changes: ends of lines, and blanks at the end."""
    return body.replace("\r\n", "\n").rstrip()


# ---- reports of jobs that are not trusted, and the summary of a workflow's step --------------------------------------


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


def unmeasured(reason: str, links: Mapping[str, str]) -> Report:
    """The report of a machine on which nothing was measured: "absent: no runner of this pool took the job"."""
    return Report(Judgement(Verdict.CANNOT_TELL, reason), links=dict(links))


def add_summary(report: Report, pool: str = "") -> None:
    """Append a report to the summary of the workflow's step (GITHUB_STEP_SUMMARY)."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        raise ReportError("--summary: GITHUB_STEP_SUMMARY is not set; leave the option out outside a workflow")
    with open(path, "a", encoding="utf-8") as file:
        file.write(markdown.section(report, pool) + "\n")
