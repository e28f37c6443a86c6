"""What a sweep could try: in full, as overrides, and where a tuned entry would be; without a GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.worker import declare
from benchmarks.worker.failures import Refused

ROOT = Path(__file__).parents[3]
PLACE = {"arch": "sm_90", "compute_units": 132}
CASE = "n4096_k4096_m64_fp16"


def test_the_knobs_of_a_case_are_told_in_full_and_as_overrides():
    [entry] = declare.listed(ROOT, "gemm", [CASE], ["triton"], PLACE)
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
    entries = {one["backend"]: one for one in declare.listed(ROOT, "gemm", [CASE], [], PLACE)}
    assert (entries["blas"]["baseline"], entries["blas"]["candidates"], entries["blas"]["knobs"]) == (True, [], {})
    [other] = declare.listed(ROOT, "gemm", [CASE], ["triton"], {"arch": "gfx90a", "compute_units": None})
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
        declare.listed(ROOT, *asked, PLACE)


@pytest.mark.slow
def test_the_command_prints_json_and_refuses_an_unknown_architecture(toy_tree):
    tree = toy_tree("tree", {"toy/swept.py": (Path(__file__).parent / "swept.py").read_text()})
    command = [sys.executable, "-m", "benchmarks", "candidates", "--tree", str(tree), "--kernel", "swept", "--json"]
    done = subprocess.run([*command, "--backend", "ours", "--case", "o*"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["kernels"], told["arch"]) == (["swept"], "cpu")
    [entry] = told["entries"]
    assert (entry["config"], entry["candidates"]) == ({"tile": 16, "fault": ""}, [])
    wrong = subprocess.run([*command, "--arch", "gfx1"], cwd=ROOT, capture_output=True, text=True)
    assert wrong.returncode == 3
    assert "architecture 'gfx1' is not known; known: cpu, gfx942" in wrong.stderr


def _commands(*lines: list[str]) -> list[str]:
    """What one program says that runs these commands, on stderr."""
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    command = [sys.executable, "-m", "benchmarks", "commands"]
    done = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=False)
    return done.stderr.splitlines()


@pytest.mark.slow
def test_one_program_answers_for_several_kernels_and_goes_on_after_a_refusal(tmp_path):
    asked = ["benchmarks", "candidates", "--arch", "gfx942", "--case", "w2_fp16_2MB"]
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    said = _commands(
        [*asked, "--kernel", "all_gather", "--out", str(files[0])],
        [*asked, "--kernel", "no_such", "--out", str(tmp_path / "none.json")],
        [*asked, "--kernel", "all_gather", "--kernel", "reduce_scatter", "--out", str(files[1])],
    )
    assert [line for line in said if "ended" in line] == ['{"ended": 0}', '{"ended": 3}', '{"ended": 0}']
    one, two = (json.loads(file.read_text()) for file in files)
    assert two["kernels"] == ["all_gather", "reduce_scatter"]
    assert {entry["kernel"] for entry in two["entries"]} == {"all_gather", "reduce_scatter"}
    assert [entry for entry in two["entries"] if entry["kernel"] == "all_gather"] == one["entries"]


@pytest.mark.slow
def test_an_interrupted_command_is_the_last_one():
    program = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "commands"], cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert program.stdin
    program.stdin.write(b'["benchmarks", "candidates", "--kernel", "gem", "--arch", "gfx942"]\n')
    program.stdin.flush()
    assert program.stderr
    assert [program.stderr.readline() for _ in range(2)][1] == b'{"ended": 3}\n'
    time.sleep(0.2)
    os.kill(program.pid, signal.SIGINT)
    assert program.wait(30) == 130
    program.communicate()
