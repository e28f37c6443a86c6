"""The one comment on a pull request, against the stand-in; `test_client` has what can go wrong with each call."""

from __future__ import annotations

import pytest
from werkzeug import Response

from ci.github.client import GitHub, GitHubError
from ci.github.comment import pull_requests, write_comment
from ci.report.markdown import MARKER
from tests.standins.github import BOT, StandIn, said

SHA = "0123456789abcdef0123456789abcdef01234567"
ONE, TWO = f"{MARKER}\none", f"{MARKER}\ntwo"


def keep(client: GitHub, body: str = ONE) -> str:
    return write_comment(client, 7, MARKER, body)


@pytest.mark.parametrize("there", [ONE, ONE + "\n", ONE.replace("\n", "\r\n")])
def test_unchanged_is_not_edited(github: StandIn, client: GitHub, there: str) -> None:
    github.comment(7, there)
    assert keep(client) == "unchanged"
    assert (github.told("PATCH"), github.told("POST", "issues")) == ([], [])


@pytest.mark.parametrize(("body", "author"), [(f"{MARKER}\nmine now", "mallory"), (f"see {MARKER}", BOT)])
def test_a_comment_that_is_not_ours_is_left_alone(github: StandIn, client: GitHub, body: str, author: str) -> None:
    github.comment(7, body, author=author)
    assert keep(client) == "created"
    assert github.bodies(7) == [body, ONE]


def test_of_duplicates_the_oldest_stays(github: StandIn, client: GitHub) -> None:
    oldest = github.comment(7, ONE)["id"]
    github.comment(7, "a person", author="someone")
    github.comment(7, ONE)
    github.comment(7, TWO)
    assert keep(client, TWO) == "updated"
    assert github.bodies(7) == [TWO, "a person"]
    assert github.comments[7][0]["id"] == oldest


@pytest.mark.parametrize("author", ["my-ridgeline[bot]", "a-person"])
def test_the_author_is_whoever_the_token_belongs_to(github: StandIn, client: GitHub, author: str) -> None:
    github.comment(7, f"{MARKER}\nof the workflow's own token", author=BOT)
    github.author = author
    assert [keep(client), keep(client, TWO)] == ["created", "updated"]
    assert github.bodies(7) == [f"{MARKER}\nof the workflow's own token", TWO]


@pytest.mark.parametrize("fault", [None, said(404, "Not Found"), Response("", 502)])
def test_a_token_that_cannot_say_whose_it_is_is_the_workflows(github: StandIn, client: GitHub, fault: object) -> None:
    github.identity = False
    github.fault("POST", "graphql", fault, times=99)
    assert [keep(client), keep(client, TWO)] == ["created", "updated"]
    assert github.bodies(7) == [TWO]


def test_every_pull_request_with_this_head(github: StandIn, client: GitHub) -> None:
    github.pull(7, SHA)
    github.pull(9, SHA, fork=True)
    github.pull(11, SHA, state="closed")
    github.pull(13, "f" * 40)
    github.known_to_commit = {7}
    assert pull_requests(client, SHA) == [7, 9]


@pytest.mark.parametrize("status", [401, 403, 422])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_refusal_is_said(github: StandIn, client: GitHub, method: str, status: int) -> None:
    if method == "PATCH":
        github.comment(7, TWO)
    github.fault(method, "comments", said(status, "locked"), times=9)
    with pytest.raises(GitHubError, match=f"{method} .*: {status} locked"):
        keep(client)


@pytest.mark.parametrize("sha", ["", "HEAD", "0123", SHA.upper(), SHA + "/../x", SHA + "\n"])
def test_only_full_hashes(client: GitHub, sha: str) -> None:
    with pytest.raises(GitHubError, match="not a full commit hash"):
        pull_requests(client, sha)
