"""From a pull request to its comment and its check: GitHub's side is a stand-in, all else is real.

The pull request slows a kernel down.  Its job waits in the queue; `ridgeline runner` starts a Slurm job with a runner;
the leg's own script measures base and head on this CPU; the trusted job judges the trials and posts.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from ci.pools import file
from ci.pools.matrix import legs
from tests.end_to_end.conftest import TOKEN, Site
from tests.standins.runner import RunnerHub

LIMIT_S = 180.0
"""Seconds from the pull request to the comment: what is asked of this machine of 2 cores."""

PROJECT = '[tool.ridgeline]\nkernels = ["sorting"]\n'

KERNEL = '''\
"""A sorted row."""

import torch

from kernels.spec import Case, Cost, Kernel, Tolerance

sort = Kernel("sort", tolerance=Tolerance(), cases=[Case("row", tier="pr", N=65536, dtype="fp32")])


@sort.inputs
def inputs(case, seed):
    return {"x": torch.randn(case.N)}


@sort.cost
def cost(case):
    return Cost(hbm_bytes=8 * case.N)


@sort.reference
def reference(case, inputs):
    return inputs["x"].double().sort().values.float()


def build(inputs, times):
    x = inputs["x"]
    out = torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)

    def call():
        for _ in range(times):
            torch.sort(x, out=out)
        return out[0]

    return call


@sort.baseline("library")
def library(case, inputs):
    return build(inputs, times=1)


@sort.backend("torch")
def torch_(case, inputs):
    times = 1
    return build(inputs, times)
'''

POOL = """
[pool.cpu]
gpu = "none"
runs_on = ["linux", "cpu"]
container = "none"
isolation = "whole"
venv = "{venv}"
site = "cluster"
partition = "mi325x"
"""


def git(folder: Path, *argv: str) -> str:
    who = ["-c", "user.name=A. Author", "-c", "user.email=author@example.com"]
    return subprocess.run(
        ["git", "-C", str(folder), *who, *argv], check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(folder: Path, kernel: str, subject: str) -> str:
    (folder / "sorting.py").write_text(kernel)
    (folder / "pyproject.toml").write_text(PROJECT)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", subject)
    return git(folder, "rev-parse", "HEAD")


def project(folder: Path) -> tuple[str, str]:
    """A repository with a kernel, and a branch that makes it slower."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    base = commit(folder, KERNEL, "A sorted row")
    git(folder, "switch", "-q", "-c", "topic")
    slower = KERNEL.replace("    times = 1\n", "    times = 3\n")
    head = commit(folder, slower, "A row that is sorted with care")
    git(folder, "switch", "-q", "main")
    return base, head


def ridgeline(folder: Path, hub: RunnerHub, *argv: str) -> subprocess.CompletedProcess[str]:
    """A step of the trusted job: in a checkout of the default branch, with the token that may post."""
    variables = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": hub.url, "GITHUB_REPOSITORY": hub.repository}
    return subprocess.run(
        [sys.executable, "-m", "ci", *argv], cwd=folder, env=os.environ | variables, capture_output=True, text=True
    )


def test_a_pull_request_gets_its_comment_and_its_check(site: Site, tmp_path: Path) -> None:
    started = time.monotonic()
    base, head = project(tmp_path / "origin")
    with site.settings.open("a") as settings:
        settings.write(POOL.format(venv=sys.prefix))
    pools = file.load(site.settings)
    (measure,) = legs(pools, ["python", "-m", "ci", "ab", base, head, "--out", "trials.jsonl"], ["cpu"])
    (tmp_path / "leg.sh").write_text(measure.script)
    work, artifact = tmp_path / "work", tmp_path / "trials.jsonl"
    steps = [
        f"export HOME={shlex.quote(str(tmp_path))}",
        f"git clone -q {tmp_path / 'origin'} {work} && cd {work}",
        f"bash {tmp_path / 'leg.sh'}",
        f"cp trials.jsonl {artifact}",
    ]
    site.hub.pull(7, head)
    job = site.hub.queue(list(measure.runs_on), ["; ".join(steps)], name=measure.name)
    site.serve()
    site.until(lambda: site.hub.one(job["id"])["status"] == "completed", "the measuring job", LIMIT_S)
    trusted = tmp_path / "trusted"
    git(tmp_path, "clone", "-q", str(tmp_path / "origin"), str(trusted))
    report = trusted / "report"
    asked = ["--head", head, "--base", base, "--pool", "hosted", "--report", str(report)]
    judged = ridgeline(trusted, site.hub, "gate", "--trials", str(artifact), *asked)
    posted = ridgeline(
        trusted, site.hub, "report", f"{report}.json", "--post", head, "--topic", "cpu", "--check", "ridgeline (cpu)"
    )
    seconds = time.monotonic() - started
    print(site.outputs(), judged, posted, site.hub.bodies(7), site.hub.checks, seconds, sep="\n")
    assert judged.returncode == 1, judged.stderr
