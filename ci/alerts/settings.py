"""Which channels there are: a file of the repository, without secrets; these come from the environment."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci.history.types import EventKind

DEFAULT_FILE = Path("ci/alerts.toml")

EXAMPLE = """\
kinds = ["kernel"]                  # of events; also "library", "machine"
most = 10                           # new alerts of one run
[github]
repository = "owner/name"           # token: GITHUB_TOKEN
labels = ["performance"]
[webhook]
url_variable = "ALERT_URL"          # the environment variable that holds the URL, which is a secret as a rule
[mail]
host = "mail.example.org"
port = 587
starttls = true
sender = "ridgeline@example.org"
to = ["kernels@example.org"]        # login: MAIL_USER and MAIL_PASSWORD, if the host wants one
"""


class AlertError(Exception):
    """The file of alerts is not right, or a channel refused; the text says which, and the next step."""


@dataclasses.dataclass(frozen=True)
class GitHubIssues:
    """Issues of one repository, owner/name."""

    repository: str
    labels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Webhook:
    """A URL that takes JSON: itself, or the environment variable that holds it."""

    url: str = ""
    url_variable: str = ""

    @property
    def address(self) -> str:
        """The URL.  Raises AlertError if the environment lacks it."""
        url = self.url or os.environ.get(self.url_variable, "")
        if not re.match(r"https?://[^/\s]", url):
            where = f"the environment variable {self.url_variable}" if self.url_variable else "[webhook] url"
            raise AlertError(f"{where} holds no http(s) URL; set it, or leave out [webhook]")
        return url


@dataclasses.dataclass(frozen=True)
class Mail:
    """A host that takes mail."""

    host: str
    sender: str
    to: tuple[str, ...]
    port: int = 587
    starttls: bool = True


@dataclasses.dataclass(frozen=True)
class AlertSettings:
    """What a file of alerts says.  most: new alerts of one run, so that a first run does not flood anybody."""

    kinds: tuple[EventKind, ...] = (EventKind.KERNEL,)
    most: int = 10
    github: GitHubIssues | None = None
    webhook: Webhook | None = None
    mail: Mail | None = None


CHANNELS = {"github": GitHubIssues, "webhook": Webhook, "mail": Mail}


def load(path: Path = DEFAULT_FILE) -> AlertSettings:
    """Settings from the file.  Raises AlertError, which shows an example if there is no file."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AlertError(f"{path} does not exist, so alerts are off; for example:\n{EXAMPLE}") from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AlertError(f"{path}: {error}") from None
    _known(data, ("kinds", "most", *CHANNELS), str(path))
    kinds, most = data.get("kinds", ["kernel"]), data.get("most", 10)
    allowed = [str(kind) for kind in EventKind if kind is not EventKind.CODE]
    if not isinstance(kinds, list) or not kinds or any(kind not in allowed for kind in kinds):
        raise AlertError(f"{path}: kinds = {kinds!r}; allowed: a list of {', '.join(allowed)}")
    if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= 1000:
        raise AlertError(f"{path}: most = {most!r}; allowed: a whole number from 1 to 1000")
    channels = {name: _channel(name, data[name], f"{path}: [{name}]") for name in CHANNELS if name in data}
    if not channels:
        raise AlertError(f"{path}: no channel; known: {', '.join(f'[{name}]' for name in CHANNELS)}")
    return AlertSettings(tuple(map(EventKind, kinds)), most, **channels)


def _channel(name: str, table: Any, where: str) -> Any:
    if not isinstance(table, Mapping):
        raise AlertError(f"{where}: {table!r} is not a table")
    fields = {field.name: field for field in dataclasses.fields(CHANNELS[name])}
    _known(table, tuple(fields), where)
    for key, value in table.items():
        kind = str(fields[key].type)
        fits = _list_of_texts(value) if kind.startswith("tuple") else type(value).__name__ == kind
        if not fits:
            raise AlertError(f"{where}: {key} = {value!r}; allowed: a {'list of texts' if 'tuple' in kind else kind}")
    needed = [key for key, field in fields.items() if field.default is dataclasses.MISSING and key not in table]
    if needed:
        raise AlertError(f"{where}: {needed[0]} is missing; for example:\n{EXAMPLE}")
    return CHANNELS[name](**{key: tuple(v) if isinstance(v, list) else v for key, v in table.items()})


def _list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _known(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise AlertError(f"{where}: unknown key {key!r}; known: {', '.join(known)}")
