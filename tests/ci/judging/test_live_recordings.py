"""Real A/B trials of gemm's `pr` tier on an H200: nothing cried, everything planted found.

Recorded 2026-11-21 on one H200 SXM (torch 2.11.0, Triton 3.6.0): 30 trials of the same kernels in two trees, 8 in which
head runs over a K that is 1.5 % longer (padded with zeros), 4 in which head has one pipeline stage fewer.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ci.judging import policy
from ci.judging.judge import judge
from ci.judging.types import Judgement, Verdict
from ci.trials.comparisons import Comparison, comparisons
from ci.trials.file import read
from ci.trials.trial import Trial

FOLDER = Path(__file__).parents[2] / "recordings" / "h200_gemm_pr"


def lines(name: str) -> Sequence[Trial]:
    return read(FOLDER / f"{name}.jsonl.gz").trials


def by_time(name: str) -> list[Comparison]:
    """The comparisons without the knowledge that equal code objects ran: the times must speak."""
    return [dataclasses.replace(c, same_code=None) for c in comparisons(lines(name))]


def drawn(found: Sequence[Comparison], numbers: Sequence[int]) -> Judgement:
    return judge([dataclasses.replace(c, trials=tuple(c.trials[i] for i in numbers)) for c in found], policy.load())


@pytest.fixture(scope="module")
def unchanged() -> list[Comparison]:
    return by_time("unchanged")


def test_thirty_runs_of_equal_code_are_same_after_one_trial() -> None:
    runs = lines("unchanged")
    assert len(runs) == 30
    assert {judge(comparisons([run]), policy.load()).verdict for run in runs} == {Verdict.SAME}


@pytest.mark.parametrize("count", [4, 6, 8, 12])
def test_the_times_of_unchanged_kernels_alone_give_no_false_verdict(unchanged: list[Comparison], count: int) -> None:
    random = np.random.default_rng(count)
    verdicts = Counter(
        case.verdict for _ in range(25) for case in drawn(unchanged, random.choice(30, count, replace=False)).cases
    )
    assert sum(verdicts.values()) == 250
    assert not verdicts.keys() - {Verdict.SAME, Verdict.CANNOT_TELL}
    assert verdicts[Verdict.SAME] > 200


@pytest.mark.parametrize("count", [4, 6, 8])
def test_a_k_that_is_one_and_a_half_percent_longer_is_found_in_every_case(count: int) -> None:
    found = drawn(by_time("longer_k"), range(count))
    assert len(found.cases) == 10
    assert {case.verdict for case in found.cases} == {Verdict.SLOWER}


def test_one_pipeline_stage_fewer_is_found_where_it_costs() -> None:
    found = drawn(by_time("stage_fewer"), range(4))
    slower = {case.case.split("/")[-1]: case.ratio for case in found.of(Verdict.SLOWER)}
    assert {name for name, ratio in slower.items() if ratio and ratio > 1.09} == {
        "n4096_k4096_m16_fp16",
        "n4096_k4096_m1024_fp16",
        "n4096_k14336_m4096_fp16",
        "n8192_k4096_m256_fp16",
        "n8192_k4096_m8192_fp16",
    }
    assert not found.of(Verdict.FASTER, Verdict.BROKEN)
