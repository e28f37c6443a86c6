"""Names of points, the file that asks for them, and how they stand in a trial line."""

from __future__ import annotations

import json

import pytest

from benchmarks import points
from benchmarks.points import Batch, Point, PointsFile, UntimedPoint
from benchmarks.shapes import Unfit

FILE = {
    "sweep": "s1",
    "operator": "gemm",
    "rung": 0,
    "rounds": 8,
    "batches": [{"case": "c", "anchor": "triton", "points": [{"backend": "triton", "knobs": {"block_m": 64}}]}],
}


def with_batch(**changed: object) -> dict:
    return {**FILE, "batches": [{**FILE["batches"][0], **changed}]}


def test_an_id_depends_on_case_backend_and_knobs_and_not_on_their_order():
    known = Point("c", "triton", {"block_m": 64, "tma": True})
    assert known.id == Point("c", "triton", {"tma": True, "block_m": 64}).id
    assert len(known.id) == points.ID_DIGITS
    fewer = Point("c", "triton", {"block_m": 64})
    others = [Point("d", "triton", known.knobs), Point("c", "gluon", known.knobs), fewer]
    assert known.id not in {other.id for other in others}
    assert Point("c", "blas").id == ""
    assert known.label == f"triton@{known.id}"
    assert points.split(f"head/{known.label}") == ("triton", known.id)
    assert points.split("head/blas") == ("blas", "")


def test_an_id_is_the_same_on_every_machine():
    assert Point("c", "triton", {"block_m": 64}).id == "327bc939a7"


def test_a_file_is_read_as_it_was_written(tmp_path):
    file = PointsFile("s1", "gemm", 2, 8, (Batch("c", "triton", (Point("c", "triton", {"b": 1}), Point("c", "blas"))),))
    path = tmp_path / "points.json"
    path.write_text(json.dumps(file.as_json()))
    assert points.read(path) == file
    assert points.parse(FILE).regime == "spaced"


def test_points_that_are_not_timed_are_written_and_read_too(tmp_path):
    twin, refused = (Point("c", "triton", {"b": b}) for b in (2, 3))
    untimed = (UntimedPoint(twin, "triton"), UntimedPoint(refused, "", "too much LDS"))
    file = PointsFile("s1", "gemm", 0, 8, (Batch("c", "triton", (Point("c", "triton", {"b": 1}),), untimed),))
    path = tmp_path / "points.json"
    path.write_text(json.dumps(file.as_json()))
    assert points.read(path) == file


def test_the_anchor_among_its_points_is_the_anchor():
    [batch] = points.parse(with_batch(points=[{"backend": "triton"}, {"backend": "blas"}])).batches
    assert batch.points == (Point("c", "blas"),)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({**FILE, "sweep": 3}, "sweep is 3"),
        ({**FILE, "rounds": 0}, "rounds is 0; allowed: a whole number from 1"),
        ({**FILE, "batches": []}, r"batches is \[\]; allowed: a list of at least one batch"),
        ({**FILE, "regime": "tired"}, 'regime is "tired"; allowed: spaced, sustained'),
        (with_batch(points=[{"backend": "triton", "knobs": []}]), r"points\[0\].knobs is \[\]; allowed: an object"),
        (with_batch(points=[{"backend": "a@b"}]), "backends without @"),
        (with_batch(points=[{"backend": "b"}, {"backend": "b"}]), "allowed: each point once"),
        (with_batch(anchor=None), "anchor is null"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path, value, words):
    path = tmp_path / "points.json"
    path.write_text(json.dumps(value))
    with pytest.raises(ValueError, match=words) as error:
        points.read(path)
    assert str(path) in str(error.value)


def test_a_file_that_is_none_is_named(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        points.read(tmp_path / "nowhere.json")
    (tmp_path / "torn.json").write_text('{"sweep": ')
    with pytest.raises(ValueError, match=r"torn.json: Expecting value"):
        points.read(tmp_path / "torn.json")


def test_a_line_names_its_points_as_they_are():
    point = Point("c", "triton", {"b": 1})
    sweep = {"points": {point.id: point.as_json()}}
    points.check_line(sweep, ["c"])
    assert points.without_id(f"head/{point.label}", sweep["points"], "c") == "head/triton"
    assert points.without_id("head/blas", sweep["points"], "c") == "head/blas"
    with pytest.raises(Unfit, match="the digest of its case"):
        points.check_line(sweep, ["another"])
    with pytest.raises(Unfit, match="one case"):
        points.check_line(sweep, ["c", "d"])
    with pytest.raises(Unfit, match="the backend triton"):
        points.without_id(f"head/gluon@{point.id}", sweep["points"], "c")
