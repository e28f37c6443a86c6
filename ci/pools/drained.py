"""Nodes that are drained from our jobs: a file each, which jobs and the runner honour; it says since when and why.

It needs no right in Slurm and takes nothing from other people: our own jobs stay away until somebody resumes the node.
"""

from __future__ import annotations

import datetime
import getpass
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


def folder_of(site: Site | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the files are: in the folder that all nodes of a site share, else in this user's state (XDG)."""
    if site is not None and site.shared:
        return Path(site.shared) / "drained"
    state = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".local" / "state")
    return Path(state) / "ridgeline" / "drained"


def drain(node: str, reason: str, folder: Path, dry_run: bool = False) -> None:
    """Write a node's file; a node that is drained already gets the new reason.  Raises PoolsError, WriteError."""
    path = _file(node, folder)
    if not reason.strip():
        raise PoolsError(f"no reason to drain {node!r}; say it with --reason, for whoever resumes the node")
    since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    if not dry_run:
        replace(path, f"since {since} by {getpass.getuser()}: {' '.join(reason.split())[:LONGEST]}\n")


def resume(node: str, folder: Path, dry_run: bool = False) -> bool:
    """Remove a node's file; False if it was not drained."""
    path = _file(node, folder)
    is_drained = path.is_file()
    if is_drained and not dry_run:
        path.unlink(missing_ok=True)
    return is_drained


def drained_nodes(folder: Path) -> list[str]:
    """The names of all drained nodes."""
    return sorted(path.stem for path in folder.glob("*.drained") if NODE.fullmatch(path.stem))


def drain_reason(node: str, folder: Path) -> str:
    """A sentence if the node is drained from our jobs, "" if it is not."""
    path = _file(node, folder)
    if not path.is_file():
        return ""
    return f"{node} is drained from our jobs {path.read_text(errors='replace').strip()[: 2 * LONGEST]}"


def _file(node: str, folder: Path) -> Path:
    if not NODE.fullmatch(node):
        raise PoolsError(f"{node!r:.100} is not the name of a node: letters, digits, '.' and '-'; `hostname` prints it")
    return folder / f"{node}.drained"
