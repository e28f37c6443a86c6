"""The one comment on a pull request, against the stand-in; `test_client` has what can go wrong with each call."""

from __future__ import annotations

import pytest
from werkzeug import Response

from ci.github.client import GitHub, GitHubError
from ci.github.comment import ROUNDS, SETTLE_S, Comments, Section, parsed, pull_requests
from ci.report.markdown import MARKER
from tests.standins.github import BOT, DROP, HANG, Clock, StandIn, said

SHA = "0123456789abcdef0123456789abcdef01234567"
ONE, TWO = f"{MARKER}\none", f"{MARKER}\ntwo"
COMMENTS = "issues/7/comments"


def keep(client: GitHub, body: str = ONE) -> str:
    return Comments(client).keep_body(7, MARKER, body)


def test_updated(github: StandIn, client: GitHub) -> None:
    github.comment(7, ONE)
    assert keep(client, TWO) == "updated"
    assert github.bodies(7) == [TWO]


@pytest.mark.parametrize("there", [ONE, ONE + "\n", ONE.replace("\n", "\r\n")])
def test_unchanged_is_not_edited(github: StandIn, client: GitHub, clock: Clock, there: str) -> None:
    github.comment(7, there)
    assert keep(client) == "unchanged"
    assert (github.told("PATCH"), github.told("POST", "issues"), clock.slept) == ([], [], [])


@pytest.mark.parametrize(("body", "author"), [(f"{MARKER}\nmine now", "mallory"), (f"see {MARKER}", BOT)])
def test_a_comment_that_is_not_ours_is_left_alone(github: StandIn, client: GitHub, body: str, author: str) -> None:
    github.comment(7, body, author=author)
    assert keep(client) == "created"
    assert github.bodies(7) == [body, ONE]


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("fault", [Response("", 502), DROP, HANG])
def test_a_fault_makes_one_comment(github: StandIn, client: GitHub, fault: object, after: bool) -> None:
    github.fault("POST", COMMENTS, fault, after=after)
    assert keep(client) == "created"
    assert github.bodies(7) == [ONE]
    assert len(github.told("POST", COMMENTS)) == 2 - after


def test_deleted_between_reading_and_writing(github: StandIn, client: GitHub) -> None:
    github.comment(7, ONE)
    github.fault("PATCH", "comments", None, meanwhile=github.comments[7].clear)
    assert keep(client, TWO) == "created"
    assert github.bodies(7) == [TWO]


def test_of_duplicates_the_oldest_stays(github: StandIn, client: GitHub) -> None:
    oldest = github.comment(7, ONE)["id"]
    github.comment(7, "a person", author="someone")
    github.comment(7, ONE)
    github.comment(7, TWO)
    assert keep(client, TWO) == "updated"
    assert github.bodies(7) == [TWO, "a person"]
    assert github.comments[7][0]["id"] == oldest


def test_two_writers_create_at_once(github: StandIn, client: GitHub) -> None:
    """The other creates its comment after we looked and before we create ours; then it updates the oldest, as we do."""
    github.fault("POST", COMMENTS, None, meanwhile=lambda: write(other(github), "mi325x"))
    write(client, "mi300x")
    (body,) = github.bodies(7)
    assert {topic: section.text for topic, section in parsed(body).items()} == {
        "mi300x": "of mi300x",
        "mi325x": "of mi325x",
    }


@pytest.mark.parametrize("author", ["my-ridgeline[bot]", "a-person"])
def test_the_author_is_whoever_the_token_belongs_to(github: StandIn, client: GitHub, author: str) -> None:
    github.comment(7, f"{MARKER}\nof the workflow's own token", author=BOT)
    github.author = author
    assert [keep(client), keep(client, TWO)] == ["created", "updated"]
    assert github.bodies(7) == [f"{MARKER}\nof the workflow's own token", TWO]


@pytest.mark.parametrize("author", [BOT, "my-ridgeline[bot]"])
@pytest.mark.parametrize("fault", [None, Response("", 502), said(404, "Not Found"), DROP])
def test_a_token_that_cannot_say_whose_it_is(
    github: StandIn, client: GitHub, clock: Clock, author: str, fault: object
) -> None:
    github.identity, github.author = False, author
    github.fault("POST", "graphql", fault, times=99)
    for body in (ONE, TWO, TWO):
        keep(client, body)
        assert github.bodies(7) == [body]
    assert set(clock.slept) == {SETTLE_S}


def test_every_pull_request_with_this_head(github: StandIn, client: GitHub) -> None:
    github.pull(7, SHA)
    github.pull(9, SHA, fork=True)
    github.pull(11, SHA, state="closed")
    github.pull(13, "f" * 40)
    github.known_to_commit = {7}
    assert pull_requests(client, SHA) == [7, 9]


def other(github: StandIn) -> GitHub:
    """Another job with the same token, on another machine."""
    clock = Clock()
    return GitHub(github.repository, "secret", github.url, clock.sleep, clock.now)


def write(client: GitHub, topic: str) -> str:
    return Comments(client).keep_section(7, MARKER, Section(topic, SHA, f"of {topic}"))


# ---- around them ----


def test_a_writer_that_never_rests_is_said(github: StandIn, client: GitHub) -> None:
    def overwrite() -> None:
        for comment in github.comments.get(7, []):
            comment["body"] = f"{MARKER}\nof another"

    github.fault("GET", COMMENTS, None, times=99, meanwhile=overwrite)
    with pytest.raises(GitHubError, match=f"did not settle in {ROUNDS} rounds"):
        keep(client)


def test_what_was_just_written_may_not_be_listed_yet(github: StandIn, client: GitHub) -> None:
    github.fault("GET", COMMENTS, None)
    github.fault("GET", COMMENTS, Response("[]", 200, content_type="application/json"), times=3)
    assert keep(client) == "created"
    assert github.bodies(7) == [ONE]


def test_a_body_without_its_marker(client: GitHub) -> None:
    with pytest.raises(GitHubError, match="start with its marker"):
        keep(client, "hello")


@pytest.mark.parametrize("status", [401, 403, 422])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_refusal_is_said(github: StandIn, client: GitHub, method: str, status: int) -> None:
    if method == "PATCH":
        github.comment(7, TWO)
    github.fault(method, "comments", said(status, "locked"), times=9)
    with pytest.raises(GitHubError, match=f"{method} .*: {status} locked"):
        keep(client)


def test_a_commit_that_heads_nothing(github: StandIn, client: GitHub) -> None:
    github.pull(1, "a" * 40)
    github.fault("GET", "commits/", said(422, "No commit found for SHA"))
    assert pull_requests(client, SHA) == []


@pytest.mark.parametrize("sha", ["", "HEAD", "0123", SHA.upper(), SHA + "/../x", SHA + "\n"])
def test_only_full_hashes(client: GitHub, sha: str) -> None:
    with pytest.raises(GitHubError, match="not a full commit hash"):
        pull_requests(client, sha)
