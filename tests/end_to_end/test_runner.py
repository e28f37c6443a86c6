"""`ridgeline ci runner` between a GitHub with state, a real Slurm and a runner program."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from werkzeug import Response

from tests.end_to_end.conftest import TOKEN
from tests.standins.slurm import environment

ONE, EIGHT = ["linux", "mi300x-1"], ["mi355x"]


def done(hub, job):
    return hub.one(job)["status"] == "completed"


def running(hub, job):
    return hub.one(job)["status"] == "in_progress"


def test_queued_jobs_run_and_nothing_is_left(site, tmp_path):
    told = tmp_path / "told"
    facts = f'echo "$SLURM_JOB_PARTITION $ROCR_VISIBLE_DEVICES" >> {told}'
    ours = [site.hub.queue(ONE, [facts]), site.hub.queue(EIGHT, [facts])]
    other = site.hub.queue(["ubuntu-24.04"], ["true"])
    site.serve()
    site.until(lambda: all(done(site.hub, job["id"]) for job in ours), "both jobs")
    site.until(site.clean, "nothing to be left")
    assert [site.hub.one(job["id"])["conclusion"] for job in ours] == ["success"] * 2
    assert sorted(told.read_text().split("\n")) == ["", "mi300x 0", "mi355x 0,1,2,3,4,5,6,7"]
    assert site.hub.one(other["id"])["status"] == "queued"
    assert len(site.rows()) == 2
    assert site.hub.unknown == []


def test_a_stranger_s_job_with_our_labels_runs_no_line_on_the_node(site, tmp_path):
    theirs = site.hub.queue(ONE, [f"touch {tmp_path}/stolen"], event="pull_request", head_branch="main")
    ours = site.hub.queue(ONE, [f"touch {tmp_path}/ours"])
    site.serve()
    site.until(lambda: done(site.hub, theirs["id"]), "their job, which GitHub gave our runner: it was older")
    assert site.hub.one(theirs["id"])["conclusion"] == "failure"
    site.hub.end_job(ours["id"])  # its runner's name was used: it would wait until Slurm has forgotten that one
    site.until(site.clean, "nothing to be left")
    assert not (tmp_path / "stolen").exists()
    assert site.log.read_text().count(f"job {theirs['id']} gets no runner: pull_request of") == 1
    assert "does not take o/r/.github/workflows/gpu.yml@refs/heads/main by pull_request" in site.outputs()


@pytest.mark.nightly
def test_a_service_that_is_killed_at_random_moments_starts_one_runner_for_each_job(site, tmp_path):
    """Twenty times; some jobs are cancelled at GitHub meanwhile, and their runners go."""
    chance, gate, ran = random.Random(1), tmp_path / "go", tmp_path / "ran"
    waits = f"until [ -e {gate} ]; do sleep 0.05; done"
    jobs = [site.hub.queue(ONE, [f"echo {number} >> {ran}", waits]) for number in range(2)]
    cancelled = []
    for number in range(20):
        if number in (5, 11):
            cancelled.append(site.hub.queue(EIGHT, [waits]))
        if number in (8, 14):
            site.hub.end_job(cancelled[-1]["id"], "cancelled")
        site.serve()
        time.sleep(chance.uniform(0.3, 1.5))
        site.end_service(signal.SIGKILL)
    site.serve()
    site.until(lambda: all(running(site.hub, job["id"]) for job in jobs), "both jobs to run")
    gate.touch()
    site.until(lambda: all(done(site.hub, job["id"]) for job in jobs) and site.clean(), "the end")
    assert {site.hub.one(job["id"])["conclusion"] for job in jobs} == {"success"}
    names = [row.name for row in site.rows()]
    assert len(names) == len(set(names)), "no job has two runners"
    assert sorted(ran.read_text()) == ["\n", "\n", "0", "1"], "each ran once"


@pytest.mark.nightly
def test_github_and_the_controller_may_be_away(site):
    site.hub.fault("GET", "", Response("", 404), times=10**6)
    job = site.hub.queue(ONE, ["true"])
    site.serve()
    site.until(lambda: "nothing is done until the next round" in site.log.read_text(), "the service to see it")
    site.slurm.restart_controller(away_s=1)
    site.hub.faults.clear()
    other = site.hub.queue(ONE, ["true"])
    site.until(lambda: done(site.hub, job["id"]) and done(site.hub, other["id"]) and site.clean(), "the end")
    assert len(site.rows()) == 2
    assert site.log.read_text().count("does not see this repository") == 1, "said once"


def text(path):
    """A command line of a process or another file, "" if it has gone meanwhile."""
    try:
        return path.read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.nightly
def test_the_secret_is_nowhere_but_in_its_file(site, tmp_path):
    gate, told = tmp_path / "go", tmp_path / "told"
    job = site.hub.queue(ONE, [f"env > {told}", f"until [ -e {gate} ]; do sleep 0.05; done"])
    site.serve()
    site.until(lambda: running(site.hub, job["id"]) and told.exists(), "the job to run")
    (row,) = [one for one in site.rows() if not one.has_ended]
    shown = [site.slurm.command("scontrol", "-o", "show", "job", row.id)]
    shown += [site.slurm.command("scontrol", "write", "batch_script", row.id, "-")]
    lines = {path.parent.name: text(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    steps = [pid for pid in site.slurm.processes() if "start.sh" in lines.get(str(pid), "")]
    shown += lines.values()
    assert steps, "the script of the job is among the processes that were looked at"
    shown += [str(environment(pid)) for pid in steps]
    shown += [told.read_text(), site.log.read_text(), site.outputs()]
    folders = [row for top in (site.folder, site.slurm.prefix) for row in os.walk(top)]
    files = [Path(folder) / name for folder, _, names in folders for name in names]
    texts = shown + [text(path) for path in files if path.is_file()]
    assert site.hub.secrets
    for secret in (*site.hub.secrets, TOKEN):
        assert not [shown for shown in texts if secret in shown]
    assert (site.state / row.name).stat().st_mode & 0o777 == 0o700
    gate.touch()
    site.until(site.clean, "nothing to be left")
