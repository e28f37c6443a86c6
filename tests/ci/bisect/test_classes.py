"""Equal code makes no suspects."""

from __future__ import annotations

import numpy as np
import pytest

from ci.bisect.axes import OTHER_CAUSE, same_code, weights


def test_a_change_between_equal_labels_is_no_suspect() -> None:
    assert same_code(["a", "a", "b", "b", "a"], {}) == [True, False, True, False]


def test_what_is_not_known_is_a_suspect_unless_it_lies_between_equals() -> None:
    assert same_code([None, None, None], {}) == [False, False]
    assert same_code(["a", None, "a", None, "b"], {}) == [True, True, False, False]
    assert same_code([None, "a", None], {}) == [False, False]


def test_what_trials_launched_makes_equals_of_different_files() -> None:
    files = ["1", "1", "2", "3", "3", "4"]
    assert same_code(files, {}) == [True, False, False, True, False]
    assert same_code(files, {0: "x", 4: "x"}) == [True, True, True, True, False]
    assert same_code(files, {0: "x", 5: "y"}) == [True, False, False, True, False]


def test_the_prior_adds_up_and_keeps_a_little_for_another_cause() -> None:
    found = weights([True, False, True, False])
    assert found.sum() == pytest.approx(1.0)
    assert found[[0, 2]].sum() == pytest.approx(OTHER_CAUSE)
    assert found[1] == found[3]


@pytest.mark.parametrize("same", [[True] * 5, [False] * 5])
def test_where_all_changes_are_alike_all_are_suspects(same: list[bool]) -> None:
    assert np.all(weights(same) == pytest.approx(0.2))
