"""A pull request of ours: one for a branch, brought up to date while it is open."""

from __future__ import annotations

import dataclasses

import pytest
from werkzeug import Response

from ci.github.client import GitHub, GitHubError
from ci.github.orders import Proposal, propose
from tests.standins.github import StandIn

PATH = "kernels/gemm/tuned.toml"
MADE = Proposal("tuned/h200-1", "Tuned tables: 1 moved", "body", {PATH: "new\n"})


@pytest.fixture
def github():
    with StandIn() as made:
        made.refs["main"] = "a" * 40
        made.files["main", PATH] = "old\n"
        yield made


def client(github: StandIn) -> GitHub:
    return GitHub(github.repository, "token", github.url, sleep=lambda _: None)


def test_a_pull_request_has_the_new_tables_and_the_default_branch_stays(github):
    url = propose(client(github), MADE)
    [pull] = github.pulls
    assert url == pull["html_url"]
    assert (pull["head"]["ref"], pull["base"]["ref"], pull["title"]) == (MADE.ref, "main", MADE.title)
    assert github.files[MADE.ref, PATH] == "new\n"
    assert github.files["main", PATH] == "old\n"
    assert github.refs["main"] == "a" * 40
    assert github.unknown == []


def test_the_next_night_brings_the_open_one_up_to_date(github):
    first = propose(client(github), MADE)
    github.refs["main"] = "b" * 40
    assert propose(client(github), dataclasses.replace(MADE, files={PATH: "newer\n"})) == first
    assert len(github.pulls) == 1
    assert github.files[MADE.ref, PATH] == "newer\n"


def test_a_fork_with_a_branch_of_that_name_is_not_ours(github):
    github.pull(7, head="c" * 40, fork=True)["head"]["ref"] = MADE.ref
    propose(client(github), MADE)
    assert [pull["number"] for pull in github.pulls if pull["head"]["ref"] == MADE.ref] != [7]


@pytest.mark.parametrize(("method", "path"), [("PUT", "contents/"), ("POST", "pulls")])
def test_an_answer_that_is_lost_makes_nothing_twice(github, method, path):
    github.fault(method, path, Response("", 502), after=True)
    propose(client(github), MADE)
    assert len(github.pulls) == 1
    assert github.files[MADE.ref, PATH] == "new\n"


def test_where_workflows_may_not_open_one_a_person_finds_the_branch(github):
    refused = Response('{"message": "GitHub Actions is not permitted to create or approve pull requests."}', 403)
    github.fault("POST", "pulls", refused)
    assert propose(client(github), MADE).endswith(f"/compare/main...{MADE.ref}?expand=1")
    assert github.files[MADE.ref, PATH] == "new\n"


@pytest.mark.parametrize("name", ["", "../main", "a b", "-x\n"])
def test_a_name_that_is_no_branch_is_refused(github, name):
    with pytest.raises(GitHubError, match="cannot be the name of a branch"):
        propose(client(github), dataclasses.replace(MADE, branch=name))
    assert github.pulls == []
