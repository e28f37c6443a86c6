"""A pull request of ours: files of a branch of its own, made anew from the default branch each time.

One branch has one pull request.  While it is open it is brought up to date; nothing is ever merged here.
"""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ci.github.client import GitHub, GitHubError
from ci.github.comment import Comments

# One issue per event, found again by a hidden marker, closed with a comment when the event ends.


MARKER = "<!-- ridgeline event {} -->"
ENDED = "<!-- ridgeline event {} ended -->"


class Issues(GitHub):
    """Issues of one repository.  Ours are those of the token's owner: a stranger's marker silences nothing."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._comments = Comments(self)

    def open(self, event_id: str, title: str, body: str, labels: Sequence[str] = ()) -> str:
        """The address of the event's issue, made or opened again if need be; `body` without the marker."""
        marker = MARKER.format(event_id)
        found = self._issue(marker)
        if found and found.get("state") == "closed":
            self.patch(f"issues/{found['number']}", {"state": "open"})
        if not found:
            value = {"title": title, "body": f"{marker}\n{body}", "labels": list(labels)}
            found = self.create("issues", value, lambda: self._issue(marker))
        return str(found["html_url"])

    def close(self, event_id: str, why: str) -> bool:
        """Close the event's issue with a comment; whether there was an open one."""
        found = self._issue(MARKER.format(event_id))
        if not found or found.get("state") != "open":
            return False
        marker = ENDED.format(event_id)
        self._comments.keep_body(int(found["number"]), marker, f"{marker}\n{why}")
        self.patch(f"issues/{found['number']}", {"state": "closed", "state_reason": "completed"})
        return True

    def _issue(self, marker: str) -> Any:
        for issue in self.items("issues?state=all&sort=created&direction=desc"):
            ours = (issue.get("user") or {}).get("login") == self._comments.author and "pull_request" not in issue
            if ours and (issue.get("body") or "").startswith(marker):
                return issue
        return None


PREFIX = "ridgeline/"
"""Of the names of branches that programs of ours make."""


@dataclasses.dataclass(frozen=True)
class Proposal:
    """What is proposed.  branch: without PREFIX.  files: texts by path from the root.  body: Markdown."""

    branch: str
    title: str
    body: str
    files: Mapping[str, str]

    @property
    def ref(self) -> str:
        """The name of its branch.  Raises GitHubError for one that no branch can have."""
        if not re.fullmatch(r"(?![./])[\w./-]*\w", self.branch) or ".." in self.branch:
            raise GitHubError(f"{self.branch!r:.80} cannot be the name of a branch; letters, digits and . _ - / are")
        return PREFIX + self.branch


def propose(github: GitHub, made: Proposal) -> str:
    """Open the pull request, or bring the open one up to date; its address, or where a person opens it.

    Where the repository does not let workflows open pull requests the branch is there all the same.
    """
    into = str(github.get("")["default_branch"])
    github.put_branch(made.ref, str(github.get(f"git/ref/heads/{into}")["object"]["sha"]))
    for path, text in sorted(made.files.items()):
        _write(github, made, path, text)
    try:
        pull = _open(github, made.ref) or github.create(
            "pulls",
            {"title": made.title, "body": made.body, "head": made.ref, "base": into},
            lambda: _open(github, made.ref),
        )
    except GitHubError as error:
        if error.status != 403:
            raise
        return f"https://github.com/{github.repository}/compare/{into}...{made.ref}?expand=1"
    return str(pull["html_url"])


def _write(github: GitHub, made: Proposal, path: str, text: str) -> None:
    def there() -> Any:
        return github.get(f"contents/{path}?ref={made.ref}", none_for=(404,))

    def done() -> Any:
        found = there()
        same = found and base64.b64decode(found["content"]).decode("utf-8", "replace") == text
        return found if same else None

    if done():
        return
    old = there()
    value = {"message": made.title, "content": base64.b64encode(text.encode()).decode(), "branch": made.ref}
    github.create(f"contents/{path}", value | ({"sha": old["sha"]} if old else {}), done, method="PUT")


def _open(github: GitHub, ref: str) -> Any:
    """The open pull request from our branch, none of a fork's branch of that name."""
    for pull in github.items("pulls?state=open"):
        head = pull.get("head") or {}
        if head.get("ref") == ref and (head.get("repo") or {}).get("full_name") == github.repository:
            return pull
    return None
