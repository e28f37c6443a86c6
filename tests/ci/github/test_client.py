"""Every way a call to GitHub can go wrong, over real sockets, with time that passes only when somebody sleeps."""

from __future__ import annotations

import pytest
from werkzeug import Response

from ci.github.client import PATIENCE_S, GitHub, GitHubError
from tests.standins.github import DROP, HANG, StandIn, said

HTML = Response("<!DOCTYPE html><title>Sign in</title>", 200, content_type="text/html")


# ---- limits ----


@pytest.mark.parametrize("status", [403, 429])
@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"retry_after": "7"}, 7),
        ({"retry_after": "900"}, 900),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": "1042"}, 42),
        ({"x_ratelimit_remaining": "12"}, 60),
        ({"retry_after": "soon"}, 60),
    ],
)
def test_limits_are_waited_out(github, client, clock, headers, wanted, status):
    github.fault("POST", "issues/7/comments", said(status, "You have exceeded a secondary rate limit.", **headers))
    assert client.post("issues/7/comments", {"body": "one"})["body"] == "one"
    assert clock.slept == [wanted]


def test_a_limit_without_a_time_is_waited_for_a_minute_and_then_longer(github, client, clock):
    github.fault("GET", "pulls", said(403, "You have exceeded a secondary rate limit."), times=8)
    assert list(client.items("pulls")) == []
    assert clock.slept == [60] * 6 + [64, 128]


def test_a_limit_that_never_ends(github, client, clock):
    github.fault("GET", "pulls", said(429, "slow down"), times=100)
    with pytest.raises(GitHubError, match="no success in 10 attempts.*; last: 429 .*slow down"):
        list(client.items("pulls"))
    assert sum(clock.slept) <= PATIENCE_S


# ---- faults of the server and of the network ----


@pytest.mark.parametrize("fault", [Response("bad gateway", 502), Response("", 520), Response("", 408), DROP, HANG])
def test_faults_that_pass_are_waited_out(github, client, clock, fault):
    github.pull(7, "a" * 40)
    github.fault("GET", "pulls", fault, times=2)
    assert client.get("pulls/7")["number"] == 7
    assert clock.slept == [1, 2]


def test_a_server_that_is_down_is_asked_for_a_quarter_of_an_hour(github, client, clock):
    github.fault("GET", "pulls", Response("bad gateway", 502), times=1000)
    with pytest.raises(
        GitHubError, match=r"GET /repos/o/r/pulls/7: no success in \d+ attempts, .*; last: 502 bad gateway"
    ):
        client.get("pulls/7")
    assert clock.slept[:7] == [1, 2, 4, 8, 16, 32, 64]
    assert 600 <= sum(clock.slept) <= PATIENCE_S


@pytest.mark.parametrize("fault", [Response("", 502), DROP, HANG])
def test_a_post_whose_answer_was_lost_is_not_repeated_blindly(github, client, fault):
    github.fault("POST", "dispatches", fault, after=True)
    with pytest.raises(GitHubError, match="may have been carried out"):
        client.post("actions/workflows/gpu.yml/dispatches", {"ref": "main"})
    assert len(github.dispatches) == 1


# ---- answers that are not what they should be ----


def test_html_with_200_is_said(github, client, clock):
    github.fault("GET", "pulls", HTML, times=9)
    with pytest.raises(GitHubError, match="the answer is not JSON .*Sign in.*proxy"):
        client.get("pulls/7")
    assert clock.slept == []


@pytest.mark.parametrize(
    ("status", "headers", "hint"),
    [
        (300, {}, "300 .*Gone"),
        (401, {}, "token is wrong"),
        (403, {}, "pull-requests: write"),
        (403, {"x_accepted_github_permissions": "checks=write"}, "checks=write"),
        (404, {}, "does not see"),
        (410, {}, "410 .*Gone"),
        (422, {}, "422 .*Gone"),
    ],
)
def test_a_refusal_is_final(github, client, clock, status, headers, hint):
    github.fault("POST", "comments", said(status, "Gone", **headers))
    with pytest.raises(GitHubError, match=hint):
        client.post("issues/7/comments", {"body": "one"})
    assert (clock.slept, len(github.calls)) == ([], 1)


def test_a_status_that_is_awaited_is_none(github, client):
    assert client.get("pulls/7", none_for=(404,)) is None
    assert list(client.items("commits/zzz/nothing", none_for=(404,))) == []
    client.delete("issues/comments/5")


# ---- pages and redirections ----


def test_a_list_of_many_pages(github, client):
    for number in range(330):
        github.comment(7, str(number))
    assert [comment["body"] for comment in client.items("issues/7/comments")] == [str(n) for n in range(330)]
    assert len(github.calls) == 4


@pytest.mark.parametrize("whole", [True, False])
def test_a_repository_that_was_renamed(github, client, whole):
    """GitHub redirects what changes something with 307, which is repeated verbatim."""
    place = (github.url if whole else "") + "/repos/o/r/issues/8/comments"
    github.fault("POST", "issues/7/", Response("", 307, {"Location": place}))
    client.post("issues/7/comments", {"body": "one"})
    assert github.bodies(8) == ["one"]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_the_token_never_goes_to_another_host(github, client, status):
    with StandIn() as other:
        github.fault("GET", "pulls", Response("", status, {"Location": f"{other.url}/repos/o/r/pulls"}))
        client.get("pulls")
        assert [call.token for call in other.calls] == [""]


def test_a_next_page_on_another_host_is_not_read(github, client):
    with StandIn() as other:
        headers = {"Link": f'<{other.url}/repos/o/r/pulls?page=2>; rel="next"'}
        github.fault("GET", "pulls", Response("[]", 200, headers, content_type="application/json"))
        with pytest.raises(GitHubError, match="not followed"):
            list(client.items("pulls"))
        assert other.calls == []


# ---- who asks ----


@pytest.mark.parametrize(
    ("repository", "token", "message"),
    [
        ("", "t", "GITHUB_REPOSITORY"),
        ("o/r/x", "t", "owner/name"),
        ("o/..", "t", "owner/name"),
        ("o/r", "", "GITHUB_TOKEN"),
    ],
)
def test_bad_settings(repository, token, message):
    with pytest.raises(GitHubError, match=message):
        GitHub(repository, token)


@pytest.mark.parametrize("api", ["http://api.github.com", "ftp://127.0.0.1", "api.github.com", "http://127.0.0.1.x.y"])
def test_the_token_is_not_sent_in_the_clear(api):
    with pytest.raises(GitHubError, match="must be an https address"):
        GitHub("o/r", "t", api)
