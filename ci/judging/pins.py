"""Dependencies that a change pins otherwise: both sides run in one environment, which cannot show what the pin does."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

PATTERNS = (
    "requirements*.txt",
    "requirements*.lock",
    "requirements/*.txt",
    "constraints*.txt",
    "pyproject.toml",
    "*.lock",
)
"""Files at the root of a repository that pin distributions: of pip, uv, poetry and pdm (their manuals, 2026-11)."""

MAX_NAMED = 3
"""Pins that a sentence names."""


def pins_not_installed(base: Path, head: Path) -> list[str]:
    """At most one sentence: the installed distributions whose pins differ and which one side's pin does not allow."""
    old, new = dict(_pins(base)), dict(_pins(head))
    wrong = []
    for name in sorted(old.keys() | new.keys()):
        pins, there = (old.get(name), new.get(name)), _installed(name)
        if pins[0] != pins[1] and there and not all(pin is None or pin.specifier.contains(there, True) for pin in pins):
            before, after = (str(pin.specifier) or "any" if pin else "none" for pin in pins)
            wrong.append(f"{name} {before} → {after}, {there} is installed")
    if not wrong:
        return []
    more = f" and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
    return [
        f"pins differ that the environment of both sides does not follow: {'; '.join(wrong[:MAX_NAMED])}{more}; "
        "--env-base and --env-head of `ridgeline ab --help` compare two environments"
    ]


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _pins(root: Path) -> Iterator[tuple[str, Requirement]]:
    """Every requirement at the root of a checkout, by the name of its distribution; what cannot be read is left out."""
    for path in sorted({path for pattern in PATTERNS for path in root.glob(pattern) if path.is_file()}):
        try:
            text = path.read_text(encoding="utf-8")
            lines = _of_toml(tomllib.loads(text)) if path.name in TOML else map(_bare, text.splitlines())
            for line in filter(None, lines):
                requirement = Requirement(line)
                if requirement.marker is None or requirement.marker.evaluate():
                    yield canonicalize_name(requirement.name), requirement
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, InvalidRequirement):
            continue


TOML = ("pyproject.toml", "uv.lock", "poetry.lock", "pdm.lock", "pylock.toml")


def _bare(line: str) -> str:
    """A line of a requirements file without hashes, options and comments."""
    text = re.split(r"\s#|\s--hash|\s\\$|\\$", line.strip())[0].strip()
    return "" if text.startswith(("#", "-")) else text


def _of_toml(document: dict[str, Any]) -> Iterator[str]:
    """The requirements of a project, and the exact versions of a lock file."""
    project = document.get("project", {})
    yield from project.get("dependencies", ())
    for extra in project.get("optional-dependencies", {}).values():
        yield from extra
    for package in document.get("package", document.get("packages", ())):
        if isinstance(package, dict) and "name" in package and "version" in package:
            yield f"{package['name']}=={package['version']}"
