"""`ridgeline doctor --github`: what the repository's settings leave open, told and as an exit code."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import click

from ci.bars import bar
from ci.github.client import of_environment
from ci.github.settings import SettingFinding, findings, read_settings
from ci.options import PASS, REGRESSION, USAGE, err_console, print_json
from ci.report.words import plain


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
