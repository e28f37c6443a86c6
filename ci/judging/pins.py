"""Dependencies that a change pins otherwise: both sides run in one environment, which cannot show what the pin does."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ci.git.command import succeeds

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
    """At most one sentence: on installed distributions of which a pin that changed does not allow what is installed."""
    old, new = _pins(base), _pins(head)
    wrong = []
    for name in sorted(old.keys() | new.keys()):
        gone, come = old.get(name, set()) - new.get(name, set()), new.get(name, set()) - old.get(name, set())
        there = _installed(name) if gone or come else None
        if there and not all(SpecifierSet(pin).contains(there, True) for pin in gone | come):
            before, after = (", ".join(sorted(pin or "any" for pin in pins)) or "none" for pins in (gone, come))
            wrong.append(f"{name} {before} → {after}, {there} is installed")
    if not wrong:
        return []
    more = f" and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
    return [
        f"pins changed that the environment of both sides does not follow: {'; '.join(wrong[:MAX_NAMED])}{more}; "
        "--env-base and --env-head of `ridgeline ab --help` compare two environments"
    ]


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _pins(root: Path) -> dict[str, set[str]]:
    """What the files at the root of a checkout ask of each distribution, by its name; of files that git ignores,
    nothing.  What cannot be read is left out."""
    pins: dict[str, set[str]] = {}
    for path in sorted({path for pattern in PATTERNS for path in root.glob(pattern) if path.is_file()}):
        if succeeds(root, "check-ignore", "--quiet", "--", path.relative_to(root).as_posix()):
            continue
        try:
            text = path.read_text(encoding="utf-8")
            lines = list(_of_toml(tomllib.loads(text)) if path.name in TOML else map(_bare, text.splitlines()))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            continue
        for line in filter(None, lines):
            with contextlib.suppress(InvalidRequirement):
                requirement = Requirement(line)
                if requirement.marker is None or requirement.marker.evaluate():
                    pins.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement.specifier))
    return pins


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
