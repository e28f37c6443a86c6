"""How a program of ours is called from a command line: `python -m ci VERB` in a clone, `python -m ridgeline VERB` where
a wheel brought us (ci.installed); where its caller has Python look for modules, and how wide a log of it is.  Standard
library only."""

from __future__ import annotations

import json
import os
from pathlib import Path

INSTALLED = Path(__file__).resolve().parents[1].name == "house"
"""Whether this is the copy in a wheel, whose rooms nobody else can import."""

LOG_WIDTH = 120
"""Columns of what goes into a file or to another program, unless COLUMNS says otherwise."""

VERBS = ("-m", "ridgeline" if INSTALLED else "ci")
"""Options of Python before a verb."""


def program(module: str) -> tuple[str, ...]:
    """Options of Python that run a module of ours, such as ci.slurm.jobs."""
    return ("-m", "ridgeline.program", module) if INSTALLED else ("-m", module)


def log_width() -> int:
    """Columns of a line that does not go to a terminal."""
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isdecimal() and int(said) else LOG_WIDTH


def inherited_paths() -> list[Path]:
    """The folders of PYTHONPATH, in order, whole; a relative one is below the current folder, as Python reads it."""
    return [Path(one).resolve() for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]


def origin() -> str:
    """Where this installation came from, as pip takes it: "git+https://...@COMMIT"; "" if it was from no repository.

    pip notes it beside what it installs (PEP 610, direct_url.json).
    """
    from importlib import metadata  # 12 ms, which `ridgeline --help` need not wait for

    try:
        told = json.loads(metadata.distribution("ridgeline").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return ""
    found = told.get("vcs_info", {})
    return f"{found['vcs']}+{told['url']}@{found['commit_id']}" if {"vcs", "commit_id"} <= found.keys() else ""
