"""Jobs of ours on a real Slurm: every way they can end, and what stays of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.lifetime import lives
from ci import executors, slurm
from ci.__main__ import main
from ci.executors import ExecutorError, JobSpec, JobStatus, Sharding, State
from ci.executors.cluster import SlurmExecutor
from ci.pools.file import Pool, PoolsError
from ci.slurm import SlurmError
from tests.ci.slurm import torture
from tests.needed import needed
from tests.standins.slurm import SlurmCluster, environment, pids, until

ROOT = Path(__file__).parents[3]
RUNNERS = """
[site.here]

[pool.pool]
gpu = "MI300X"
gpus = [1, 8]
container = "none"
isolation = "slurm"
venv = "{venv}"
site = "here"
partition = "{partition}"
gres = "{gres}"
minutes = {minutes}
"""

COUNT = """
import json, os, sys, time
out, total, pause, machine = sys.argv[sys.argv.index("--out") + 1], {total}, {pause}, {machine!r}
known = open(out).read().count("\\n") if os.path.exists(out) else 0
for number in range(known, total):
    time.sleep(pause)
    with open(out, "a") as file:
        file.write(json.dumps(dict(number=number, pid=os.getpid(), machine=dict(name=eval(machine)))) + "\\n")
"""
"""A command that appends numbered lines, as slowly as it is told, and goes on where the file ends."""


@pytest.fixture
def place(slurm_cluster: SlurmCluster, tmp_path: Path) -> SlurmExecutor:
    return SlurmExecutor(tmp_path / "my jobs", slurm_cluster.slurm)


def runners(folder: Path, partition: str = "mi300x", gres: str = "mi300x", minutes: int = 10) -> str:
    path = folder / f"{partition}.toml"
    venv = Path(sys.executable).parents[1]
    path.write_text(RUNNERS.format(venv=venv, partition=partition, gres=gres, minutes=minutes))
    return str(path)


CLUSTER_OF_ITS_OWN = """
import pathlib, time
from tests.standins.slurm import cluster, until
with cluster() as one:
    script = one.prefix / "job.sh"
    script.write_text("#!/bin/bash\\nsetsid sleep 600 & sleep 600")
    one.slurm.sbatch(script, "rl-x", ["--partition=all", "--output=/dev/null"])
    until(lambda: len(one.processes()) >= 3, "the job")
    pathlib.Path("{folder}/draft").write_text(str(one.prefix))
    pathlib.Path("{folder}/draft").rename("{folder}/prefix")
    time.sleep(600)
"""

Submit = Callable[..., str]


@pytest.fixture
def submit(place: SlurmExecutor, tmp_path: Path) -> Submit:
    def submit_(
        text: str,
        *,
        shards: int = 1,
        timeout: float = 60,
        gpus: int = 1,
        pool: str | None = None,
        cwd: Path = ROOT,
        **sharding: object,
    ) -> str:
        program = tmp_path / f"{len(executors.all_jobs(place.root))}.py"
        program.write_text(text)
        spec = JobSpec(
            "test", gpus, timeout, 1.0, str(cwd), pool="pool", runners=pool or runners(tmp_path),
            sharding=Sharding(shards, **{"publishes": True, **sharding}),
        )  # fmt: skip
        return place.submit(executors.script(["python", str(program)], spec), spec)

    return submit_


def count(total: int, pause: float = 0.05, machine: str = "'m'") -> str:
    return COUNT.format(total=total, pause=pause, machine=machine)


def end(place: SlurmExecutor, job: str, seconds: float = 120.0) -> JobStatus:
    until(lambda: place.poll([job])[job].state.final, f"the end of {job}", seconds, every_s=0.5)
    return place.poll([job])[job]


def lines(place: SlurmExecutor, job: str) -> list[dict]:
    return [json.loads(line) for line in (place.root / "jobs" / job / "trials.jsonl").read_text().splitlines()]


def published(place: SlurmExecutor, job: str, shard: int = 0) -> list[Path]:
    return sorted((place.root / "jobs" / job / f"shards/{shard}/lines").glob("[0-9]*.json"))


def attempts(place: SlurmExecutor, job: str, shard: int = 0) -> int:
    return len(list((place.root / "jobs" / job / f"shards/{shard}/attempts").glob("*")))


@pytest.mark.slow
def test_shards_of_an_array_are_put_together(place: SlurmExecutor, submit: Submit, tmp_path: Path) -> None:
    job = submit(count(3), shards=4, out=str(tmp_path / "all.jsonl"))
    status = end(place, job)
    assert (status.state, status.exit_code, status.where) == (State.DONE, 0, "mi300x-0"), status
    assert [line["number"] for line in lines(place, job)] == [0, 1, 2] * 4
    assert (tmp_path / "all.jsonl").read_text() == (place.root / "jobs" / job / "trials.jsonl").read_text()
    assert executors.all_jobs(place.root) == [job]


@pytest.mark.slow
def test_failure_and_a_time_limit_keep_what_was_published(place: SlurmExecutor, submit: Submit) -> None:
    bad = submit(count(2) + "\nsys.exit(9)")
    slow = submit(count(99, 0.4), timeout=2)
    broken = submit("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert (end(place, bad).state, end(place, bad).exit_code, len(lines(place, bad))) == (State.FAILED, 9, 2)
    assert end(place, slow).state is State.TIMEOUT
    assert "after 2 s" in end(place, slow).why
    assert 1 <= len(lines(place, slow)) < 99
    assert "SIGSEGV" in end(place, broken).why


def test_cancel_while_it_runs_and_while_it_waits(
    place: SlurmExecutor, submit: Submit, slurm_cluster: SlurmCluster
) -> None:
    job = submit(count(99, 0.2), shards=3)
    until(lambda: published(place, job), "a line")
    place.cancel(job)
    status = end(place, job)
    assert status.state is State.CANCELLED, status
    assert lines(place, job)
    until(lambda: not slurm_cluster.processes(), "the end of all processes")
    place.resume(job)
    place.cancel(job)
    assert end(place, job).state is State.CANCELLED


@pytest.mark.slow
def test_preempted_it_is_requeued_and_goes_on(
    place: SlurmExecutor, submit: Submit, slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    job = submit(count(12, 0.3), gpus=8)
    until(lambda: published(place, job), "a line")
    urgent = submit(count(1), gpus=8, pool=runners(tmp_path, "urgent"))
    assert end(place, urgent).state is State.DONE
    assert published(place, job)
    assert end(place, job).state is State.DONE
    assert [line["number"] for line in lines(place, job)] == list(range(12))
    assert len({line["pid"] for line in lines(place, job)}) == attempts(place, job) == 2


def test_a_lost_slurmd_makes_a_second_copy_and_no_second_line(
    place: SlurmExecutor, submit: Submit, slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    """The old copy lives on while the requeued one starts, here on another node."""
    job = submit(count(70, 0.2), pool=runners(tmp_path, "all", gres=""), gpus=1)
    until(lambda: len(published(place, job)) >= 2, "lines")
    node = place.poll([job])[job].where
    old = {line["pid"] for line in map(json.loads, (path.read_text() for path in published(place, job)))}
    slurm_cluster.kill_slurmd(node)
    try:
        until(lambda: attempts(place, job) == 2, "the second attempt")
        until(lambda: not any(lives(pid) for pid in old), "the end of the first copy")
        assert end(place, job).state is State.DONE
    finally:
        slurm_cluster.bring_back(node)
    assert [line["number"] for line in lines(place, job)] == list(range(70))
    assert len({line["pid"] for line in lines(place, job)}) == 2


@pytest.mark.slow
def test_a_requeue_onto_another_machine_is_refused(
    place: SlurmExecutor, submit: Submit, slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    job = submit(
        count(300, 0.2, machine="os.environ['SLURMD_NODENAME']"), pool=runners(tmp_path, "all", gres=""), gpus=1
    )
    until(lambda: published(place, job), "a line")
    node = place.poll([job])[job].where
    slurm_cluster.kill_slurmd(node)
    try:
        status = end(place, job)
    finally:
        slurm_cluster.bring_back(node)
    assert status.state is State.FAILED
    assert "and the shard's first trials are of" in status.why
    assert {line["machine"]["name"] for line in lines(place, job)} == {node}


@pytest.mark.slow
def test_a_sharded_run_of_real_measurements_while_a_node_dies(own_cluster: SlurmCluster, tmp_path: Path) -> None:
    """The small form of `python -m tests.ci.slurm.torture`, which has the figures of 8 x 3 trials."""
    run = torture.Torture(own_cluster, tmp_path, shards=2, trials=2)
    run.reach(0.25)
    own_cluster.kill_node(node := run.a_node_at_work())
    own_cluster.bring_back(node)
    found = run.finish()
    assert found.sound, found
    assert found.attempts > 2


@pytest.mark.slow
def test_a_job_whose_id_slurm_gave_to_another_one_is_taken_up_by_the_command_of_its_message(
    own_cluster: SlurmCluster, tmp_path: Path
) -> None:
    """Attempts of both have the same Slurm id, so that only the token tells whose an attempt is."""
    run = torture.Torture(own_cluster, tmp_path, shards=2, trials=1, light=True)
    torture.forgotten(run)
    assert run.status.exit_code == 3, run.status
    found = run.finish()
    assert (found.sound, found.resumed) == (True, 1), found


@pytest.mark.slow
def test_a_shard_without_its_gpu_requeues_itself_and_then_the_job_is_lost(
    place: SlurmExecutor, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Slurm starts it for some seconds after a restart of its controller: with none of the GPUs it asked for."""
    monkeypatch.setattr(slurm, "REQUEUES", 1)
    monkeypatch.setattr(Pool, "gres_of", lambda pool, gpus: "")
    job = submit(count(1))
    log = place.root / "jobs" / job / "output-0.txt"
    until(lambda: "shard 0 did not begin and was requeued (1 of 3 times)" in place.poll([job])[job].why, "the requeue")
    assert not place.poll([job])[job].state.final
    status = end(place, job)
    assert (status.state, status.exit_code) == (State.LOST, 3), status
    assert f"--resume {job}` does what is missing: " in status.why
    assert "wants 1 GPUs and the environment gives 0" in status.why
    assert "is requeued (1 of 1 times)" in log.read_text()
    assert "did not begin at 2 starts and is lost" in log.read_text()
    assert json.loads((log.parent / "output-end.txt").read_text().splitlines()[-1])["exit_code"] == 3
    for more in ([], ["--json"]):
        shown = CliRunner().invoke(main, ["jobs", "--queue", str(place.root), *more, job])
        assert (shown.exit_code, f"--resume {job}" in shown.output) == (3, True), shown.output
    monkeypatch.undo()
    place.resume(job)
    assert end(place, job).state is State.DONE


def test_lines_that_were_not_put_together_are_gathered_without_another_shard(
    place: SlurmExecutor, submit: Submit
) -> None:
    job = submit(count(2))
    end(place, job)
    folder = place.root / "jobs" / job
    for file in ("result.json", "trials.jsonl"):
        (folder / file).unlink()
    status = end(place, job)
    assert (status.state, status.exit_code, "not put together" in status.why) == (State.LOST, 3, True)
    place.resume(job)
    assert (end(place, job).state, attempts(place, job), len(lines(place, job))) == (State.DONE, 1, 2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_a_cluster_outlives_who_started_it(tmp_path: Path, number: signal.Signals) -> None:
    """However that one ends: neither a daemon, nor a job and what it started, nor a file."""
    needed("Slurm")
    argv = [sys.executable, "-c", CLUSTER_OF_ITS_OWN.format(folder=tmp_path)]
    with subprocess.Popen(argv, cwd=ROOT) as started:
        until((tmp_path / "prefix").exists, "a job that runs", 60)
        prefix = Path((tmp_path / "prefix").read_text())
        conf = {"SLURM_CONF": f"{prefix}/etc/slurm.conf"}.items()
        before = [pid for pid in pids() if conf <= environment(pid).items()]
        assert len(before) >= 1 + 1 + 3 + 2, "munged, slurmctld, three slurmd, and the job"
        started.send_signal(number)
    until(lambda: not any(lives(pid) for pid in before), "the end of all its processes", 30)
    until(lambda: not prefix.exists(), "the end of its folder", 30)


@pytest.mark.slow
def test_a_controller_that_restarts_loses_nothing(
    place: SlurmExecutor, submit: Submit, slurm_cluster: SlurmCluster
) -> None:
    job = submit(count(6, 0.3), shards=2)
    until(lambda: published(place, job), "a line")
    slurm_cluster.restart_controller()
    assert end(place, job).state is State.DONE
    assert [line["number"] for line in lines(place, job)] == [*range(6), *range(6)]


@pytest.mark.slow
def test_a_job_that_slurm_forgot_is_lost_and_can_be_resumed(place: SlurmExecutor, submit: Submit) -> None:
    job = submit(count(3))
    end(place, job)
    folder = place.root / "jobs" / job
    (folder / "result.json").unlink()
    (folder / "shards/0/attempts/0/result.json").unlink()
    (folder / "shards/0/lines/000002.json").unlink()
    known = json.loads((folder / "slurm.json").read_text())
    (folder / "slurm.json").write_text(json.dumps({**known, "token": "rl-another"}))
    assert place.poll([job])[job].state is State.LOST, "the id belongs to another job now"
    place.resume(job)
    assert end(place, job).state is State.DONE
    assert [line["number"] for line in lines(place, job)] == [0, 1, 2]
    (folder / "result.json").unlink()
    (folder / "slurm.json").write_text('{"token": ')
    assert "slurm.json is damaged" in place.poll([job])[job].why


def test_what_cannot_be_submitted_leaves_a_sentence(
    place: SlurmExecutor, submit: Submit, slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    with pytest.raises(SlurmError, match="Requested node configuration is not available"):
        submit(count(1), pool=runners(tmp_path, "mi325x", gres="mi300x"))
    (job,) = executors.all_jobs(place.root)
    assert place.poll([job])[job].state is State.FAILED
    with pytest.raises(PoolsError, match="offers jobs of 1, 8 GPUs, not 3"):
        submit(count(1), gpus=3)
    bare = tmp_path / "bare.toml"
    bare.write_text(Path(runners(tmp_path)).read_text().replace("venv =", "# venv ="))
    with pytest.raises(ExecutorError, match="`make setup` first"):
        submit(count(1), pool=str(bare), cwd=tmp_path)
    with pytest.raises(ExecutorError, match=r"700 s are more than pool 'pool' allows \(10\)"):
        submit(count(1), timeout=700)
