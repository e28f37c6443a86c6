"""Sites of a bare frame, as tests of the pages want them: no folder of records, no caches."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dashboards import build, overview
from dashboards.draft import Draft, replacing
from dashboards.lanes import by_series, commits, tidy
from dashboards.overview import kernel_block
from dashboards.sources import HeldRows, Lane, SiteHistory, counts_of, held, lane_sources
from dashboards.values import minute, script_json, told
from dashboards.views import NotesOf, SiteInput, View

NOWHERE = Path("/nonexistent/results")
"""For sites of a bare frame."""


def site_of(
    frame: pd.DataFrame, past: SiteHistory | None = None, results: Path = NOWHERE, notes_of: NotesOf | None = None
) -> SiteInput:
    """What views draw from, of all rows of a tidy frame."""
    known = dataclasses.replace(past or SiteHistory(), peers=frame)
    more = {"notes_of": notes_of} if notes_of else {}
    return SiteInput(results, lambda: known, lanes=lanes_of(frame), frame=frame, **more)


def lanes_of(frame: pd.DataFrame) -> list[Lane]:
    """The lanes of a tidy frame, with all their rows."""
    found = [(one, one.rows.rows(one.places)) for one in lane_sources(_held(frame))]
    return [Lane(one.machine, one.env, rows, counts_of(rows)) for one, rows in found]


def _written(
    draft: Draft, frame: pd.DataFrame, repo: str | None, problems: Sequence[str], reports: Any, **site: Any
) -> None:
    rows = tidy(frame) if len(frame) else frame
    build.write(draft, dataclasses.replace(site_of(rows, **site), reports=reports), _held(rows), repo, problems)


def build_frame(
    frame: pd.DataFrame,
    out_dir: Path | str,
    repo_url: str | None = None,
    *,
    problems: Sequence[str] = (),
    reports: tuple[dict[str, Any], ...] = (),
    **site: Any,
) -> Path:
    """Build the site of a frame (columns of `ci.records.store.load` and `ci.records.derived.derive`).

    problems: sentences about records that could not be read; shown on the first page.  site: see `site_of`.
    """
    with replacing(Path(out_dir).absolute()) as draft:
        _written(draft, frame, repo_url, problems, reports, **site)
    return Path(out_dir).absolute()


def site_files(
    frame: pd.DataFrame, problems: Sequence[str] = (), reports: tuple[dict[str, Any], ...] = (), **site: Any
) -> dict[str, bytes]:
    """Every file of the site by its path; a pure function of the records."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Draft(Path(folder), Path(folder) / "none")
        _written(draft, frame, None, problems, reports, **site)
        return {path: (draft.folder / path).read_bytes() for path in draft.digests}


def _held(frame: pd.DataFrame) -> list[HeldRows]:
    return held(frame) if len(frame) else []


# The data of the pages of a tidy frame, as a browser gets them.


def overview_data(frame: pd.DataFrame) -> Any:
    """Of the rows of a lane."""
    return received(overview.overview_data(overview.LaneSeries.of(frame)))


def kernel_data(frame: pd.DataFrame) -> Any:
    """Of the rows of a kernel in a lane: one block of all commits, with the rows of the table."""
    dated = [(commit, minute(date), env) for commit, date, env in commits(frame).itertuples(index=False)]
    block = kernel_block(by_series(frame), dated)
    plain = [{name: value for name, value in series.items() if name != "defined"} for series in block["series"]]
    whole = {**block, "series": plain, "rows": told(overview.overview_data(overview.LaneSeries.of(frame))["rows"])}
    del whole["definitions"]
    return json.loads(script_json(whole))


def received(value: Any) -> Any:
    """What the page receives of a value."""
    return json.loads(script_json(told(value)))


def data_of(view: View, site: SiteInput) -> dict[str, Any]:
    """The data files of a view."""
    return {path: received(value) for path, value in view.make(site) if not isinstance(value, bytes)}


def files_of(view: View, site: SiteInput) -> dict[str, bytes]:
    """Its files for people and other programs."""
    return {path: value for path, value in view.make(site) if isinstance(value, bytes)}
