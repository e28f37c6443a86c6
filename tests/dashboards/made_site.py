"""Sites of a bare frame, as tests of the pages want them: no folder of records, no caches."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ci.history.analysis import History
from dashboards import build, overview
from dashboards.draft import Draft, Standing
from dashboards.kernel_page import kernel_block
from dashboards.lanes import by_series, commits, tidy
from dashboards.sources import HeldRows, held
from dashboards.values import minute, script_json
from dashboards.views import NotesOf, SiteInput, View, no_notes


def build_frame(
    frame: pd.DataFrame,
    out_dir: Path | str,
    repo_url: str | None = None,
    *,
    notes_of: NotesOf = no_notes,
    problems: Sequence[str] = (),
    results_dir: Path | None = None,
    past: History | None = None,
    reports: tuple[dict[str, Any], ...] = (),
) -> Path:
    """Build the site of a frame (columns of `ci.records.store.load` and `ci.records.derived.derive`).

    notes_of: (machine, commit, env) -> trials of that record, for the facts about a machine that the frame lacks.
    problems: sentences about records that could not be read; shown on the first page.
    results_dir: where the records lie, for views that read more of them than the frame.
    past: the events and steps of the frame; without it the pages have none.
    """
    site = SiteInput(frame, past, notes_of, results_dir, reports, (), lambda: frame)
    return build._build(site, _held(frame), out_dir, repo_url, problems)


def site_files(
    frame: pd.DataFrame,
    repo: str | None = None,
    notes_of: NotesOf = no_notes,
    problems: Sequence[str] = (),
    results_dir: Path | None = None,
    past: History | None = None,
    reports: tuple[dict[str, Any], ...] = (),
) -> dict[str, bytes]:
    """Every file of the site by its path; a pure function of the records."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Draft(Path(folder), Standing(Path(folder), {}))
        site = SiteInput(frame, past, notes_of, results_dir, reports, (), lambda: frame)
        build._write(draft, site, _held(frame), repo, problems)
        return {path: (draft.folder / path).read_bytes() for path in draft.digests}


def _held(frame: pd.DataFrame) -> list[HeldRows]:
    return held(tidy(frame)) if len(frame) else []


# The data of the pages of a tidy frame, as a browser gets them.


def overview_data(frame: pd.DataFrame) -> Any:
    """Of the rows of a lane."""
    return received(overview.overview_data(overview.LaneSeries.of(frame)))


def kernel_data(frame: pd.DataFrame) -> Any:
    """Of the rows of a kernel in a lane: one block of all commits, with the rows of the table."""
    dated = [(commit, minute(date), env) for commit, date, env in commits(frame).itertuples(index=False)]
    block = kernel_block(by_series(frame), dated)
    plain = [{name: value for name, value in series.items() if name != "defined"} for series in block["series"]]
    whole = {**block, "series": plain, "rows": overview.overview_data(overview.LaneSeries.of(frame))["rows"]}
    del whole["definitions"]
    return received(whole)


def received(value: Any) -> Any:
    """What the page receives of a value."""
    return json.loads(script_json(value))


def data_of(view: View, site: SiteInput) -> dict[str, Any]:
    """The data files of a view."""
    return {path: value for path, value in view.make(site) if not isinstance(value, bytes)}


def files_of(view: View, site: SiteInput) -> dict[str, bytes]:
    """Its files for people and other programs."""
    return {path: value for path, value in view.make(site) if isinstance(value, bytes)}
