"""Bandwidth against CUs, from trials."""

from __future__ import annotations

import pytest

from ci.trials.trial import Trial
from tests.ci.made_trials import ENVIRONMENT, declaration, parsed, tree
from tests.ci.made_trials import trial as made
from tests.study import curve


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


def test_a_point_that_one_backend_lacks_is_empty_and_foreign_names_are_inert() -> None:
    shown = curve.table({"a|b": {4: 1.0}, "\x1b[31mred\u202e\ud800": {8: 2.0}})
    assert shown.splitlines()[0] == "| CUs | <code>a&#124;b</code>, GB/s | `[31mred`, GB/s |"
    assert shown.splitlines()[2:] == ["| 4 | 1 |  |", "| 8 |  | 2 |"]


def test_what_is_not_a_curve_is_refused() -> None:
    with pytest.raises(ValueError, match="of one case; these trials have all_gather/w2, all_gather/w4"):
        curve.points([trial(4, 0.1), trial(4, 0.1, "w2")])
    with pytest.raises(ValueError, match="these trials have none"):
        curve.points([])
    with pytest.raises(ValueError, match="rccl of w4 has no knob `programs`, and NCCL_MAX_NCHANNELS was not set"):
        curve.points([trial(4, 0.1, channels=None)])
    with pytest.raises(ValueError, match="^nothere: cannot be read: No such file"):
        curve.main(["nothere"])
