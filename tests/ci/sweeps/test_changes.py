"""Before and after: the two points of a change are found, whichever of them is the default."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.points import Point
from benchmarks.studies.collectives import CUS, SCALING
from benchmarks.studies.types import Change, Drawn, Listed, Study, StudyPart
from ci.sweeps.pruning import PointCompiler
from ci.sweeps.studies import changes, folder
from ci.sweeps.studies.changes import PointCode, attached
from ci.sweeps.studies.columns import column, with_own
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


# Rows of a curve over CUs: what each takes, and its share of the library with as many.


LIBRARY = {"backend": "rccl", "baseline": True}


def curve():
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
    assert with_own(CUS, curve())["cus"].tolist()[1:6] == [8, 16, 8, 16, 8]
    assert with_own(CUS, curve())["cus"][[0, 6]].isna().all(), "the library's and the kernel's own choice is no count"
    assert with_own(CUS, curve())["maker"].tolist() == ["library"] * 3 + ["triton"] * 3 + ["gluon"]


def test_share_of_the_library_at_equal_cus():
    """Twice as fast with 8 CUs; nothing where the library has no time with as many, in this case or at all."""
    found = with_own(CUS, curve())["library_percent"]
    assert found[1] == pytest.approx(100)
    assert found[3] == pytest.approx(200)
    assert all(math.isnan(found[i]) for i in (0, 2, 4, 5, 6))


# The product alone is found for every row, and what the scatter adds to it is what was put in.


WHOLE = {"M": 64, "N": 4096, "K": 4096}
SHARE = {"M": 64, "N": 2048, "K": 4096, "of": 2}
FLOPS = 2 * 64 * 2048 * 4096
LINK = 64 * 2048 * 2


def scaled(**more):
    two = {"dims": WHOLE, "world": 2, "flops": FLOPS, "link_bytes": LINK}
    return frame(
        {"dims": SHARE, "seconds": 10e-6, "flops": FLOPS},
        {"dims": SHARE, "seconds": 8e-6, "flops": FLOPS, "backend": "blas+rccl"},
        {"dims": {**WHOLE, "of": 1}, "seconds": 16e-6, "flops": 2 * FLOPS},
        {**two, "seconds": 15e-6},
        {**two, "seconds": 20e-6, "backend": "bulk"},
        {**two, "seconds": 24e-6, "backend": "blas+rccl", **more},
    )


def of_scaling(made, name):
    return column(with_own(SCALING, made), name)


def test_overhead_is_against_who_multiplies():
    """Fused against the fused kernel alone; bulk and the library against the library's product."""
    found = of_scaling(scaled(), "overhead")
    assert found.tolist() == pytest.approx([1, 1, 1, 1.5, 2.5, 3.0])
    assert of_scaling(scaled(), "alone_us").tolist() == pytest.approx([10, 8, 16, 10, 8, 8])


def test_speedup_is_against_the_whole_product_on_one_rank():
    found = of_scaling(scaled(), "speedup")
    assert found[3] == pytest.approx(16 / 15)
    assert found[0] == pytest.approx(1.6)
    assert math.isnan(found[4]), "the library's product on one rank was not measured"


def test_nothing_is_compared_across_machines_regimes_or_failures():
    for more in ({"machine": "other"}, {"regime": "sustained"}):
        assert math.isnan(of_scaling(scaled(**more), "overhead")[5])
    failed = scaled()
    failed.loc[0, "status"] = "wrong"
    assert math.isnan(of_scaling(failed, "overhead")[3])


def test_a_point_of_the_share_is_not_the_product_that_others_are_compared_with():
    tried = scaled()
    tried.loc[0, "point"] = "abc"
    assert math.isnan(of_scaling(tried, "alone_us")[3])


def test_names_and_ranks():
    made = scaled()
    assert of_scaling(made, "ranks").tolist() == [2, 2, 1, 2, 2, 2]
    assert set(of_scaling(made, "whole")) == {"N 4096, K 4096, M 64"}
    assert of_scaling(made, "weak").tolist() == [
        *["2048 columns a rank, K 4096, M 64"] * 2,
        "4096 columns a rank, K 4096, M 64",
        *["2048 columns a rank, K 4096, M 64"] * 3,
    ]
    assert of_scaling(made, "line").tolist()[:2] == ["GEMM alone, triton", "GEMM alone, library"]
    assert of_scaling(made, "line_ranks").tolist()[3] == "triton, 2 ranks"
    assert of_scaling(frame({"dims": {"MB": 2}}), "whole").tolist() == [""]


def test_the_links_of_an_h200():
    """450 GB/s to all peers; the time of full links is no time of a rank alone."""
    made = scaled()
    assert of_scaling(made, "link_us").isna().tolist() == [True] * 3 + [False] * 3
    per_second = LINK / of_scaling(made, "link_us")[3] * 1e6
    assert per_second == pytest.approx(450e9)
    assert of_scaling(made, "link_percent")[3] == pytest.approx(LINK / 450e9 / 15e-6 * 100)
    assert of_scaling(made, "all_tflops")[3] == pytest.approx(2 * FLOPS / 15e-6 / 1e12)
    assert of_scaling(made, "all_tflops")[0] == pytest.approx(2 * FLOPS / 10e-6 / 1e12)
