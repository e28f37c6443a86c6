"""The table of the README, from records."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ci.records.sustained import BesideRow, JoulesPerCall, RegimeTime
from tests.study import scoreboard


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Two commits of one kernel on one machine; the ratios are given, not derived."""
    rows = [
        {"commit": commit, "date": date, "case": case, "baseline_ratio": ratio}
        for commit, date, ratios in (("old", 1, (0.1, 0.1)), ("new", 2, (0.8, 1.25)))
        for case, ratio in zip("ab", ratios, strict=True)
    ]
    fixed = {"machine": "h200|x2", "device": "NVIDIA\x1b[1m H200", "count": 2, "kind": "gpu", "status": "ok"}
    frame = pd.DataFrame(rows).assign(**fixed, kernel="gemm", backend="tri`ton", baseline=False, baseline_name="blas")
    monkeypatch.setattr("tests.study.scoreboard.derive.derive", lambda records: records)
    return frame


def test_the_newest_commit_counts_and_names_are_inert(derived: pd.DataFrame) -> None:
    machine = "2 x NVIDIA&#91;1m H200 (h200&#124;x2)"
    assert list(scoreboard.rows(derived)) == [
        f"| {machine} | `gemm` | <code>tri&#96;ton</code> | 2 | 1.00 | 0.80 | 1.25 |"
    ]


def test_what_has_no_ratio_has_no_row(derived: pd.DataFrame) -> None:
    assert list(scoreboard.rows(derived.assign(baseline_ratio=np.nan))) == []


def test_what_is_no_peer_is_no_comparison(derived: pd.DataFrame) -> None:
    assert list(scoreboard.rows(derived.assign(baseline_name=scoreboard.NO_PEERS[0]))) == []


def test_both_regimes_over_the_cases_that_have_both():
    def row(case, backend, spaced, sustained, joules):
        times = [RegimeTime("a" * 40, "py", 1e-3, one, one, one) if one else None for one in (spaced, sustained)]
        own = JoulesPerCall(joules, joules, joules, 8, 1.0) if joules else None
        named = "h200x1", "NVIDIA H200", "gemm", case, backend, backend == "blas"
        return BesideRow(*named, times[1], times[0], own)

    nan = float("nan")
    rows = [row("a", "blas", nan, nan, 0.5), row("a", "triton", 1.0, 2.0, 0.4), row("b", "triton", 4.0, 0.5, None)]
    rows += [row("c", "triton", None, 9.0, None)]
    assert list(scoreboard.sustained_rows(rows)) == [
        "| NVIDIA H200 (h200x1) | `gemm` | `triton` | 2 | 2.000 | 1.000 | 0.800 |"
    ]
