"""The settings of a repository that decide what a stranger's pull request can reach, asked of GitHub's API.

A setting that the token may not read is None in its place, with the reason in `unread`; nothing is guessed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ci.github.client import GitHub, GitHubError


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
