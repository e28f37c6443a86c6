"""Exact series in asv's format: read back by asv itself, idempotent, beside the measured records."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

from asv.results import Results

from ci.git.repository import Commit
from ci.isa import series
from ci.isa.compiled import parse
from ci.records.store import load
from tests.ci.isa.documents import document, entry

COMMIT = Commit("0123456789abcdef0123456789abcdef01234567", 1_790_000_000_000, "subject")
DOCUMENT = document(
    entry("gemm", cases=["one", "two"]),
    entry("gemm", arch="gfx950", cases=["one"], vgpr=96),
    entry("gather", label="push", cases=["one"]),
    entry("gather", "b", label="pull", cases=["one"]),
    entry("gather", arch="gfx950", status="failed", cases=["one"], label="push"),
    entry("quiet", status="unsupported"),
    triton="3.8.0+git1",
)
RECORDED = Path(__file__).resolve().parents[2] / "recordings" / "isa" / "triton-3.8.0.json"


def test_asv_reads_what_is_written(tmp_path):
    path = series.record(DOCUMENT, COMMIT, tmp_path)
    assert path == tmp_path / "isa" / "01234567-triton3.8.0.json"
    found = Results.load(str(path), machine_name="isa")
    params = found.get_result_params("gemm.track_isa_vgpr")
    assert params == [["'triton'"], ["'one'", "'two'"], ["'gfx942'", "'gfx950'"]]
    values = found.get_result_value("gemm.track_isa_vgpr", params)
    assert values[:3] == [86, 96, 86]
    assert math.isnan(values[3])


def test_several_compilations_of_a_case_are_told_apart_and_failures_are_null():
    row = series.rows(DOCUMENT, 0)["gather.track_isa_vgpr"]
    assert row[1] == [["'triton'"], ["'one [push]'", "'one [pull]'", "'one'"], ["'gfx942'", "'gfx950'"]]
    values = dict(zip([(c, a) for c in row[1][1] for a in row[1][2]], row[0], strict=True))
    assert values["'one'", "'gfx950'"] is None
    assert values["'one [pull]'", "'gfx942'"] == 86
    assert math.isnan(values["'one [pull]'", "'gfx950'"])


def test_less_is_better_in_every_series():
    names = {name.partition(".track_isa_")[2] for name in series.rows(DOCUMENT, 0)}
    assert names == set(series.SERIES)
    assert series.rows(DOCUMENT, 0)["gemm.track_isa_empty_wave_slots"][0][0] == 4


def test_twice_is_once_and_other_kernels_are_kept(tmp_path):
    path = series.record(DOCUMENT, COMMIT, tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.json")}
    series.record(DOCUMENT, COMMIT, tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.json")} == before
    series.record(document(entry("other")), COMMIT, tmp_path)
    names = set(json.loads(path.read_text())["results"])
    assert {"gemm.track_isa_vgpr", "other.track_isa_vgpr"} <= names


def test_a_torn_file_is_made_anew(tmp_path):
    path = series.record(DOCUMENT, COMMIT, tmp_path)
    whole = path.read_text()
    path.write_text(whole[:100])
    series.record(DOCUMENT, COMMIT, tmp_path)
    assert path.read_text() == whole


def test_grids_of_two_commits_are_united(tmp_path):
    series.record(document(entry(cases=["one"])), COMMIT, tmp_path)
    series.record(document(entry(cases=["two"])), Commit("f" * 40, 1_790_000_100_000, "later"), tmp_path)
    grids = json.loads((tmp_path / "benchmarks.json").read_text())
    assert grids["gemm.track_isa_vgpr"]["params"][1] == ["'one'", "'two'"]
    assert grids["gemm.track_isa_vgpr"]["unit"] == "registers"


def test_the_measured_records_do_not_mistake_them_for_times(tmp_path):
    series.record(DOCUMENT, COMMIT, tmp_path)
    frame = load(tmp_path)
    assert len(frame) == 0
    assert frame.attrs["problems"] == []


def test_the_files_are_byte_for_byte_what_they_were(tmp_path, golden, monkeypatch):
    """Values, order and separators as written before result files were parsed into types: records are not rewritten."""
    monkeypatch.setattr(series.platform, "python_version_tuple", lambda: ("3", "11", "0"))
    recorded = RECORDED.read_text()
    asked = series.Asked(("gfx942",), "pr", ("sample_wgrad",), ("g*",), (), triton="3.8.0")
    series.record(DOCUMENT, COMMIT, tmp_path)
    path = series.record(parse(recorded, "recorded"), COMMIT, tmp_path, asked)
    golden("isa/series.json", path.read_text())
    golden("isa/series_benchmarks.json", (tmp_path / "benchmarks.json").read_text())
    assert series.is_recorded(tmp_path, COMMIT, asked)
    assert not series.is_recorded(tmp_path, COMMIT, dataclasses.replace(asked, tier="nightly"))
