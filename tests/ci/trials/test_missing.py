"""Which trials a run still lacks, against counting them one by one."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from ci.trials.file import TrialBatch, measured_operators, missing

OPERATORS = ("gemm", "all_gather", "norm")


def trials(*done: tuple[str, int]) -> list[Any]:
    return [SimpleNamespace(operator=operator, number=number) for operator, number in done]


def test_nothing_is_there_yet() -> None:
    assert missing([], OPERATORS, 6, 3) == [TrialBatch(OPERATORS, 6, 3)]


def test_a_trial_that_was_interrupted_is_completed_first() -> None:
    done = trials(("gemm", 0), ("all_gather", 0), ("norm", 0), ("gemm", 1))
    assert measured_operators(done, 0) == OPERATORS
    assert missing(done, OPERATORS, 0, 4) == [TrialBatch(("all_gather", "norm"), 1, 1), TrialBatch(OPERATORS, 2, 2)]


def test_all_is_there() -> None:
    done = trials(*((operator, number) for number in range(3, 6) for operator in OPERATORS))
    assert missing(done, OPERATORS, 3, 3) == []


def test_the_first_trial_says_what_is_planned_only_when_it_is_whole() -> None:
    assert measured_operators(trials(("gemm", 0)), 0) == ()
    assert measured_operators(trials(("gemm", 5), ("norm", 5), ("gemm", 6)), 5) == ("gemm", "norm")


def test_any_state_is_completed_exactly() -> None:
    draw = random.Random(13)
    for _ in range(300):
        first, count = draw.randrange(5), draw.randrange(1, 6)
        wanted = {(operator, number) for operator in OPERATORS for number in range(first, first + count)}
        done = {one for one in wanted if draw.random() < 0.5}
        batches = missing(trials(*done, ("gemm", 99)), OPERATORS, first, count)
        measured = [
            (operator, batch.first + step)
            for batch in batches
            for step in range(batch.count)
            for operator in batch.operators
        ]
        assert sorted(measured) == sorted(wanted - done)
        assert [number for _, number in measured] == sorted(number for _, number in measured), "trial by trial"
