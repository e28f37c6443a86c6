"""Rows of a curve over CUs: what each takes, and its share of the library with as many."""

from __future__ import annotations

import math

import pytest

from benchmarks.studies.collectives import CUS
from ci.sweeps.studies.columns import with_own
from tests.ci.sweeps.studies.made_rows import frame

LIBRARY = {"backend": "rccl", "baseline": True}


def rows():
    return frame(
        {**LIBRARY, "config": {"channels": 0}, "seconds": 1.0},
        {**LIBRARY, "config": {"channels": 8}, "point": "a", "seconds": 4.0},
        {**LIBRARY, "config": {"channels": 16}, "point": "b", "seconds": 2.0, "status": "unsupported"},
        {"config": {"programs": 8}, "point": "c", "seconds": 2.0},
        {"config": {"programs": 16}, "point": "d", "seconds": 1.0},
        {"config": {"programs": 8}, "point": "e", "seconds": 1.0, "case": "other"},
        {"config": {"programs": 0}, "seconds": 1.0, "backend": "gluon"},
    )


def test_what_a_row_takes():
    assert with_own(CUS, rows())["cus"].tolist()[1:6] == [8, 16, 8, 16, 8]
    assert with_own(CUS, rows())["cus"][[0, 6]].isna().all(), "the library's and the kernel's own choice is no count"
    assert with_own(CUS, rows())["maker"].tolist() == ["library"] * 3 + ["triton"] * 3 + ["gluon"]


def test_share_of_the_library_at_equal_cus():
    """Twice as fast with 8 CUs; nothing where the library has no time with as many, in this case or at all."""
    found = with_own(CUS, rows())["library_percent"]
    assert found[1] == pytest.approx(100)
    assert found[3] == pytest.approx(200)
    assert all(math.isnan(found[i]) for i in (0, 2, 4, 5, 6))
