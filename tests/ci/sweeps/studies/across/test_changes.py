"""Before and after: the two points of a change are found, whichever of them is the default."""

from __future__ import annotations

import math

import pytest

from benchmarks.studies.types import Change
from ci.sweeps.studies import changes
from ci.sweeps.studies.changes import PointCode, attached
from tests.ci.sweeps.studies.made_rows import frame

DECLARED = (
    Change("hint", "op", {"hint": False}, {"hint": True}, ("m*",)),
    Change("put", "op", {"scatter": "store"}, {"scatter": "put"}, ("m*",)),
    Change("wide", "op", {"rows": 8, "width": 64}, {"rows": 1, "width": 64}, ("m*",), "gluon"),
)
DEFAULT = {"hint": True, "scatter": "store", "programs": 4}


def row(seconds, backend="triton", config=DEFAULT, case="m1", **knobs):
    return {
        "operator": "op",
        "case": case,
        "backend": backend,
        "seconds": seconds,
        "ratio": seconds,
        "low": seconds * 0.9,
        "high": seconds * 1.1,
        "point": "x" if knobs else "",
        "is_anchor": not knobs and backend == "triton",
        "knobs": knobs,
        "config": {**config, **knobs},
    }


def rows():
    return frame(
        row(1.0),
        row(3.0, hint=False),
        row(0.5, scatter="put"),
        row(9.0, hint=False, scatter="put"),
        row(2.0, "gluon", {"rows": 4, "width": 0}, rows=8, width=64),
        row(1.0, "gluon", {"rows": 4, "width": 0}, rows=1, width=64),
        row(7.0, case="other", hint=False),
    )


def said(made, name):
    return changes.columns(made, DECLARED)[name]


def test_both_points_of_a_change_stand_in_the_row_that_was_tried():
    made = rows()
    assert said(made, "change").tolist() == ["", "hint", "put", "", "", "wide", ""]
    assert said(made, "before")[[1, 2, 5]].tolist() == [3e6, 1e6, 2e6]
    assert said(made, "after")[[1, 2, 5]].tolist() == [1e6, 0.5e6, 1e6]
    assert said(made, "change_ratio")[[1, 2, 5]].tolist() == pytest.approx([1 / 3, 0.5, 0.5])


def test_a_change_of_two_knobs_is_not_taken_for_one_of_them():
    """The point with both `hint` and `scatter` turned belongs to no declared change."""
    made = rows()
    assert said(made, "before")[1] == 3e6
    assert said(made, "change")[3] == ""


def test_a_point_without_a_time_makes_no_pair():
    made = rows()
    made.loc[1, "status"] = "wrong"
    assert said(made, "change")[1] == ""
    assert math.isnan(said(made, "before")[1])


def test_the_interval_of_a_change():
    """Against the anchor that of the point, turned over where it is the one before; of two points both count."""
    made = rows()
    half = math.log(1.1 / 0.9) / 2
    assert said(made, "ratio_low")[2] == pytest.approx(0.5 * math.exp(-half))
    assert said(made, "ratio_high")[1] == pytest.approx(math.exp(half) / 3)
    assert said(made, "ratio_high")[5] == pytest.approx(0.5 * math.exp(half * math.sqrt(2)))


def code_of(arch="sm_90", registers=10.0, backend="triton", case="m1", why="", **knobs):
    return PointCode("op", case, backend, arch, knobs, {"registers": registers} if not why else {}, why)


def test_numbers_of_the_code_stand_beside_the_times():
    found = [code_of(registers=100), code_of(registers=40, hint=False), code_of("gfx942", registers=1, hint=False)]
    made = attached(rows(), found)
    assert said(made, "registers_before")[1] == 40
    assert said(made, "registers_after")[1] == 100
    assert math.isnan(said(made, "registers_after")[2]), "this point was not compiled"
    assert math.isnan(said(rows(), "registers_after")[1]), "nothing was compiled"


def test_the_table_of_code_alone_has_every_architecture():
    """Where "put" is the default it is the point without knobs; a change of which one side is missing has no row."""
    found = [
        code_of("sm_90", 100),
        code_of("sm_90", 40, hint=False),
        code_of("gfx942", 7),
        code_of("gfx942", 8, scatter="store"),
        code_of("gfx942", 9, hint=False, why="failed: no"),
    ]
    made = changes.of_code(found, DECLARED).set_index(["change", "arch"])
    assert made.loc[("hint", "sm_90"), ["registers_before", "registers_after"]].tolist() == [40, 100]
    assert made.loc[("put", "gfx942"), ["registers_before", "registers_after"]].tolist() == [8, 7]
    assert made.loc[("hint", "gfx942"), "why"] == "failed: no"
    assert len(made) == 3


def test_a_default_that_its_launch_does_not_name_is_the_side_that_was_not_measured():
    unnamed = {"programs": 4}
    made = frame(
        row(1.0, config=unnamed), row(3.0, config=unnamed, hint=False), row(0.5, config=unnamed, scatter="put")
    )
    assert said(made, "change").tolist() == ["", "hint", "put"]
    assert said(made, "change_ratio")[[1, 2]].tolist() == pytest.approx([1 / 3, 0.5])
    assert said(frame(row(1.0, config=unnamed)), "change").tolist() == [""], "one row is no pair"
