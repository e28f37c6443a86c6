"""The runner that holds nothing: what a round decides, what it does at GitHub, and the scripts of the node."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.github.client import GitHub
from ci.pools import file
from ci.pools.file import Pool, RunnerSettings, RunsOn
from ci.slurm.client import QueueRow, Slurm
from ci.slurm.runner import HubJob, Offer, RunnerService, offer_of, offers_of, plan_round, refusal
from tests.kit import HANGS_S
from tests.standins.runner import RunnerHub

SETTINGS = RunnerSettings(
    "/opt/actions-runner/run.sh",
    "o/r",
    (".github/workflows/gpu.yml", ".github/workflows/nightly.yml"),
    ("refs/heads/main", "refs/heads/ridgeline/*"),
    jobs=3,
)
MI300X = Pool("mi300x", "MI300X", (1, 8), runs_on=RunsOn(("linux", "mi300x-{gpus}")), partition="mi300x")
OFFERS = ONE, EIGHT = [Offer(f"mi300x-{gpus}", MI300X, gpus, ("linux", f"mi300x-{gpus}")) for gpus in (1, 8)]


def job(number, status="queued", offer=ONE, **changed):
    run = {"path": SETTINGS.workflows[0], "head_branch": "main", "event": "schedule", "head": "o/r"} | changed
    run["head_repository"] = {"full_name": run.pop("head")}  # type: ignore[assignment]
    return HubJob(number, offer, status == "queued", refusal(run, SETTINGS))


def row(number, state="PENDING", offer="mi300x-1"):
    return QueueRow("7", f"rl-{number}", state, comment=offer)


def plan(jobs, rows, busy=()):
    return plan_round(jobs, {row.name for row in rows} - {*busy}, rows, OFFERS, SETTINGS.jobs)


def submitted(made):
    return [(name, offer.name) for name, offer in made.items() if offer]


def cancelled(made):
    return [name for name, offer in made.items() if offer is None]


def test_each_queued_job_gets_one_runner_of_its_size():
    made = plan([job(1), job(2, offer=EIGHT), job(3, "in_progress")], [row(3, "RUNNING")], busy=("rl-3",))
    assert (submitted(made), cancelled(made)) == ([("rl-1", "mi300x-1"), ("rl-2", "mi300x-8")], [])
    assert submitted(plan([job(1), job(2, offer=EIGHT)], [row(1), row(2, "RUNNING", "mi300x-8")])) == []


def test_of_too_many_those_that_wait_go_first():
    assert cancelled(plan([job(1)], [row(1, "RUNNING"), row(2, "RUNNING"), row(3)])) == ["rl-2", "rl-3"]


def test_a_runner_that_has_done_its_job_does_not_count_while_its_slurm_job_ends():
    """The other runner would be cancelled, and the queued job wait until Slurm has forgotten both."""
    assert plan([job(1)], [row(1, "RUNNING"), row(2, "RUNNING")], busy=("rl-1",)) == {}


def test_a_job_whose_runner_took_another_one_has_one_named_for_that_one():
    jobs = [job(1), job(2, "in_progress")]
    assert submitted(plan(jobs, [row(1, "RUNNING")], busy=("rl-1",))) == [("rl-2", "mi300x-1")]
    assert submitted(plan(jobs, [row(1, "RUNNING"), row(2)], busy=("rl-1",))) == []


def test_a_runner_that_ended_without_its_job_is_not_started_again_while_slurm_remembers_it():
    assert submitted(plan([job(1)], [row(1, "FAILED")])) == []
    assert submitted(plan([job(1)], [])) == [("rl-1", "mi300x-1")]


@pytest.mark.parametrize(
    ("changed", "allowed"),
    [
        ({"event": "pull_request"}, False),
        ({"event": "pull_request_target"}, False),
        ({"head": "stranger/r"}, False),
        ({"head": ""}, False),
        ({"path": ".github/workflows/evil.yml"}, False),
        ({"head_branch": "topic"}, False),
        ({"head_branch": "ridgeline/gpu"}, True),
        ({"head": "O/R"}, True),
        ({"path": ".github/workflows/gpu.yml@refs/heads/main"}, True),
    ],
)
def test_who_may_run(changed, allowed):
    one = job(1, **changed)
    assert (one.refusal == "") is allowed
    assert len(plan([one], [])) == allowed


def test_a_job_goes_to_the_offer_that_has_least_beside_its_labels():
    assert offer_of(("LINUX", "Mi300x-1"), OFFERS) is ONE
    assert offer_of(("linux",), OFFERS) is ONE
    for labels in ((), ("ubuntu-24.04",), ("linux", "mi355x")):
        assert offer_of(labels, OFFERS) is None


STEP = st.sampled_from(["queue", "take", "end", "exit", "cancel", "round"])
STEPS = st.lists(st.tuples(STEP, st.integers(0, 5)), max_size=60)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_whatever_happens_in_between_rounds_every_queued_job_has_a_runner_and_nobody_else(steps):
    """GitHub routes a queued job to any idle runner; runners start, take, end; jobs are queued and cancelled."""
    jobs = {}
    rows = {}
    busy = {}  # job by runner
    gone = []  # runners that have done their job and whose Slurm jobs have not ended yet

    def round_():
        idle = rows.keys() - busy.keys() - set(gone)
        made = plan_round([*jobs.values()], idle, [*rows.values()], [ONE], SETTINGS.jobs)
        for name, offer in made.items():
            if offer:
                assert name not in rows
                rows[name] = QueueRow("1", name, "RUNNING", comment=offer.name)
            else:
                assert name in idle, "only an idle runner is cancelled"
                del rows[name]
        return made

    for count, (step, index) in enumerate(steps):
        queued = [one for one in jobs.values() if one.is_queued]
        idle = sorted(rows.keys() - busy.keys() - set(gone))
        if step == "queue":
            jobs[count] = job(count)
        elif step == "take" and queued and idle:
            one = queued[index % len(queued)]
            jobs[one.id] = dataclasses.replace(one, is_queued=False)
            busy[idle[index % len(idle)]] = one.id
        elif step == "end" and busy:
            name = sorted(busy)[index % len(busy)]
            del jobs[busy.pop(name)]
            gone.append(name)
        elif step == "exit" and gone:
            del rows[gone.pop(index % len(gone))]
        elif step == "cancel" and queued:
            del jobs[queued[index % len(queued)].id]
        elif step == "round":
            round_()
    while gone:
        del rows[gone.pop()]
    round_()
    idle_rows = rows.keys() - busy.keys()
    queued_jobs = [one for one in jobs.values() if one.is_queued]
    busy_rows = len(rows) - len(idle_rows)
    assert len(idle_rows) == min(len(queued_jobs), max(SETTINGS.jobs - busy_rows, 0))
    assert round_() == {}


# What a round does at GitHub, and the Slurm job of a runner.

RUNNERS = """
[pool.mi300x]
gpu = "MI300X"
gpus = [1, 8]
runs_on = ["linux", "mi300x-{gpus}"]
container = "none"
isolation = "slurm"
site = "here"
partition = "gpu"
gres = "mi300x"
constraint = "gfx942"
exclusive = true
minutes = 90
sbatch = ["--qos=ci"]

[pool.alone]
gpu = "MI355X"
gpus = [8]
runs_on = ["alone"]
container = "none"
isolation = "whole"

[site.there]

[site.here]
account = "perf"
shared = "/nowhere"
[site.here.runner]
program = "/opt/actions-runner/run.sh"
repository = "o/r"
jobs = 3
workflows = [".github/workflows/gpu.yml"]
refs = ["refs/heads/main"]
"""


@pytest.fixture
def hub():
    with RunnerHub() as one:
        yield one


@pytest.fixture
def service(hub, tmp_path):
    """With an sbatch that answers 7, and a squeue that knows nothing."""
    for name, text in (("sbatch", "echo 7"), ("squeue", ""), ("scancel", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    pools = file.parse(tomllib.loads(RUNNERS.replace("/nowhere", str(tmp_path))))
    site = pools.sites["here"]
    assert site.runner
    github = GitHub("o/r", "token", hub.url)
    slurm = Slurm({"PATH": f"{tmp_path}:{os.environ['PATH']}"}, patience_s=0)
    os.environ["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    return RunnerService(site, site.runner, offers_of(pools, "here"), tmp_path / "runner", github, slurm)


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"])


def test_a_look_has_jobs_with_the_facts_of_their_runs_and_our_runners_only(hub, service):
    made = hub.queue(["linux", "mi300x-1"], [], head_branch="ridgeline/gpu")
    hub.run(status="completed")
    service.submit("rl-1", service.offers[0])
    hub.runners.append({**hub.runners[0], "id": 99, "name": "somebody", "busy": True})
    ((one,), idle, rows) = service.look()
    assert (one.id, one.offer, one.is_queued) == (made["id"], service.offers[0], True)
    assert one.refusal.startswith("workflow_dispatch of .github/workflows/gpu.yml at refs/heads/ridgeline/gpu, with")
    assert (idle, rows) == ({"rl-1": hub.runners[0]["id"]}, [])


def test_the_slurm_job_of_a_runner(hub, service, tmp_path):
    service.submit("rl-5", service.offers[1])
    folder, place = tmp_path / "runner", tmp_path / "runner/rl-5"
    lines = (place / "job.sh").read_text().splitlines()
    assert [line.removeprefix("#SBATCH ") for line in lines[1:-1]] == [
        *("--job-name=rl-5", "--comment=mi300x-8", "--partition=gpu", "--account=perf", "--gres=gpu:mi300x:8"),
        *("--constraint=gfx942", "--time=105", "--nodes=1"),
        *(
            "--open-mode=append",
            "--export=NONE",
            f"--chdir={folder}",
            "--output=rl-5.txt",
            "--exclusive",
            "--no-requeue",
            "--qos=ci",
        ),
    ]
    assert lines[-1] == f"exec bash {place}/start.sh /opt/actions-runner/run.sh"
    assert folder.stat().st_mode & 0o777 == 0o700, "what jobs print is for their user only"
    assert hub.runners[0]["labels"][1]["name"] == "mi300x-8"


def test_a_configuration_that_was_lost_is_made_anew_and_a_runner_at_work_is_left(hub, service, monkeypatch):
    hub.queue(["linux", "mi300x-1"], [])
    (name,) = (f"rl-{listed['id']}" for listed in hub.jobs)
    service.submit(name, service.offers[0])
    first = hub.runners[0]["id"]
    assert service.do_round() == ([f"{name}: submit for mi300x-1"], False)
    assert [runner["id"] != first for runner in hub.runners] == [True]
    jobs, idle, rows = service.look()
    hub.take_job(hub.runners[0]["id"])
    with monkeypatch.context() as patch:
        patch.setattr(
            RunnerService, "look", lambda self: ([], idle, [QueueRow("7", name, "RUNNING", comment="mi300x-1")])
        )
        lines, failed = service.do_round()
    assert failed
    assert "cannot be deleted" in lines[1], "it got a job after we looked"
    hub.end_job(hub.jobs[0]["id"])
    assert [place.name for place in service.folder.glob("rl-*/")] == [name]
    assert service.do_round() == (["nothing to do"], False)
    assert list(service.folder.glob("rl-*/")) == []


# The folder of a job and the scripts of the node, with real processes.


@pytest.fixture
def runner_folder(service):
    old = os.umask(0)
    try:
        dataclasses.replace(service, settings=SETTINGS).submit("rl-1", service.offers[0])
    finally:
        os.umask(old)
    return service.folder / "rl-1"


def test_the_folder_and_the_configuration_are_for_this_user_only(runner_folder, hub):
    assert runner_folder.stat().st_mode & 0o777 == 0o700
    assert (runner_folder / "config").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in runner_folder.iterdir() if hub.secrets[0] in path.read_text()] == ["config"]


def start(runner_folder, program):
    argv = ["bash", str(runner_folder / "start.sh"), str(program)]
    env = os.environ | {"SLURM_JOB_ID": "17", "TMPDIR": str(runner_folder.parent.parent)}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def program(tmp_path, lines):
    folder = tmp_path / "actions-runner"
    for name in ("bin", "externals", "_work"):
        (folder / name).mkdir(parents=True)
    (folder / ".credentials").write_text("of somebody else")
    (folder / "run.sh").write_text(f"#!/bin/bash\n{lines}\n")
    (folder / "run.sh").chmod(0o755)
    return folder / "run.sh"


def test_a_job_runs_its_own_copy_and_leaves_nothing(tmp_path, runner_folder, hub):
    told = tmp_path / "told"
    lines = f"""cd "$(dirname "$0")"; exec > {told}; ls -A; readlink externals; ls {runner_folder}
echo "$ACTIONS_RUNNER_INPUT_JITCONFIG" "$@"; touch here; tr '\\0' ' ' < /proc/$$/cmdline; exit 7"""
    run = program(tmp_path, lines)
    old, new = tmp_path / "ridgeline-runner-old", tmp_path / "ridgeline-runner-new"
    for one, age_s in ((old, 7 * 86_400), (new, 86_400)):
        one.mkdir()
        os.utime(one, (time.time() - age_s,) * 2)
    process = start(runner_folder, run)
    output = process.communicate(timeout=HANGS_S)[0]
    assert (process.returncode, "install a newer one" in output) == (7, True)
    text = told.read_text()
    assert text.startswith(
        f"bin\nexternals\nrun.sh\n{run.parent}/externals\nallowed\nguard.sh\njob.sh\nstart.sh\n{hub.secrets[0]}"
    )
    assert hub.secrets[0] not in text.splitlines()[-1], "not among the arguments"
    assert not runner_folder.exists()
    assert not (run.parent / "here").exists()
    assert list(tmp_path.glob("ridgeline-runner-*")) == [new], "the copy is gone, and the one of a job killed long ago"


def test_the_end_of_the_slurm_job_reaches_the_program(tmp_path, runner_folder):
    run = program(
        tmp_path, f"trap 'touch {tmp_path}/told; exit 0' TERM; touch {tmp_path}/up; while :; do sleep 0.1; done"
    )
    process = start(runner_folder, run)
    while not (tmp_path / "up").exists():
        time.sleep(0.02)
    process.terminate()
    assert process.wait(HANGS_S) == 0
    assert (tmp_path / "told").exists()


GOOD = {
    "GITHUB_REPOSITORY": "o/r",
    "GITHUB_WORKFLOW_REF": "o/r/.github/workflows/gpu.yml@refs/heads/ridgeline/gpu-7",
    "GITHUB_EVENT_NAME": "workflow_dispatch",
    "GITHUB_RUN_ID": "99",
}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"GITHUB_WORKFLOW_REF": "o/r/.github/workflows/gpu.yml@refs/pull/7/merge"},
        {"GITHUB_WORKFLOW_REF": "o/r/.github/workflows/evil.yml@refs/heads/main"},
        {"GITHUB_WORKFLOW_REF": "s/r/.github/workflows/gpu.yml@refs/heads/main"},
        {"GITHUB_REPOSITORY": "s/r", "GITHUB_WORKFLOW_REF": "s/r/.github/workflows/gpu.yml@refs/heads/main"},
        {"GITHUB_WORKFLOW_REF": "o/r/.github/workflows/gpu.yml@refs/tags/main"},
        {"GITHUB_EVENT_NAME": "pull_request_target"},
        {"GITHUB_WORKFLOW_REF": ""},
    ],
)
def test_the_guard_lets_what_is_allowed_pass_and_ends_the_worker_of_everything_else(runner_folder, changed):
    worker = f"bash -e {runner_folder}/guard.sh; echo steps with always"
    done = subprocess.run(["bash", "-c", worker], env=os.environ | GOOD | changed, capture_output=True, text=True)
    ran = "steps with always" in done.stdout
    assert ran is not bool(changed)
    assert (done.returncode == -9) is not ran
