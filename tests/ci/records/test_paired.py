"""The ratio to the fastest baseline of the same trial, against a plain calculation, and what of a record it needs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ci.records import store
from tests.ci.made_trials import HEAD, declaration, failed, ok, tree, trial, write

CASE = "m16"


def two_baselines() -> dict[str, Any]:
    return declaration(backends=("triton", "blas", "other")) | {"baselines": ["blas", "other"]}


def rows(tmp_path: Path, *trials: dict[str, Any]) -> Any:
    store.record([write(tmp_path / "trials.jsonl", *trials)], tmp_path / "results")
    return store.load(tmp_path / "results").set_index(["backend", "case"])


def drifting(number: int, ours: float, blas: float, other: float) -> dict[str, Any]:
    """A trial whose clock drifts by 30 %: all arms alike, round by round."""
    drift = np.linspace(1, 1.3, 9)
    arms = {f"head/{name}": ok(list(s * drift)) for name, s in (("triton", ours), ("blas", blas), ("other", other))}
    return trial({CASE: arms}, number, trees={"head": tree(HEAD, declared=two_baselines())})


def test_the_median_over_trials_of_the_ratio_to_the_fastest_baseline(tmp_path: Path) -> None:
    found = rows(tmp_path, *(drifting(n, 1e-3, blas * 1e-3, 9e-4) for n, blas in enumerate((1.5, 1.6, 1.7))))
    row = found.loc[("triton", CASE)]
    assert row["paired_with"] == "other"
    assert row["paired_ratio"] == pytest.approx(0.9)
    assert row["paired_low"] == pytest.approx(0.9 * 0.999), "no narrower than a ratio repeats"
    assert found.loc[("blas", CASE), "paired_with"] == ""
    assert math.isnan(found.loc[("blas", CASE), "paired_ratio"])


def test_the_interval_is_over_trials(tmp_path: Path) -> None:
    levels = (0.90, 0.91, 0.93)
    row = rows(tmp_path, *(drifting(n, 1e-3, level * 1e-3, 1) for n, level in enumerate(levels))).loc[("triton", CASE)]
    logs = np.log(levels)
    reach = 9.925 * np.std(logs, ddof=1) / math.sqrt(3)  # Student's t, 2 degrees, 99 %
    assert row["paired_ratio"] == pytest.approx(0.91)
    assert (row["paired_low"], row["paired_high"]) == pytest.approx(
        (math.exp(logs.mean() - reach), math.exp(logs.mean() + reach)), rel=1e-4
    )


@pytest.mark.parametrize("baseline", [failed("crash"), ok([1e-3, 2e-3])])
def test_a_baseline_without_the_same_rounds_is_none(tmp_path: Path, baseline: dict[str, Any]) -> None:
    row = rows(tmp_path, trial({CASE: {"head/triton": ok(), "head/blas": baseline}})).loc[("triton", CASE)]
    assert (row["paired_with"], math.isnan(row["paired_ratio"])) == ("", True)


def test_versions_and_machine_code_stand_beside_the_time(tmp_path: Path) -> None:
    coded, trees = ok() | {"code_hash": "c0de" * 4}, {"head": tree() | {"kernel_digest": "f11e" * 4}}
    found = rows(tmp_path, trial({CASE: {"head/triton": coded, "head/blas": ok()}}, trees=trees))
    row = found.loc[("triton", CASE)]
    said = (row["driver"], row["runtime"], row["library"], row["torch"], row["triton"])
    assert said == ("570.1", "CUDA 13.0", "NCCL 2.28", "2.11.0+cu130", "3.6.0")
    assert row["code"] == "c0de" * 4 + " BLOCK_M=128"
    assert found.loc[("blas", CASE), "code"] == "f11e" * 4 + " BLOCK_M=128", "its files, where no machine code is known"


def test_other_knobs_are_other_code(tmp_path: Path) -> None:
    coded = ok() | {"code_hash": "c0de" * 4, "knobs": {"programs": 8, "BLOCK": 64}}
    row = rows(tmp_path, trial({CASE: {"head/triton": coded, "head/blas": ok()}})).loc[("triton", CASE)]
    assert row["code"] == "c0de" * 4 + " BLOCK=64 programs=8"


def test_on_amd_the_runtime_is_hip_and_the_library_rccl(tmp_path: Path) -> None:
    versions = {"python": "3.12.3", "torch": "2.9", "triton": "3.5", "hip": "7.1.2", "nccl": "2.27.7"}
    row = rows(tmp_path, trial(trees={"head": tree(environment=versions)})).loc[("triton", CASE)]
    assert (row["runtime"], row["library"]) == ("HIP 7.1.2", "RCCL 2.27.7")
