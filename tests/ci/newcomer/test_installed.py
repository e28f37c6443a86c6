"""A wheel in somebody else's repository, which has packages of its own with the names of our rooms."""

from __future__ import annotations

import json
import re
import shlex
import zipfile
from pathlib import Path

import pytest

from ci.trials.file import read
from tests.ci.newcomer.conftest import LEGAL, ROOMS
from tests.kit import ROOT, git, mostly_nightly, repository

pytestmark = pytest.mark.slow  # whichever came first would build the wheel

GUIDE = (ROOT / ".github/guides/your_repository.md").read_text(encoding="utf-8")
THEIRS = """
import ci, dashboards, kernels, kernels.hardware, benchmarks.scale
assert [one.WHOSE for one in (ci, dashboards, kernels, kernels.hardware, benchmarks.scale)] == ["theirs"] * 5
"""
"""At the top of a declaration: what the project's own names mean in a measuring process."""


SCRIPT = """
import torch
from shop import ops
from torch.utils.benchmark import Timer

for rows in (16, 64):
    x = torch.randn(rows, 256)
    for provider, fn in (("torch", torch.softmax), ("composed", ops.softmax)):
        print(Timer("fn(x, -1)", globals={"fn": fn, "x": x}, description=provider).timeit(5))
"""
"""A benchmark script of the project, which knows nothing of us."""

OPS = """
import torch


def softmax(x, dim):
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)
"""


def project(folder, installed):
    folder.mkdir()
    for name in (*(f"{room}/__init__.py" for room in ROOMS), "kernels/hardware.py", "kernels/project.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text('WHOSE = "theirs"\n')
    (folder / "benchmarks/scale.py").write_text('WHOSE = "theirs"\n')
    for name, text in (("bench/speed.py", SCRIPT), ("shop/__init__.py", ""), ("shop/ops.py", OPS)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "ci/__main__.py").write_text('raise SystemExit("their program was taken for ours")\n')
    return repository(folder)


@pytest.fixture
def theirs(tmp_path, installed):
    return project(tmp_path / "theirs", installed)


def test_a_wheel_carries_its_licence_and_says_so(installed):
    wheel = zipfile.ZipFile(installed.wheel)
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    told = wheel.read(metadata).decode()
    assert "License-Expression: MIT\n" in told
    for name in LEGAL:
        assert f"License-File: {name}\n" in told
        assert wheel.read(f"{Path(metadata).parent}/licenses/{name}") == (ROOT / name).read_bytes()
    assert "MIT License" in (ROOT / "LICENSE").read_text()


def test_a_wheel_takes_one_name(installed):
    names = {name.partition("/")[0] for name in zipfile.ZipFile(installed.wheel).namelist()}
    assert {name.partition("-")[0] for name in names} == {"ridgeline"}
    assert {path.name.partition("-")[0] for path in installed.packages.iterdir()} == {"ridgeline", "dependencies.pth"}
    shipped = {name.partition("/house/")[2] for name in zipfile.ZipFile(installed.wheel).namelist()}
    tracked = git(ROOT, "ls-files", "benchmarks", "ci", "dashboards", "kernels").split()
    data = {name for name in tracked if not name.endswith(".py")}
    assert {name for name in data if not name.startswith("dashboards/bundle/")} <= shipped


@pytest.mark.parametrize("path", mostly_nightly(["", "."], "."))
def test_names_of_the_project_are_the_projects(installed, theirs, path):
    said = installed.run(theirs, "python", "-c", "import ci, kernels; print(ci.WHOSE, kernels.WHOSE)", PYTHONPATH=path)
    assert said.stdout.split() == ["theirs", "theirs"]
    for words in (["ridgeline"], ["python", "-m", "ridgeline"]):
        said = installed.run(theirs, *words, "isa", "--help", PYTHONPATH=path)
        assert said.stdout.startswith("Usage: ridgeline isa"), said.stderr
    said = installed.run(theirs, "python", "-m", "ridgeline.program", "ci.pools", "--help", PYTHONPATH=path)
    assert "matrix" in said.stdout
    said = installed.run(theirs, "python", "-c", "from ridgeline.spec import Kernel; print(Kernel.__module__)")
    assert said.stdout.strip() == "ridgeline.house.kernels.spec"


def test_a_project_is_set_up_once(installed, theirs):
    commit = "ridgeline init --action OWNER/ridgeline@" + "0" * 40
    before = installed.run(theirs, *commit.split(), "--dry-run")
    assert installed.run(theirs, "git", "status", "--porcelain").stdout == ""
    assert before.stdout.count("would be written") == 9
    (theirs / "asv.conf.json").write_text("mine")
    said = installed.run(theirs, *commit.split()).stdout
    assert "asv.conf.json: is there, left as it is" in said
    assert (theirs / "asv.conf.json").read_text() == "mine"
    (add,) = re.findall(r"^  (git add .*)$", said, re.MULTILINE)
    assert set(shlex.split(add)[2:]) == {
        *("ridgeline.toml", "perf/runners.toml", "perf/__init__.py", "perf/rms_norm.py", ".gitignore"),
        *(f".github/workflows/ridgeline{name}.yml" for name in ("", "_comment", "_gpu", "_nightly")),
    }
    files = {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file() and ".git/" not in str(path)}
    again = installed.run(theirs, *commit.split()).stdout
    assert "written" not in again
    assert "git add" not in again
    assert {path: path.read_bytes() for path in files} == files


def test_settings_without_machines_are_told(installed, theirs):
    (theirs / "ridgeline.toml").write_text('kernels = ["perf"]\n')
    said = installed.run(theirs, "ridgeline", "init").stdout
    assert 'ridgeline.toml names no machines: add runners = "perf/runners.toml"' in said
    (theirs / "ridgeline.toml").write_text('kernels = ["perf"]\nrunners = "perf/runners.toml"\n')
    assert "names no machines" not in installed.run(theirs, "ridgeline", "init").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--action x", r"--action 'x' is not OWNER/NAME@COMMIT with all 40 digits"),
        ("--package a-b", r"'a-b' is not a dotted name of a package"),
    ],
)
def test_what_init_cannot_use_is_named(installed, theirs, words, said):
    done = installed.run(theirs, "ridgeline", "init", *words.split())
    assert done.returncode == 3
    assert re.search(said, done.stderr)
    assert not (theirs / "ridgeline.toml").exists()


def test_a_folder_without_git_is_named(installed, tmp_path):
    done = installed.run(tmp_path, "ridgeline", "init")
    assert done.returncode == 3
    assert "is not inside a git repository" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_the_guide(installed, theirs):
    """Every command of it, in a repository with packages of our names; only the installing is done before."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    assert [line.split()[0] for line in lines[:2]] == ["python", "cd"]
    lines.insert(lines.index("ridgeline init") + 1, f"printf '%s' {shlex.quote(THEIRS)} >> perf/rms_norm.py")
    lines.insert(lines.index("ridgeline check || [ $? -le 2 ]") + 1, 'test -z "$(git status --porcelain)"')
    told = [f"{line} || {{ echo failed: {shlex.quote(line)} >&2; exit 9; }}" for line in lines[2:]]
    done = installed.run(theirs, "bash", "-c", "\n".join(told))
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert (theirs / "site/index.html").is_file()
    assert (theirs / ".asv/html/index.html").is_file()
    report = json.loads((theirs / ".ridgeline/report.json").read_text())
    assert {case["case"] for case in report["cases"]} & {"rms_norm/torch/r256_c4096", "r256_c4096"}, report["cases"]
    assert "of 6 configurations have the same code" in done.stdout
    assert re.search(r"^[0-4] of 4 closures, about", done.stdout, re.MULTILINE)
    assert "script bench/speed.py" in done.stdout
    records = list((theirs / "results").glob("*/*.notes.jsonl*"))
    assert {trial.operator for path in records for trial in read(path).trials} == {"rms_norm"}
    assert json.loads((theirs / "results/benchmarks.json").read_text()).keys() & {"gemm.track_time"} == set()
