"""The guides do what they say: every command in them is run, in a clone of a small repository.

GitHub is a stand-in and Slurm is real; what only GitHub's own program or the system can do (`gh`, `systemctl`) is
answered by a program that notes what it was asked.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ci.pools import file as pools_file
from ci.trials.file import read
from tests.end_to_end.conftest import slurm_cluster
from tests.end_to_end.test_pull_request import KERNEL, commit, git
from tests.github.actions import ROOT
from tests.standins.github import StandIn

__all__ = ["slurm_cluster"]

GUIDES = ROOT / ".github" / "guides"
NAMES = sorted(path.name for path in GUIDES.glob("*.md"))

ELSEWHERE = re.compile(r"git clone |cd ridgeline$|make setup$|source \.venv/bin/activate$")
"""The first steps: each test begins where they end.  test_the_first_steps_exist looks at them."""

LIMIT_S = 400.0
"""Seconds for all commands of a guide: the longest takes 20 s of CPU, and 130 s on a busy machine (2026-11-22)."""


def blocks(name, language):
    text = (GUIDES / name).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(name):
    return [line for block in blocks(name, "sh") for line in block.splitlines() if line]


class Clone:
    """A clone of a repository with one small kernel, as the first steps of a guide leave it."""

    def __init__(self, root, environment):
        self.root, self.folder = root, root / "ridgeline"
        origin = root / "origin"
        origin.mkdir()
        git(origin, "init", "-q", "-b", "main")
        for package in ("ci", "benchmarks", "dashboards", "kernels"):
            shutil.copytree(ROOT / package, origin / package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / ".gitignore", origin)
        declared = '[tool.ridgeline]\nkernels = ["ops"]\n'
        commit(origin, "A sorted row", **{"ops/__init__.py": "", "ops/sort.py": KERNEL, "pyproject.toml": declared})
        git(origin, "checkout", "-q", "--detach")
        git(root, "clone", "-q", "-b", "main", str(origin), str(self.folder))
        (self.folder / ".venv").symlink_to(sys.prefix)
        (self.folder / ".git/info/exclude").write_text(".venv\n")
        self.asked = root / "asked"
        self.asked.touch()
        for program, answer in (("gh", "secret"), ("systemctl", "")):
            path = root / "bin" / program
            path.parent.mkdir(exist_ok=True)
            path.write_text(f'#!/bin/sh\necho "{program} $*" >> {self.asked}\necho {answer}\n')
            path.chmod(0o755)
        own = root / "bin" / "ridgeline"  # the clone's own, as `make setup` installs it there
        own.write_text(f'#!/bin/sh\nexec {sys.executable} -m ci "$@"\n')
        own.chmod(0o755)
        path = f"{root / 'bin'}:{Path(sys.executable).parent}:{environment.get('PATH', os.environ['PATH'])}"
        named = {f"GIT_{r}_{k}": v for r in ("AUTHOR", "COMMITTER") for k, v in (("NAME", "A"), ("EMAIL", "a@example"))}
        self.env = {
            **os.environ,
            **environment,
            **named,
            "PATH": path,
            "PYTHONPATH": str(self.folder),
            "HOME": str(root),
            "PYTHONDONTWRITEBYTECODE": "",  # the first command compiles what all others read
        }

    def run(self, lines):
        """What the lines print, in one shell that ends at the first that fails."""
        told = [f"{line} || {{ echo failed: {shlex.quote(line)} >&2; exit 9; }}" for line in lines]
        script = ["bash", "-c", "\n".join(told)]
        done = subprocess.run(script, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def walk(self, name):
        """Run the whole guide."""
        return self.run([line for line in commands(name) if not ELSEWHERE.match(line)])


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path, {})


@pytest.fixture
def hub():
    with StandIn("OWNER/ridgeline") as github:
        yield github


@pytest.mark.parametrize("name", NAMES)
def test_the_first_steps_exist(name):
    targets = (ROOT / "Makefile").read_text()
    for made in re.findall(r"(?:^|`)make (\w+)", (GUIDES / name).read_text(), re.MULTILINE):
        assert f"\n{made}:" in targets
    for link in re.findall(r"\]\((?!https://)([^)]+)\)", (GUIDES / name).read_text()):
        assert (GUIDES / link).exists(), link
    for path in re.findall(r"`((?:ci|benchmarks|\.github)/[\w/.]+)`", (GUIDES / name).read_text()):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("name", [name for name in NAMES if any("[pool." in block for block in blocks(name, "toml"))])
def test_the_pools_of_a_guide_are_sound(name, tmp_path):
    (tmp_path / "runners.toml").write_text("\n".join(blocks(name, "toml")))
    assert pools_file.load(tmp_path / "runners.toml").pool("mi300x").gpus == (1, 8)


def test_workflows_take_what_gh_is_told():
    for name in NAMES:
        for file, rest in re.findall(r"^gh workflow run (\S+)(.*)$", (GUIDES / name).read_text(), re.MULTILINE):
            workflow = yaml.safe_load((ROOT / ".github/workflows" / file).read_text())
            assert set(re.findall(r"-f (\w+)=", rest)) <= set(workflow[True]["workflow_dispatch"]["inputs"])


@pytest.mark.nightly
def test_github_only(clone, hub):
    clone.env |= {"GITHUB_API_URL": hub.url}
    (clone.folder / "ci/runners.toml").write_text(blocks("github.md", "toml")[0])
    said = clone.walk("github.md")
    assert "mi300x" in git(clone.root / "origin", "show", "main:ci/runners.toml")
    assert "would run: ridgeline run --tier=pr" in said
    assert "would move the ref ridgeline/gpu" in said
    assert "gh workflow run nightly.yml -f tier=pr -f pool=mi300x" in clone.asked.read_text()
    assert (clone.folder / "site/index.html").exists()


def cpu_only(text):
    """The pool of a guide, without GPUs: its nodes are this machine."""
    kept = "\n".join(line for line in text.splitlines() if not re.match(r"(gpu|gpus|gres) = ", line))
    return kept.replace("minutes = 240", "minutes = 10").replace("[pool.mi300x]", '[pool.mi300x]\ngpu = "none"')


@pytest.mark.nightly
def test_slurm_only(tmp_path, slurm_cluster):
    clone = Clone(tmp_path, slurm_cluster.env)
    (clone.folder / "ci/runners.toml").write_text(cpu_only(blocks("slurm.md", "toml")[0]))
    said = clone.walk("slurm.md")
    assert "#SBATCH --partition=mi300x" in said
    (notes,) = (clone.folder / "results").glob("*/*.notes.jsonl*")
    assert len(read(notes).trials) == 3
    (line,) = blocks("slurm.md", "cron")
    submitted = line.strip().split(".venv/bin/", 1)[1].replace("submit", "submit --dry-run")
    assert "#SBATCH --array=0-2" in clone.run([submitted])


@pytest.mark.nightly
def test_github_and_slurm(tmp_path, slurm_cluster, hub):
    clone = Clone(tmp_path, {**slurm_cluster.env, "GITHUB_API_URL": hub.url})
    text = blocks("github_and_slurm.md", "toml")[0].replace("/shared/", f"{tmp_path}/")
    (clone.folder / "ci/runners.toml").write_text(text)
    for path in (tmp_path / "actions-runner/run.sh",):
        path.parent.mkdir()
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    clone.walk("github_and_slurm.md")
    assert "systemctl --user enable --now ridgeline-runner" in clone.asked.read_text()
    (unit,) = blocks("github_and_slurm.md", "ini")
    options = re.findall(r" (--[\w-]+)", unit)
    shown = clone.run(["ridgeline ci runner --help"])
    assert [option for option in options if option not in shown] == []


# requirements.lock: every dependency, direct and indirect, at one version and with its hashes, for all Pythons.


LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DIRECT = [Requirement(one) for one in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["locked"])]


def locked():
    """What is locked, by name."""
    lines = re.findall(r"^([A-Za-z0-9][^\\\n]*?) *\\$", LOCK, re.MULTILINE)
    return {canonicalize_name(one.name): one for one in map(Requirement, lines)}


def version(name):
    (one,) = locked()[name].specifier
    assert one.operator == "=="
    return one.version


@pytest.mark.parametrize("direct", DIRECT, ids=str)
def test_it_covers_the_dependencies_of_the_project(direct):
    """A dependency that was added or whose range changed asks for `make lock`."""
    assert canonicalize_name(direct.name) in locked(), "run `make lock` and commit requirements.lock"
    assert direct.specifier.contains(version(canonicalize_name(direct.name))), "run `make lock`"


def needed(name, python):
    """What an installed package needs on Linux with that Python, if it is here at the locked version."""
    environment = {**default_environment(), "python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    for text in importlib.metadata.requires(name) or ():
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate(environment):
            yield canonicalize_name(one.name)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_nothing_that_is_needed_is_missing(python):
    """pip refuses to install what has no hash; here it is seen before."""
    here = {canonicalize_name(one.metadata["Name"]): one.version for one in importlib.metadata.distributions()}
    there = [name for name in locked() if here.get(name) == version(name)]
    assert len(there) > len(DIRECT), "most of them are installed here"
    assert {(name, one) for name in there for one in needed(name, python) if one not in locked()} == set()


def test_versions_are_those_of_every_set_up():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.partition(";")[0].split("==") for line in lines if not line.startswith("#"))
    constrained = {canonicalize_name(name): pinned.strip() for name, pinned in pairs}
    both = locked().keys() & constrained.keys()
    assert len(both) > 20
    assert {name: version(name) for name in both} == {name: constrained[name] for name in both}


def test_the_trusted_set_up_takes_nothing_else():
    light = (ROOT / "Makefile").read_text().partition("\nlight:")[2].partition("\n\n")[0]
    first, second = [line for line in light.splitlines() if "$(PIP)" in line]
    assert "--require-hashes --only-binary :all: -r requirements.lock" in first
    assert "--no-index --no-deps --no-build-isolation" in second
