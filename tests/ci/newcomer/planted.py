"""Changes of code that a declaration only imports, planted in repositories of other people, by layout and installation.

`mine/ops.py` is slower or wrong in a commit, or `mine/tile.py` compiles to other code: each command must see it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.kit import commit, git, repository

LAYOUTS = {"flat": ("mine", "mine"), "src": ("src/mine", "mine"), "namespace": ("src/group/mine", "group.mine")}
"""Folder and name of the package that the declaration imports."""

DECLARATION = '''\
"""Twice a vector, after a nap."""
import torch
from ridgeline.spec import Case, Compilation, Cost, Kernel, Tolerance, Unsupported

from PACKAGE import ops

twice = Kernel("twice", tolerance=Tolerance(1e-6, 1e-6), cases=[Case("one", tier="pr", n=64, dtype="fp32")])
twice.inputs(lambda case, seed: {"x": torch.randn(case.n)})
twice.cost(lambda case: Cost(flops=case.n, hbm_bytes=8 * case.n))
twice.reference(lambda case, inputs: inputs["x"] * 2)


@twice.backend("ours")
def ours(case, inputs):
    out = torch.empty_like(inputs["x"])
    return lambda: ops.twice(inputs["x"], out, 20)


@twice.backend("triton")
def launched(case, inputs):
    raise Unsupported("a GPU is needed")


@twice.isa("triton")
def compiled(case, arch):
    from PACKAGE.tile import double

    arguments = {"x": ("*fp32", (case.n,)), "n": case.n}
    return [Compilation("double", double, arguments, {"B": 64}, {"num_warps": 1}, grid=(1,))]
'''
OPS = """\
import time

import torch


def twice(x, out, nap):
    time.sleep(nap / 1000)
    return torch.mul(x, 2, out=out)
"""
TILE = """\
import triton
import triton.language as tl


@triton.jit
def double(x, n, B: tl.constexpr):
    at = tl.arange(0, B)
    values = tl.load(x + at, at < n)
    tl.store(x + at, values * 2, at < n)
"""
SCRIPT = """\
import torch
from torch.utils.benchmark import Timer

from PACKAGE import ops

x, out = torch.randn(64), torch.empty(64)
print(Timer("ops.twice(x, out, 5)", globals={"ops": ops, "x": x, "out": out}).blocked_autorange(min_run_time=0.2))
"""
SLOW = OPS.replace("nap / 1000", "(nap if nap > 5 else 60) / 1000 * 2")
WRONG = OPS.replace("torch.mul(x, 2", "torch.mul(x, 3")
OTHER = TILE.replace("values * 2", "tl.exp(values) * 2 + tl.sin(values)")


@dataclasses.dataclass(frozen=True)
class Project:
    """A repository: `good`, `slow`, `wrong` and `other` are tags of its commits, `good` is the parent of the others.

    python: that runs Ridgeline there.  path: its PYTHONPATH.
    """

    folder: Path
    python: Path
    path: str

    def git(self, *words: str) -> str:
        """Output of a git command."""
        return git(self.folder, *words)

    def ridgeline(self, *words: str) -> tuple[int, str]:
        """Exit code and output of a command, in the repository."""
        program = "import sys; from ci.__main__ import main; sys.argv[0] = 'ridgeline'; sys.exit(main())"
        env = {**os.environ, "PYTHONPATH": self.path}
        done = subprocess.run(
            [str(self.python), "-c", program, *words],
            cwd=self.folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=900,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


def made(folder: Path, layout: str, install: str) -> Project:
    """A repository of a layout, installed in a way."""
    where, package = LAYOUTS[layout]
    root = folder / "repository"
    files = {
        "perf/__init__.py": "", "perf/twice.py": DECLARATION, "bench.py": SCRIPT,
        f"{where}/ops.py": OPS, f"{where}/tile.py": TILE,
        "ridgeline.toml": 'kernels = ["perf"]\n',
        ".gitignore": "__pycache__/\n.ridgeline/\nresults*/\nsite/\n*.jsonl\n*.egg-info/\n",
        "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "mine"\nversion = "1"\n[tool.setuptools.packages.find]\n'
        + ('include = ["mine*"]\n' if layout == "flat" else 'where = ["src"]\n'),
    }  # fmt: skip
    if layout != "namespace":
        files[f"{where}/__init__.py"] = ""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text.replace("PACKAGE", package))
    source = str((root / where).parents[package.count(".")])
    project = Project(root, _environment(folder / "venv", root if install == "editable" else None),
                      source if install == "path" else "")  # fmt: skip
    repository(root)
    project.git("tag", "good")
    for tag, name, text in (("slow", "ops.py", SLOW), ("wrong", "ops.py", WRONG), ("other", "tile.py", OTHER)):
        project.git("checkout", "--quiet", "--detach", "good")
        commit(root, tag, **{f"{where}/{name}": text})
        project.git("tag", tag)
    project.git("checkout", "--quiet", "main")
    return project


def _environment(folder: Path, editable: Path | None) -> Path:
    """The Python of a virtual environment with the packages of this one, and a repository installed in place."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    packages.joinpath("beside.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    python = folder / "bin" / "python"
    if editable:
        how = ["--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check"]
        subprocess.run([str(python), "-m", "pip", "install", *how, "-e", str(editable)], check=True)
    return python


# ---- what each command must see --------------------------------------------------------------------------------------

Seen = Iterator[tuple[bool, str]]
"""Whether each plant was found, and what was said of it."""


def _judged(project: Project, *words: str) -> tuple[bool, str]:
    code, said = project.ridgeline(*words)
    return code == 1, f"{' '.join(words)}: exit code {code}: {said[-600:]}"


def isa(project: Project) -> Seen:
    """Machine code of two commits, after that of equal ones."""
    arch = ("--arch", "gfx942")
    assert "SAME" in project.ridgeline("isa", "good", "slow", *arch)[1]
    _, said = project.ridgeline("isa", "good", "other", *arch)
    yield "CHANGED" in said or "SLOWER" in said, said[-600:]


def verify(project: Project) -> Seen:
    """Outputs, after they were right."""
    assert project.ridgeline("verify")[0] == 0
    project.git("checkout", "--quiet", "wrong")
    yield _judged(project, "verify")


def run(project: Project) -> Seen:
    """Outputs and times of one commit."""
    medians = []
    for tag in ("good", "slow"):
        project.git("checkout", "--quiet", tag)
        file = project.folder / f"{tag}.jsonl"
        assert project.ridgeline("run", "--out", str(file), "--rounds", "5", "--trials", "1")[0] == 0
        arms = json.loads(file.read_text().splitlines()[-1])["cases"]["one"]["arms"]
        medians.append(sorted(arms["head/ours"]["seconds"])[2])
    yield medians[1] > 1.7 * medians[0], f"times {medians}"
    project.git("checkout", "--quiet", "wrong")
    yield _judged(project, "run", "--rounds", "5")


def adopt(project: Project) -> Seen:
    """A script that imports it."""
    for tag in ("slow", "wrong"):
        yield _judged(project, "adopt", "bench.py", "good", tag, "--device", "cpu")


VERBS: dict[str, Callable[[Project], Seen]] = {one.__name__: one for one in (isa, verify, run, adopt)}
