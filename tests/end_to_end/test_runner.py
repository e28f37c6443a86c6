"""`ridgeline ci runner` between a GitHub with state, a real Slurm and a runner program."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from werkzeug import Response

from ci.runner.service import RunnerService
from tests.end_to_end.conftest import TOKEN, Site
from tests.standins.runner import RunnerHub
from tests.standins.slurm import environment, until

ONE, EIGHT = ["linux", "mi300x-1"], ["mi355x"]


def done(hub: RunnerHub, job: int) -> bool:
    return hub.one(job)["status"] == "completed"


def running(hub: RunnerHub, job: int) -> bool:
    return hub.one(job)["status"] == "in_progress"


def until_said(site: Site, service: RunnerService, text: str) -> None:
    """Rounds of a service in this process, until it says something."""

    def said() -> bool:
        service.round()
        return any(text in line for line in site.said)

    until(said, text)


def test_queued_jobs_run_and_nothing_is_left(site: Site, tmp_path: Path) -> None:
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
    assert len(site.jobs()) == 2
    assert site.hub.not_modified > 0, "GitHub is asked with conditional requests"
    assert site.hub.unknown == []
    assert site.end_service() == 0


def test_a_stranger_s_job_with_our_labels_runs_no_line_on_the_node(site: Site, tmp_path: Path) -> None:
    theirs = site.hub.queue(ONE, [f"touch {tmp_path}/stolen"], event="pull_request", head_branch="main")
    ours = site.hub.queue(ONE, [f"touch {tmp_path}/ours"])
    site.serve()
    site.until(lambda: done(site.hub, ours["id"]), "our job")
    assert site.hub.one(theirs["id"])["conclusion"] == "failure", "GitHub gave it our runner: it was older"
    assert not (tmp_path / "stolen").exists()
    assert (tmp_path / "ours").exists()
    site.until(site.clean, "nothing to be left")
    log = site.log.read_text()
    assert log.count(f"refused job {theirs['id']}") == 1
    assert "the node refused it: o/r/.github/workflows/gpu.yml@refs/heads/main by pull_request" in log


def test_the_job_of_a_node_that_is_lost_runs_again(site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "go"
    job = site.hub.queue(ONE, [f"until [ -e {gate} ]; do sleep 0.05; done"], name="measure")
    site.serve()
    site.until(lambda: running(site.hub, job["id"]), "the job to run")
    site.slurm.kill_node("mi300x-0")
    site.until(lambda: "its node was lost" in site.log.read_text(), "the service to see it")
    gate.touch()
    site.hub.give_up(job["id"])
    site.until(lambda: "runs again" in site.log.read_text(), "the job to be run again")
    site.slurm.bring_back("mi300x-0")
    second = next(one for one in site.hub.jobs if one["run_attempt"] == 2)
    site.until(lambda: done(site.hub, second["id"]), "the second try")
    site.until(site.clean, "nothing to be left")
    assert second["conclusion"] == "success"
    assert len(site.hub.told("POST", "actions/jobs/.*/rerun")) == 1
    assert len(site.jobs()) == 2


def test_a_service_that_is_killed_again_and_again_starts_no_second_job(site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "go"
    job = site.hub.queue(ONE, [f"until [ -e {gate} ]; do sleep 0.05; done"])
    for moment in (lambda: site.jobs(), lambda: site.hub.runners, lambda: running(site.hub, job["id"])):
        site.serve()
        site.until(moment, "the moment")
        site.end_service(signal.SIGKILL)
    gate.touch()
    site.serve()
    site.until(lambda: done(site.hub, job["id"]) and site.clean(), "the end")
    assert site.hub.one(job["id"])["conclusion"] == "success"
    assert len(site.jobs()) == 1
    asked = len(site.hub.told("POST", "generate-jitconfig"))
    assert asked <= 3, "one whose answer died with it, one refused since its name was taken, one that was handed over"


def test_github_and_the_controller_may_be_away(site: Site) -> None:
    job = site.hub.queue(ONE, ["true"])
    site.hub.fault("POST", "generate-jitconfig", Response("", 502), times=10**6)
    site.serve()
    # Slurm needs a minute to find that a job whose start it forgot is not there: that is its own affair
    site.until(site.slurm.processes, "the Slurm job to run")
    site.hub.fault("GET", "", Response("", 502), times=10**6)
    site.until(lambda: "GitHub is away" in site.log.read_text(), "the service to see it")
    site.slurm.restart_controller(away_s=1)
    assert not done(site.hub, job["id"])
    site.hub.faults.clear()
    other = site.hub.queue(ONE, ["true"])
    site.until(lambda: done(site.hub, job["id"]) and done(site.hub, other["id"]) and site.clean(), "the end")
    assert "GitHub is back" in site.log.read_text()
    assert len(site.jobs()) == 2


def test_a_runner_that_never_comes_online_is_deleted(site: Site) -> None:
    site.program.write_text("#!/bin/bash\nsleep 600\n")
    job = site.hub.queue(ONE, ["true"])
    service = site.service(online_s=0.5, pause_s=3600.0)
    until_said(site, service, "was not online")
    until(lambda: service.round() == 0, "nothing to be left")
    assert site.clean()
    assert site.hub.one(job["id"])["status"] == "queued"
    for _ in range(3):
        service.round()
    assert len(site.jobs()) == 1, "the next one waits"


def words(path: Path) -> str:
    """The command line of a process, "" if it has ended meanwhile."""
    try:
        return path.read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_the_secret_is_nowhere_but_in_its_file(site: Site, tmp_path: Path) -> None:
    gate, told = tmp_path / "go", tmp_path / "told"
    job = site.hub.queue(ONE, [f"env > {told}", f"until [ -e {gate} ]; do sleep 0.05; done"])
    site.serve()
    site.until(lambda: running(site.hub, job["id"]) and told.exists(), "the job to run")
    (row,) = [one for one in site.slurm.slurm.mine("rl-") if one.name in site.jobs() and not one.ended]
    shown = [site.slurm.command("scontrol", "-o", "show", "job", row.array_id)]
    shown += [site.slurm.command("scontrol", "write", "batch_script", row.array_id, "-")]
    lines = {path.parent.name: words(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    steps = [pid for pid in site.slurm.processes() if "start.sh" in lines.get(str(pid), "")]
    shown += lines.values()
    assert steps, "the script of the job is among the processes that were looked at"
    shown += [str(environment(pid)) for pid in steps]
    shown += [told.read_text(), site.log.read_text(), site.outputs()]
    files = [path for folder in (site.folder, site.slurm.prefix) for path in folder.rglob("*") if path.is_file()]
    texts = shown + [path.read_bytes().decode(errors="replace") for path in files]
    assert site.hub.secrets
    for secret in (*site.hub.secrets, TOKEN):
        assert not [text for text in texts if secret in text]
    assert (site.state / "slots" / row.name).stat().st_mode & 0o777 == 0o700
    gate.touch()
    site.until(site.clean, "nothing to be left")


def test_a_dry_run_says_what_it_would_do_and_does_nothing(site: Site) -> None:
    site.hub.queue(ONE, ["true"])
    site.hub.queue(ONE, ["true"], event="pull_request", name="\x1b[31mred")
    said = site.run("--dry-run", "--json")
    assert said.returncode == 0, said.stderr
    submit, refused = sorted(json.loads(said.stdout), key=lambda one: one["action"], reverse=True)
    assert submit["action"] == "submit"
    assert "of run" in refused["text"]
    assert "\x1b" not in site.run("--dry-run").stdout
    assert not site.state.exists()
    assert site.jobs() == []
    site.hub.fault("GET", "", Response("", 502), times=10**6)
    away = site.run("--dry-run", "--json")
    assert (away.returncode, json.loads(away.stdout), "GitHub is away" in away.stderr) == (3, [], True)


def test_once_looks_once_and_tells_when_somebody_is_away(site: Site) -> None:
    site.hub.queue(ONE, ["true"])
    first = site.run("--once")
    assert (first.returncode, first.stdout.count("has no container: what its jobs run can read")) == (0, 2)
    assert len(site.jobs()) == 1
    site.hub.fault("GET", "", Response("", 502), times=10**6)
    assert site.run("--once").returncode == 3
    absent = site.run("--once", "--pool", "mi250")
    assert (absent.returncode, "no pool 'mi250'" in absent.stderr) == (3, True)
