"""The studies are small commands: what they make, find and count; what is committed of them keeps its promises."""

from __future__ import annotations

import pandas as pd
import pytest

from ci.records.sustained import BesideRow, RegimeTime
from ci.trials.trial import Trial
from tests.ci.made_trials import ENVIRONMENT, declaration, parsed, tree
from tests.ci.made_trials import trial as made
from tests.study import curve, scoreboard

# Bandwidth against CUs, from trials.


def trial(count: int, seconds: float, case: str = "w4", channels: str | None = "same") -> Trial:
    variables = {} if channels is None else {"NCCL_MAX_NCHANNELS": str(count)}
    arms = {
        "head/triton": {"status": "ok", "seconds": [seconds] * 3, "knobs": {"programs": count}},
        "head/rccl": {"status": "ok", "seconds": [2 * seconds] * 3, "knobs": {}},
        "head/torch": {"status": "unsupported", "why": "on a CPU only"},
    }
    declared = declaration("all_gather", cases=[case], backends=["triton", "rccl", "torch"], link=10**9)
    environment = {**ENVIRONMENT, "variables": variables}
    head = tree(declared={**declared, "baselines": ["rccl"]}, environment=environment)
    return parsed(made({case: arms}, kernel="all_gather", trees={"head": head}))


def test_ours_by_their_knob_and_the_library_by_its_channels() -> None:
    found = curve.points([trial(16, 0.01), trial(4, 0.02)])
    assert found == {
        "triton": {16: pytest.approx(100), 4: pytest.approx(50)},
        "rccl": {16: pytest.approx(50), 4: pytest.approx(25)},
    }
    assert curve.table(found).splitlines() == [
        "| CUs | `triton`, GB/s | `rccl`, GB/s |",
        "|---:|---:|---:|",
        "| 4 | 50 | 25 |",
        "| 16 | 100 | 50 |",
    ]


def test_what_is_not_a_curve_is_refused() -> None:
    with pytest.raises(ValueError, match="of one case; these trials have all_gather/w2, all_gather/w4"):
        curve.points([trial(4, 0.1), trial(4, 0.1, "w2")])
    with pytest.raises(ValueError, match="these trials have none"):
        curve.points([])
    with pytest.raises(ValueError, match="rccl of w4 has no knob `programs`, and NCCL_MAX_NCHANNELS was not set"):
        curve.points([trial(4, 0.1, channels=None)])
    with pytest.raises(ValueError, match="^nothere: cannot be read: No such file"):
        curve.main(["nothere"])


# The table of the README, from records.


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


def test_both_regimes_over_the_cases_that_have_both():
    def row(case, backend, spaced, sustained):
        times = [RegimeTime("a" * 40, "py", 1e-3, one, one, one) if one else None for one in (spaced, sustained)]
        named = "h200x1", "NVIDIA H200", "gemm", case, backend, backend == "blas"
        return BesideRow(*named, times[1], times[0])

    nan = float("nan")
    rows = [row("a", "blas", nan, nan), row("a", "triton", 1.0, 2.0), row("b", "triton", 4.0, 0.5)]
    rows += [row("c", "triton", None, 9.0)]
    assert list(scoreboard.sustained_rows(rows)) == ["| NVIDIA H200 (h200x1) | `gemm` | `triton` | 2 | 2.000 | 1.000 |"]
