"""Where alerts go: GitHub issues, a webhook, mail.  Each waits out what passes and says what does not."""

from __future__ import annotations

import dataclasses
import os
import smtplib
import time
from collections.abc import Callable, Iterator
from email.headerregistry import Address
from email.message import EmailMessage
from typing import Protocol

import httpx

from ci.alerts import text
from ci.alerts.settings import AlertError, AlertSettings, GitHubIssues, Mail
from ci.github.client import API, GitHubError
from ci.github.issues import Issues
from ci.history.types import HistoryEvent

ATTEMPTS = 4
"""Of a webhook or mail host: with pauses of 1, 2 and 4 s that is what a restart takes."""
TIMEOUT_S = 30.0


class Channel(Protocol):
    """A way to tell people.  Methods raise AlertError when they cannot."""

    name: str

    def begin(self, event: HistoryEvent) -> None:
        """Tell of an open event."""

    def end(self, event: HistoryEvent) -> None:
        """Tell that it ended."""


def channels(settings: AlertSettings, sleep: Callable[[float], None] = time.sleep) -> list[Channel]:
    """Those that the settings name.  Raises AlertError if a secret is missing."""
    found: list[Channel] = []
    if settings.github:
        found.append(IssueChannel(settings.github, _issues(settings.github, sleep)))
    if settings.webhook:
        found.append(WebhookChannel(settings.webhook.address, sleep))
    if settings.mail:
        found.append(MailChannel(settings.mail, sleep))
    return found


def _issues(settings: GitHubIssues, sleep: Callable[[float], None]) -> Issues:
    token, api = os.environ.get("GITHUB_TOKEN", ""), os.environ.get("GITHUB_API_URL", API)
    try:
        return Issues(settings.repository, token, api, sleep)
    except GitHubError as error:
        raise AlertError(f"[github]: {error}") from None


@dataclasses.dataclass
class IssueChannel:
    """An issue per event."""

    settings: GitHubIssues
    issues: Issues
    name: str = "github"

    def begin(self, event: HistoryEvent) -> None:
        """Open the event's issue."""
        body = "\n".join(f"- {line}" for line in text.lines(event))
        try:
            self.issues.open(event.id, text.title(event), body, self.settings.labels)
        except GitHubError as error:
            raise AlertError(f"github: {error}") from None

    def end(self, event: HistoryEvent) -> None:
        """Close it with a comment."""
        try:
            self.issues.close(event.id, text.ending(event))
        except GitHubError as error:
            raise AlertError(f"github: {error}") from None


@dataclasses.dataclass
class WebhookChannel:
    """A POST of JSON: {"status": "open" or "ended", "title": ..., "event": as in `ridgeline events --json`}."""

    url: str
    sleep: Callable[[float], None] = time.sleep
    name: str = "webhook"

    def begin(self, event: HistoryEvent) -> None:
        """POST the open event."""
        self._post(event, "open")

    def end(self, event: HistoryEvent) -> None:
        """POST the ended event."""
        self._post(event, "ended")

    def _post(self, event: HistoryEvent, status: str) -> None:
        value = {"status": status, "title": text.title(event), "event": event.as_json()}
        headers = {"Idempotency-Key": f"{event.id}-{status}", "User-Agent": "ridgeline"}
        last = ""
        for _ in _attempts(self.sleep):
            try:
                answer = httpx.post(self.url, json=value, headers=headers, timeout=TIMEOUT_S)
            except httpx.TransportError as error:
                last = type(error).__name__
                continue
            if answer.is_success:
                return
            last = f"{answer.status_code}"
            if answer.status_code < 500 and answer.status_code != 429:
                break
        raise AlertError(f"webhook: no success; last: {last}")  # the address is a secret as a rule: not in the message


@dataclasses.dataclass
class MailChannel:
    """A plain text mail; what ends an event answers the mail that told of it."""

    settings: Mail
    sleep: Callable[[float], None] = time.sleep
    name: str = "mail"

    def begin(self, event: HistoryEvent) -> None:
        """Mail the open event."""
        self._send(event, text.title(event), "\n".join(text.lines(event)), {"Message-ID": self._name_of(event)})

    def end(self, event: HistoryEvent) -> None:
        """Mail that it ended."""
        headers = {"In-Reply-To": self._name_of(event), "References": self._name_of(event)}
        self._send(event, f"{event.state}: {text.title(event)}", text.ending(event), headers)

    def _name_of(self, event: HistoryEvent) -> str:
        return f"<event-{event.id}@{Address(addr_spec=self.settings.sender).domain}>"

    def _send(self, event: HistoryEvent, subject: str, body: str, headers: dict[str, str]) -> None:
        mail = EmailMessage()
        mail["Subject"], mail["From"], mail["To"] = subject, self.settings.sender, ", ".join(self.settings.to)
        for name, value in headers.items():
            mail[name] = value
        mail.set_content(body)
        last = ""
        for _ in _attempts(self.sleep):
            try:
                return self._deliver(mail)
            except (OSError, smtplib.SMTPException) as error:
                last = f"{error}"
                if isinstance(error, smtplib.SMTPResponseException) and error.smtp_code >= 500:
                    break
        raise AlertError(f"mail to {self.settings.host}:{self.settings.port}: no success; last: {last}")

    def _deliver(self, mail: EmailMessage) -> None:
        with smtplib.SMTP(self.settings.host, self.settings.port, timeout=TIMEOUT_S) as host:
            if self.settings.starttls:
                host.starttls()
            user = os.environ.get("MAIL_USER")
            if user:
                host.login(user, os.environ.get("MAIL_PASSWORD", ""))
            host.send_message(mail)


def _attempts(sleep: Callable[[float], None]) -> Iterator[int]:
    for attempt in range(ATTEMPTS):
        if attempt:
            sleep(2.0 ** (attempt - 1))
        yield attempt
