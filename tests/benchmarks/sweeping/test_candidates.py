"""What a sweep could try: in full, as overrides, and where a tuned entry would be; without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.worker import candidates
from benchmarks.worker.failures import Refused

ROOT = Path(__file__).parents[3]
PLACE = {"arch": "sm_90", "compute_units": 132}
CASE = "n4096_k4096_m64_fp16"


def test_the_knobs_of_a_case_are_told_in_full_and_as_overrides():
    [entry] = candidates.listed(ROOT, "gemm", [CASE], ["triton"], PLACE)
    assert (entry["case"], entry["backend"], entry["tier"], entry["dims"]["M"]) == (CASE, "triton", "nightly", 64)
    assert entry["why"] == ""
    assert entry["knobs"]["num_stages"] == {"default": 3, "type": "int", "required": False}
    assert entry["config"].keys() == entry["knobs"].keys() == entry["rule"].keys()
    assert entry["tuned"]["key"] == "n4096_k4096_m64"
    assert entry["tuned"]["file"].endswith("kernels/gemm/tuned.toml")
    assert len(entry["candidates"]) > 10
    for full, overrides in zip(entry["candidates"], entry["overrides"], strict=True):
        assert {**entry["config"], **overrides} == full
    assert entry["overrides"][0] == {}, "the present choice comes first"


def test_a_backend_without_candidates_and_an_architecture_without_a_rule_say_so():
    entries = {one["backend"]: one for one in candidates.listed(ROOT, "gemm", [CASE], [], PLACE)}
    assert (entries["blas"]["baseline"], entries["blas"]["candidates"], entries["blas"]["knobs"]) == (True, [], {})
    [other] = candidates.listed(ROOT, "gemm", [CASE], ["triton"], {"arch": "gfx90a", "compute_units": None})
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
        candidates.listed(ROOT, *asked, PLACE)


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
