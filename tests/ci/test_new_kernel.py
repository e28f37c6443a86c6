"""Adding a kernel is one file: declared in a listed package, it is in asv's discovery, the records and the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import AUTHOR, HANGS_S, copied, repository

KERNEL = '''
"""Scale: C = 2 * A, elementwise."""
import torch
from kernels.spec import Case, Cost, Kernel, Tolerance

scale = Kernel("scale", cases=[Case("n4096_fp32", tier="pr", N=4096, dtype="fp32")], tolerance=Tolerance())


@scale.inputs
def inputs(case, seed):
    return {"a": torch.randn(case.N)}


@scale.cost
def cost(case):
    """One product per element; every element read and written once."""
    return Cost(flops=case.N, hbm_bytes=2 * 4 * case.N)


@scale.reference
def reference(case, inputs):
    return inputs["a"] * 2


@scale.baseline("mul")
def mul(case, inputs):
    out = torch.empty_like(inputs["a"])
    return lambda: torch.mul(inputs["a"], 2, out=out)


@scale.backend("add")
def add(case, inputs):
    out = torch.empty_like(inputs["a"])
    return lambda: torch.add(inputs["a"], inputs["a"], out=out)
'''


def run(folder, *argv):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        argv,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(folder), "PATH": path, **AUTHOR},
    )
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """This project with one of its operators in a repository of its own, with one more package of kernels."""
    folder = tmp_path_factory.mktemp("new") / "project"
    copied(folder)
    (folder / "their").mkdir()
    (folder / "their" / "__init__.py").write_text("")
    (folder / "their" / "scaling.py").write_text(KERNEL)
    listing = (folder / "pyproject.toml").read_text()
    changed = listing.replace('kernels = ["kernels"]', 'kernels = ["kernels", "their"]')
    assert changed != listing
    (folder / "pyproject.toml").write_text(changed)
    return repository(folder)


def records_of(project):
    files = [p for p in (project / "results").glob("*/*.json") if p.name != "machine.json"]
    assert len(files) == 1, files
    return json.loads(files[0].read_text().replace("NaN", "null"))["results"]


@pytest.mark.slow
def test_a_run_records_it_and_the_page_shows_it(project):
    said = run(project, sys.executable, "-m", "ci", "run", "--kernel", "scale", "--trials", "1", "--rounds", "8")
    assert "scale/n4096_fp32" in said
    assert "scale.track_time" in records_of(project)
    run(project, sys.executable, "-m", "ci", "site", "--out", "page")
    assert (project / "page" / "kernels" / "scale.html").is_file()
    assert any("n4096_fp32" in p.read_text() for p in (project / "page" / "data").rglob("*.js"))


@pytest.mark.slow
def test_asv_discovers_and_measures_it(project):
    said = run(project, sys.executable, "-m", "asv", "run", "--bench", "scale", "main^!")
    assert "scale.track_time" in said
    assert "scale.track_flops" in said
    assert "scale.track_time" in records_of(project)
    shown = run(project, sys.executable, "-m", "asv", "show", "main")
    assert "scale.track_time" in shown
