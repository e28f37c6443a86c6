"""Trial lines on disk: whole or not at all, whoever writes beside us and whatever the disk does."""

from __future__ import annotations

import copy
import errno
import gzip
import json
import math
import multiprocessing
import os

import pytest

from benchmarks import trial_file as notes
from benchmarks.points import Point
from tests.ci.made_trials import trial


def test_a_line_carries_its_digest_and_no_nan():
    bare = {key: value for key, value in trial().items() if key not in ("id", "format", "version")}
    line = notes.finished({**bare, "error": math.nan, "deep": [{"x": math.inf, 3: 1.5}]})
    assert line["error"] is None
    assert line["deep"] == [{"x": None, "3": 1.5}]
    assert (line["format"], line["version"]) == ("ridgeline-trial", 1)
    assert line["id"] == notes.finished({**bare, "error": None, "deep": [{"x": None, "3": 1.5}]})["id"]
    assert line["id"] != notes.finished({**bare, "session": "another"})["id"]
    assert len(line["id"]) == 16


def test_what_is_not_a_trial_is_not_written():
    with pytest.raises(notes.Unfit, match="session is null; allowed: a value; it is missing"):
        notes.finished({"kernel": "gemm"})


@pytest.mark.parametrize("world", [True, 1.0, "1"])
def test_a_declaration_that_only_equals_one_that_was_found_right_is_refused(world):
    line = notes.finished(trial())
    line["trees"]["head"]["declaration"]["cases"][0]["world"] = 1
    notes.check(line)
    line = copy.deepcopy(line)
    line["trees"]["head"]["declaration"]["cases"][0]["world"] = world
    with pytest.raises(notes.Unfit, match=r"trees\.head\.declaration\.cases\[0\]\.world is"):
        notes.check(line)


def test_a_declaration_of_another_operator_is_refused_each_time():
    line = notes.finished(trial())
    for _ in range(2):
        with pytest.raises(notes.Unfit, match="softmax, the operator of the trial"):
            notes.check({**line, "kernel": "softmax"})


def test_gzip_members_read_as_one_file(tmp_path):
    path = tmp_path / "trials.jsonl.gz"
    for number in range(3):
        notes.append(path, {"n": number})
    with gzip.open(path, "rt") as lines:
        assert [json.loads(line)["n"] for line in lines] == [0, 1, 2]


def test_a_torn_line_stays_alone(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_text('{"n": 0}\n{"n": ')
    notes.append(path, {"n": 2})
    assert path.read_text().splitlines() == ['{"n": 0}', '{"n": ', '{"n":2}']


def test_a_full_disk_loses_nothing_written_before(tmp_path, monkeypatch):
    path = tmp_path / "trials.jsonl"
    notes.append(path, {"n": 0})
    real = os.write

    def little(descriptor, data):
        if len(data) > 5:
            return real(descriptor, bytes(data[:5]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(notes.os, "write", little)
    with pytest.raises(notes.OutputError, match="No space left on device; trials written before are safe"):
        notes.append(path, {"n": 1})
    assert path.read_text() == '{"n":0}\n'


def test_a_file_that_cannot_be_written_is_said_before_measuring(tmp_path):
    with pytest.raises(notes.OutputError, match="Is a directory; choose another --out"):
        notes.check_writable(tmp_path)


def _write_many(path, name):
    for number in range(40):
        notes.append(path, {"who": name, "n": number, "filler": "x" * 5000})


@pytest.mark.slow
def test_two_writers_lose_nothing(tmp_path):
    path = tmp_path / "trials.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((line["who"], line["n"]) for line in lines) == [(name, n) for name in "ab" for n in range(40)]


def of_a_sweep(**changed):
    """A line of a sweep with an anchor, a point, and a point that is the same code."""
    line = trial()
    [case] = list(line["cases"])[:1]
    backend = line["trees"]["head"]["declaration"]["backends"][0]
    first, second = (Point(case, backend, {"tile": tile}) for tile in (1, 2))
    timed = next(arm for arm in line["cases"][case]["arms"].values() if "seconds" in arm)
    arms = {f"head/{backend}": timed, f"head/{first.label}": timed}
    arms[f"head/{second.label}"] = {**timed, "same_as": f"head/{first.label}"}
    points = {one.id: one.as_json() for one in (first, second)}
    sweep = {"id": "s1", "rung": 0, "batch": 0, "anchor": backend, "points": points}
    return {**line, "cases": {case: {**line["cases"][case], "arms": arms}}, "sweep": sweep, **changed}


def test_a_line_of_a_sweep_has_arms_of_its_points_and_of_no_others():
    line = of_a_sweep()
    notes.check(line)
    [entry] = line["cases"].values()
    *_, last = entry["arms"]
    entry["arms"][last]["same_as"] = "head/nobody"
    with pytest.raises(notes.Unfit, match='same_as is "head/nobody"; allowed: an arm of the case'):
        notes.check(line)
    line = of_a_sweep()
    line["sweep"]["points"].popitem()
    with pytest.raises(notes.Unfit, match="allowed: backends and cases that the declaration"):
        notes.check(line)
    with pytest.raises(notes.Unfit, match="allowed: backends and cases that the declaration"):
        notes.check({key: value for key, value in of_a_sweep().items() if key != "sweep"})
