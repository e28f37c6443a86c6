"""Changes of code that a declaration only imports, planted in repositories of other people, one for each command.

    python -m tests.ci.newcomer.planted [--layout src] [--install editable] [--verb ab]

makes a repository for each of three layouts (flat, src, a namespace package) and ways of installing it (not at all, in
place by pip, on PYTHONPATH), runs each command on a commit and on the one after it, in which `mine/ops.py` or
`mine/tile.py` is slower, wrong or compiles to other code, and prints a line for each: found, or what was said instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.kit import commit, git, repository

LAYOUTS = {"flat": ("mine", "mine"), "src": ("src/mine", "mine"), "namespace": ("src/group/mine", "group.mine")}
"""Folder and name of the package that the declaration imports."""
INSTALLS = ("none", "editable", "path")

DECLARATION = '''\
"""Twice a vector, after a nap."""
import tomllib
from pathlib import Path

import torch
from ridgeline.spec import Case, Compilation, Cost, Kernel, Tolerance, Tuned, Unsupported

from PACKAGE import ops

FILE = str(Path(__file__).with_name("tuned.toml"))
twice = Kernel("twice", tolerance=Tolerance(1e-6, 1e-6), cases=[Case("one", tier="pr", n=64, dtype="fp32")])
twice.inputs(lambda case, seed: {"x": torch.randn(case.n)})
twice.cost(lambda case: Cost(flops=case.n, hbm_bytes=8 * case.n))
twice.reference(lambda case, inputs: inputs["x"] * 2)


def key(case):
    return case.name


def rule(case, arch):
    return {"nap": 20}


def config(case, arch):
    entry = tomllib.loads(Path(FILE).read_text()).get(arch, {}).get(case.name, {})
    return {**rule(case, arch), **{name: value for name, value in entry.items() if name == "nap"}}


def candidates(case, arch):
    return [{"nap": nap} for nap in (20, 5, 30)]


@twice.backend("ours", config=config, candidates=candidates, tuned=Tuned(FILE, key, rule))
def ours(case, inputs, *, nap: int = 20):
    out = torch.empty_like(inputs["x"])
    return lambda: ops.twice(inputs["x"], out, nap)


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
        "perf/__init__.py": "", "perf/twice.py": DECLARATION, "perf/tuned.toml": "# Winners.\n", "bench.py": SCRIPT,
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


QUICK = ("--no-why", "--rounds", "8")


def _judged(project: Project, *words: str, codes: tuple[int, ...] = (1,)) -> tuple[bool, str]:
    code, said = project.ridgeline(*words)
    return code in codes, f"{' '.join(words)}: exit code {code}: {said[-600:]}"


def ab(project: Project) -> Seen:
    """Times and outputs of two commits, also after the same command on equal code."""
    assert project.ridgeline("ab", "good", "good", *QUICK)[0] == 0
    for tag in ("slow", "wrong"):
        yield _judged(project, "ab", "good", tag, *QUICK)


def check(project: Project) -> Seen:
    """The same of HEAD, and machine code."""
    project.ridgeline("check", "--base", "good", *QUICK)
    for tag in ("slow", "wrong"):
        project.git("checkout", "--quiet", tag)
        yield _judged(project, "check", "--base", "good", *QUICK)
    project.git("checkout", "--quiet", "other")
    _, said = project.ridgeline("check", "--base", "good", *QUICK)
    yield "CHANGED" in said, said[-600:]


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


def gate(project: Project) -> Seen:
    """Recorded commits."""
    for tag in ("good", "slow"):
        project.git("checkout", "--quiet", tag)
        assert project.ridgeline("run", "--rounds", "10", "--trials", "4")[0] == 0
    yield _judged(project, "gate", "good", "slow", codes=(1, 2))


def bisect(project: Project) -> Seen:
    """The commit, among others that change nothing that runs."""
    project.git("checkout", "--quiet", "main")
    where = next(project.folder.rglob("ops.py")).parent
    for number, text in enumerate((OPS, OPS, SLOW, SLOW)):
        commit(where, f"step {number}", **{"ops.py": text, f"extra{number}.py": ""})
    code, said = project.ridgeline("bisect", "good", "HEAD", "--case", "twice/one", "--json")
    found = json.loads(said[said.index("{") : said.rindex("}") + 1])["first_bad"] if code == 0 else ""
    yield bool(found) and project.git("rev-parse", "HEAD^") == found, f"exit code {code}: {said[-600:]}"


def sweep(project: Project) -> Seen:
    """Points of another commit, though a file has those of the one before."""
    best = []
    for tag in ("good", "slow"):
        project.git("checkout", "--quiet", tag)
        words = ("sweep", "twice", "--backend", "ours", "--knob", "nap=5,20", "--out", "s.jsonl", "--json")
        code, said = project.ridgeline(*words)
        best.append((code, '"nap": 5' in said.partition('"winners"')[2][:600], said))
    yield best[0][2] != best[1][2], f"{best[1][0]}: {best[1][2][-600:]}"


def tune(project: Project) -> Seen:
    """A tuned entry whose code has changed."""
    code, said = project.ridgeline("tune", "twice", "--budget", "1")
    assert "nap = 5" in (project.folder / "perf/tuned.toml").read_text(), said
    project.git("commit", "--quiet", "--all", "--message", "tuned")
    project.git("checkout", "--quiet", "slow", "--", next(project.folder.rglob("ops.py")).as_posix())
    project.git("commit", "--quiet", "--all", "--message", "slow")
    yield _judged(project, "tune", "twice", "--verify", "--budget", "1")


def adopt(project: Project) -> Seen:
    """A script that imports it."""
    for tag in ("slow", "wrong"):
        yield _judged(project, "adopt", "bench.py", "good", tag, "--device", "cpu")


VERBS: dict[str, Callable[[Project], Seen]] = {
    one.__name__: one for one in (ab, check, isa, verify, run, gate, bisect, sweep, tune, adopt)
}


def main() -> int:
    """Every combination that was asked for, a line each; exit code 1 where a plant was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, known in (("layout", LAYOUTS), ("install", INSTALLS), ("verb", VERBS)):
        parser.add_argument(f"--{name}", action="append", choices=list(known), help="only this (repeatable)")
    asked = parser.parse_args()
    found = total = 0
    for layout in asked.layout or LAYOUTS:
        for install in asked.install or INSTALLS:
            for verb in asked.verb or VERBS:
                begin = time.monotonic()
                with tempfile.TemporaryDirectory(prefix="planted-") as folder:
                    seen = list(VERBS[verb](made(Path(folder), layout, install)))
                right = all(one for one, _ in seen)
                found, total = found + right, total + 1
                said = "" if right else "".join(f"\n  {what}" for one, what in seen if not one)
                took = time.monotonic() - begin
                print(
                    f"{layout:10}{install:10}{verb:8}{'found' if right else 'MISSED':8}{took:4.0f} s{said}", flush=True
                )
    print(f"{found} of {total} combinations: every plant found")
    return 0 if found == total else 1


if __name__ == "__main__":
    sys.exit(main())
