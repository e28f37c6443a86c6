"""Points compiled ahead: which load, which are equal, and that a launch finds what was compiled for it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchmarks.isa.__main__ import document_of_points as document
from benchmarks.isa.__main__ import equality, points_of
from benchmarks.points import Batch, Point, PointsFile
from tests.kit import ROOT

DOUBLE = """
import triton
import triton.language as tl

from kernels.spec import Case, Compilation, Cost, Kernel, Tolerance, Unsupported

double = Kernel("double", cases=[Case("n4096", tier="sweep", n=4096, dtype="fp32")], tolerance=Tolerance())
double.inputs(lambda case, seed: {})
double.cost(lambda case: Cost())
double.reference(lambda case, inputs: None)
double.backend("triton")(lambda case, inputs, *, block=256, num_warps=4, twin=0: lambda: None)
double.backend("library")(lambda case, inputs: lambda: None)


@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@double.isa("triton")
def compilations(case, arch, block=256, num_warps=4, twin=0):
    if block > 1 << 14:
        raise Unsupported("blocks of the next decade")
    arguments = {"x": ("*fp32", (case.n,)), "y": ("*fp32", (case.n,)), "n": case.n}
    grid = (-(-case.n // block),)
    return [Compilation("twice", twice, arguments, {"BLOCK": block}, {"num_warps": num_warps}, grid=grid)]
"""

LAUNCH = """
import torch
from benchmarks.isa.compile import pretend

pretend("sm_90")
from triton import knobs
from small.double import twice

hits = []
knobs.compilation.listener = lambda **told: hits.append(told["cache_hit"])
x = torch.empty(4096)
for block, warps in ((256, 4), (512, 4), (512, 8), (1024, 2)):
    twice.warmup(x, torch.empty(4096), 4096, BLOCK=block, num_warps=warps, grid=(1,))
print(hits)
"""


def point(**knobs):
    return Point("n4096", "triton", knobs)


FOUND = (
    point(block=512),
    point(block=512, twin=1),
    point(block=512, num_warps=8),
    point(block=512, num_warps=64),
    point(block=300),
    point(block=1 << 15),
    point(blocks=2),
    Point("n4096", "library"),
)
FILE = PointsFile("s1", "double", 0, 8, (Batch("n4096", "triton", FOUND),))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The document of FILE, and the folder with its tree and Triton's cache."""
    folder = tmp_path_factory.mktemp("points")
    (folder / "tree" / "small").mkdir(parents=True)
    (folder / "tree" / "small" / "double.py").write_text(DOUBLE)
    (folder / "tree" / "small" / "__init__.py").touch()
    (folder / "tree" / "pyproject.toml").write_text('[tool.ridgeline]\nkernels = ["small"]\n')
    (folder / "points.json").write_text(json.dumps(dataclasses.asdict(FILE)))
    options = ["--arch", "sm_90", "--launch-cache", "--progress", "none", "--processes", "1"]
    paths = {"--points": "points.json", "--tree": "tree", "--cache": "isa", "--out": "out.json"}
    places = [word for option, name in paths.items() for word in (option, str(folder / name))]
    command = [sys.executable, "-m", "benchmarks.isa", *options, *places]
    done = subprocess.run(command, cwd=ROOT, env=variables(folder), capture_output=True, text=True)
    assert done.returncode == 1, done.stderr  # some points do not compile
    return json.loads((folder / "out.json").read_text()), folder


def variables(folder):
    """The environment of a launch."""
    return {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), "TRITON_DISABLE_LINE_INFO": "1"}


@pytest.mark.slow
def test_every_point_has_its_outcome(compiled):
    anchor, *found = compiled[0]["points"]
    assert (anchor["knobs"], anchor["status"]) == ({}, "ok")
    assert [entry["knobs"] for entry in found] == [one.knobs for one in FOUND]
    assert [entry["status"] for entry in found] == [
        "ok", "ok", "ok", "ok", "failed", "unsupported", "refused", "undeclared"
    ]  # fmt: skip
    assert found[0]["will_not_load"] is None
    assert "2048 threads and sm_90 allows 1024" in found[3]["will_not_load"]
    assert "power of 2" in found[4]["why"]
    assert found[5]["why"] == "blocks of the next decade"
    assert "does not take the knobs blocks" in found[6]["why"]
    assert "no isa() declaration" in found[7]["why"]


@pytest.mark.slow
def test_points_with_the_same_code_and_launch_are_equal(compiled):
    first, twin, warps = compiled[0]["points"][1:4]
    assert first["equal"] == twin["equal"]
    assert first["equal"] != warps["equal"]


@pytest.mark.slow
def test_a_launch_finds_what_was_compiled_for_it(compiled):
    _, folder = compiled
    python = {"PYTHONPATH": os.pathsep.join([str(folder / "tree"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH], env={**variables(folder), **python}, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[True, True, True, False]", done.stderr  # the last one was not asked for


def test_equality_asks_for_code_scalars_and_grid():
    one = {"hash": "a", "scalars": {"n": 1}, "grid": [4]}
    assert equality([one]) == equality([dict(one)])
    for changed in ({"hash": "b"}, {"scalars": {"n": 2}}, {"grid": [8]}):
        assert equality([one]) != equality([{**one, **changed}])
    assert equality([one, {**one, "grid": None}]) is None


def run_of(*records, units=None, failure=""):
    listing = None if units is None else {"triton": "3.8.0", "broken": [], "units": units}
    return SimpleNamespace(arch="sm_90", listing=listing, records=dict(enumerate(records)), failure=failure)


def test_a_tree_that_cannot_be_listed_fails_every_point():
    told = document(FILE, points_of(FILE), run_of(failure="the kernels could not be listed"))
    assert {(entry["status"], entry["why"]) for entry in told["points"]} == {
        ("failed", "the kernels could not be listed")
    }
