"""Nodes that are drained from our jobs: a small file each, which jobs and the runner honour.

It needs no right in Slurm and takes nothing from other people: our own jobs stay away until somebody resumes the node.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from ci.pools.file import PoolsError, Site
from ci.whole_files import replace

NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
"""The name of a host (RFC 1123)."""

LONGEST = 500
"""Characters of a reason that are kept."""


@dataclasses.dataclass(frozen=True)
class Drained:
    """A node that is drained: why, since when (ISO 8601, UTC), and who said so."""

    node: str
    reason: str
    since: str
    who: str

    def __str__(self) -> str:
        return f"{self.node} is drained from our jobs since {self.since} by {self.who}: {self.reason}"


def folder_of(site: Site | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the files are: in the folder that all nodes of a site share, else in this user's state (XDG)."""
    if site is not None and site.shared:
        return Path(site.shared) / "drained"
    state = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".local" / "state")
    return Path(state) / "ridgeline" / "drained"


def drain(one: Drained, folder: Path, dry_run: bool = False) -> None:
    """Write a node's file; a node that is drained already gets the new reason.  Raises PoolsError, WriteError."""
    if not one.reason.strip():
        raise PoolsError(f"no reason to drain {one.node!r}; say it with --reason, for whoever resumes the node")
    kept = dataclasses.replace(one, reason=" ".join(one.reason.split())[:LONGEST])
    path = _file(one.node, folder)
    if not dry_run:
        replace(path, json.dumps(dataclasses.asdict(kept), indent=1) + "\n")


def resume(node: str, folder: Path, dry_run: bool = False) -> bool:
    """Remove a node's file; False if it was not drained."""
    path = _file(node, folder)
    if not path.is_file():
        return False
    if not dry_run:
        path.unlink(missing_ok=True)
    return True


def drained(folder: Path) -> dict[str, Drained]:
    """All drained nodes by name.  A file that cannot be read drains its node all the same."""
    return {path.stem: _read(path) for path in sorted(folder.glob("*.json")) if NODE.fullmatch(path.stem)}


def why(node: str, folder: Path) -> str:
    """A sentence if the node is drained from our jobs, "" if it is not."""
    path = _file(node, folder)
    return str(_read(path)) if path.is_file() else ""


def _file(node: str, folder: Path) -> Path:
    if not NODE.fullmatch(node):
        raise PoolsError(f"{node!r:.100} is not the name of a node: letters, digits, '.' and '-'; `hostname` prints it")
    return folder / f"{node}.json"


def _read(path: Path) -> Drained:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        reason, since, who = (str(found[key])[:LONGEST] for key in ("reason", "since", "who"))
    except (OSError, ValueError, TypeError, KeyError):
        return Drained(path.stem, f"{path} cannot be read; remove it to resume the node", "?", "?")
    return Drained(path.stem, reason, since, who)
