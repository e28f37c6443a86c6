"""From a points file to batches and to what a run measures: a fault costs its point, nothing is measured twice."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import points, sweeping, trial_file
from benchmarks.channel import Refused
from benchmarks.plan import Protocol, UsageError, check_selection
from benchmarks.points import Batch, Point, PointsFile, UntimedPoint
from benchmarks.shapes import Unfit
from benchmarks.trial_file import FORMAT, Status
from benchmarks.worker import declare
from kernels.spec import Cost
from tests.benchmarks.conftest import lines_of
from tests.kit import ROOT, until

DECLARATION = {
    "kernel": "gemm",
    "backends": ["triton", "blas"],
    "baselines": ["blas"],
    "cases": [{"name": "c", "tier": "sweep", "world": 1, "dtype": "fp16"}],
    "costs": {"c": {"flops": 10**13, "hbm_bytes": 10**9, "link_bytes": 0, "payload_bytes": 0}},
    "cost_errors": {},
    "method": None,
    "knobs": {"triton": ["block_m"], "blas": []},
}
GPU = {
    **dict.fromkeys(("device", "chip_id")),
    "kind": "gpu",
    "arch": "sm_90",
    "compute_units": 132,
    "count": 1,
    "memory_bytes": 20 * 10**9,
}
POINTS = tuple(Point("c", "triton", {"block_m": m}) for m in range(1, 24))
FILE = PointsFile("s1", "gemm", 0, 8, (Batch("c", "triton", POINTS),))


def planned(file=FILE):
    return list(sweeping.planned_batches(0, file.batches[0], DECLARATION, GPU, Protocol()))


def test_a_batch_is_split_where_its_buffers_do_not_fit():
    parts = planned()
    assert sweeping.most_points(Cost(**DECLARATION["costs"]["c"]), 1, GPU) == 10  # 16 GB - 6 GB, of 1 GB each
    assert [len(part.batch.points) for part in parts] == [7, 8, 8]
    assert sum((part.batch.points for part in parts), ()) == POINTS
    assert all(part.case.arms[0].key == "head/triton" for part in parts), "every part has the anchor, first"
    assert parts[1].sweep_field(FILE)["points"].keys() == {point.id for point in POINTS[7:15]}


def test_what_is_not_timed_is_in_the_line_of_its_point_and_in_one_line_only():
    others = ((50, POINTS[0]), (51, POINTS[9]))
    twins = [UntimedPoint(Point("c", "triton", {"block_m": m}), other.label) for m, other in others]
    default = UntimedPoint(Point("c", "triton", {"block_m": 52}), "triton")
    refused = UntimedPoint(Point("c", "triton", {"block_m": 53}), "", "cannot load: 300 KB")
    batch = Batch("c", "triton", POINTS, (*twins, default, refused))
    parts = planned(dataclasses.replace(FILE, batches=(batch,)))
    where = [{one.point.knobs["block_m"] for one in part.batch.untimed} for part in parts]
    assert where == [{50, 52, 53}, {51}, set()]
    arms = {arm.key: {"status": "ok", "seconds": [1e-3]} for arm in parts[0].case.arms}
    found = parts[0].untimed(arms)
    shared = {"status": "ok", "seconds": [1e-3], "same_as": f"head/{POINTS[0].label}"}
    assert found[f"head/{twins[0].point.label}"] == shared
    assert found[f"head/{refused.point.label}"] == {"status": "skipped", "why": "cannot load: 300 KB", "detail": ""}
    assert {one.point.id for one in parts[0].batch.untimed} <= parts[0].sweep_field(FILE)["points"].keys()


def test_unknown_names_are_refused_before_anything_runs():
    for wrong, words in (
        (Batch("d", "triton", ()), "no case fits 'd'; of 1 the nearest are gemm/c"),
        (Batch("c", "hip", ()), "no backend 'hip'; known: blas, triton"),
        (Batch("c", "triton", (Point("c", "ck", {"a": 1}),)), "no backend 'ck'"),
    ):
        with pytest.raises(UsageError, match=words):
            check_selection(
                sweeping.selected(PointsFile("s", "gemm", 0, 8, (wrong,))), [{"gemm": DECLARATION}], ["gemm"]
            )
    check_selection(sweeping.selected(FILE), [{"gemm": DECLARATION}], ["gemm"])


def line(rung, arms, sweep="s1", batch=0):
    points = {point.id: point.as_json() for point in POINTS if f"head/{point.label}" in arms}
    about = {"id": sweep, "rung": rung, "batch": batch, "anchor": "triton", "points": points}
    return json.dumps({"format": FORMAT, "kernel": "gemm", "sweep": about, "cases": {"c": {"arms": arms}}})


def test_finished_points_are_left_out_and_lost_ones_are_known(tmp_path):
    ok = {"status": "ok"}
    first, second, third = (f"head/{point.label}" for point in POINTS[:3])
    path = tmp_path / "trials.jsonl"
    whole = [
        line(0, {"head/triton": ok, first: ok, second: {"status": "hang", "why": "gave no answer"}}),
        line(0, {"head/triton": ok, third: ok}, sweep="another"),
        json.dumps({"format": FORMAT, "kernel": "gemm", "cases": {"c": {"arms": {third: ok}}}}),
    ]
    path.write_text("\n".join([*whole, line(0, {third: ok})[:90]]))  # the last one is torn
    known = sweeping.earlier_points(path, FILE)
    left = known.left(FILE, 0)
    assert left is not None
    assert left.points == POINTS[2:]
    again = PointsFile("s1", "gemm", 1, 8, FILE.batches)
    assert known.left(again, 0) == FILE.batches[0], "a later rung measures them again"
    [(where, failure)] = known.lost.items()
    assert where == ("c", second)
    assert (failure.status, failure.why) == (Status.HANG, "not tried again: gave no answer")


def test_a_batch_of_arms_without_knobs_is_done_by_its_number(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_text(line(0, {"head/triton": {"status": "ok"}, "head/blas": {"status": "ok"}}, batch=1) + "\n")
    plain = Batch("c", "triton", (Point("c", "blas"),))
    file = PointsFile("s1", "gemm", 0, 8, (plain, plain, Batch("c", "triton", ())))
    known = sweeping.earlier_points(path, file)
    assert [known.left(file, index) for index in range(3)] == [plain, None, file.batches[2]]
    assert sweeping.earlier_points(tmp_path / "nowhere.jsonl", file).left(file, 1) == plain


# Names of points, the file that asks for them, and how they stand in a trial line.


POINT = {"case": "c", "backend": "triton"}
WRITTEN = {
    "sweep": "s1",
    "operator": "gemm",
    "rung": 0,
    "rounds": 8,
    "batches": [{"case": "c", "anchor": "triton", "points": [{**POINT, "knobs": {"block_m": 64}}]}],
}


def with_batch(**changed):
    return {**WRITTEN, "batches": [{**WRITTEN["batches"][0], **changed}]}


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
    timed, twin, refused = (Point("c", "triton", {"b": b}) for b in (1, 2, 3))
    untimed = (UntimedPoint(twin, "triton"), UntimedPoint(refused, "", "too much LDS"))
    file = PointsFile("s1", "gemm", 2, 8, (Batch("c", "triton", (timed, Point("c", "blas")), untimed),))
    path = tmp_path / "points.json"
    path.write_text(json.dumps(dataclasses.asdict(file)))
    assert points.read(path) == file


def test_the_anchor_among_its_points_is_the_anchor():
    [batch] = points.parse(with_batch(points=[POINT, POINT | {"backend": "blas"}])).batches
    assert batch.points == (Point("c", "blas"),)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({**WRITTEN, "sweep": 3}, "sweep is 3"),
        ({**WRITTEN, "rounds": 0}, "rounds is 0; allowed: a whole number from 1"),
        ({**WRITTEN, "batches": []}, r"batches is \[\]; allowed: a list of at least one batch"),
        (with_batch(points=[POINT | {"knobs": []}]), r"points\[0\].knobs is \[\]; allowed: an object"),
        (with_batch(points=[POINT | {"backend": "a@b"}]), "backends without @"),
        (with_batch(points=[POINT | {"backend": "b"}] * 2), "allowed: each point once"),
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
    with pytest.raises(OSError, match="No such file"):
        points.read(tmp_path / "nowhere.json")
    (tmp_path / "torn.json").write_text('{"sweep": ')
    with pytest.raises(ValueError, match=r"torn.json is .Expecting value"):
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


# `python -m benchmarks run --points` on real processes: every fault costs its point, and nothing is measured twice.


SWEPT = (Path(__file__).parent / "swept.py").read_text()


@pytest.fixture
def tree(toy_tree):
    return toy_tree("tree", {"toy/swept.py": SWEPT})


def point(case, **knobs):
    return Point(case, "ours", knobs)


def asked(tmp_path, rung, *batches):
    path = tmp_path / f"rung{rung}.json"
    path.write_text(json.dumps(dataclasses.asdict(PointsFile("s1", "swept", rung, 4, batches))))
    return path


def command(tree, points, out):
    options = ["--points", points, "--out", out, "--point-deadline", 6, "--progress", "none"]
    side = json.dumps({"path": str(tree), "commit": "c0", "dirty": False})
    return [sys.executable, "-m", "benchmarks", "run", "--tree", f"head={side}", *map(str, options)]


def run(*arguments):
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True)


def arms_of(line):
    [(_, entry)] = line["cases"].items()
    return {key.removeprefix("head/"): arm for key, arm in entry["arms"].items()}


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_every_fault_costs_its_point(tree, tmp_path, toy_log):
    good, slow = [point("one", tile=t) for t in (1, 2)], point("one", tile=3, fault="slow")
    bad = {fault: point("one", fault=fault) for fault in ("wrong", "dies", "hangs", "unsupported")}
    unknown = point("one", tyle=1)
    batches = (
        Batch("one", "ours", (*good, Point("one", "library"))),
        Batch("one", "ours", (slow, *bad.values(), unknown)),
        Batch("two", "library", (point("two", tile=1),)),
        Batch("crowd", "ours", (point("crowd", tile=1),)),
    )
    points, out = asked(tmp_path, 0, *batches), tmp_path / "trials.jsonl"
    started = subprocess.Popen(command(tree, points, out), cwd=ROOT, stderr=subprocess.DEVNULL)
    until(lambda: out.exists() and out.read_bytes().endswith(b"\n"))
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    [first] = lines_of(out)
    trial_file.check(first)
    assert first["sweep"] == {
        "id": "s1", "rung": 0, "batch": 0, "anchor": "ours", "points": {one.id: one.as_json() for one in good}
    }  # fmt: skip
    arms = arms_of(first)
    assert {label: (arm["status"], len(arm["seconds"]), arm["knobs"]) for label, arm in arms.items()} == {
        "ours": ("ok", 4, {"tile": 16}),
        good[0].label: ("ok", 4, {"tile": 1}),
        good[1].label: ("ok", 4, {"tile": 2}),
        "library": ("ok", 4, {}),
    }
    assert first["protocol"]["warm_up"]["rounds"] == 1

    done = run(tree, points, out)
    assert done.returncode == 1, done.stderr
    _, second, of_two, skipped = lines_of(out)
    arms = arms_of(second)
    assert {fault: arms[one.label]["status"] for fault, one in bad.items()} == {
        "wrong": "wrong", "dies": "crash", "hangs": "hang", "unsupported": "unsupported"
    }  # fmt: skip
    assert "gave no answer within 6 s in step: first call" in arms[bad["hangs"].label]["why"]
    assert "has no knob 'tyle'; its knobs are: tile, fault" in arms[unknown.label]["why"]
    assert arms[slow.label]["status"] == arms["ours"]["status"] == "ok"
    built = collections.Counter(text for text in toy_log.read_text().splitlines() if " built one " in text)
    assert [built[f"tree built one {tile} sound"] for tile in (1, 2)] == [1, 1], "finished points are not built again"
    assert {arm["status"] for arm in arms_of(of_two).values()} == {"ok"}
    assert {arm["status"] for arm in arms_of(skipped).values()} == {"skipped"}

    again = run(tree, points, out)
    assert (again.returncode, "nothing is left to measure" in again.stderr) == (0, True)
    later = run(tree, asked(tmp_path, 1, Batch("one", "ours", (slow, bad["hangs"], bad["dies"]))), out)
    assert later.returncode == 1, later.stderr
    last = lines_of(out)[-1]
    assert last["trial"] == last["sweep"]["rung"] == 1
    arms = arms_of(last)
    assert arms[slow.label]["status"] == "ok"
    for fault, status in (("hangs", "hang"), ("dies", "crash")):
        arm = arms[bad[fault].label]
        assert (arm["status"], arm["why"].startswith("not tried again: ")) == (status, True)


# What a sweep could try: in full, as overrides, and where a tuned entry would be; without a GPU.


PLACE = {"arch": "sm_90", "compute_units": 132}
CASE = "n4096_k4096_m64_fp16"


def test_a_backend_without_candidates_and_an_architecture_without_a_rule_say_so():
    entries = {one["backend"]: one for one in declare.listed("gemm", [CASE], [], PLACE, ["kernels.gemm"])}
    assert (entries["blas"]["baseline"], entries["blas"]["candidates"], entries["blas"]["knobs"]) == (True, [], {})
    [other] = declare.listed("gemm", [CASE], ["triton"], {"arch": "gfx90a", "compute_units": None}, ["kernels.gemm"])
    assert other["why"].startswith("no GEMM configuration for arch 'gfx90a'")
    assert (other["config"], other["candidates"]) == (None, [])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("gem", [], []), "no kernel 'gem'; known: .*gemm"),
        (("gemm", ["m64*"], []), r"no case fits 'm64\*'; known: n4096"),
        (("gemm", [], ["hip"]), "no backend fits 'hip'; known: blas, torch, triton"),
    ],
)
def test_unknown_names_are_refused(asked, words):
    with pytest.raises(Refused, match=words):
        declare.listed(*asked, PLACE, ["kernels.gemm"])


@pytest.mark.slow
def test_the_command_prints_json_and_refuses_an_unknown_architecture(toy_tree):
    tree = toy_tree("tree", {"toy/swept.py": (Path(__file__).parent / "swept.py").read_text()})
    command = [sys.executable, "-m", "benchmarks", "candidates", "--tree", str(tree), "--kernel", "swept", "--json"]
    done = subprocess.run([*command, "--backend", "ours", "--case", "o*"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["kernel"], told["arch"]) == ("swept", "cpu")
    [entry] = told["entries"]
    assert (entry["config"], entry["candidates"]) == ({"tile": 16, "fault": ""}, [])
    wrong = subprocess.run([*command, "--arch", "gfx1"], cwd=ROOT, capture_output=True, text=True)
    assert wrong.returncode == 3
    assert "architecture 'gfx1' is not known; known: cpu, gfx942" in wrong.stderr
