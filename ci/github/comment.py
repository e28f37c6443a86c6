"""Which pull requests a commit heads, and the one comment on each that is kept up to date.

The comment is posted by a job that has a write token and runs our default branch; the report comes from a job that ran
a stranger's code.  So the report is read as something hostile (ci.report.json_report), its links are replaced by ours,
and the pull request is asked of GitHub by the commit the platform itself names: never taken from the report.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from ci.github.client import GitHub, GitHubError
from ci.github.sections import Section, merged

BOT = "github-actions[bot]"
"""Author of comments posted with a workflow's own token; taken where GitHub does not say whose the token is."""
ROUNDS = 10
"""Times that a comment is written anew because another writer changed it meanwhile; eight pools may end at once."""
SETTLE_S = 2.0
"""Seconds after which what was written is read again: longer than another writer takes from reading to writing."""


@dataclasses.dataclass(frozen=True)
class Posted:
    """What was done with a comment: "created", "updated", "unchanged" or "nothing" (no open pull request)."""

    action: str
    pull_request: int | None = None
    url: str = ""


def pull_requests(github: GitHub, sha: str) -> list[int]:
    """The open pull requests whose head is this commit (40 hex digits), in order.

    GitHub's own list by commit does not know every fork, so all open pull requests are searched too.
    """
    if not re.fullmatch(r"[0-9a-f]{40}", sha):
        raise GitHubError(f"{sha!r} is not a full commit hash (40 hex digits)")
    numbers = {
        int(found["number"])
        for path in (f"commits/{sha}/pulls", "pulls?state=open&sort=created&direction=asc")
        for found in github.items(path, none_for=(404, 422))
        if found.get("state") == "open" and found["head"]["sha"] == sha
    }
    return sorted(numbers)


class Comments:
    """The comments that we keep.  author: login whose comments are ours, "" to ask GitHub whose the token is.

    Comments of anybody else stay as they are, whatever marker they carry.
    """

    def __init__(self, github: GitHub, author: str = "") -> None:
        self.github, self._author, self._asked = github, author, bool(author)
        self._foreign: set[int] = set()

    @property
    def author(self) -> str:
        """Our login: that of a GitHub App for its token, of a person for theirs."""
        if not self._asked:
            self._author, self._asked = _login(self.github), True
        return self._author or BOT

    def keep_section(self, number: int, marker: str, section: Section) -> Posted:
        """Our section in the one comment of a pull request; other sections in it stay."""
        return self.keep(number, marker, functools.partial(merged, own=section))

    def keep_body(self, number: int, marker: str, body: str) -> Posted:
        """`body` as the one comment with this marker."""
        return self.keep(number, marker, lambda bodies: body)

    def keep(self, number: int, marker: str, made: Callable[[Sequence[str]], str]) -> Posted:
        """Make `made(bodies)` the one comment of ours that starts with `marker`; bodies: those that are there.

        Of several the oldest stays.  What was written is read again after SETTLE_S, and written again where another
        writer came between: whoever writes last has read what the others wrote, or reads it then.  After a fault the
        comments are read again first, so that neither an old text nor a second comment is written.
        """
        keeper = _Keeper(self, number, marker, made)
        for _ in range(ROUNDS):
            if self.github.patiently(f"the comment on {number}", keeper.round):
                return Posted(keeper.action or "unchanged", number, str(keeper.written.get("html_url", "")))
            self.github.pause(SETTLE_S)
        raise GitHubError(f"pull request {number}: the comment did not settle in {ROUNDS} rounds; others write it too")

    def listed(self, number: int, marker: str, written: Any = None) -> list[Any]:
        """Ours with this marker, oldest first; what was just written may not be listed yet."""
        found = {comment["id"]: comment for comment in self.github.items(f"issues/{number}/comments")}
        if written and written["id"] not in found:
            again = self.github.get(f"issues/comments/{written['id']}", none_for=(404, 410))
            found |= {again["id"]: again} if again else {}
        ours = (comment for comment in found.values() if self._is_mine(comment, marker))
        return sorted(ours, key=lambda comment: int(comment["id"]))

    def change(self, comment: Any, body: str) -> Any:
        """One attempt to write a comment; None where it is gone or turned out not to be ours."""
        try:
            return self.github.attempt("PATCH", f"issues/comments/{comment['id']}", {"body": body})
        except GitHubError as error:
            if error.status == 403 and not self._author:
                self._foreign.add(comment["id"])
            elif error.status not in (404, 410):
                raise
            return None

    def add(self, number: int, body: str) -> Any:
        """One attempt to make a comment; where GitHub did not say who we are, its author does."""
        comment = self.github.attempt("POST", f"issues/{number}/comments", {"body": body})
        self._author = self._author or str((comment.get("user") or {}).get("login") or "")
        return comment

    def _is_mine(self, comment: Any, marker: str) -> bool:
        login = (comment.get("user") or {}).get("login")
        starts = (comment.get("body") or "").startswith(marker)
        return login == self.author and starts and comment["id"] not in self._foreign


@dataclasses.dataclass
class _Keeper:
    """One writer of one comment.  action: what it did first; written: the comment as it knows it."""

    comments: Comments
    number: int
    marker: str
    made: Callable[[Sequence[str]], str]
    action: str = ""
    written: Any = None

    def round(self) -> bool:
        """Read, and write where that is not what it should be; whether nothing was to be written."""
        mine = self.comments.listed(self.number, self.marker, self.written)
        body = self.made([comment["body"] for comment in mine])
        if not body.startswith(self.marker):
            raise GitHubError("the comment must start with its marker; a later run could not find it otherwise")
        if mine and _same(mine[0]["body"], body):
            self.written = mine[0]
            for one in mine[1:]:
                self.comments.github.delete(f"issues/comments/{one['id']}")
            return True
        self.action = self.action or ("updated" if mine else "created")
        self.written = self.comments.change(mine[0], body) if mine else self.comments.add(self.number, body)
        self.action = self.action if self.written else ""
        return False


def _login(github: GitHub) -> str:
    """Whose the token is, "" if GitHub does not say.

    REST does not tell an App its own name, GraphQL does: "slug[bot]" (seen in fullsend-ai/fullsend#1953, 2026-06).
    """
    try:
        answer = github.graphql("query { viewer { login } }")
        return str(answer["viewer"]["login"])
    except (GitHubError, TypeError, KeyError):
        return ""


def _same(one: str, other: str) -> bool:
    """Whether GitHub's text is ours: it may come back with other ends of lines."""
    return one.replace("\r\n", "\n").rstrip() == other.replace("\r\n", "\n").rstrip()
