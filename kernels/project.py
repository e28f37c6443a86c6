"""What a project says about its kernels in pyproject.toml.  Standard library only: `ci` reads it from here too."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from .spec import DeclarationError

DEFAULT = ["kernels"]
"""The packages with kernels of a project that lists none."""


class ProjectError(DeclarationError):
    """A pyproject.toml cannot be used; the text names file, value, what is allowed and the next step."""


def listed_packages(root: Path) -> list[str]:
    """The packages under [tool.ridgeline] kernels in the project's pyproject.toml; ["kernels"] without an entry."""
    path = root / "pyproject.toml"
    found = _table(_table(_read(path), "tool", path), "tool.ridgeline", path).get("kernels", DEFAULT)
    if not isinstance(found, list) or not found or not all(_is_package(name) for name in found):
        raise _wrong(path, f"[tool.ridgeline] kernels is {found!r}")
    return list(found)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ProjectError(f"{path} cannot be read as TOML: {error}; correct the file") from error


def _table(parent: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = parent.get(name.rsplit(".", 1)[-1], {})
    if not isinstance(found, dict):
        raise _wrong(path, f"[{name}] is {found!r}, not a table")
    return found


def _is_package(name: Any) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


def _wrong(path: Path, what: str) -> ProjectError:
    return ProjectError(
        f"{path}: {what}; allowed is a list of at least one dotted package name; "
        'write kernels = ["kernels"], or list the packages that declare kernels'
    )
