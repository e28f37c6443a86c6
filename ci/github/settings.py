""""""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

from ci.github.client import GitHub, GitHubError

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
    about = github.get(f"/repos/{github.repository}")
    owner = about["owner"]
    organisation = str(owner["login"]) if owner.get("type") == "Organization" else ""
    branch, unread = str(about["default_branch"]), dict[str, str]()
    ask = _Asking(github, unread)
    return RepositorySettings(
        github.repository,
        branch,
        not about.get("private", False),
        organisation,
        groups=ask.groups(organisation),
        runners=ask.runners(organisation),
        actions=ask.one("actions", "actions/permissions"),
        selected=ask.one("selected", "actions/permissions/selected-actions", {404: {}, 409: {}}),
        token=ask.one("token", "actions/permissions/workflow"),
        forks=ask.one("forks", _forks_path(about)),
        protection=ask.one("protection", f"branches/{branch}/protection", {404: {}}),
        rules=ask.all("rules", f"rules/branches/{branch}"),
        environments=ask.all("environments", "environments", "environments"),
        unread=unread,
    )


def _forks_path(about: Any) -> str:
    last = "fork-pr-workflows-private-repos" if about.get("private") else "fork-pr-contributor-approval"
    return f"actions/permissions/{last}"


@dataclasses.dataclass(frozen=True)
class _Asking:
    """Calls whose refusal is an answer too."""

    github: GitHub
    unread: dict[str, str]

    def one(self, name: str, path: str, instead: dict[int, Any] | None = None) -> Any:
        """The answer; instead: what a status means."""
        try:
            return self.github.get(path)
        except GitHubError as error:
            if error.status in (instead or {}):
                return (instead or {})[error.status]
            return self._refused(name, error)

    def all(self, name: str, path: str, key: str = "") -> tuple[Any, ...] | None:
        """Every item of a list."""
        return self._listed(name, lambda: tuple(self.github.items(path, key)))

    def groups(self, organisation: str) -> tuple[Any, ...] | None:
        """The organisation's runner groups that this repository may use."""
        if not organisation:
            return ()
        name = self.github.repository.partition("/")[2]
        return self.all(
            "groups", f"/orgs/{organisation}/actions/runner-groups?visible_to_repository={name}", "runner_groups"
        )

    def runners(self, organisation: str) -> tuple[Any, ...] | None:
        """Runners of the repository and of its organisation that are there now."""
        own = self.all("runners", "actions/runners", "runners")
        if not organisation or own is None:
            return own
        shared = self.all("runners", f"/orgs/{organisation}/actions/runners", "runners")
        return None if shared is None else (*own, *shared)

    def _listed(self, name: str, read: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...] | None:
        try:
            return read()
        except GitHubError as error:
            self._refused(name, error)
            return None

    def _refused(self, name: str, error: GitHubError) -> None:
        if error.status not in (403, 404, 409):
            raise error
        self.unread[name] = str(error)


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
LEVELS = ("high", "medium", "low")


def findings(settings: RepositorySettings, server: str = "https://github.com") -> list[SettingFinding]:
    """Everything that was asked for, what is open first, the worst first.  server: where the pages are."""
    look = _Look(settings, f"{server.rstrip('/')}")
    found = [one for method in LOOKS for one in method(look)]
    return sorted(found, key=lambda one: (ORDER.index(one.state), LEVELS.index(one.level)))


@dataclasses.dataclass(frozen=True)
class _Look:
    """The settings, and how their pages are called."""

    settings: RepositorySettings
    server: str

    def page(self, path: str) -> str:
        return f"{self.server}/{self.settings.repository}/settings/{path}"

    def gh(self, method: str, path: str, fields: str) -> str:
        return f"gh api --method {method} repos/{self.settings.repository}/{path} {fields}"

    def of(self, field: str, name: str, level: Level, page: str) -> tuple[Any, SettingFinding | None]:
        """The answer, or the finding that it could not be read."""
        value = getattr(self.settings, field)
        if value is not None:
            return value, None
        why = self.settings.unread.get(field, "it was not answered")
        return None, SettingFinding(name, "unread", level, f"could not be read: {why}", f"look at {page}")


def _judged(name: str, level: Level, problems: list[str], good: str, close: str) -> SettingFinding:
    if problems:
        return SettingFinding(name, "open", level, "; ".join(problems), close)
    return SettingFinding(name, "closed", level, good)


def runner_groups(look: _Look) -> Iterator[SettingFinding]:
    """A fork names `runs-on: [our labels]` in a workflow of its own: a group must admit ours alone, at a ref."""
    name = "runner groups"
    organisation = look.settings.organisation
    pages = f"{look.server}/organizations/{organisation}/settings/actions/runner-groups"
    groups, unread = look.of("groups", name, "high", pages)
    if unread:
        yield unread
        return
    for group in groups:
        problems = _group_problems(group, look.settings.public)
        good = "admits named workflows at a ref only" if group.get("restricted_to_workflows") else "not for this one"
        yield _judged(f"{name}: {group.get('name')}", "high", problems, good, f"{pages}/{group.get('id')}")
    if not groups:
        good = "no group of an organisation admits this repository"
        yield SettingFinding(name, "closed", "high", good)


def _group_problems(group: Any, public: bool) -> list[str]:
    if public and not group.get("allows_public_repositories", False):
        return []
    problems = []
    if not group.get("restricted_to_workflows"):
        problems.append("any workflow may use its runners, also one that a fork brings: select workflows at a ref")
    loose = [text for text in group.get("selected_workflows") or () if not _at_a_ref(text)]
    if group.get("restricted_to_workflows") and loose:
        problems.append(f"{len(loose)} selected workflows name no branch, tag or commit: write FILE@refs/heads/BRANCH")
    if group.get("visibility") == "all":
        problems.append("every repository of the organisation may use it: select repositories")
    return problems


def _at_a_ref(workflow: object) -> bool:
    return bool(re.search(r"@(refs/(heads|tags)/[^*]+|[0-9a-f]{40})$", str(workflow)))


def standing_runners(look: _Look) -> Iterator[SettingFinding]:
    """A runner that stays keeps what a stranger's job left on it."""
    name, page = "standing runners", look.page("actions/runners")
    runners, unread = look.of("runners", name, "high", page)
    if unread:
        yield unread
        return
    level: Level = "high" if look.settings.public else "medium"
    standing = [str(runner.get("name")) for runner in runners if runner.get("ephemeral") is False]
    unsaid = sum("ephemeral" not in runner for runner in runners)
    if unsaid and not standing:
        said = f"GitHub does not say whether {unsaid} of {len(runners)} runners stay after their job"
        yield SettingFinding(name, "unread", level, said, f"look at {page}")
        return
    listed = ", ".join(standing[:5]) + (", ..." if len(standing) > 5 else "")
    problem = f"{len(standing)} of {len(runners)} runners stay after their job ({listed}): use just-in-time runners"
    problems = [problem] if standing else []
    yield _judged(name, level, problems, f"{len(runners)} runners, each for one job", f"`ridgeline ci runner`; {page}")


def allowed_actions(look: _Look) -> Iterator[SettingFinding]:
    """Which actions may run, and whether they must be pinned."""
    page = look.page("actions")
    actions, unread = look.of("actions", "allowed actions", "medium", page)
    if unread:
        yield unread
        return
    problems = ["actions of anybody may run: allow selected ones"] if actions.get("allowed_actions") == "all" else []
    selected = look.settings.selected or {}
    if "*" in (selected.get("patterns_allowed") or ()) or "*/*" in (selected.get("patterns_allowed") or ()):
        problems.append("the pattern * allows actions of anybody")
    close = look.gh("PUT", "actions/permissions", "-F enabled=true -f allowed_actions=selected")
    yield _judged("allowed actions", "medium", problems, "selected actions only", close)
    pinned = bool(actions.get("sha_pinning_required"))
    loose = [] if pinned else ["an action may be named by a tag, which can be moved: require full commit hashes"]
    close = look.gh("PUT", "actions/permissions", "-F enabled=true -F sha_pinning_required=true")
    yield _judged("pinned actions", "medium", loose, "actions are named by full commit hashes", f"{close}; {page}")


def workflow_token(look: _Look) -> Iterator[SettingFinding]:
    """What a job may do that asks for nothing."""
    token, unread = look.of("token", "workflow token", "high", look.page("actions"))
    if unread:
        yield unread
        return
    write = token.get("default_workflow_permissions") != "read"
    approves = bool(token.get("can_approve_pull_request_reviews", True))
    close = look.gh("PUT", "actions/permissions/workflow", "-f default_workflow_permissions=read")
    problems = ["jobs get a token that can write unless they say otherwise"] if write else []
    yield _judged("workflow token", "high", problems, "reads only unless a job asks for more", close)
    problems = ["a workflow may approve pull requests: a review by a person means nothing then"] if approves else []
    close = look.gh("PUT", "actions/permissions/workflow", "-F can_approve_pull_request_reviews=false")
    yield _judged("approval by workflows", "medium", problems, "workflows cannot approve pull requests", close)


def fork_approval(look: _Look) -> Iterator[SettingFinding]:
    """Whose pull request starts workflows without anybody having looked."""
    name = "workflows of forks"
    forks, unread = look.of("forks", name, "high", look.page("actions"))
    if unread:
        yield unread
    elif look.settings.public:
        policy = forks.get("approval_policy")
        problems = [] if policy == "all_external_contributors" else [f"only {policy} wait for approval: want all"]
        fields = "-f approval_policy=all_external_contributors"
        close = look.gh("PUT", "actions/permissions/fork-pr-contributor-approval", fields)
        yield _judged(name, "high", problems, "every external contributor waits for approval", close)
    else:
        keys = ("send_write_tokens_to_workflows", "send_secrets_and_variables")
        problems = [f"{key.replace('_', ' ')} of forks" for key in keys if forks.get(key)]
        yield _judged(name, "high", problems, "forks get neither write tokens nor secrets", look.page("actions"))


def default_branch(look: _Look) -> Iterator[SettingFinding]:
    """The branch whose code judges, posts and is trusted."""
    name, page = f"branch {look.settings.branch}", look.page("rules")
    rules, classic = look.settings.rules, look.settings.protection
    if rules is None and classic is None:
        yield look.of("rules", name, "high", page)[1] or look.of("protection", name, "high", page)[1]  # type: ignore[misc]
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


def environment(look: _Look) -> Iterator[SettingFinding]:
    """Jobs that run a pull request's code on a GPU: from which branches, and whether a person sees the commit first."""
    name, page = f"environment {ENVIRONMENT}", look.page("environments")
    environments, unread = look.of("environments", name, "medium", page)
    if unread:
        yield unread
        return
    ours = next((one for one in environments if one.get("name") == ENVIRONMENT), None) or {}
    missing = [] if ours else ["there is no such environment: make it"]
    loose = [] if ours.get("deployment_branch_policy") else ["a workflow on any branch may use it: name the branches"]
    yield _judged(f"{name}: branches", "medium", missing or loose, "named branches only", page)
    rules = ours.get("protection_rules") or ()
    reviewed = any(rule.get("type") == "required_reviewers" and rule.get("reviewers") for rule in rules)
    alone = [] if reviewed else ["nobody has to approve its jobs: name required reviewers"]
    yield _judged(f"{name}: reviewers", "low", missing or alone, "required reviewers approve its jobs", page)


LOOKS = (runner_groups, standing_runners, fork_approval, workflow_token, allowed_actions, default_branch, environment)
