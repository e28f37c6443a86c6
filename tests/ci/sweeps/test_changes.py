"""Before and after: the two points of a change are found, whichever of them is the default."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.points import Point
from benchmarks.studies.collectives import SCALING
from benchmarks.studies.types import Change, Drawn, Listed, Study, StudyPart
from ci.sweeps.pruning import PointCompiler
from ci.sweeps.studies import changes, folder
from ci.sweeps.studies.columns import with_own
from tests.ci.sweeps.made_sweeps import frame

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


def test_a_default_that_its_launch_does_not_name_is_the_side_that_was_not_measured():
    unnamed = {"programs": 4}
    made = frame(
        row(1.0, config=unnamed), row(3.0, config=unnamed, hint=False), row(0.5, config=unnamed, scatter="put")
    )
    assert said(made, "change").tolist() == ["", "hint", "put"]
    assert said(made, "change_ratio")[[1, 2]].tolist() == pytest.approx([1 / 3, 0.5])
    assert said(frame(row(1.0, config=unnamed)), "change").tolist() == [""], "one row is no pair"


# Machine code that was compiled with a study is kept, and read again as it was.


STUDY = Study("s", "S", "?", "", (StudyPart("op", ("*",)),), Listed(("M",), ("us",)), (Drawn("f", "curve", "F"),))
COMPILER = PointCompiler(Path(), Console())
METRICS = {"vgpr": 12, "vgpr_spills": 0, "instructions": 100, "bytes_per_store": 16.0}


def answer():
    """What the compiling program writes: one point of AMD's, one of NVIDIA's names, one without anything to compile."""
    told = {"case": "m1", "status": "ok"}
    points = [
        {**told, "backend": "triton", "knobs": {}, "metrics": METRICS},
        {**told, "backend": "triton", "knobs": {"hint": False}, "metrics": {"registers": 9, "scratch_bytes": 4}},
        {**told, "backend": "gluon", "knobs": {}, "status": "failed", "why": "no", "metrics": None},
        {**told, "backend": "rccl", "knobs": {}, "status": "undeclared", "why": "nothing to compile"},
    ]
    return {"points": points}


@pytest.fixture
def compiled(monkeypatch):
    asked = []

    def told(self, operator, batches, arch, units, title):
        asked.append((arch, units, [one.label for one in batches[0].points]))
        return answer()

    monkeypatch.setattr(PointCompiler, "told", told)
    points = {"m1": [Point("m1", "triton"), Point("m1", "triton", {"hint": False})]}
    found = changes.compiled(STUDY, lambda part, arch, units: points, "sm_90", 132, COMPILER)
    return asked, found


def test_every_point_is_compiled_for_the_device_and_for_amd(compiled):
    asked, found = compiled
    assert [(arch, units) for arch, units, _ in asked] == [("gfx942", None), ("gfx950", None), ("sm_90", 132)]
    assert len(asked[0][2]) == 2
    assert len(found) == 9
    assert found[0].numbers == {"registers": 12, "spills": 0, "instructions": 100, "store_bytes": 16}
    assert found[1].numbers == {"registers": 9, "spills": 4}
    assert found[2].why == "failed: no"


def test_it_is_kept_beside_the_trial_file_and_taken_over(compiled, tmp_path):
    file, place = tmp_path / "s.jsonl", tmp_path / "place"
    changes.beside(file).write_text(changes.text_of(compiled[1]))
    assert changes.beside(file).name == "s.code.json"
    assert changes.read(place) == []
    folder.keep_code(place, [file, tmp_path / "other.jsonl"])
    assert changes.read(place) == compiled[1]


def test_nothing_is_compiled_for_a_cpu(monkeypatch):
    monkeypatch.setattr(PointCompiler, "told", lambda *_: {"points": []})
    asked = []
    changes.compiled(STUDY, lambda part, arch, units: asked.append(arch) or {}, "cpu", None, COMPILER)
    assert asked == ["gfx942", "gfx950"]


# The product alone that a row of `scaling` is compared with.


def overhead(two=(), **alone):
    """Of a product on two ranks, 15 µs, against a rank's share alone, 10 µs; two, alone: what differs in them."""
    share = {"dims": {"M": 64, "N": 2048, "K": 4096, "of": 2}, "seconds": 10e-6}
    whole = {"dims": {"M": 64, "N": 4096, "K": 4096}, "seconds": 15e-6, "world": 2}
    return with_own(SCALING, frame({**share, **alone}, {**whole, **dict(two)}))["overhead"][1]


def test_a_row_is_compared_with_what_is_comparable():
    assert overhead() == pytest.approx(1.5)
    assert math.isnan(overhead({"backend": "bulk"})), "the library's product, which was not measured"
    for other in ({"machine": "other"}, {"regime": "sustained"}, {"status": "wrong"}, {"point": "abc"}):
        assert math.isnan(overhead(**other)), other
