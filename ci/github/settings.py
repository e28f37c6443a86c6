"""What the settings of a repository on GitHub leave open to strangers: asked, and judged."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import click

from ci.bars import bar
from ci.github.client import GitHub, GitHubError, of_environment
from ci.options import PASS, REGRESSION, USAGE, err_console, print_json
from ci.report.words import plain

# The settings of a repository that decide what a stranger's pull request can reach, asked of GitHub's API.
#
# Nothing is guessed of a setting that the token may not read.


@dataclasses.dataclass(frozen=True)
class RepositorySettings:
    """Answers of the API by name, without those that could not be read; of these `unread` has the reason.

    groups: runner groups of the organisation that this repository may use; () for a person's repository.
    protection: of the default branch, {} where it has none.  rules: of the rulesets that apply to it.
    """

    repository: str
    public: bool
    organisation: str
    answers: Mapping[str, Any]
    unread: Mapping[str, str]

    def put(self, path: str, fields: str) -> str:
        """The command that changes a setting."""
        return f"gh api --method PUT repos/{self.repository}/{path} {fields}"


def read_settings(github: GitHub) -> RepositorySettings:
    """Ask for every setting.  Raises GitHubError if the repository itself cannot be read."""
    about = github.get(f"/repos/{github.repository}")
    owner, branch, private = about["owner"], str(about["default_branch"]), bool(about.get("private", False))
    organisation = str(owner["login"]) if owner.get("type") == "Organization" else ""
    of_group = f"/orgs/{organisation}/{GROUPS}?visible_to_repository={github.repository.partition('/')[2]}"
    runners = ["actions/runners", *([f"/orgs/{organisation}/actions/runners"] if organisation else [])]
    forks = "fork-pr-workflows-private-repos" if private else "fork-pr-contributor-approval"
    questions: Mapping[str, Callable[[], Any]] = {
        "groups": lambda: tuple(github.items(of_group, "runner_groups")) if organisation else (),
        "runners": lambda: tuple(one for path in runners for one in github.items(path, "runners")),
        "forks": lambda: github.get(f"actions/permissions/{forks}"),
        "token": lambda: github.get("actions/permissions/workflow"),
        "actions": lambda: github.get("actions/permissions"),
        "selected": lambda: github.get("actions/permissions/selected-actions", none_for=(404, 409)) or {},
        "protection": lambda: github.get(f"branches/{branch}/protection", none_for=(404,)) or {},
        "rules": lambda: tuple(github.items(f"rules/branches/{branch}")),
        "environments": lambda: tuple(github.items("environments", "environments")),
    }
    answers: dict[str, Any] = {"branch": branch}
    unread: dict[str, str] = {}
    for name, question in questions.items():
        try:
            answer = question()
        except GitHubError as error:
            if error.status not in (403, 404, 409):
                raise
            unread[name] = str(error)
            continue
        if answer is None:
            unread[name] = "it was not answered"
        else:
            answers[name] = answer
    return RepositorySettings(github.repository, not private, organisation, answers, unread)


# What the settings of a repository leave open to a stranger, how bad that is, and what closes it.  Pure functions.
#
# Sources: docs.github.com, "Secure use reference", "Managing access to self-hosted runners using groups", "Approving
# workflow runs from forks", "Managing GitHub Actions settings for a repository" (read 2026-11-22).


ENVIRONMENT = "gpu"
"""The environment of jobs that run a pull request's code on a GPU (.github/workflows/gpu.yml)."""

BRANCH = {"review": "a change needs no review", "force": "history can be rewritten", "deletion": "it can be deleted"}
"""What the default branch is to be held from, and what is said where it is not."""

Level = Literal["high", "medium", "low"]


@dataclasses.dataclass(frozen=True)
class SettingFinding:
    """One setting.  state: "closed", "open" or "unread".  level: how bad it is if it is open.

    close: the page or the command that closes it.
    """

    name: str
    state: Literal["closed", "open", "unread"]
    level: Level
    said: str
    close: str = ""


ORDER = ("open", "unread", "closed")
LEVELS: tuple[Level, ...] = ("high", "medium", "low")


def findings(settings: RepositorySettings, server: str = "https://github.com") -> list[SettingFinding]:
    """Everything that was asked for, what is open first, the worst first.  server: where the pages are."""
    found: list[SettingFinding] = []
    for name, (title, level, path, judge) in LOOKS.items():
        owner = f"organizations/{settings.organisation}" if path == GROUPS else settings.repository
        page = f"{server.rstrip('/')}/{owner}/settings/{path}"
        if name in settings.answers:
            found += judge(settings, settings.answers[name], page)
        else:
            found.append(_unread(settings, name, title, level, f"look at {page}"))
    return sorted(found, key=lambda one: (ORDER.index(one.state), LEVELS.index(one.level)))


def _unread(settings: RepositorySettings, name: str, title: str, level: Level, close: str) -> SettingFinding:
    return SettingFinding(title, "unread", level, f"could not be read: {settings.unread[name]}", close)


def _judged(name: str, level: Level, problems: list[str], good: str, close: str) -> SettingFinding:
    if problems:
        return SettingFinding(name, "open", level, "; ".join(problems), close)
    return SettingFinding(name, "closed", level, good)


def runner_groups(settings: RepositorySettings, groups: Any, pages: str) -> Iterator[SettingFinding]:
    """A fork names `runs-on: [our labels]` in a workflow of its own: a group must admit ours alone, at a ref."""
    for group in groups:
        problems, restricted = list[str](), group.get("restricted_to_workflows")
        if group.get("allows_public_repositories", False) or not settings.public:
            if not restricted:
                problems.append(
                    "any workflow may use its runners, also one that a fork brings: select workflows at a ref"
                )
            at_a_ref = re.compile(r"@(refs/(heads|tags)/[^*]+|[0-9a-f]{40})$")
            loose = [text for text in group.get("selected_workflows") or () if not at_a_ref.search(str(text))]
            if restricted and loose:
                named = f"{len(loose)} selected workflows name no branch, tag or commit"
                problems.append(f"{named}: write FILE@refs/heads/BRANCH")
            if group.get("visibility") == "all":
                problems.append("every repository of the organisation may use it: select repositories")
        good = "admits named workflows at a ref only" if restricted else "not for this one"
        yield _judged(f"runner groups: {group.get('name')}", "high", problems, good, f"{pages}/{group.get('id')}")
    if not groups:
        yield SettingFinding("runner groups", "closed", "high", "no group of an organisation admits this repository")


def standing_runners(settings: RepositorySettings, runners: Any, page: str) -> Iterator[SettingFinding]:
    """A runner that stays keeps what a stranger's job left on it."""
    name, level = "standing runners", LEVELS[not settings.public]
    standing = [str(runner.get("name")) for runner in runners if runner.get("ephemeral") is False]
    unsaid = sum("ephemeral" not in runner for runner in runners)
    if unsaid and not standing:
        said = f"GitHub does not say whether {unsaid} of {len(runners)} runners stay after their job"
        yield SettingFinding(name, "unread", level, said, f"look at {page}")
        return
    listed = ", ".join(standing[:5]) + (", ..." if len(standing) > 5 else "")
    problem = f"{len(standing)} of {len(runners)} runners stay after their job ({listed}): use just-in-time runners"
    good = f"{len(runners)} runners, each for one job"
    yield _judged(name, level, [problem] if standing else [], good, f"`ridgeline ci runner`; {page}")


def allowed_actions(settings: RepositorySettings, actions: Any, page: str) -> Iterator[SettingFinding]:
    """Which actions may run, and whether they must be pinned."""
    problems = ["actions of anybody may run: allow selected ones"] if actions.get("allowed_actions") == "all" else []
    if {"*", "*/*"} & set(settings.answers.get("selected", {}).get("patterns_allowed") or ()):
        problems.append("the pattern * allows actions of anybody")
    close = settings.put("actions/permissions", "-F enabled=true -f allowed_actions=selected")
    yield _judged("allowed actions", "medium", problems, "selected actions only", close)
    tag = "an action may be named by a tag, which can be moved: require full commit hashes"
    close = settings.put("actions/permissions", "-F enabled=true -F sha_pinning_required=true")
    loose = [] if actions.get("sha_pinning_required") else [tag]
    yield _judged("pinned actions", "medium", loose, "actions are named by full commit hashes", f"{close}; {page}")


def workflow_token(settings: RepositorySettings, token: Any, page: str) -> Iterator[SettingFinding]:
    """What a job may do that asks for nothing."""
    write = token.get("default_workflow_permissions") != "read"
    close = settings.put("actions/permissions/workflow", "-f default_workflow_permissions=read")
    problems = ["jobs get a token that can write unless they say otherwise"] if write else []
    yield _judged("workflow token", "high", problems, "reads only unless a job asks for more", close)
    approves = token.get("can_approve_pull_request_reviews", True)
    problems = ["a workflow may approve pull requests: a review by a person means nothing then"] if approves else []
    close = settings.put("actions/permissions/workflow", "-F can_approve_pull_request_reviews=false")
    yield _judged("approval by workflows", "medium", problems, "workflows cannot approve pull requests", close)


def fork_approval(settings: RepositorySettings, forks: Any, page: str) -> Iterator[SettingFinding]:
    """Whose pull request starts workflows without anybody having looked."""
    name = "workflows of forks"
    if settings.public:
        policy, want = forks.get("approval_policy"), "all_external_contributors"
        problems = [] if policy == want else [f"only {policy} wait for approval: want all"]
        close = settings.put("actions/permissions/fork-pr-contributor-approval", f"-f approval_policy={want}")
        yield _judged(name, "high", problems, "every external contributor waits for approval", close)
    else:
        keys = ("send_write_tokens_to_workflows", "send_secrets_and_variables")
        problems = [f"{key.replace('_', ' ')} of forks" for key in keys if forks.get(key)]
        yield _judged(name, "high", problems, "forks get neither write tokens nor secrets", page)


def default_branch(settings: RepositorySettings, branch: str, page: str) -> Iterator[SettingFinding]:
    """The branch whose code judges, posts and is trusted."""
    name, missing = f"branch {branch}", [key for key in ("rules", "protection") if key not in settings.answers]
    if len(missing) == 2:
        yield _unread(settings, "rules", name, "high", f"look at {page}")
        return
    held = _held(settings.answers.get("rules", ()), settings.answers.get("protection", {}))
    problems = [said for key, said in BRANCH.items() if key not in held]
    if problems and missing:
        seen = f"{'; '.join(problems)}, as far as can be seen: its {missing[0]}"
        said = f"{seen} could not be read: {settings.unread[missing[0]]}"
        yield SettingFinding(name, "unread", "high", said, page)
        return
    yield _judged(name, "high", problems, "reviews are required, history stays", page)


def _held(rules: tuple[Any, ...], classic: Any) -> set[str]:
    """What protects the branch, by rulesets or by the older protection."""
    held = {{"non_fast_forward": "force", "deletion": "deletion"}.get(str(rule.get("type")), "") for rule in rules}
    counts = [(rule.get("parameters") or {}).get("required_approving_review_count") for rule in rules]
    counts.append((classic.get("required_pull_request_reviews") or {}).get("required_approving_review_count"))
    if any(isinstance(count, int) and count >= 1 for count in counts):
        held.add("review")
    if classic:
        names = {"force": "allow_force_pushes", "deletion": "allow_deletions"}
        held |= {key for key, name in names.items() if not (classic.get(name) or {}).get("enabled")}
    return held


def environment(settings: RepositorySettings, environments: Any, page: str) -> Iterator[SettingFinding]:
    """Jobs that run a pull request's code on a GPU: from which branches, and whether a person sees the commit first."""
    name = f"environment {ENVIRONMENT}"
    ours = next((one for one in environments if one.get("name") == ENVIRONMENT), None) or {}
    missing = [] if ours else ["there is no such environment: make it"]
    loose = [] if ours.get("deployment_branch_policy") else ["a workflow on any branch may use it: name the branches"]
    yield _judged(f"{name}: branches", "medium", missing or loose, "named branches only", page)
    rules = ours.get("protection_rules") or ()
    reviewed = any(rule.get("type") == "required_reviewers" and rule.get("reviewers") for rule in rules)
    alone = [] if reviewed else ["nobody has to approve its jobs: name required reviewers"]
    yield _judged(f"{name}: reviewers", "low", missing or alone, "required reviewers approve its jobs", page)


GROUPS = "actions/runner-groups"
Judge = Callable[[RepositorySettings, Any, str], Iterator[SettingFinding]]

LOOKS: dict[str, tuple[str, Level, str, Judge]] = {
    "groups": ("runner groups", "high", GROUPS, runner_groups),
    "runners": ("standing runners", "high", "actions/runners", standing_runners),
    "forks": ("workflows of forks", "high", "actions", fork_approval),
    "token": ("workflow token", "high", "actions", workflow_token),
    "actions": ("allowed actions", "medium", "actions", allowed_actions),
    "branch": ("", "high", "rules", default_branch),
    "environments": (f"environment {ENVIRONMENT}", "medium", "environments", environment),
}
"""By the field of the settings: what a finding is called that it could not be read, how bad that is, its page."""


# `ridgeline doctor --github`: what the repository's settings leave open, told and as an exit code.


def examine(as_json: bool) -> int:
    """Ask, tell, and answer: 0 if everything is closed, 1 if something is open, 3 if only something is unread."""
    github = of_environment()
    with bar(err_console(), "asking GitHub"):
        found = findings(read_settings(github), os.environ.get("GITHUB_SERVER_URL") or "https://github.com")
    if as_json:
        document = {"repository": github.repository, "settings": [dataclasses.asdict(one) for one in found]}
        print_json(document)
    else:
        for line in _lines(found):
            click.echo(line)
    return _code(found)


def _code(found: Sequence[SettingFinding]) -> int:
    states = {one.state for one in found}
    return REGRESSION if "open" in states else USAGE if "unread" in states else PASS


def _lines(found: Sequence[SettingFinding]) -> list[str]:
    lines = []
    for one in found:
        how_bad = "" if one.state == "closed" else f" ({one.level})"
        lines.append(f"{one.state}{how_bad}: {plain(one.name)}: {plain(one.said, 500)}")
        lines += [f"    {plain(one.close, 300)}"] if one.close and one.state != "closed" else []
    counts = {state: sum(one.state == state for one in found) for state in ("open", "unread", "closed")}
    return [*lines, ", ".join(f"{number} {state}" for state, number in counts.items())]
