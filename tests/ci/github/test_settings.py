"""`ridgeline doctor --github`: each setting open and closed, and a token that may not read it."""

from __future__ import annotations

import copy
import json

import pytest
from click.testing import CliRunner, Result

from ci.__main__ import main
from ci.github.client import GitHub, GitHubError
from ci.github.settings import findings, read_settings
from tests.standins.github import StandIn, said

GROUP = {
    "id": 3,
    "name": "gpus",
    "visibility": "selected",
    "allows_public_repositories": True,
    "restricted_to_workflows": True,
    "selected_workflows": ["o/r/.github/workflows/gpu.yml@refs/heads/main"],
}
REVIEWED = [{"type": "required_reviewers", "reviewers": [{"type": "User"}]}]
CLOSED = {
    "actions/permissions": {"enabled": True, "allowed_actions": "selected", "sha_pinning_required": True},
    "actions/permissions/selected-actions": {"github_owned_allowed": True, "patterns_allowed": ["o/*"]},
    "actions/permissions/workflow": {"default_workflow_permissions": "read", "can_approve_pull_request_reviews": False},
    "actions/permissions/fork-pr-contributor-approval": {"approval_policy": "all_external_contributors"},
    "branches/main/protection": {
        "required_pull_request_reviews": {"required_approving_review_count": 1},
        "allow_force_pushes": {"enabled": False},
        "allow_deletions": {"enabled": False},
    },
    "rules/branches/main": [],
    "environments": {
        "total_count": 1,
        "environments": [
            {
                "name": "gpu",
                "deployment_branch_policy": {"protected_branches": False, "custom_branch_policies": True},
                "protection_rules": REVIEWED,
            }
        ],
    },
}
NAMES = [
    "runner groups: gpus",
    "standing runners",
    "workflows of forks",
    "workflow token",
    "approval by workflows",
    "allowed actions",
    "pinned actions",
    "branch main",
    "environment gpu: branches",
    "environment gpu: reviewers",
]


@pytest.fixture
def closed(github: StandIn) -> StandIn:
    """A repository whose settings are all as they should be."""
    github.settings = copy.deepcopy(CLOSED)
    github.groups = [dict(GROUP)]
    github.runners = [{"id": 1, "name": "jit-1", "ephemeral": True}]
    return github


def states(client: GitHub) -> dict[str, str]:
    return {one.name: one.state for one in findings(read_settings(client))}


def test_everything_closed(closed: StandIn, client: GitHub) -> None:
    assert states(client) == dict.fromkeys(NAMES, "closed")
    assert closed.unknown == []


@pytest.mark.parametrize(
    ("name", "path", "change", "told"),
    [
        ("allowed actions", "actions/permissions", {"allowed_actions": "all"}, "actions of anybody"),
        ("allowed actions", "actions/permissions/selected-actions", {"patterns_allowed": ["*"]}, "the pattern *"),
        ("pinned actions", "actions/permissions", {"sha_pinning_required": False}, "by a tag"),
        ("workflow token", "actions/permissions/workflow", {"default_workflow_permissions": "write"}, "can write"),
        (
            "approval by workflows",
            "actions/permissions/workflow",
            {"can_approve_pull_request_reviews": True},
            "approve",
        ),
        (
            "workflows of forks",
            "actions/permissions/fork-pr-contributor-approval",
            {"approval_policy": "first_time_contributors"},
            "only first_time_contributors wait",
        ),
        ("branch main", "branches/main/protection", {"required_pull_request_reviews": None}, "needs no review"),
        ("branch main", "branches/main/protection", {"allow_force_pushes": {"enabled": True}}, "can be rewritten"),
        ("branch main", "branches/main/protection", {"allow_deletions": {"enabled": True}}, "can be deleted"),
        (
            "environment gpu: reviewers",
            "environments",
            {"environments": [{"name": "gpu", "deployment_branch_policy": {"protected_branches": True}}]},
            "nobody has to approve",
        ),
        (
            "environment gpu: branches",
            "environments",
            {"environments": [{"name": "gpu", "protection_rules": REVIEWED}]},
            "a workflow on any branch",
        ),
    ],
)
def test_each_setting_open(
    closed: StandIn, client: GitHub, name: str, path: str, change: dict[str, object], told: str
) -> None:
    closed.settings[path] |= change
    found = [one for one in findings(read_settings(client)) if one.state != "closed"]
    assert [(one.name, one.state) for one in found] == [(name, "open")]
    assert told in found[0].said
    assert found[0].close.startswith(("gh api --method PUT repos/o/r/", "https://github.com/o/r/settings/"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"restricted_to_workflows": False}, "any workflow may use its runners"),
        ({"selected_workflows": ["o/r/.github/workflows/gpu.yml"]}, "name no branch, tag or commit"),
        ({"selected_workflows": ["o/r/.github/workflows/gpu.yml@refs/heads/*"]}, "name no branch, tag or commit"),
        ({"visibility": "all"}, "every repository of the organisation"),
    ],
)
def test_a_runner_group_that_a_fork_reaches(closed: StandIn, client: GitHub, change: dict, told: str) -> None:
    closed.groups = [{**GROUP, **change}]
    first = findings(read_settings(client))[0]
    assert (first.name, first.state, first.level) == ("runner groups: gpus", "open", "high")
    assert told in first.said
    assert first.close == "https://github.com/organizations/o/settings/actions/runner-groups/3"


def test_a_group_that_admits_no_public_repository(closed: StandIn, client: GitHub) -> None:
    closed.groups = [{**GROUP, "allows_public_repositories": False, "restricted_to_workflows": False}]
    assert states(client)["runner groups: gpus"] == "closed"
    closed.public = False
    closed.settings["actions/permissions/fork-pr-workflows-private-repos"] = {"send_write_tokens_to_workflows": False}
    assert states(client)["runner groups: gpus"] == "open"


@pytest.mark.parametrize("key", ["send_write_tokens_to_workflows", "send_secrets_and_variables"])
def test_what_forks_of_a_private_repository_get(closed: StandIn, client: GitHub, key: str) -> None:
    closed.public = False
    closed.settings["actions/permissions/fork-pr-workflows-private-repos"] = {key: True}
    assert states(client)["workflows of forks"] == "open"


def test_no_environment(closed: StandIn, client: GitHub) -> None:
    closed.settings["environments"]["environments"] = [{"name": "github-pages"}]
    found = [one for one in findings(read_settings(client)) if one.state == "open"]
    assert [one.said for one in found] == ["there is no such environment: make it"] * 2


def test_runners_of_which_github_does_not_say_whether_they_stay(closed: StandIn, client: GitHub) -> None:
    closed.runners.append({"id": 2, "name": "old"})
    assert states(client)["standing runners"] == "unread"


def test_runners_that_stay(closed: StandIn, client: GitHub) -> None:
    closed.runners.append({"id": 2, "name": "old\x1b[31m", "ephemeral": False})
    first = findings(read_settings(client))[0]
    assert (first.name, first.state) == ("standing runners", "open")
    assert "2 of 4 runners stay" in first.said, "the repository's and the organisation's"


def test_a_repository_of_a_person_has_no_groups(closed: StandIn, client: GitHub) -> None:
    closed.owner_type = "User"
    assert states(client)["runner groups"] == "closed"
    assert closed.told("GET", "^orgs/") == []


def test_a_branch_that_rulesets_protect(closed: StandIn, client: GitHub) -> None:
    del closed.settings["branches/main/protection"]
    assert states(client)["branch main"] == "open"
    review = {"type": "pull_request", "parameters": {"required_approving_review_count": 1}}
    closed.settings["rules/branches/main"] = [review, {"type": "non_fast_forward"}, {"type": "deletion"}]
    assert states(client)["branch main"] == "closed"


# ---- a token that may not ---


@pytest.fixture
def reader(closed: StandIn, clock) -> GitHub:
    return GitHub("o/r", "a-reader", closed.url, clock.sleep, clock.now)


def test_a_token_without_the_rights_says_what_it_could_not_read(closed: StandIn, reader: GitHub) -> None:
    found = {one.name: one for one in findings(read_settings(reader))}
    assert {name for name, one in found.items() if one.state == "closed"} == set(NAMES[-2:])
    unread = {
        "runner groups",
        "standing runners",
        "workflows of forks",
        "workflow token",
        "allowed actions",
        "branch main",
    }
    assert {name for name, one in found.items() if one.state == "unread"} == unread
    assert "403 Resource not accessible" in found["workflow token"].said
    assert found["workflow token"].close == "look at https://github.com/o/r/settings/actions"


def test_rules_that_anybody_can_read_may_be_enough(closed: StandIn, reader: GitHub) -> None:
    review = {"type": "pull_request", "parameters": {"required_approving_review_count": 2}}
    closed.settings["rules/branches/main"] = [review, {"type": "non_fast_forward"}, {"type": "deletion"}]
    assert states(reader)["branch main"] == "closed"


def test_a_repository_that_cannot_be_read(closed: StandIn, client: GitHub) -> None:
    closed.fault("GET", "^$", said(404, "Not Found"))
    with pytest.raises(GitHubError, match="does not see this repository"):
        read_settings(client)


# ---- the verb ----


@pytest.fixture
def doctor(closed: StandIn, environ: None, monkeypatch: pytest.MonkeyPatch):
    def run(token: str = "secret", *options: str) -> Result:
        monkeypatch.setenv("GITHUB_TOKEN", token)
        return CliRunner().invoke(main, ["doctor", "--github", *options])

    return run


def test_exit_codes_and_words(closed: StandIn, doctor) -> None:
    shown = doctor()
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (0, "0 open, 0 unread, 10 closed")
    assert doctor("a-reader").exit_code == 3
    closed.runners.append({"id": 2, "name": "old\x1b[31m", "ephemeral": False})
    shown = doctor()
    assert shown.exit_code == 1
    assert shown.stdout.splitlines()[0].startswith("open (high): standing runners: 2 of 4 runners stay")
    assert "\x1b" not in shown.stdout


def test_json(doctor) -> None:
    document = json.loads(doctor("secret", "--json").stdout)
    assert document["repository"] == "o/r"
    assert {one["name"]: one["state"] for one in document["settings"]} == dict.fromkeys(NAMES, "closed")
    assert set(document["settings"][0]) == {"name", "state", "level", "said", "close"}
