"""Alerts against stand-ins over real sockets: a GitHub, a webhook, a mail host."""

from __future__ import annotations

import contextlib
import dataclasses
import email
import email.policy
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Response

from ci import alerts
from ci.alerts import AlertError, AlertSettings, GitHubIssues, IssueChannel, Mail, MailChannel, WebhookChannel
from ci.github.orders import Issues
from ci.history.analysis import History, analyse
from ci.history.types import EventKind, EventState, HistoryEvent
from tests.ci.history.made import facts, frame, pair
from tests.standins.github import StandIn, said

NO_WAIT = lambda seconds: None  # noqa: E731


@pytest.fixture(scope="module")
def history() -> History:
    lines = pair(1, 40, ours={20: 1.08}) + pair(5, 40, ours={30: 0.9}, case="b")
    return analyse(frame(lines), commits=facts(40))


@pytest.fixture
def event(history: History) -> HistoryEvent:
    return next(event for event in history.events if event.direction == "slower")


def with_events(history: History, *events: HistoryEvent) -> History:
    return dataclasses.replace(history, events=events)


class Recorder:
    """A channel that only remembers; `refuse` makes it fail."""

    def __init__(self, name: str = "webhook") -> None:
        self.name, self.told, self.refuse = name, [], False

    def tell(self, event: HistoryEvent, status: str) -> None:
        if self.refuse:
            raise AlertError(f"{self.name}: refused")
        self.told.append((status, event.id))


def run(history: History, path: Path, *channels: Recorder, **given) -> list[AlertError]:
    sendings, _ = alerts.due(history, AlertSettings(**given), channels, alerts.read(path))
    return list(alerts.send(sendings, path))


# ---- which events, and once ----------------------------------------------------------------------------------------


def test_an_event_is_told_once_and_its_end_once(tmp_path: Path, history: History, event: HistoryEvent) -> None:
    channel, path = Recorder(), tmp_path / "alerts.jsonl"
    for _ in range(2):
        assert run(history, path, channel) == []
    fixed = dataclasses.replace(event, state=EventState.FIXED)
    for _ in range(2):
        run(with_events(history, fixed), path, channel)
    assert channel.told == [("open", event.id), ("ended", event.id)]
    run(history, path, channel)
    assert channel.told[2:] == [("open", event.id)], "it came back"


@pytest.mark.parametrize(
    "other",
    [
        {"state": EventState.ACKNOWLEDGED},
        {"state": EventState.ACCEPTED},
        {"state": EventState.FIXED},
        {"kind": EventKind.MACHINE},
        {"ratio_low": 0.999},
        {"p_value": 0.02},
    ],
)
def test_what_is_not_sure_or_not_wanted_is_not_told(tmp_path, history, event, other) -> None:
    channel = Recorder()
    run(with_events(history, dataclasses.replace(event, **other)), tmp_path / "a.jsonl", channel)
    assert channel.told == []


def test_a_moved_place_is_the_same_event(tmp_path: Path, history: History, event: HistoryEvent) -> None:
    channel, path = Recorder(), tmp_path / "alerts.jsonl"
    run(history, path, channel)
    moved = dataclasses.replace(event, id="f" * 10, first_bad=facts(40)[history.commits[22]])
    run(with_events(history, moved), path, channel)
    run(with_events(history, dataclasses.replace(moved, state=EventState.FIXED)), path, channel)
    assert channel.told == [("open", event.id), ("ended", event.id)]
    far = dataclasses.replace(event, id="e" * 10, first_bad=facts(40)[history.commits[23]])
    run(with_events(history, far), path, channel)
    assert channel.told[2:] == [("open", far.id)]


def test_a_refusal_stops_no_other_and_is_tried_again(tmp_path: Path, history: History, event: HistoryEvent) -> None:
    broken, sound, path = Recorder("mail"), Recorder("webhook"), tmp_path / "alerts.jsonl"
    broken.refuse = True
    assert [str(error) for error in run(history, path, broken, sound)] == ["mail: refused"]
    broken.refuse = False
    run(history, path, broken, sound)
    assert broken.told == sound.told == [("open", event.id)]


def test_a_first_run_does_not_flood(history: History, event: HistoryEvent) -> None:
    many = [dataclasses.replace(event, id=f"{n:010x}", p_value=n * 1e-5, machine=f"m{n}") for n in range(15)]
    found, waiting = alerts.due(with_events(history, *many), AlertSettings(most=10), [Recorder()], [])
    assert [one.event.id for one in found] == [one.id for one in many[:10]]
    assert waiting == 5


def test_torn_lines_are_left_out(tmp_path: Path, history: History) -> None:
    path = tmp_path / "alerts.jsonl"
    path.write_text('{"event": "x"}\nnot json\n')
    channel = Recorder()
    run(history, path, channel)
    assert len(channel.told) == len(alerts.read(path)) == 1
    assert path.read_text().startswith('{"event": "x"}\nnot json\n')


# ---- GitHub --------------------------------------------------------------------------------------------------------


@pytest.fixture
def github() -> Iterator[StandIn]:
    with StandIn() as standing:
        yield standing


@pytest.fixture
def issues(github: StandIn) -> IssueChannel:
    return IssueChannel(GitHubIssues("o/r", ("performance",)), Issues("o/r", "token", github.url, NO_WAIT))


def test_one_issue_per_event_closed_with_a_comment(github: StandIn, issues: IssueChannel, event: HistoryEvent) -> None:
    issues.tell(event, "open")
    issues.tell(event, "open")
    (made,) = github.issues
    assert made["title"] == f"gemm: {abs(event.ratio - 1) * 100:.2f} % slower on {event.machine} since 00000014"
    assert made["labels"] == ["performance"]
    assert f"<!-- ridgeline event {event.id} -->" in made["body"]
    assert "ridgeline ab" in made["body"]
    issues.tell(dataclasses.replace(event, state=EventState.FIXED, ended_at=event.first_bad), "ended")
    assert (made["state"], len(github.bodies(made["number"]))) == ("closed", 1)
    assert "fixed at 00000014" in github.bodies(made["number"])[0]
    issues.tell(event, "open")
    assert (made["state"], len(github.issues)) == ("open", 1)


@pytest.mark.parametrize("author", ["github-actions[bot]", "my-ridgeline[bot]"])
def test_a_strangers_marker_silences_nothing(
    github: StandIn, issues: IssueChannel, event: HistoryEvent, author: str
) -> None:
    github.issue(f"<!-- ridgeline event {event.id} -->", author="stranger")
    github.author = author
    issues.tell(event, "open")
    issues.tell(event, "open")
    assert [issue["user"]["login"] for issue in github.issues] == ["stranger", author]


@pytest.mark.parametrize("late", [False, True])
def test_faults_that_pass_make_no_second_issue(github: StandIn, issues: IssueChannel, event, late: bool) -> None:
    github.fault("POST", "issues", Response("{}", 502), after=late)
    issues.tell(event, "open")
    assert len(github.issues) == 1


def test_github_that_refuses_is_said(github: StandIn, issues: IssueChannel, event: HistoryEvent) -> None:
    github.fault("POST", "issues", said(401, "Bad credentials"))
    with pytest.raises(AlertError, match="github: POST"):
        issues.tell(event, "open")


# ---- webhook -------------------------------------------------------------------------------------------------------


def test_a_webhook_gets_the_event_as_json(httpserver: HTTPServer, event: HistoryEvent) -> None:
    httpserver.expect_ordered_request("/hook").respond_with_data("", 503)
    httpserver.expect_ordered_request("/hook", method="POST").respond_with_data("")
    WebhookChannel(httpserver.url_for("/hook"), NO_WAIT).tell(event, "open")
    request, _ = httpserver.log[-1]
    assert request.json["status"] == "open"
    assert request.json["event"] == json.loads(json.dumps(event.as_json()))
    assert request.headers["Idempotency-Key"] == f"{event.id}-open"


def test_a_webhook_that_refuses_is_said_without_its_address(httpserver: HTTPServer, event: HistoryEvent) -> None:
    httpserver.expect_request("/secret").respond_with_data("", 403)
    with pytest.raises(AlertError, match="last: 403") as error:
        WebhookChannel(httpserver.url_for("/secret"), NO_WAIT).tell(event, "open")
    assert "secret" not in str(error.value)
    assert len(httpserver.log) == 1
    with pytest.raises(AlertError, match="ConnectError"):
        WebhookChannel("http://127.0.0.1:9/x", NO_WAIT).tell(event, "ended")


# ---- mail ----------------------------------------------------------------------------------------------------------


class _Session(socketserver.StreamRequestHandler):
    """As much SMTP as a delivery takes."""

    def handle(self) -> None:
        self.say(self.server.greetings.pop(0) if self.server.greetings else "220 here")  # type: ignore[attr-defined]
        while line := self.rfile.readline().decode().strip():
            verb = line[:4].upper()
            if verb == "DATA":
                self.say("354 go")
                lines = iter(self.rfile.readline, b".\r\n")
                self.server.mails.append(b"".join(lines))  # type: ignore[attr-defined]
            self.say("221 bye" if verb == "QUIT" else "250 ok")

    def say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextlib.contextmanager
def mail_host(*greetings: str) -> Iterator[socketserver.TCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Session) as server:
        server.mails, server.greetings = [], list(greetings)  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_a_mail_and_its_answer(event: HistoryEvent) -> None:
    with mail_host("421 come back later") as host:
        mail = Mail("127.0.0.1", "ridgeline@example.org", ("a@example.org",), host.server_address[1], starttls=False)
        channel = MailChannel(mail, NO_WAIT)
        channel.tell(event, "open")
        channel.tell(dataclasses.replace(event, state=EventState.RECOVERED, ended_at=event.first_bad), "ended")
        first, second = (email.message_from_bytes(one, policy=email.policy.default) for one in host.mails)
    assert first["Subject"] == alerts.title(event)
    assert event.first_bad.hash in first.get_content()
    assert second["In-Reply-To"] == first["Message-ID"]
    assert second["Subject"].startswith("recovered: ")


def test_a_mail_host_that_refuses_is_said(event: HistoryEvent) -> None:
    with mail_host("554 no") as host:
        mail = Mail("127.0.0.1", "r@example.org", ("a@example.org",), host.server_address[1], starttls=False)
        with pytest.raises(AlertError, match=r"mail to 127\.0\.0\.1:\d+: no success; last: .*554"):
            MailChannel(mail, NO_WAIT).tell(event, "open")


# ---- words and settings --------------------------------------------------------------------------------------------


def test_hostile_names_format_nothing(event: HistoryEvent) -> None:
    hostile = "x`</code><img src=x>\n# @all \u202e[a](https://b)"
    key = event.moved[0].key._replace(kernel=hostile, case=hostile)
    facts_ = dataclasses.replace(event.first_bad, author=hostile, subject=hostile)
    bad = dataclasses.replace(event, moved=(dataclasses.replace(event.moved[0], key=key),), first_bad=facts_)
    for line in [*alerts.lines(bad), alerts.title(bad)]:
        assert "\n" not in line
        assert "\u202e" not in line
    assert not [line for line in alerts.lines(bad) if "<img" in line]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "no channel; known: [github], [webhook], [mail]"),
        ("most = 0\n[webhook]\nurl = 'https://x'", "most is 0; allowed"),
        ("kinds = ['code']\n[webhook]\nurl = 'https://x'", 'kinds is ["code"]; allowed: a list of kernel, '),
        ("[slack]", "unknown key 'slack'; known: kinds, most, github"),
        ("[mail]\nhost = 'x'", "sender is missing"),
        ("[mail]\nport = 'x'", 'port is "x"; allowed: a whole number'),
        ("[github]\nrepository = 3", "repository is 3; allowed: text"),
        ("webhook = 3", "webhook is 3; allowed: a table"),
        ("[", "alerts.toml"),
    ],
)
def test_settings_that_are_wrong_are_said(tmp_path: Path, written: str, said: str) -> None:
    (tmp_path / "alerts.toml").write_text(written)
    with pytest.raises(AlertError) as error:
        alerts.load(tmp_path / "alerts.toml")
    assert said in str(error.value)


def test_the_example_is_right_and_secrets_come_from_the_environment(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "alerts.toml").write_text(alerts.EXAMPLE)
    found = alerts.load(tmp_path / "alerts.toml")
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    with pytest.raises(AlertError, match="set GITHUB_TOKEN"):
        alerts.channels(found)
    monkeypatch.setenv("GITHUB_TOKEN", "t")
    monkeypatch.delenv("ALERT_URL", raising=False)
    with pytest.raises(AlertError, match="ALERT_URL holds no"):
        alerts.channels(found)
    monkeypatch.setenv("ALERT_URL", "https://example.org/hook")
    assert [channel.name for channel in alerts.channels(found)] == ["github", "webhook", "mail"]
    with pytest.raises(AlertError, match="alerts are off"):
        alerts.load(tmp_path / "none.toml")
