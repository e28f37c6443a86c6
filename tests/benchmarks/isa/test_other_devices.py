"""Code can be compiled for a part of a chip, without one: the count of compute units that is assumed can be given."""

from __future__ import annotations

import json

import pytest

from benchmarks.isa.__main__ import main

pytestmark = pytest.mark.slow


def metrics(tmp_path, *options):
    out = tmp_path / "out.json"
    asked = ["--arch", "gfx942", "--kernel", "gemm", "--case", "n4096_k14336_m64_fp16", "--backend", "triton"]
    assert main(["metrics", *asked, *options, "--cache", str(tmp_path), "--out", str(out), "--progress", "none"]) == 0
    (entry,) = json.loads(out.read_text())["entries"]
    return entry["hash"], entry["metrics"]["atomics"]


def test_a_part_of_a_chip_gets_other_code_than_the_whole(tmp_path):
    """64 tiles fill 304 CUs with 4 slices each, whose arrivals are counted; 20 CUs are busy without any."""
    whole, part = metrics(tmp_path), metrics(tmp_path, "--compute-units", "20")
    assert whole == metrics(tmp_path, "--compute-units", "304")
    assert whole[0] != part[0]
    assert [bool(atomics) for _, atomics in (whole, part)] == [True, False]
