"""One issue per event, found again by a hidden marker, closed with a comment when the event ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ci.github.comment import ATTEMPTS, BOT, GitHub, GitHubError, _Unanswered

MARKER = "<!-- ridgeline event {} -->"


class Issues(GitHub):
    """Issues of one repository.  author: whose issues are ours; a stranger's marker must not silence an alert."""

    author: str = BOT

    def open(self, event_id: str, title: str, body: str, labels: Sequence[str] = ()) -> str:
        """The address of the event's issue, made or opened again if need be; `body` without the marker."""
        marker = MARKER.format(event_id)
        for _ in range(ATTEMPTS):
            found = self._issue(marker)
            if found and found.get("state") == "closed":
                self._call("PATCH", f"/issues/{found['number']}", {"state": "open"})
            if found:
                return str(found["html_url"])
            value = {"title": title, "body": f"{marker}\n{body}", "labels": list(labels)}
            try:
                return str(self._call("POST", "/issues", value, repeatable=False).json()["html_url"])
            except _Unanswered:
                continue  # it may have been made: the list is read again
        raise GitHubError(f"the issue of event {event_id}: making it was not answered in {ATTEMPTS} attempts")

    def close(self, event_id: str, why: str) -> bool:
        """Close the event's issue with a comment; whether there was an open one."""
        found = self._issue(MARKER.format(event_id))
        if not found or found.get("state") != "open":
            return False
        self.upsert_comment(int(found["number"]), f"<!-- ridgeline event {event_id} ended -->", _ended(event_id, why))
        self._call("PATCH", f"/issues/{found['number']}", {"state": "closed", "state_reason": "completed"})
        return True

    def _issue(self, marker: str) -> Mapping[str, Any] | None:
        for issue in self._items("/issues?state=all&sort=created&direction=desc"):
            ours = (issue.get("user") or {}).get("login") == self.author and "pull_request" not in issue
            if ours and (issue.get("body") or "").startswith(marker):
                return issue
        return None


def _ended(event_id: str, why: str) -> str:
    return f"<!-- ridgeline event {event_id} ended -->\n{why}"
