"""Printed ratios beside the numbers that they were made of."""

from __future__ import annotations

import math

import pandas as pd

from ci.tables.sheets import check_printed

FRAME = pd.DataFrame(
    {
        "a": [1279.0, 1279.0, 1279.0, 5.0, 5.0, float("nan"), 5.0],
        "b": [1063.0, 1063.0, 1063.0, 4.0, 4.0, 4.0, 4.0],
        "a/b": ["1.203x", "1.204x", "1.2", "1.25 ×", "better", "1.1x", ""],
    }
)


def test_a_ratio_is_right_if_it_rounds_to_its_own_digits():
    (found,) = check_printed(FRAME, [("a/b", "a", "b")])
    assert (found.column, found.rows) == ("a/b", 4)
    assert found.largest == 1279 / 1063 - 1.2
    assert [(one.row, one.printed) for one in found.off] == [(1, "1.204x"), (4, "better")]
    assert found.off[0].ratio == 1279 / 1063


def test_without_numbers_there_is_nothing_to_check():
    (found,) = check_printed(FRAME.assign(a=float("nan")), [("a/b", "a", "b")])
    assert (found.rows, found.off) == (0, ())
    assert math.isnan(found.largest)
    assert check_printed(FRAME[["b", "a/b"]], [("a/b", "a", "b")]) == ()
