"""The history that the site shows is that of all rows with all columns, whichever were kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from ci.history import health as apart
from ci.records import derived, store
from dashboards import blocks, build, history, history_rows
from dashboards.history_rows import COLUMNS
from dashboards.sources import ReadRows
from tests.dashboards import large_records, synthetic

ROOT = Path(__file__).parents[2]


def kept_rows(results: Path) -> pd.DataFrame:
    """As a build reads them."""
    sources, _, kept = build.read(results)
    return history_rows.history_rows([one for one in sources if isinstance(one, ReadRows)], "", kept)


def all_rows(results: Path) -> pd.DataFrame:
    frame = derived.derive(store.load(results))
    frame.attrs.clear()
    return frame


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of this repository."""
    around = tmp_path_factory.mktemp("recorded")
    hidden = shutil.ignore_patterns(".cache", "samples")
    return Path(shutil.copytree(ROOT / "results", around / "results", ignore=hidden))


@pytest.mark.slow
def test_the_history_of_the_recorded_data_needs_no_other_columns(recorded: Path) -> None:
    rows, whole = kept_rows(recorded), all_rows(recorded)
    pd.testing.assert_frame_equal(rows, whole[list(rows)])
    found, wanted = (history.read(frame, recorded) for frame in (rows, whole))
    assert repr(found.events) == repr(wanted.events), "NaN equals nothing, so they are compared as texts"
    assert repr(found.steps) == repr(wanted.steps)
    pd.testing.assert_frame_equal(apart.peers(rows), apart.peers(whole)[list(rows)])


@pytest.mark.slow
def test_what_is_kept_grows_to_what_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_rows, "BLOCK", 3)
    monkeypatch.setattr(blocks, "BLOCK", 3)
    for commits in range(2, 9):
        frame = synthetic.large(6, commits)
        new = frame["commit"] == frame["commit"].iloc[-1]
        large_records.add(frame[new].reset_index(drop=True), tmp_path / "results")
        rows = kept_rows(tmp_path / "results")
        pd.testing.assert_frame_equal(rows, all_rows(tmp_path / "results")[list(rows)])
    assert len(rows) == 6 * 7
    assert set(rows) <= set(COLUMNS)
