"""GitHub's queue as the service sees it: conditional requests, pauses, and what a repeated request finds."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from werkzeug import Response

from ci.pools import drained, file
from ci.pools.drained import Drained
from ci.pools.file import PoolsError
from ci.runner import state
from ci.runner.hub import GitHubQueue
from ci.runner.service import SlurmJobs
from ci.runner.state import EVENTS, Away, Denied, Ledger, Letters, LostJob, Pause, RunnerError, Serving, Slot, serving
from ci.slurm import Slurm
from tests.ci.runner.world import SERVING
from tests.standins.github import DROP
from tests.standins.runner import RunnerHub

LABELS = ("linux", "mi300x-1")


@pytest.fixture
def hub() -> Iterator[RunnerHub]:
    with RunnerHub() as one:
        yield one


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


def queue(hub: RunnerHub, clock: Clock | None = None, **changed: object) -> GitHubQueue:
    return GitHubQueue(dataclasses.replace(SERVING, **changed), lambda: "token", hub.url, clock or Clock())


def test_a_look_has_jobs_with_the_facts_of_their_runs(hub: RunnerHub) -> None:
    made = hub.queue(["linux"], [], head_branch="ridgeline/gpu", event="workflow_dispatch")
    hub.run(status="completed")
    (job,) = queue(hub).look((), "rl-").jobs
    assert (job.id, job.run, job.labels) == (made["id"], made["run_id"], frozenset(["linux"]))
    assert (job.path, job.ref, job.event, job.head) == (
        SERVING.workflows[0],
        "ridgeline/gpu",
        "workflow_dispatch",
        "o/r",
    )


def test_a_second_look_costs_nothing_where_nothing_changed_and_sees_what_did(hub: RunnerHub) -> None:
    one = queue(hub)
    hub.queue(["linux"], [])
    first = one.look((), "rl-")
    calls = len(hub.calls)
    assert one.look((), "rl-") == first
    assert hub.not_modified == len(hub.calls) - calls == 4  # runners, two lists of runs, the jobs of one
    hub.queue(["linux"], [])
    assert len(one.look((), "rl-").jobs) == 2


def test_only_our_runners_are_seen(hub: RunnerHub) -> None:
    one = queue(hub)
    number, secret = one.register("rl-aaaaaa-mi300x-1-000001", LABELS)
    one.register("somebody", LABELS)
    (runner,) = one.look((), "rl-aaaaaa-").runners
    assert (runner.id, runner.online, runner.busy) == (number, False, False)
    assert secret in hub.secrets


def test_a_configuration_that_was_lost_is_made_again_and_a_runner_at_work_is_not(hub: RunnerHub) -> None:
    one = queue(hub)
    first, _ = one.register("rl-a", LABELS)
    second, _ = one.register("rl-a", LABELS)
    assert [runner["id"] for runner in hub.runners] == [second]
    assert first != second
    hub.queue(list(LABELS), [])
    hub.take_job(second)
    with pytest.raises(Denied, match="cannot be deleted"):
        one.register("rl-a", LABELS)
    with pytest.raises(Denied, match="cannot be deleted"):
        one.unregister(second)


def test_an_answer_that_got_lost_is_away_and_the_next_request_repairs_it(hub: RunnerHub) -> None:
    one, clock = queue(hub), Clock()
    hub.fault("POST", "generate-jitconfig", DROP, after=True)
    with pytest.raises(Away):
        one.register("rl-a", LABELS)
    number, _ = queue(hub, clock).register("rl-a", LABELS)
    assert [runner["id"] for runner in hub.runners] == [number]


def test_a_pause_that_github_asks_for_is_kept_without_sleeping(hub: RunnerHub) -> None:
    clock = Clock()
    one = queue(hub, clock)
    hub.fault("GET", "actions/runners", Response("", 429, {"Retry-After": "700"}))
    with pytest.raises(Away, match="700 s"):
        one.look((), "rl-")
    calls = len(hub.calls)
    clock.now += 690
    with pytest.raises(Away, match="10 s of it are left"):
        one.look((), "rl-")
    assert len(hub.calls) == calls, "GitHub was not asked"
    clock.now += 11
    one.look((), "rl-")


def test_runners_of_an_organization_are_registered_there(hub: RunnerHub) -> None:
    one = queue(hub, organization="o")
    number, _ = one.register("rl-a", LABELS)
    one.unregister(number)
    assert [call.path for call in hub.told("POST")] == ["orgs/o/actions/runners/generate-jitconfig"]
    assert hub.runners == []


def test_a_lost_job_is_found_by_its_runner_until_it_was_run_again(hub: RunnerHub) -> None:
    one = queue(hub)
    number, _ = one.register("rl-a", LABELS)
    job = hub.queue(list(LABELS), [])
    hub.take_job(number)
    lost = (LostJob("rl-a", job["run_id"], 0.0),)
    found = one.look(lost, "rl-").lost["rl-a"]
    assert found is not None
    assert not found.run_done
    with pytest.raises(Denied, match="already running"):
        one.again(job["id"])
    hub.give_up(job["id"])
    found = one.look(lost, "rl-").lost["rl-a"]
    assert found is not None
    assert found.run_done
    one.again(job["id"])
    assert one.look(lost, "rl-").lost == {"rl-a": None}
    assert one.look((LostJob("rl-b", 4711, 0.0),), "rl-").lost == {"rl-b": None}, "a run that was deleted"


def test_a_new_token_is_used_at_once(hub: RunnerHub, tmp_path: Path) -> None:
    tokens = iter(["first", "second"])
    one = GitHubQueue(SERVING, lambda: next(tokens), hub.url, Clock())
    one.look((), "rl-")
    one.look((), "rl-")
    assert {call.token for call in hub.calls} == {"first", "second"}


# The folder of a slot and the scripts of the node, with real processes.


TOKEN = "rl-aaaaaa-mi300x-1-000001"
NODE = Path(state.__file__).parent / "node"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    state.prepare(tmp_path, TOKEN, "#!/bin/bash\n", SERVING)
    return state.folder(tmp_path, TOKEN)


def test_the_folder_and_the_configuration_are_for_this_user_only(tmp_path: Path, place: Path) -> None:
    old = os.umask(0)
    try:
        state.answer(tmp_path, TOKEN, "c2VjcmV0")
    finally:
        os.umask(old)
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / "config").stat().st_mode & 0o777 == 0o600
    assert (place / "config").read_text() == "c2VjcmV0"
    assert [path.name for path in place.iterdir() if "c2VjcmV0" in path.read_text()] == ["config"]


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("asked", "17\n", Letters(asked="17")),
        ("run", "99", Letters(run=99)),
        ("run", "99; rm -rf /", Letters()),
        ("run", "9" * 5000, Letters()),
        ("code", "7\n", Letters(code=7)),
        ("code", "-1", Letters()),
        ("code", "\xff\x00", Letters()),
    ],
)
def test_letters_are_read_as_a_stranger_s(tmp_path: Path, place: Path, name: str, text: str, wanted: Letters) -> None:
    (place / name).write_text(text)
    assert state.letters(tmp_path, TOKEN) == wanted


def test_a_letter_that_is_a_link_or_a_pipe_is_not_followed(tmp_path: Path, place: Path) -> None:
    (tmp_path / "elsewhere").write_text("17")
    (place / "asked").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(place / "run")
    assert state.letters(tmp_path, TOKEN) == Letters()


def start(place: Path, program: Path, patience: int = 20) -> subprocess.Popen[str]:
    argv = ["bash", str(place / "start.sh"), str(place), str(program), str(patience)]
    env = os.environ | {"SLURM_JOB_ID": "17", "TMPDIR": str(place.parents[1])}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def runner(tmp_path: Path, lines: str) -> Path:
    folder = tmp_path / "actions-runner"
    for name in ("bin", "externals", "_work"):
        (folder / name).mkdir(parents=True)
    (folder / ".credentials").write_text("of somebody else")
    (folder / "run.sh").write_text(f"#!/bin/bash\n{lines}\n")
    (folder / "run.sh").chmod(0o755)
    return folder / "run.sh"


def asked(place: Path) -> None:
    while not (place / "asked").exists():
        time.sleep(0.02)


def test_a_job_asks_gets_its_configuration_and_runs_its_own_copy(tmp_path: Path, place: Path) -> None:
    told = tmp_path / "told"
    lines = f"""cd "$(dirname "$0")"; exec > {told}; ls -A; readlink externals
echo "$ACTIONS_RUNNER_INPUT_JITCONFIG" "$@"; touch here; tr '\\0' ' ' < /proc/$$/cmdline; exit 7"""
    program = runner(tmp_path, lines)
    old, new = tmp_path / "ridgeline-runner-old", tmp_path / "ridgeline-runner-new"
    for one, age_s in ((old, 7 * 86_400), (new, 86_400)):
        one.mkdir()
        os.utime(one, (time.time() - age_s,) * 2)
    process = start(place, program)
    asked(place)
    assert state.letters(tmp_path, TOKEN) == Letters(asked="17")
    state.answer(tmp_path, TOKEN, "c2VjcmV0")
    assert process.wait(20) == 7
    assert told.read_text().startswith(f"bin\nexternals\nrun.sh\n{program.parent}/externals\nc2VjcmV0")
    assert "c2VjcmV0" not in told.read_text().splitlines()[-1], "not among the arguments"
    assert state.letters(tmp_path, TOKEN) == Letters(code=7)
    assert not (place / "config").exists()
    assert not (program.parent / "here").exists()
    assert list(tmp_path.glob("ridgeline-runner-*")) == [new], "the copy is gone, and the one of a job killed long ago"


def test_a_job_without_an_answer_leaves_and_one_without_a_program_never_asks(tmp_path: Path, place: Path) -> None:
    process = start(place, runner(tmp_path, "exit 0"), patience=0)
    assert process.wait(20) == 4
    assert "is the service running?" in process.communicate()[0]
    process = start(place, tmp_path / "absent" / "run.sh")
    assert process.wait(20) == 3
    assert state.letters(tmp_path, TOKEN).code == 3


def test_the_end_of_the_slurm_job_reaches_the_program(tmp_path: Path, place: Path) -> None:
    program = runner(
        tmp_path, f"trap 'touch {tmp_path}/told; exit 0' TERM; touch {tmp_path}/up; while :; do sleep 0.1; done"
    )
    process = start(place, program)
    asked(place)
    state.answer(tmp_path, TOKEN, "secret")
    while not (tmp_path / "up").exists():
        time.sleep(0.02)
    process.terminate()
    assert process.wait(20) == 0
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
def test_the_guard_lets_what_is_allowed_pass_and_ends_the_worker_of_everything_else(
    place: Path, changed: dict[str, str]
) -> None:
    worker = f"bash -e {place}/guard.sh; echo steps with always"
    done = subprocess.run(["bash", "-c", worker], env=os.environ | GOOD | changed, capture_output=True, text=True)
    ran = "steps with always" in done.stdout
    assert ran is not bool(changed)
    assert (place / "run").exists() is ran
    assert (place / "refused").exists() is not ran
    assert (done.returncode == -9) is not ran


def test_the_guard_s_list_is_the_service_s() -> None:
    lines = state.allowed(SERVING).splitlines()
    assert len(lines) == len(SERVING.workflows) * len(SERVING.refs) * len(EVENTS)
    assert "o/r\t.github/workflows/gpu.yml\trefs/heads/main\tschedule" in lines


def test_what_the_service_knows_survives_it_and_a_foreign_file_is_named(tmp_path: Path) -> None:
    first = state.load(tmp_path)
    assert state.load(tmp_path) == first
    slot = Slot(TOKEN, "mi300x-1", 1.5, slurm="17", answered=2.5, run=99)
    known = Ledger(first.instance, (slot,), (LostJob(TOKEN, 99, 3.0),), {"99/x": 1}, (Pause("mi300x-1", 2, 9.0),), (4,))
    state.save(tmp_path, known)
    assert state.load(tmp_path) == known
    (tmp_path / "state.json").write_text('{"format": "other"}')
    with pytest.raises(RunnerError, match="state.json is not a state of `ridgeline ci runner`"):
        state.load(tmp_path)


def test_a_state_folder_serves_one_service_at_a_time(tmp_path: Path) -> None:
    with (
        state.held(tmp_path),
        pytest.raises(RunnerError, match="another `ridgeline ci runner` uses"),
        state.held(tmp_path),
    ):
        pass


# How a slot's Slurm job is submitted, and what squeue's states mean for it.


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
organization = "o"
workflows = [".github/workflows/gpu.yml"]
refs = ["refs/heads/main"]
"""


@pytest.fixture
def jobs(tmp_path: Path) -> SlurmJobs:
    pools = file.parse(tomllib.loads(RUNNERS.replace("/nowhere", str(tmp_path))))
    return SlurmJobs(serving(pools, "here"), pools, tmp_path / "state", Slurm({}))


def test_the_job_of_a_slot(jobs: SlurmJobs, tmp_path: Path) -> None:
    drained.drain(Drained("n3", "its fans", "2026-11-22T10:00:00Z", "somebody"), tmp_path / "drained")
    state = tmp_path / "state"
    assert jobs.options("rl-a", "mi300x-8") == [
        *("--partition=gpu", "--account=perf", "--gres=gpu:mi300x:8", "--constraint=gfx942", "--exclusive"),
        *("--exclude=n3", "--time=105", "--nodes=1", "--no-requeue", "--open-mode=append", "--export=NONE"),
        *(f"--chdir={state}/slots/rl-a", f"--output={state}/logs/rl-a.log", "--qos=ci"),
    ]
    assert jobs.script("rl-a").splitlines()[-1] == (
        f"exec bash {state}/slots/rl-a/start.sh {state}/slots/rl-a /opt/actions-runner/run.sh 600"
    )


def test_a_pool_that_is_gone_from_the_file_starts_nothing(jobs: SlurmJobs) -> None:
    with pytest.raises(Denied, match="no longer in ci/runners.toml"):
        jobs.options("rl-a", "mi250-1")


def test_what_a_site_serves() -> None:
    pools = file.parse(tomllib.loads(RUNNERS))
    made = serving(pools, "here")
    assert [(offer.name, offer.gpus, offer.labels) for offer in made.offers] == [
        ("mi300x-1", 1, ("linux", "mi300x-1")),
        ("mi300x-8", 8, ("linux", "mi300x-8")),
    ]
    assert (made.jobs, made.organization, made.repository) == (3, "o", "o/r")
    assert isinstance(serving(pools, "here", ["mi300x"]), Serving)


@pytest.mark.parametrize(
    ("site", "only", "said"),
    [
        ("there", (), "'there' is not served: ci/runners.toml has no .site.there.runner.; sites that have one: here"),
        ("here", ("alone",), "'alone' has the site 'none': the runners of site 'here' cannot serve it"),
        ("here", ("mi250",), "no pool 'mi250'"),
    ],
)
def test_what_cannot_be_served_is_said(site: str, only: tuple[str, ...], said: str) -> None:
    with pytest.raises((RunnerError, PoolsError), match=said):
        serving(file.parse(tomllib.loads(RUNNERS)), site, only)
