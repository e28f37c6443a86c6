"""From a pull request to its comment and its check: GitHub is a stand-in, all else is real.

The pull request makes a kernel slower.  The steps of the workflow GPU list the legs; the measuring job of a leg waits
in GitHub's queue; `ridgeline ci runner` starts a Slurm job with a runner for it, and the steps of leg.yml measure base
and head there, on this CPU; the steps of its trusted job judge the trials with the default branch's code, and post.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import httpx
import pytest

from tests.end_to_end.conftest import ROOT, TOKEN
from tests.github.actions import load
from tests.kit import commit, git, repository

KERNEL = '''\
"""A sorted row."""

import torch

from kernels.spec import Case, Cost, Kernel, Tolerance

sort = Kernel("sort", tolerance=Tolerance(), cases=[Case("row", tier="pr", N=16384, dtype="fp32")])


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
minutes = 30
site = "cluster"
partition = "mi325x"
"""


def project(folder, hub):
    """A repository with a kernel, and pull request 7, which makes it three times as slow; returns its head."""
    project = '[tool.ridgeline]\nkernels = ["ops"]\n'
    repository(folder, **{"ops/__init__.py": "", "ops/sort.py": KERNEL, "pyproject.toml": project})
    git(folder, "switch", "-q", "-c", "topic")
    head = commit(folder, "Sort with care", **{"ops/sort.py": KERNEL.replace("    times = 1\n", "    times = 3\n")})
    git(folder, "switch", "-q", "main")
    hub.pull(7, head)
    return head


def checkout(origin, folder):
    """What the steps before leave: a clone of the default branch, and Ridgeline with an environment."""
    git(origin.parent, "clone", "-q", str(origin), str(folder))
    (folder / ".ridgeline/house").mkdir(parents=True)
    for place in (".venv", ".ridgeline/house/.venv"):
        (folder / place).symlink_to(sys.prefix)
    (folder / ".git/info/exclude").write_text(".venv\n.ridgeline\n")
    return folder


def steps(workflow, job):
    """The lines of a job's steps by their names."""
    return {step["name"]: step["run"] for step in load(workflow)["jobs"][job]["steps"] if "run" in step}


def shell(lines, folder, **variables):
    """Run the lines of a step as GitHub does."""
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", lines]
    done = subprocess.run(argv, cwd=folder, env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{lines}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def legs(site, head):
    """What the job `legs` of the workflow GPU puts out, for the pool of CPUs of this test's site."""
    lines = steps("gpu.yml", "legs")["List the legs"].replace("--matrix", f"--matrix --file {site.settings}")
    printed = shell(lines, ROOT, SHA=head, POOL="cpu", GPUS="")
    return list(json.loads(printed))


def queue(site, leg, origin, head):
    """The measuring job of a leg in GitHub's queue; its number, and where it hands its trials over."""
    work, artifact = site.folder / "work", site.folder / "incoming" / "trials.jsonl"
    artifact.parent.mkdir()
    for name in ("script", "clean"):
        (site.folder / name).write_text(str(leg[name]))
    lines = steps("leg.yml", "measure")
    variables = (
        f'export HOME={site.folder} SHA={head} SCRIPT="$(<{site.folder}/script)" CLEAN="$(<{site.folder}/clean)"'
    )
    run = [
        f"mkdir -p {work}; cd {work}; {lines['Clear what a killed job may have left']}",
        f"git clone -q {origin} {work}",
        f"cd {work}; {lines['Fetch the commit']}",
        f"cd {work}; {lines['Measure']}",
        f"cp {work}/trials.jsonl {artifact}",
    ]
    labels = [str(label) for label in leg["runs_on"]]  # type: ignore[union-attr]
    job = site.hub.queue(labels, [f"{variables}; {line}" for line in run], head_branch="ridgeline/gpu")
    job["name"] = f"{leg['name']} / Measure"
    return int(job["id"]), artifact


@pytest.mark.slow
def test_a_pull_request_gets_its_comment_and_its_check(site, tmp_path):
    origin = tmp_path / "origin"
    head = project(origin, site.hub)
    with site.settings.open("a") as settings:
        settings.write(POOL.format(venv=sys.prefix))
    site.serve()
    trusted = checkout(origin, tmp_path / "trusted")
    (leg,) = legs(site, head)
    job, artifact = queue(site, leg, origin, head)
    site.until(lambda: site.hub.one(job)["status"] == "completed", "the measuring job")
    assert site.hub.one(job)["conclusion"] == "success", site.outputs()

    run = site.hub.one(job)["run_id"]
    jobs = httpx.get(f"{site.hub.url}/repos/o/r/actions/runs/{run}/jobs").text
    (tmp_path / "run.json").write_text(jobs)
    variables = {
        "RUNNER_TEMP": str(tmp_path),
        "SHA": head,
        "NAME": str(leg["name"]),
        "POOL": "hosted",
        "GPUS": "0",
        "GITHUB_TOKEN": TOKEN,
        "GITHUB_API_URL": site.hub.url,
        "GITHUB_REPOSITORY": "o/r",
        "RUN": "https://github.example/run",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    lines = steps("leg.yml", "judge")
    for name in ("Judge", "Post"):
        shell(lines[name].replace("incoming", f"incoming/{artifact.name}"), trusted, **variables)

    (comment,) = site.hub.bodies(7)
    (check,) = site.hub.checks
    assert "SLOWER on cpu-0" in comment
    assert "`sort/torch/row`" in comment
    assert f"untrusted tree ({head[:8]}" in comment
    assert (check["head_sha"], check["name"], check["conclusion"]) == (head, "Ridgeline cpu-0", "failure")
    assert "SLOWER" in (tmp_path / "summary.md").read_text()
    site.until(site.clean, "nothing to be left")
