"""What the settings of a repository on GitHub leave open to strangers: asked, and judged."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Literal

import click

from ci.bars import bar
from ci.github.client import GitHub, GitHubError, of_environment
from ci.options import PASS, REGRESSION, USAGE, err_console, print_json
from ci.report.words import plain

# The settings of a repository that decide what a stranger's pull request can reach, asked of GitHub's API.
#
# A setting that the token may not read is None in its place, with the reason in `unread`; nothing is guessed.


@dataclasses.dataclass(frozen=True)
class RepositorySettings:
    """Answers of the API, None for what could not be read.

    groups: runner groups of the organisation that this repository may use; () for a person's repository.
    protection: of the default branch, {} where it has none.  rules: of the rulesets that apply to it.
    unread: the name of a field -> why it could not be read.
    """

    repository: str
    branch: str
    public: bool
    organisation: str
    groups: tuple[Any, ...] | None = ()
    runners: tuple[Any, ...] | None = ()
    actions: Any = None
    selected: Any = None
    token: Any = None
    forks: Any = None
    protection: Any = None
    rules: tuple[Any, ...] | None = None
    environments: tuple[Any, ...] | None = None
    unread: dict[str, str] = dataclasses.field(default_factory=dict)


def read_settings(github: GitHub) -> RepositorySettings:
    """Ask for every setting.  Raises GitHubError if the repository itself cannot be read."""
    about, unread = github.get(f"/repos/{github.repository}"), dict[str, str]()
    owner, branch, private = about["owner"], str(about["default_branch"]), bool(about.get("private", False))
    organisation = str(owner["login"]) if owner.get("type") == "Organization" else ""

    def ask(name: str, question: Callable[[], Any], nothing: Collection[int] = ()) -> Any:
        """The answer, None where the token may not ask.  nothing: statuses that mean that there is nothing."""
        try:
            return question()
        except GitHubError as error:
            if error.status in nothing:
                return {}
            if error.status not in (403, 404, 409):
                raise
            unread[name] = str(error)
            return None

    def one(name: str, path: str, *nothing: int) -> Any:
        return ask(name, lambda: github.get(path), nothing)

    def every(name: str, path: str, key: str = "") -> Any:
        return ask(name, lambda: tuple(github.items(path, key)))

    of_group = f"actions/runner-groups?visible_to_repository={github.repository.partition('/')[2]}"
    runners = every("runners", "actions/runners", "runners")
    if organisation and runners is not None:
        shared = every("runners", f"/orgs/{organisation}/actions/runners", "runners")
        runners = None if shared is None else (*runners, *shared)
    forks = "fork-pr-workflows-private-repos" if private else "fork-pr-contributor-approval"
    return RepositorySettings(
        github.repository,
        branch,
        not private,
        organisation,
        groups=every("groups", f"/orgs/{organisation}/{of_group}", "runner_groups") if organisation else (),
        runners=runners,
        actions=one("actions", "actions/permissions"),
        selected=one("selected", "actions/permissions/selected-actions", 404, 409),
        token=one("token", "actions/permissions/workflow"),
        forks=one("forks", f"actions/permissions/{forks}"),
        protection=one("protection", f"branches/{branch}/protection", 404),
        rules=every("rules", f"rules/branches/{branch}"),
        environments=every("environments", "environments", "environments"),
        unread=unread,
    )


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
    look = _Look(settings, server.rstrip("/"))
    found: list[SettingFinding] = []
    for field, (name, level, path, judge) in LOOKS.items():
        answer, page = getattr(settings, field), look.page(path)
        found += [look.unread(field, name, level, page)] if answer is None else judge(look, answer, page)
    return sorted(found, key=lambda one: (ORDER.index(one.state), LEVELS.index(one.level)))


@dataclasses.dataclass(frozen=True)
class _Look:
    """The settings, and how their pages are called."""

    settings: RepositorySettings
    server: str

    def page(self, path: str) -> str:
        if path == GROUPS:
            return f"{self.server}/organizations/{self.settings.organisation}/settings/{path}"
        return f"{self.server}/{self.settings.repository}/settings/{path}"

    def gh(self, method: str, path: str, fields: str) -> str:
        return f"gh api --method {method} repos/{self.settings.repository}/{path} {fields}"

    def unread(self, field: str, name: str, level: Level, page: str) -> SettingFinding:
        why = self.settings.unread.get(field, "it was not answered")
        return SettingFinding(name, "unread", level, f"could not be read: {why}", f"look at {page}")


def _judged(name: str, level: Level, problems: list[str], good: str, close: str) -> SettingFinding:
    if problems:
        return SettingFinding(name, "open", level, "; ".join(problems), close)
    return SettingFinding(name, "closed", level, good)


def runner_groups(look: _Look, groups: Any, pages: str) -> Iterator[SettingFinding]:
    """A fork names `runs-on: [our labels]` in a workflow of its own: a group must admit ours alone, at a ref."""
    for group in groups:
        problems, restricted = list[str](), group.get("restricted_to_workflows")
        if group.get("allows_public_repositories", False) or not look.settings.public:
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


def standing_runners(look: _Look, runners: Any, page: str) -> Iterator[SettingFinding]:
    """A runner that stays keeps what a stranger's job left on it."""
    name, level = "standing runners", LEVELS[not look.settings.public]
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


def allowed_actions(look: _Look, actions: Any, page: str) -> Iterator[SettingFinding]:
    """Which actions may run, and whether they must be pinned."""
    problems = ["actions of anybody may run: allow selected ones"] if actions.get("allowed_actions") == "all" else []
    if {"*", "*/*"} & set((look.settings.selected or {}).get("patterns_allowed") or ()):
        problems.append("the pattern * allows actions of anybody")
    close = look.gh("PUT", "actions/permissions", "-F enabled=true -f allowed_actions=selected")
    yield _judged("allowed actions", "medium", problems, "selected actions only", close)
    tag = "an action may be named by a tag, which can be moved: require full commit hashes"
    close = look.gh("PUT", "actions/permissions", "-F enabled=true -F sha_pinning_required=true")
    loose = [] if actions.get("sha_pinning_required") else [tag]
    yield _judged("pinned actions", "medium", loose, "actions are named by full commit hashes", f"{close}; {page}")


def workflow_token(look: _Look, token: Any, page: str) -> Iterator[SettingFinding]:
    """What a job may do that asks for nothing."""
    write = token.get("default_workflow_permissions") != "read"
    close = look.gh("PUT", "actions/permissions/workflow", "-f default_workflow_permissions=read")
    problems = ["jobs get a token that can write unless they say otherwise"] if write else []
    yield _judged("workflow token", "high", problems, "reads only unless a job asks for more", close)
    approves = token.get("can_approve_pull_request_reviews", True)
    problems = ["a workflow may approve pull requests: a review by a person means nothing then"] if approves else []
    close = look.gh("PUT", "actions/permissions/workflow", "-F can_approve_pull_request_reviews=false")
    yield _judged("approval by workflows", "medium", problems, "workflows cannot approve pull requests", close)


def fork_approval(look: _Look, forks: Any, page: str) -> Iterator[SettingFinding]:
    """Whose pull request starts workflows without anybody having looked."""
    name = "workflows of forks"
    if look.settings.public:
        policy, want = forks.get("approval_policy"), "all_external_contributors"
        problems = [] if policy == want else [f"only {policy} wait for approval: want all"]
        close = look.gh("PUT", "actions/permissions/fork-pr-contributor-approval", f"-f approval_policy={want}")
        yield _judged(name, "high", problems, "every external contributor waits for approval", close)
    else:
        keys = ("send_write_tokens_to_workflows", "send_secrets_and_variables")
        problems = [f"{key.replace('_', ' ')} of forks" for key in keys if forks.get(key)]
        yield _judged(name, "high", problems, "forks get neither write tokens nor secrets", page)


def default_branch(look: _Look, branch: str, page: str) -> Iterator[SettingFinding]:
    """The branch whose code judges, posts and is trusted."""
    name, rules, classic = f"branch {branch}", look.settings.rules, look.settings.protection
    if rules is None and classic is None:
        yield look.unread("rules", name, "high", page)
        return
    held = _held(rules or (), classic or {})
    problems = [said for key, said in BRANCH.items() if key not in held]
    if problems and (rules is None or classic is None):
        missing = "rules" if rules is None else "protection"
        why = look.settings.unread.get(missing, "it was not answered")
        said = f"{'; '.join(problems)}, as far as can be seen: its {missing} could not be read: {why}"
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


def environment(look: _Look, environments: Any, page: str) -> Iterator[SettingFinding]:
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
Judge = Callable[[_Look, Any, str], Iterator[SettingFinding]]

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
