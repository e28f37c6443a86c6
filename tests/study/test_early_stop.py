"""What stopping early costs, counted on recorded trials: nothing on quiet ones, few decisions on noisy ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ci.judging import policy
from tests.study.budget import early_stop

DATA = Path(__file__).resolve().parents[2] / "tests" / "recordings" / "h200"


@pytest.fixture(scope="module")
def looks() -> list[early_stop.OpenLook]:
    return list(early_stop.open_looks(DATA, draws=12, seed=15, stretches=(1.0, 10.0)))


def test_no_case_of_the_recordings_as_they_are_is_stopped(looks: list[early_stop.OpenLook]) -> None:
    least = policy.load().settings().least_chance
    assert least == 0.05
    assert not [one for one in looks if one.stretch == 1.0 and one.chance < least]


def test_of_the_noisy_cases_that_are_stopped_few_would_have_been_decided(looks: list[early_stop.OpenLook]) -> None:
    stopped = [one for one in looks if one.chance < 0.05]
    assert len(stopped) > 100
    assert np.mean([one.decided for one in stopped]) < 0.05
    assert np.mean([one.saved for one in stopped]) > 4


def test_the_table_has_a_row_for_each_level(looks: list[early_stop.OpenLook]) -> None:
    assert len(list(early_stop.rows(looks))) == 1 + 2 * len(early_stop.LEVELS)
