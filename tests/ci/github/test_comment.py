"""The comment client against a small GitHub of our own, over real sockets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from ci.github import comment as github
from ci.github.comment import GitHub, GitHubError, post_report
from ci.report import json_report, markdown
from tests.ci.report import samples

SHA = "0123456789abcdef0123456789abcdef01234567"
REPO = "/repos/o/r"
MARKER = markdown.MARKER


class FakeGitHub:
    """Pull requests and comments of one repository; `faults` are answers given before anything is done."""

    def __init__(self, server: HTTPServer) -> None:
        self.pulls: list[dict] = []
        self.by_commit: list[dict] = []
        self.comments: list[dict] = []
        self.faults: list[Response] = []
        self.late_faults: list[Response] = []
        self.calls: list[str] = []
        self.tokens: set[str | None] = set()
        self.server = server
        server.expect_request("/", method="GET").respond_with_data("")
        for method in ("GET", "POST", "PATCH"):
            server.expect_request(re.compile(f"^{REPO}/.*"), method=method).respond_with_handler(self.answer)

    def answer(self, request: Request) -> Response:
        self.calls.append(f"{request.method} {request.path.removeprefix(REPO)}")
        self.tokens.add(request.headers.get("Authorization"))
        if self.faults:
            return self.faults.pop(0)
        status, value = self._act(request)
        if self.late_faults and request.method == "POST":
            return self.late_faults.pop(0)
        return Response(json.dumps(value), status, content_type="application/json")

    def _act(self, request: Request) -> tuple[int, object]:
        page = int(request.args.get("page", 1)) - 1
        path = request.path.removeprefix(REPO)
        if path.startswith("/commits/"):
            return 200, self.by_commit[page * 100 : page * 100 + 100]
        if path == "/pulls":
            return 200, self.pulls[page * 100 : page * 100 + 100]
        if request.method == "GET":
            return 200, self.comments[page * 100 : page * 100 + 100]
        body = json.loads(request.data)["body"]
        if request.method == "POST":
            return 201, self.add(body)
        comment = next(c for c in self.comments if c["id"] == int(path.rpartition("/")[2]))
        comment["body"] = body
        return 200, comment

    def add(self, body: str, author: str = github.BOT) -> dict:
        number = len(self.comments) + 1
        self.comments.append({"id": number, "body": body, "user": {"login": author}, "html_url": f"https://x/{number}"})
        return self.comments[-1]


def pull(number: int, sha: str = SHA, state: str = "open") -> dict:
    return {"number": number, "state": state, "head": {"sha": sha}}


@pytest.fixture
def fake(httpserver: HTTPServer) -> FakeGitHub:
    return FakeGitHub(httpserver)


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def client(fake: FakeGitHub, slept: list[float]) -> GitHub:
    return GitHub("o/r", "secret", api=fake.server.url_for(""), sleep=slept.append, clock=lambda: 1000.0)


# ---- which pull request ----


def test_the_pull_request_of_a_commit(fake: FakeGitHub, client: GitHub) -> None:
    fake.by_commit = [pull(3, state="closed"), pull(5, sha="f" * 40), pull(7)]
    assert client.pull_request(SHA) == 7
    assert fake.tokens == {"Bearer secret"}


def test_a_fork_that_the_list_by_commit_does_not_know(fake: FakeGitHub, client: GitHub) -> None:
    fake.pulls = [pull(number, sha="a" * 40) for number in range(150)] + [pull(999)]
    assert client.pull_request(SHA) == 999


def test_a_commit_that_heads_nothing(fake: FakeGitHub, client: GitHub) -> None:
    fake.pulls = [pull(1, sha="a" * 40)]
    assert client.pull_request(SHA) is None


def test_an_unknown_commit_is_no_error(fake: FakeGitHub, client: GitHub) -> None:
    fake.faults = [Response('{"message": "No commit found"}', 422)]
    assert client.pull_request(SHA) is None


@pytest.mark.parametrize("sha", ["", "HEAD", "0123", SHA.upper(), SHA + "/../x"])
def test_only_full_hashes(client: GitHub, sha: str) -> None:
    with pytest.raises(GitHubError, match="not a full commit hash"):
        client.pull_request(sha)


# ---- the one comment ----


def test_create_then_update_then_leave_alone(fake: FakeGitHub, client: GitHub) -> None:
    assert client.upsert_comment(7, MARKER, f"{MARKER}\none").action == "created"
    assert client.upsert_comment(7, MARKER, f"{MARKER}\ntwo").action == "updated"
    assert client.upsert_comment(7, MARKER, f"{MARKER}\ntwo\n").action == "unchanged"
    assert [comment["body"] for comment in fake.comments] == [f"{MARKER}\ntwo"]


def test_a_strangers_comment_with_our_marker_is_left_alone(fake: FakeGitHub, client: GitHub) -> None:
    fake.add(f"{MARKER}\nmine now", author="mallory")
    fake.add(f"see {MARKER}")
    assert client.upsert_comment(7, MARKER, f"{MARKER}\nreal").action == "created"
    assert [c["body"] for c in fake.comments] == [f"{MARKER}\nmine now", f"see {MARKER}", f"{MARKER}\nreal"]


def test_ours_is_found_on_a_later_page(fake: FakeGitHub, client: GitHub) -> None:
    for number in range(230):
        fake.add(f"comment {number}", author="someone")
    fake.add(f"{MARKER}\nold")
    assert client.upsert_comment(7, MARKER, f"{MARKER}\nnew").action == "updated"
    assert len(fake.comments) == 231


def test_a_body_without_its_marker(client: GitHub) -> None:
    with pytest.raises(GitHubError, match="start with its marker"):
        client.upsert_comment(7, MARKER, "hello")


# ---- faults ----


def test_server_errors_are_waited_out(fake: FakeGitHub, client: GitHub, slept: list[float]) -> None:
    fake.faults = [Response("bad gateway", 502), Response("", 503), Response("", 500)]
    assert client.upsert_comment(7, MARKER, f"{MARKER}\none").action == "created"
    assert slept == [1, 2, 4]


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "Thu, 01 Jan 1970 00:17:10 GMT"}, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1042"}, 42),
    ],
)
@pytest.mark.parametrize("status", [403, 429])
def test_rate_limits_are_waited_out(
    fake: FakeGitHub, client: GitHub, slept: list[float], headers: dict[str, str], wanted: float, status: int
) -> None:
    fake.faults = [Response('{"message": "secondary rate limit"}', status, headers)]
    assert client.upsert_comment(7, MARKER, f"{MARKER}\none").action == "created"
    assert slept == [wanted]


def test_a_pause_that_is_too_long(fake: FakeGitHub, client: GitHub, slept: list[float]) -> None:
    fake.faults = [Response("{}", 403, {"retry-after": "3600"})]
    with pytest.raises(GitHubError, match="pause of 3600 s"):
        client.pull_request(SHA)
    assert slept == []


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "token is wrong"), (403, "pull-requests: write"), (410, "410 Gone")]
)
def test_a_refusal_is_final(fake: FakeGitHub, client: GitHub, slept: list[float], status: int, hint: str) -> None:
    fake.faults = [Response('{"message": "Gone"}', status)]
    with pytest.raises(GitHubError, match=hint):
        client.upsert_comment(7, MARKER, MARKER)
    assert (slept, len(fake.calls)) == ([], 1)


def test_a_comment_whose_answer_was_lost_is_not_written_twice(fake: FakeGitHub, client: GitHub) -> None:
    fake.late_faults = [Response("", 502)]
    assert client.upsert_comment(7, MARKER, f"{MARKER}\none").action == "unchanged"
    assert len(fake.comments) == 1


def test_a_server_that_never_answers_well(fake: FakeGitHub, client: GitHub) -> None:
    fake.faults = [Response("", 500) for _ in range(100)]
    with pytest.raises(GitHubError, match="no success in 5 attempts; last: 500"):
        client.pull_request(SHA)


def test_no_server(slept: list[float]) -> None:
    lonely = GitHub("o/r", "t", api="http://127.0.0.1:9", sleep=slept.append)
    with pytest.raises(GitHubError, match="no success in 5 attempts"):
        lonely.pull_request(SHA)
    assert len(slept) == 4


def test_an_answer_that_is_no_list(fake: FakeGitHub, client: GitHub) -> None:
    fake.faults = [Response('{"surprise": 1}', 200)]
    with pytest.raises(GitHubError, match="a list was expected"):
        client.pull_request(SHA)


@pytest.mark.parametrize(
    ("repository", "token", "message"),
    [("o", "t", "owner/name"), ("o/r/x", "t", "owner/name"), ("o/r", "", "GITHUB_TOKEN")],
)
def test_bad_settings(repository: str, token: str, message: str) -> None:
    with pytest.raises(GitHubError, match=message):
        GitHub(repository, token)


# ---- the whole way ----


def test_post_a_report(fake: FakeGitHub, client: GitHub, tmp_path: Path) -> None:
    fake.by_commit = [pull(7)]
    file = tmp_path / "report.json"
    file.write_text(json_report.dumps(samples.slower()))
    posted = post_report(file, SHA, client, {"run": "https://github.com/o/r/actions/runs/1"})
    assert (posted.action, posted.pull_request) == ("created", 7)
    assert "## ❌ SLOWER" in fake.comments[0]["body"]
    assert "actions/runs/1" in fake.comments[0]["body"]


def test_every_machine_has_its_own_comment(fake: FakeGitHub, client: GitHub, tmp_path: Path) -> None:
    fake.by_commit = [pull(7)]
    file = tmp_path / "report.json"
    file.write_text(json_report.dumps(samples.same()))
    assert [post_report(file, SHA, client, topic=topic).action for topic in ("", "mi300x", "h200", "mi300x")] == [
        "created",
        "created",
        "created",
        "unchanged",
    ]


def test_links_of_a_stranger_are_dropped(fake: FakeGitHub, client: GitHub, tmp_path: Path) -> None:
    fake.by_commit = [pull(7)]
    file = tmp_path / "report.json"
    file.write_text(json_report.dumps(samples.hostile()))
    post_report(file, SHA, client)
    assert "x.example" not in fake.comments[0]["body"]
    assert "<script" not in fake.comments[0]["body"]


def test_a_dry_run_and_a_closed_pull_request_post_nothing(fake: FakeGitHub, client: GitHub, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json_report.dumps(samples.same()))
    assert post_report(file, SHA, client).action == "nothing"
    fake.by_commit = [pull(7)]
    assert post_report(file, SHA, client, dry_run=True) == github.Posted("nothing", 7)
    assert fake.comments == []


def test_a_link_is_refused(client: GitHub, tmp_path: Path) -> None:
    (tmp_path / "report.json").symlink_to("/etc/passwd")
    with pytest.raises(json_report.ReportError, match="is a link"):
        post_report(tmp_path / "report.json", SHA, client)


def test_a_hostile_file_is_refused_before_any_call(fake: FakeGitHub, client: GitHub, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text('{"verdict": "SAME"}')
    with pytest.raises(json_report.ReportError, match="report.json"):
        post_report(file, SHA, client)
    assert fake.calls == []
