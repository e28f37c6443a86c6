"""Points of recorded sweeps over the commits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.records import store
from ci.sweeps.history import COLUMNS, SERIES, series
from tests.ci.made_trials import BASE, HEAD, tree, write
from tests.ci.sweeps.made_sweeps import line


def test_a_point_is_a_series_over_the_commits(tmp_path: Path) -> None:
    fast = {"num_warps": 8}
    before = line([(fast, 0.9)], trees={"head": tree(BASE, date_ms=1_780_000_000_000)})
    after = line([(fast, 1.1)])
    store.record([write(tmp_path / "t.jsonl", after, before)], tmp_path / "results")
    found = series(tmp_path / "results")
    own = found[found["point"] != ""]
    assert own["commit"].tolist() == [BASE, HEAD]
    assert own["value"].tolist() == pytest.approx([0.9, 1.1], rel=0.01)
    assert len(own.groupby(list(SERIES))) == 1
    assert json.loads(own["knobs"].iloc[0]) == fast
    assert found[found["is_anchor"]]["value"].tolist() == [1.0, 1.0]


def test_no_sweeps_are_no_rows(tmp_path: Path) -> None:
    found = series(tmp_path / "results")
    assert found.empty
    assert tuple(found.columns) == COLUMNS
