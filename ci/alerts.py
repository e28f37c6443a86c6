"""Telling people of events: off unless a file configures it, each event once, never what is not sure."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import smtplib
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from email.headerregistry import Address
from email.message import EmailMessage
from pathlib import Path
from typing import Literal, Protocol

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from benchmarks.shapes import Unfit, built, flag, record, text, that, whole
from ci.github.client import API, GitHubError
from ci.github.orders import Issues
from ci.history.analysis import History
from ci.history.types import REACH, Direction, EventKind, EventState, HistoryEvent
from ci.report.markdown import code
from ci.report.words import interval, percent, plain
from ci.report.words import ran as few
from ci.whole_files import replace

# Which channels there are: a file of the repository, without secrets; these come from the environment.


DEFAULT_FILE = Path("ci/alerts.toml")

EXAMPLE = """\
kinds = ["kernel"]                  # of events; also "library", "machine"
most = 10                           # new alerts of one run
[github]
repository = "owner/name"           # token: GITHUB_TOKEN
labels = ["performance"]
[webhook]
url_variable = "ALERT_URL"          # the environment variable that holds the URL, which is a secret as a rule
[mail]
host = "mail.example.org"
port = 587
starttls = true
sender = "ridgeline@example.org"
to = ["kernels@example.org"]        # login: MAIL_USER and MAIL_PASSWORD, if the host wants one
"""


class AlertError(Exception):
    """The file of alerts is not right, or a channel refused; the text says which, and the next step."""


@dataclasses.dataclass(frozen=True)
class GitHubIssues:
    """Issues of one repository, owner/name."""

    repository: str
    labels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Webhook:
    """A URL that takes JSON: itself, or the environment variable that holds it."""

    url: str = ""
    url_variable: str = ""

    @property
    def address(self) -> str:
        """The URL.  Raises AlertError if the environment lacks it."""
        url = self.url or os.environ.get(self.url_variable, "")
        if not re.match(r"https?://[^/\s]", url):
            where = f"the environment variable {self.url_variable}" if self.url_variable else "[webhook] url"
            raise AlertError(f"{where} holds no http(s) URL; set it, or leave out [webhook]")
        return url


@dataclasses.dataclass(frozen=True)
class Mail:
    """A host that takes mail."""

    host: str
    sender: str
    to: tuple[str, ...]
    port: int = 587
    starttls: bool = True


@dataclasses.dataclass(frozen=True)
class AlertSettings:
    """What a file of alerts says.  most: new alerts of one run, so that a first run does not flood anybody."""

    kinds: tuple[EventKind, ...] = (EventKind.KERNEL,)
    most: int = 10
    github: GitHubIssues | None = None
    webhook: Webhook | None = None
    mail: Mail | None = None


CHANNELS = ("github", "webhook", "mail")

_TEXTS = that(lambda v: isinstance(v, list) and all(isinstance(one, str) for one in v), "a list of texts")
_KINDS = [str(kind) for kind in EventKind if kind is not EventKind.CODE]
FILE = record(
    {},
    {
        "kinds": that(lambda v: isinstance(v, list) and v and set(v) <= {*_KINDS}, f"a list of {', '.join(_KINDS)}"),
        "most": whole(1, 1000),
        "github": record({"repository": text()}, {"labels": _TEXTS}, closed=True),
        "webhook": record({}, {"url": text(), "url_variable": text()}, closed=True),
        "mail": record(
            {"host": text(), "sender": text(), "to": _TEXTS}, {"port": whole(1, 65_535), "starttls": flag}, closed=True
        ),
    },
    closed=True,
)


def load(path: Path = DEFAULT_FILE) -> AlertSettings:
    """Settings from the file.  Raises AlertError, which shows an example if there is no file."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        FILE(data, "")
    except FileNotFoundError:
        raise AlertError(f"{path} does not exist, so alerts are off; for example:\n{EXAMPLE}") from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AlertError(f"{path}: {error}") from None
    except Unfit as error:
        raise AlertError(f"{path}: {error}; for example:\n{EXAMPLE}") from None
    if not data.keys() & {*CHANNELS}:
        raise AlertError(f"{path}: no channel; known: {', '.join(f'[{name}]' for name in CHANNELS)}")
    return built(AlertSettings, data)


# An event in words, for people who did not ask: short, and safe in Markdown and mail whatever names it holds.


SERIES = 8
"""Series that are named; a page has all of them."""


def title(event: HistoryEvent) -> str:
    """One line: gemm 4.1 % slower on h200x1-… since 0bb5fe41."""
    kernels = list(dict.fromkeys(plain(one.key.kernel, 60) for one in event.moved))
    size = percent(event.ratio).lstrip("+-")
    moved = event.kind is EventKind.CONFIGURATION
    what = f"best configuration moved, by {size}" if moved else f"{size} {event.direction}"
    where = f"on {plain(event.machine, 60)} since {event.first_bad.hash[:8]}"
    return f"{few(kernels, 3)}: {what} {where}"


def lines(event: HistoryEvent) -> list[str]:
    """What moved, since when, why and how to go on; names as code, so that none of them formats anything."""
    first, good = event.first_bad, event.last_good
    who = f" by {code(plain(first.author, 60))}" if first.author else ""
    pull = f", pull request #{first.pull_request}" if first.pull_request else ""
    others = f" (or one of {event.between} commits between)" if event.between else ""
    kernel = plain(event.moved[0].key.kernel, 80)
    again = f"ridgeline ab {good.hash[:12]} {first.hash[:12]} --kernel {kernel}"
    again = f"ridgeline tune {kernel} --verify" if event.kind is EventKind.CONFIGURATION else again
    keys = dict.fromkeys(one.key for one in event.moved)
    series = [code("/".join(plain(part, 60) for part in key[1:])) for key in keys]
    return [
        f"Change of time: {percent(event.ratio)} {interval(event.ratio_low, event.ratio_high)} (99 %)",
        f"First bad commit: {code(first.hash)} {code(plain(first.subject, 100))}{who}{pull}{others}",
        f"Last good commit: {code(good.hash)}",
        *(f"Likely cause: {code(plain(cause.text, 200))}" for cause in event.causes[:3]),
        f"Series: {few(series, SERIES)}",
        f"To reproduce: {code(again)}",
        f"To take it: {code(TAKE.format(event.id))}",
    ]


TAKE = 'ridgeline events ack {} --owner "$USER"'


def ending(event: HistoryEvent) -> str:
    """Why an alert ends: recovered, fixed or accepted, where and by whom."""
    at = f" at {event.ended_at.hash[:8]}" if event.ended_at else ""
    owner = f" by {code(plain(event.owner, 60))}" if event.owner else ""
    reason = f": {code(plain(event.reason, 300))}" if event.reason else ""
    return f"{event.state}{at}{owner}{reason}"


# Where alerts go: GitHub issues, a webhook, mail.  Each waits out what passes and says what does not.


ATTEMPTS = 4
"""Of a webhook or mail host: with pauses of 1, 2 and 4 s that is what a restart takes."""
TIMEOUT_S = 30.0


class Channel(Protocol):
    """A way to tell people."""

    name: str

    def tell(self, event: HistoryEvent, status: Status) -> None:
        """Tell of an event.  Raises AlertError where that cannot be done."""


Status = Literal["open", "ended"]


def channels(settings: AlertSettings, sleep: Callable[[float], None] = time.sleep) -> list[Channel]:
    """Those that the settings name.  Raises AlertError if a secret is missing."""
    found: list[Channel] = []
    if settings.github:
        token, api = os.environ.get("GITHUB_TOKEN", ""), os.environ.get("GITHUB_API_URL", API)
        try:
            issues = Issues(settings.github.repository, token, api, sleep)
        except GitHubError as error:
            raise AlertError(f"[github]: {error}") from None
        found.append(IssueChannel(settings.github, issues))
    if settings.webhook:
        found.append(WebhookChannel(settings.webhook.address, sleep))
    if settings.mail:
        found.append(MailChannel(settings.mail, sleep))
    return found


@dataclasses.dataclass
class IssueChannel:
    """An issue per event, closed with a comment."""

    settings: GitHubIssues
    issues: Issues
    name: str = "github"

    def tell(self, event: HistoryEvent, status: Status) -> None:
        """Open or close the event's issue."""
        try:
            if status == "open":
                body = "\n".join(f"- {line}" for line in lines(event))
                self.issues.open(event.id, title(event), body, self.settings.labels)
            else:
                self.issues.close(event.id, ending(event))
        except GitHubError as error:
            raise AlertError(f"github: {error}") from None


@dataclasses.dataclass
class WebhookChannel:
    """A POST of JSON: {"status": "open" or "ended", "title": ..., "event": as in `ridgeline events --json`}."""

    url: str
    sleep: Callable[[float], None] = time.sleep
    name: str = "webhook"

    def tell(self, event: HistoryEvent, status: Status) -> None:
        """POST the event."""
        value = {"status": status, "title": title(event), "event": event.as_json()}
        headers = {"Idempotency-Key": f"{event.id}-{status}", "User-Agent": "ridgeline"}

        def post() -> None:
            httpx.post(self.url, json=value, headers=headers, timeout=TIMEOUT_S).raise_for_status()

        said = "webhook: no success; last:"  # the address is a secret as a rule: not in the message
        try:
            _tried(post, self.sleep)
        except httpx.HTTPStatusError as error:
            raise AlertError(f"{said} {error.response.status_code}") from None
        except httpx.HTTPError as error:
            raise AlertError(f"{said} {type(error).__name__}") from None


@dataclasses.dataclass
class MailChannel:
    """A plain text mail; what ends an event answers the mail that told of it."""

    settings: Mail
    sleep: Callable[[float], None] = time.sleep
    name: str = "mail"

    def tell(self, event: HistoryEvent, status: Status) -> None:
        """Mail the event."""
        told, sender = EmailMessage(), self.settings.sender
        name = f"<event-{event.id}@{Address(addr_spec=sender).domain}>"
        told["From"], told["To"] = sender, ", ".join(self.settings.to)
        if status == "open":
            told["Subject"], told["Message-ID"] = title(event), name
            told.set_content("\n".join(lines(event)))
        else:
            told["Subject"], told["In-Reply-To"], told["References"] = f"{event.state}: {title(event)}", name, name
            told.set_content(ending(event))
        try:
            _tried(lambda: self._deliver(told), self.sleep)
        except (OSError, smtplib.SMTPException) as error:
            where = f"{self.settings.host}:{self.settings.port}"
            raise AlertError(f"mail to {where}: no success; last: {error}") from None

    def _deliver(self, mail: EmailMessage) -> None:
        with smtplib.SMTP(self.settings.host, self.settings.port, timeout=TIMEOUT_S) as host:
            if self.settings.starttls:
                host.starttls()
            user = os.environ.get("MAIL_USER")
            if user:
                host.login(user, os.environ.get("MAIL_PASSWORD", ""))
            host.send_message(mail)


def _tried(deliver: Callable[[], None], sleep: Callable[[float], None]) -> None:
    """Deliver, again and again where the fault may pass; its last error else."""
    again = Retrying(
        retry=retry_if_exception(_passes),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_exponential(),
        sleep=sleep,
        reraise=True,
    )
    again(deliver)


def _passes(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500 or error.response.status_code == 429
    if isinstance(error, smtplib.SMTPResponseException):
        return error.smtp_code < 500
    return isinstance(error, httpx.TransportError | OSError | smtplib.SMTPException)


# Which events people are told of, and what they have been told already.


LEDGER = "alerts.jsonl"
"""In the folder of records, and pushed with it: a line for each thing told, only ever appended to."""

SURE = 0.01
"""Largest p-value of an event that people are told of: what the whole history of a series shows by chance as rarely."""

ENDED = (EventState.RECOVERED, EventState.FIXED, EventState.ACCEPTED)


@dataclasses.dataclass(frozen=True)
class Told:
    """A line of the file: which event, where it was then, by which channel, and "open" or "ended"."""

    event: str
    status: str
    channel: str
    machine: str
    kind: str
    direction: str
    first_bad: str


@dataclasses.dataclass(frozen=True)
class Sending:
    """What is to be told by one channel."""

    channel: Channel
    event: HistoryEvent
    status: Status


def read(path: Path) -> list[Told]:
    """What people have been told; lines that are torn or foreign are none."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError, TypeError):
            found.append(Told(**json.loads(line)))
    return found


def alertable(event: HistoryEvent, settings: AlertSettings) -> bool:
    """Whether people are told of an event: an open slow-down of a wanted kind, and surely one."""
    return (
        event.state is EventState.OPEN
        and event.direction is Direction.SLOWER
        and event.kind in settings.kinds
        and event.ratio_low > 1
        and event.p_value <= SURE
    )


def due(
    history: History, settings: AlertSettings, channels: Sequence[Channel], told: Sequence[Told]
) -> tuple[list[Sending], int]:
    """What is to be told now, ends first, then the surest new events, and how many new ones wait for another run."""
    before = _Before(history, told)
    ends = [
        Sending(channel, dataclasses.replace(event, id=known.event), "ended")
        for event in history.events
        for channel in channels
        if event.state in ENDED and (known := before.of(event, channel)) and known.status == "open"
    ]
    new: dict[str, list[Sending]] = {}
    for event in sorted(history.events, key=lambda event: (event.p_value, event.id)):
        for channel in channels if alertable(event, settings) else ():
            known = before.of(event, channel)
            if known is None or known.status != "open":
                new.setdefault(event.id, []).append(Sending(channel, event, "open"))
    now = list(new.values())[: settings.most]
    return [*ends, *itertools.chain.from_iterable(now)], len(new) - len(now)


def send(sendings: Sequence[Sending], path: Path) -> Iterator[AlertError]:
    """Tell, and write down what was told at once; a refusal is passed on and does not stop the others."""
    for one in sendings:
        try:
            one.channel.tell(one.event, one.status)
        except AlertError as error:
            yield error
            continue
        told = Told(one.event.id, one.status, one.channel.name, *_what(one.event), one.event.first_bad.hash)
        line = json.dumps(dataclasses.asdict(told))
        replace(path, (path.read_text(encoding="utf-8") if path.exists() else "") + line + "\n")


class _Before:
    """What each channel told last of each event, wherever its first bad commit was placed then."""

    def __init__(self, history: History, told: Sequence[Told]) -> None:
        self._place = {commit: number for number, commit in enumerate(history.commits)}
        self._last = {(one.channel, one.event): one for one in told}

    def of(self, event: HistoryEvent, channel: Channel) -> Told | None:
        """What the channel told last of this event."""
        known = self._last.get((channel.name, event.id))
        near = (one for (name, _), one in self._last.items() if name == channel.name and self._same(one, event))
        return known or next(near, None)

    def _same(self, told: Told, event: HistoryEvent) -> bool:
        then, now = self._place.get(told.first_bad), self._place.get(event.first_bad.hash)
        alike = _what(event) == (told.machine, told.kind, told.direction)
        return alike and then is not None and now is not None and abs(then - now) <= REACH


def _what(event: HistoryEvent) -> tuple[str, str, str]:
    return event.machine, str(event.kind), str(event.direction)
