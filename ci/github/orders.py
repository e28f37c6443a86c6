"""`/ridgeline ...` in a comment on a pull request, read as what it is: a line that anybody can write.

Only the first line of a new comment of a person counts.  What it may do is decided in `ci.github.answers`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from ci.report.words import plain

LARGEST = 5_000_000
"""Bytes of an event; a comment has at most 65,536 characters."""
LONGEST_REASON = 500
"""Characters: a sentence or two, for whoever reads the file of decisions."""
USAGE = "`/ridgeline gpu SHA [POOL]`, `/ridgeline rerun` or `/ridgeline accept CASE REASON`"
FORMS = {
    "gpu": r"(?P<what>[0-9a-fA-F]{8,40})(?:\s+(?P<pool>[a-z0-9-]{1,40}))?",
    "rerun": r"",
    "accept": rf"`?(?P<what>[\w./:=+,@-]{{1,300}})`?\s+(?P<reason>\S.{{0,{LONGEST_REASON - 1}}})",
}
"""What follows a verb."""


class OrderError(Exception):
    """An event or a line is not what it should be; a sentence, without foreign text."""


@dataclasses.dataclass(frozen=True)
class Order:
    """What somebody asks for.  verb: a key of FORMS.  what: hex digits of a commit, or the name of a case.

    pool: of `ci/runners.toml`, "" for all.
    """

    verb: str
    what: str = ""
    reason: str = ""
    pool: str = ""


@dataclasses.dataclass(frozen=True)
class OrderComment:
    """A new comment on a pull request, as the platform tells of it."""

    repository: str
    pull_request: int
    comment: int
    login: str
    body: str
    url: str = ""


def read_event(path: Path) -> OrderComment | None:
    """The comment of an `issue_comment` event; None for what is no new comment of a person on a pull request.

    Raises OrderError for a file that is no such event, OSError if it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise OrderError(f"{path}: larger than {LARGEST} bytes, which no comment is")
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise OrderError(f"{path}: not JSON; give the file that GITHUB_EVENT_PATH names") from None
    return _asked(event, str(path))


def _asked(event: Any, source: str) -> OrderComment | None:
    found = _EventReader(event, source)
    person = found.text("comment", "user", "type") != "Bot"
    ours = found.text("action") == "created" and isinstance(found.at("issue").get("pull_request"), dict)
    if not (person and ours):
        return None
    login = found.text("comment", "user", "login")
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,99})", login):
        raise OrderError(f"{source}: comment.user.login is not the name of a person")
    return OrderComment(
        found.text("repository", "full_name"),
        found.number("issue", "number"),
        found.number("comment", "id"),
        login,
        found.text("comment", "body"),
        found.text("comment", "html_url"),
    )


@dataclasses.dataclass(frozen=True)
class _EventReader:
    """Typed values of an event."""

    event: Any
    source: str

    def at(self, *keys: str) -> Any:
        value = self.event
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            raise OrderError(f"{self.source}: no {'.'.join(keys)}; an event of `issue_comment` is expected")
        return value

    def text(self, *keys: str) -> str:
        value = self.at(*keys)
        if not isinstance(value, str):
            raise OrderError(f"{self.source}: {'.'.join(keys)} is not a text")
        return value

    def number(self, *keys: str) -> int:
        value = self.at(*keys)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise OrderError(f"{self.source}: {'.'.join(keys)} is not a number")
        return value


def parse(body: str) -> Order | None:
    """The order in a comment's first line; None where there is none.  Raises OrderError for one that is not right."""
    first = next(iter(body.strip().splitlines()), "")
    if not re.match(r"/ridgeline(?!\S)", first):
        return None
    words = first.split(maxsplit=2)
    verb, rest = (words[1] if len(words) > 1 else ""), (words[2].strip() if len(words) > 2 else "")
    if verb not in FORMS:
        raise OrderError(f"allowed are {USAGE}")
    form = re.fullmatch(FORMS[verb], rest)
    if not form:
        raise OrderError(_wanted(verb))
    given = form.groupdict()
    what = given.get("what", "")
    reason, pool = plain(given.get("reason", ""), LONGEST_REASON), given.get("pool") or ""
    return Order(verb, what.lower() if verb == "gpu" else what, reason, pool)


def _wanted(verb: str) -> str:
    wanted = {
        "gpu": "`/ridgeline gpu SHA [POOL]`: SHA has 8 to 40 hex digits, those of the commit that you have read",
        "rerun": "`/ridgeline rerun` stands alone",
        "accept": "`/ridgeline accept CASE REASON`: the case as the report names it, and why, on one line"
        f" of at most {LONGEST_REASON} characters",
    }
    return wanted[verb]
