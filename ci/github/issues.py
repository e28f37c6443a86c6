"""One issue per event, found again by a hidden marker, closed with a comment when the event ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ci.github.client import GitHub
from ci.github.comment import Comments

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
