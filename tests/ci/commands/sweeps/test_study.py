"""`ridgeline study`, from the command line to the folder: from files, and measured for real on a CPU."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci.__main__ import main
from tests.ci import made_trials
from tests.ci.sweeps.made_sweeps import line

ROOT = Path(__file__).parents[4]
CASE = "n4096_k4096_m1_fp16"

SMALL = """
from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyPart, Tried

STUDY = Study(
    name="small",
    title="Two libraries of a CPU",
    question="Which of two is faster?",
    source="tests",
    parts=(
        StudyPart("gemm", ("n4096_k4096_m1_fp16",), "torch", ("blas",), (Tried("torch", {"threads": (1,)}),)),
    ),
    trials=2,
    rounds=4,
    whole_call=True,
    table=Listed(("M", "backend", "setting"), ("kernel_us", "total_us", "gbs", "ratio", "low", "high")),
    figures=(Drawn("times", "curve", "Times", {"x": "M", "y": "us", "group": "backend"}, Rows(pick="plain")),),
)
"""


def run(*arguments, code=0):
    with pytest.raises(SystemExit) as ended:
        main(["study", *map(str, arguments)])
    assert (ended.value.code or 0) == code


def test_the_list_names_questions_operators_and_ranks(capsys):
    run("--list", "--json")
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert listed["m_sweep"]["question"].endswith("?")
    assert [part["operator"] for part in listed["m_sweep"]["parts"]] == ["gemm", "gemm_all_scatter"]
    run("--list")
    assert "m_sweep" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["m_swep"], "no study 'm_swep'; there are: "),
        (["m_sweep", "--arch", "gfx942"], "--arch and --compute-units are for --dry-run"),
        (["m_sweep", "--from", "nowhere.jsonl"], "'nowhere.jsonl' does not exist"),
    ],
)
def test_bad_input_is_said_by_name(arguments, said, capsys):
    run(*arguments, code=3)
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_study_from_a_file_needs_no_measuring(tmp_path, capsys):
    cases = [f"n4096_k4096_m{m}_fp16" for m in (1, 2, 4)]
    declared = made_trials.declaration(cases=cases)
    for case, m in zip(declared["cases"], (1, 2, 4), strict=True):
        case |= {"M": m, "N": 4096, "K": 4096}
    trees = {"head": made_trials.tree(declared=declared)}
    made = [line([], case, plain={"blas": 0.9}, trees=trees) for case in cases]
    (tmp_path / "trials.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in made))
    run("m_sweep", "--from", tmp_path / "trials.jsonl", "--results", tmp_path / "results", "--json")
    told = json.loads(capsys.readouterr().out)
    folder = tmp_path / "results" / "studies" / "m_sweep" / made_trials.MACHINE["name"]
    assert Path(told["folder"]) == folder
    assert [row["M"] for row in told["rows"] if row["backend"] == "triton"] == [1, 2, 4]
    assert "gemm_all_scatter on 4 or 8 ranks waits for a machine with 4 or 8 GPUs; this one has 2" in told["waits"]
    assert told["figures"] == ["speed", "times"]
    assert {path.name for path in folder.iterdir()} >= {"speed.png", "speed.svg", "times.svg", "table.md", "study.json"}
    assert len(gzip.decompress((folder / "trials.jsonl.gz").read_bytes()).splitlines()) == 3


@pytest.fixture
def checkout(tmp_path) -> Path:
    """The project with one more study; a study is a file and nothing else."""
    for name in ("kernels", "ci", "dashboards", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "benchmarks").mkdir()
    for path in (ROOT / "benchmarks").iterdir():
        if path.name not in ("studies", "__pycache__"):
            (tmp_path / "benchmarks" / path.name).symlink_to(path)
    (tmp_path / "benchmarks" / "studies").mkdir()
    for name in ("__init__.py", "types.py"):
        (tmp_path / "benchmarks" / "studies" / name).symlink_to(ROOT / "benchmarks" / "studies" / name)
    (tmp_path / "benchmarks" / "studies" / "small.py").write_text(SMALL)
    return tmp_path


SEEN = """
import os, sys

class Seen:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            open(os.path.join(os.path.dirname(__file__), f"torch.{os.getpid()}"), "w").close()

sys.meta_path.insert(0, Seen())
"""
"""Every process that imports torch leaves a file."""


@pytest.mark.slow
def test_a_study_is_measured_and_recorded(checkout, tmp_path_factory):
    seen = tmp_path_factory.mktemp("seen")
    (seen / "sitecustomize.py").write_text(SEEN)
    command = [sys.executable, "-m", "ci", "study", "small", "--commit", "a" * 40, "--commit-date", "1790000000000"]
    env = {**os.environ, "PYTHONPATH": f"{checkout}:{seen}", "COLUMNS": "200"}

    done = subprocess.run([*command, "--json"], cwd=checkout, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    folder = checkout / told["folder"]
    rows = {(row["backend"], row["setting"]): row for row in told["rows"]}
    assert rows.keys() == {("torch", "default"), ("torch", "threads=1"), ("blas", "default")}
    assert rows["torch", "default"]["ratio"] == 1
    assert all(row["low"] < row["ratio"] < row["high"] for key, row in rows.items() if key != ("torch", "default"))
    assert all(row["total_us"] > 0 for row in rows.values())
    assert told["waits"] == []
    assert told["figures"] == ["times"]
    assert (folder / "times.png").read_bytes()[:4] == b"\x89PNG"
    lines = gzip.decompress((folder / "trials.jsonl.gz").read_bytes()).decode().splitlines()
    assert [json.loads(one)["kernel"] for one in lines] == ["gemm", "gemm"]
    assert len({json.loads(one)["session"] for one in lines}) == 2
    assert len(list((seen).glob("torch.*"))) == 1, "of declarations and all trials together"
