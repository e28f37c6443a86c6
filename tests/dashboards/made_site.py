"""Sites of a bare frame, as tests of the pages want them: no folder of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from ci.history.analysis import History
from dashboards import build, files
from dashboards.frame import Site, lanes
from dashboards.table import Piece

NOWHERE = Path("/nonexistent/results")
"""For sites of a bare frame."""


def site_of(frame: pd.DataFrame, history: History | None = None, results: Path = NOWHERE, **more: Any) -> Site:
    """What pages are made of, from a derived frame and a history made by hand."""
    return Site(results, frame, lanes(frame), history or History((), {}), **more)


def written(site: Site, folder: Path, repo: str | None = None) -> Path:
    """The site in a folder."""
    files.write(folder, build.site_files(site, repo), "made")
    return folder


def data_of(site: Site) -> dict[str, Any]:
    """The data files of a site, by path."""
    return dict(build.data(site))


def found(pieces: Any, kind: str) -> list[Piece]:
    """Every piece of a kind, however deep."""
    if isinstance(pieces, dict):
        own = [pieces] if pieces.get("kind") == kind and "parts" not in pieces else []  # no column
        return own + [one for value in pieces.values() for one in found(value, kind)]
    return [one for value in pieces for one in found(value, kind)] if isinstance(pieces, (list, tuple)) else []


def texts(pieces: Any) -> str:
    """All that pieces say."""
    return "\n".join(str(one["text"]) for one in found(pieces, "text"))
