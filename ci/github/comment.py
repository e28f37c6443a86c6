"""The few GitHub calls we need: which pull request a commit heads, and one comment on it that is kept up to date.

The comment is posted by a job that has a write token and runs our default branch; the report comes from a job that ran
a stranger's code.  So the report is read as something hostile (ci.report.json_report), its links are replaced by ours,
and the pull request is asked of GitHub by the commit the platform itself names: never taken from the report.
"""

from __future__ import annotations

import dataclasses
import email.utils
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from ci.report import json_report, markdown

API = "https://api.github.com"
API_VERSION = "2022-11-28"
ATTEMPTS = 5
LONGEST_WAIT_S = 120.0
"""Seconds.  A server that asks for a longer pause is an error: a job must not sleep for an hour."""
PAGES = 30
"""Pages of 100 entries that are read of a list at most."""
BOT = "github-actions[bot]"
"""Author of comments posted with a workflow's own token; only this author's comments are ever edited."""


class GitHubError(Exception):
    """GitHub cannot be asked or refuses; the text names the call, the answer and the likely cause."""


@dataclasses.dataclass(frozen=True)
class Posted:
    """What was done with a comment: "created", "updated", "unchanged" or "nothing" (no open pull request)."""

    action: str
    pull_request: int | None = None
    url: str = ""


class GitHub:
    """Calls on one repository (``owner/name``).  Waits out rate limits and server errors, ATTEMPTS times at most.

    sleep, clock: for tests.  A call that is not safe to repeat is repeated only if it was certainly not carried out.
    """

    def __init__(
        self,
        repository: str,
        token: str,
        api: str = API,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
        timeout_s: float = 30.0,
    ) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
            raise GitHubError(f"repository {repository!r} must look like owner/name")
        if not token:
            raise GitHubError("there is no token; set GITHUB_TOKEN (a job needs `permissions: pull-requests: write`)")
        self._sleep, self._clock = sleep, clock
        self._http = httpx.Client(
            base_url=f"{api.rstrip('/')}/repos/{repository}",
            timeout=timeout_s,
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": API_VERSION,
                "User-Agent": "ridgeline",
            },
        )

    def pull_request(self, sha: str) -> int | None:
        """The open pull request whose head is this commit (40 hex digits); None if there is none (any more).

        GitHub's own list by commit does not know every fork, so all open pull requests are searched next.
        """
        if not re.fullmatch(r"[0-9a-f]{40}", sha):
            raise GitHubError(f"{sha!r} is not a full commit hash (40 hex digits)")
        for path in (f"/commits/{sha}/pulls", "/pulls?state=open&sort=updated&direction=desc"):
            for found in self._items(path):
                if found.get("state") == "open" and found["head"]["sha"] == sha:
                    return int(found["number"])
        return None

    def upsert_comment(self, number: int, marker: str, body: str, author: str = BOT) -> Posted:
        """Make `body` the one comment of `author` that starts with `marker`, editing the one that is there.

        A comment of somebody else with the same marker stays as it is.  If the answer to creating one is lost, the
        list is read again before the next attempt, so that no second comment appears.
        """
        if not body.startswith(marker):
            raise GitHubError("the comment must start with its marker; a later run could not find it otherwise")
        for _ in range(ATTEMPTS):
            mine = self._comment(number, marker, author)
            if mine and mine["body"].rstrip() == body.rstrip():
                return Posted("unchanged", number, mine["html_url"])
            if mine:
                answer = self._call("PATCH", f"/issues/comments/{mine['id']}", {"body": body})
                return Posted("updated", number, answer.json()["html_url"])
            try:
                answer = self._call("POST", f"/issues/{number}/comments", {"body": body}, repeatable=False)
            except _Unanswered:
                continue
            return Posted("created", number, answer.json()["html_url"])
        raise GitHubError(f"pull request {number}: creating a comment was not answered in {ATTEMPTS} attempts")

    def _comment(self, number: int, marker: str, author: str) -> Mapping[str, Any] | None:
        for comment in self._items(f"/issues/{number}/comments"):
            if (comment.get("user") or {}).get("login") == author and (comment.get("body") or "").startswith(marker):
                return comment
        return None

    def _items(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Every item of a list, page by page; a 404 or 422 for an unknown commit is an empty list."""
        for page in range(1, PAGES + 1):
            glue = "&" if "?" in path else "?"
            answer = self._call("GET", f"{path}{glue}per_page=100&page={page}", accept=(200, 404, 422))
            found = answer.json() if answer.status_code == 200 else []
            if not isinstance(found, list):
                raise GitHubError(f"GET {path}: a list was expected, not {str(found)[:100]!r}")
            yield from found
            if len(found) < 100:
                return

    def _call(
        self,
        method: str,
        path: str,
        value: Mapping[str, Any] | None = None,
        repeatable: bool = True,
        accept: tuple[int, ...] = (200, 201),
    ) -> httpx.Response:
        last = ""
        for attempt in range(ATTEMPTS):
            try:
                answer = self._http.request(method, path, json=value)
            except httpx.ConnectError as error:
                last, pause = f"{error}", 2.0**attempt
            except httpx.TransportError as error:
                if not repeatable:
                    raise _Unanswered(str(error)) from error
                last, pause = f"{type(error).__name__} {error}", 2.0**attempt
            else:
                if answer.status_code in accept:
                    return answer
                last, pause = _said(answer), self._pause(answer, attempt)
                if answer.status_code >= 500 and not repeatable:
                    self._sleep(pause)
                    raise _Unanswered(last)
            if attempt + 1 < ATTEMPTS:
                self._wait(pause, f"{method} {path}: {last}")
        raise GitHubError(f"{method} {path}: no success in {ATTEMPTS} attempts; last: {last}")

    def _pause(self, answer: httpx.Response, attempt: int) -> float:
        """Seconds to wait before the next attempt; GitHubError if another attempt cannot help."""
        after = _retry_after(answer.headers.get("retry-after"), self._clock())
        limited = answer.status_code in (403, 429)
        if limited and after is None and answer.headers.get("x-ratelimit-remaining") == "0":
            after = float(answer.headers.get("x-ratelimit-reset") or self._clock()) - self._clock()
        if answer.status_code < 500 and not (limited and (after is not None or answer.status_code == 429)):
            raise GitHubError(f"{answer.request.method} {answer.request.url.path}: {_said(answer)}{_hint(answer)}")
        return max(after if after is not None else 2.0**attempt, 0.0)

    def _wait(self, seconds: float, why: str) -> None:
        if seconds > LONGEST_WAIT_S:
            raise GitHubError(f"{why}; it asks for a pause of {seconds:.0f} s, more than {LONGEST_WAIT_S:.0f} s")
        self._sleep(seconds)


class _Unanswered(Exception):
    """A call that may or may not have been carried out."""


def post_report(
    path: Path, sha: str, github: GitHub, links: Mapping[str, str] | None = None, topic: str = "", dry_run: bool = False
) -> Posted:
    """Render the report in `path` and put it on the pull request whose head is `sha`.

    links: ours, for example to the workflow run; those in the file are dropped.  topic: each topic (a machine) has its
    own comment.  The action is "nothing" if the commit heads no open pull request.  Raises ReportError for a file that
    is not a sound report, GitHubError if GitHub refuses.
    """
    if path.is_symlink():
        raise json_report.ReportError(f"{path} is a link; a report is a plain file")
    report = dataclasses.replace(json_report.read(path), links=dict(links or {}))
    body = markdown.render(report, topic)
    number = github.pull_request(sha)
    if number is None or dry_run:
        return Posted("nothing", number)
    return github.upsert_comment(number, markdown.marker(topic), body)


def _retry_after(header: str | None, now: float) -> float | None:
    """Seconds from a Retry-After header: a number or an HTTP date (RFC 9110, 10.2.3); None if absent or unreadable."""
    if header is None:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        return email.utils.parsedate_to_datetime(header).timestamp() - now
    except ValueError:
        return None


def _said(answer: httpx.Response) -> str:
    try:
        message = str(answer.json().get("message", ""))
    except (ValueError, AttributeError):
        message = answer.text
    return f"{answer.status_code} {message[:200]}".strip()


def _hint(answer: httpx.Response) -> str:
    hints = {
        401: "; the token is wrong or has expired",
        403: "; the job needs `permissions: pull-requests: write`",
        404: "; the token does not see this repository, or the number is wrong",
    }
    return hints.get(answer.status_code, "")
