"""Jobs of ours on a real Slurm: every way they can end, and what stays of them."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.__main__ import main
from ci.pools.file import Pool, PoolsError
from ci.slurm import jobs, runner
from ci.slurm.client import SlurmError
from ci.slurm.jobs import (
    PREFIX,
    ROUNDS,
    JobError,
    JobSpec,
    State,
    append_new_lines,
    attempt_lines,
    end_job,
    missing_tasks,
    run_task,
)
from tests.kit import until
from tests.standins.slurm import SlurmCluster

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
minutes = 10
"""

COUNT = """
import json, os, sys, time
out, total, pause = sys.argv[sys.argv.index("--out") + 1], {total}, {pause}
known = open(out).read().count("\\n") if os.path.exists(out) else 0
for number in range(known, total):
    while number == 2 and not os.path.exists({gate!r}):
        time.sleep(0.05)
    time.sleep(pause)
    with open(out, "a") as file:
        file.write(json.dumps(dict(number=number, pid=os.getpid())) + "\\n")
"""
"""A command that appends numbered lines, as slowly as it is told, and goes on where the file ends.

It waits for a file, its gate, before the third line.
"""


@dataclasses.dataclass
class Place:
    """Jobs of one test on the cluster."""

    cluster: SlurmCluster
    tmp_path: Path

    @property
    def jobs(self):
        return self.tmp_path / "my jobs"

    def runners(self, partition="mi300x", gres="mi300x"):
        path = self.tmp_path / f"{partition}.toml"
        path.write_text(RUNNERS.format(venv=Path(sys.executable).parents[1], partition=partition, gres=gres))
        return str(path)

    def submit(self, text, **fields):
        """The folder of a job that runs a program."""
        given = {"runners": self.runners(), "gpus": 1, "publishes": True, "cwd": str(ROOT)} | fields
        spec = JobSpec("test", ("-c", text), pool="pool", **given)  # type: ignore[arg-type]
        return self.jobs / jobs.submit(spec, self.jobs, self.cluster.slurm)

    def status(self, job):
        return jobs.status(job, self.cluster.slurm)

    def end(self, job):
        until(lambda: self.status(job).is_final, f"the end of {job.name}", 0.5)
        return self.status(job)


@pytest.fixture
def place(slurm_cluster, tmp_path):
    return Place(slurm_cluster, tmp_path)


def count(total, pause=0.05, gate="/"):
    return COUNT.format(total=total, pause=pause, gate=str(gate))


def numbers(job):
    """Of the union, in its order."""
    return [json.loads(line)["number"] for line in (job / "trials.jsonl").read_text().splitlines()]


def attempts(job):
    return len(list(job.glob("*-*.jsonl")))


def test_tasks_of_an_array_are_put_together(place, tmp_path):
    job = place.submit(count(3), tasks=3, out=str(tmp_path / "all.jsonl"))
    status = place.end(job)
    assert (status.state, status.exit_code, status.ended_tasks) == (State.DONE, 0, 3), status
    assert numbers(job) == [0, 1, 2] * 3
    assert (tmp_path / "all.jsonl").read_text() == (job / "trials.jsonl").read_text()
    assert jobs.job_ids(place.jobs) == [job.name]
    with pytest.raises(JobError, match="is done; only a job of which something is missing"):
        jobs.resume(job, place.cluster.slurm)


@pytest.mark.nightly
@pytest.mark.parametrize("end", ["sys.exit(3)", "os.kill(os.getpid(), 11)"])
def test_a_task_that_fails_is_submitted_again_three_times_and_is_then_missing(place, end):
    job = place.submit(count(2) + f"\nif os.environ['SLURM_ARRAY_TASK_ID'] == '1': {end}", tasks=2)
    status = place.end(job)
    assert (status.state, status.exit_code, status.ended_tasks) == (State.INCOMPLETE, 3, 1)
    assert "1 of 2 tasks are missing: `ridgeline jobs submit --queue" in status.reason
    assert (attempts(job), numbers(job)) == (1 + 4, [0, 1, 0, 1])
    for more in ([], ["--json"]):
        shown = CliRunner().invoke(main, ["jobs", "--queue", str(place.jobs), *more, job.name])
        assert (shown.exit_code, f"--resume {job.name}" in shown.output) == (3, True), shown.output


def test_a_task_that_was_lost_goes_on_where_it_ended(place, tmp_path):
    """Its first attempt is killed after two lines, with all that it started."""
    first = f"\nif number == 1 and not os.path.exists({str(tmp_path / 'killed')!r}):"
    kill = f"\n        open({str(tmp_path / 'killed')!r}, 'w'); os.killpg(0, 9)"
    job = place.submit(count(4).rstrip() + first.replace("\nif", "\n    if") + kill)
    assert place.end(job).state is State.DONE
    assert (attempts(job), numbers(job)) == (2, [0, 1, 2, 3])


def test_cancel_while_it_runs_and_while_it_waits(place):
    job = place.submit(count(9999, 0.2), tasks=3)
    until(lambda: jobs.attempt_lines(job, 0), "a line")
    jobs.cancel(job, place.cluster.slurm)
    status = place.end(job)
    assert (status.state, status.exit_code) == (State.CANCELLED, 3), status
    assert numbers(job)
    until(lambda: not place.cluster.processes(), "the end of all processes")
    jobs.resume(job, place.cluster.slurm)
    jobs.cancel(job, place.cluster.slurm)
    assert place.end(job).state is State.CANCELLED


@pytest.mark.nightly
def test_preempted_it_is_requeued_and_goes_on(place, tmp_path):
    job = place.submit(count(12, gate=tmp_path / "go"), gpus=8)
    until(lambda: jobs.attempt_lines(job, 0), "a line")
    urgent = place.submit(count(1), gpus=8, runners=place.runners("urgent"))
    assert place.end(urgent).state is State.DONE
    (tmp_path / "go").touch()
    assert place.end(job).state is State.DONE
    assert (numbers(job), attempts(job)) == (list(range(12)), 2)


@pytest.mark.nightly
@pytest.mark.parametrize("lose", [SlurmCluster.kill_slurmd, SlurmCluster.kill_node])
def test_a_lost_node_makes_a_second_copy_and_no_line_is_torn(place, lose, tmp_path):
    """Where slurmd alone is lost, the old copy writes on beside the requeued one, here on another node."""
    job = place.submit(count(70, gate=tmp_path / "go"), runners=place.runners("all", gres=""))
    until(lambda: len(jobs.attempt_lines(job, 0)) >= 2, "lines")
    node = place.status(job).where
    lose(place.cluster, node)
    try:
        until(lambda: attempts(job) == 2, "the second attempt")
        (tmp_path / "go").touch()
        assert place.end(job).state is State.DONE
    finally:
        place.cluster.bring_back(node)
    assert sorted(set(numbers(job))) == list(range(70))


@pytest.mark.nightly
def test_a_job_whose_id_slurm_gave_to_another_one_is_lost_and_taken_up(own_cluster, tmp_path):
    """The controller is killed before it has saved the job (8 s in Slurm 22.05 to 26.05)."""
    place = Place(own_cluster, tmp_path)
    at = place.runners("all", gres="")
    job = place.submit(count(30, 0.2), runners=at)
    until(lambda: place.status(job).state is State.RUNNING, "the start: a line of it may take a slow machine too long")
    own_cluster.restart_controller(forgets=True)
    assert place.end(place.submit(count(1), runners=at)).state is State.DONE
    status = place.end(job)
    assert (status.state, status.exit_code) == (State.LOST, 3), status
    jobs.resume(job, own_cluster.slurm)
    assert place.end(job).state is State.DONE
    assert sorted(set(numbers(job))) == list(range(30))


@pytest.mark.nightly
def test_a_task_without_its_gpu_is_submitted_again(place, monkeypatch):
    """As Slurm starts it for some seconds after a restart of its controller: with none of the GPUs it asked for."""
    monkeypatch.setattr(Pool, "gres_of", lambda pool, gpus: "")
    job = place.submit(count(1))
    status = place.end(job)
    assert (status.state, status.exit_code, attempts(job)) == (State.INCOMPLETE, 3, 0), status
    assert (job / "output-0.txt").read_text().count("wants 1 GPUs and the environment gives 0") == 4
    monkeypatch.undo()
    jobs.resume(job, place.cluster.slurm)
    assert place.end(job).state is State.DONE


@pytest.mark.nightly
def test_a_job_that_slurm_forgot_is_lost_and_can_be_resumed(place):
    job = place.submit(count(3))
    place.end(job)
    (job / "result.json").unlink()
    moved = job.rename(job.with_name("20260101T000000.000000-test-ffff"))
    status = place.status(moved)
    assert (status.state, status.exit_code, "Slurm does not know it" in status.reason) == (State.LOST, 3, True)
    jobs.resume(moved, place.cluster.slurm)
    assert place.end(moved).state is State.DONE
    assert (numbers(moved), attempts(moved)) == ([0, 1, 2], 1), "no task was missing"


def test_what_cannot_be_submitted_leaves_a_sentence_and_no_job(place, tmp_path):
    with pytest.raises(SlurmError, match="Requested node configuration is not available"):
        place.submit(count(1), runners=place.runners("mi325x", gres="mi300x"))
    assert jobs.job_ids(place.jobs) == []
    with pytest.raises(PoolsError, match="offers jobs of 1, 8 GPUs, not 3"):
        place.submit(count(1), gpus=3)
    bare = tmp_path / "bare.toml"
    bare.write_text(Path(place.runners()).read_text().replace("venv =", "# venv ="))
    with pytest.raises(JobError, match="`make setup`"):
        place.submit(count(1), runners=str(bare), cwd=str(tmp_path))


def test_the_name_of_a_job_is_no_runners():
    assert not re.fullmatch(runner.OURS, PREFIX + "20261128T041935.123456-run-e716")
    assert re.fullmatch(runner.OURS, f"{PREFIX}4711")


# A task and the last job without Slurm: what is kept of attempts, what is submitted again, how a job ends.

PROGRAM = """
import sys
out = sys.argv[sys.argv.index("--out") + 1]
known = open(out).read()
open(out, "a").write(f"line {known.count(chr(10))}\\n")
sys.exit(CODE)
"""


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "jobs" / "20261128T041935.123456-run-e716"
    folder.mkdir(parents=True)
    return folder


def write(job, *, code=0, **fields):
    """Describe the job as `submit` does."""
    fields = {"publishes": True, "cwd": str(job), **fields}
    spec = JobSpec("run", ("-c", PROGRAM.replace("CODE", str(code))), pool="mi300x", **fields)  # type: ignore[arg-type]
    (job / "job.json").write_text(json.dumps(dataclasses.asdict(spec)))
    return spec


def result(job):
    return dict(json.loads((job / "result.json").read_text()))


def test_an_attempt_goes_on_where_earlier_ones_ended_in_a_file_of_its_own(job):
    write(job)
    (job / "0-killed.jsonl").write_text("line 0\nline 1\nli")
    assert run_task(job, 0) == 0
    assert attempt_lines(job, 0) == [b"line 0", b"line 1", b"line 2"]
    assert (job / "0-killed.jsonl").read_text() == "line 0\nline 1\nli", "its writer may still be at it"
    assert missing_tasks(job, write(job, tasks=2)) == [1]


def test_a_clone_that_moved_on_or_a_job_that_was_cancelled_measures_nothing(job, capsys):
    write(job, cwd=str(ROOT), commit="0" * 40)
    assert run_task(job, 0) == 3
    assert f"and the job was submitted at {'0' * 40}; submit it again" in capsys.readouterr().err
    write(job)
    (job / "cancel").touch()
    assert run_task(job, 0) == 3
    assert attempt_lines(job, 0) == []


@pytest.mark.parametrize(("code", "ended"), [(0, True), (1, True), (2, True), (3, False), (130, False)])
def test_a_verdict_is_the_end_of_a_task_and_an_error_is_none(job, code, ended):
    spec = write(job, code=code)
    assert run_task(job, 0) == code
    assert (missing_tasks(job, spec) == []) is ended


def test_missing_tasks_are_submitted_again_a_bounded_number_of_times(job):
    write(job, tasks=5)
    for task in (0, 3):
        (job / f"ended-{task}").write_text("0\n")
    for number in range(ROUNDS):
        assert end_job(job) == 0
        assert ((job / "again").read_text(), (job / "round").read_text()) == ("1,2,4", f"{number + 1}\n")
    (job / "1-x.jsonl").write_text("line\n")
    assert end_job(job) == 3
    assert (result(job)["state"], result(job)["exit_code"]) == (State.INCOMPLETE, 3)
    assert "3 of 5 tasks are missing: `ridgeline jobs submit" in str(result(job))
    assert (job / "trials.jsonl").read_text() == "line\n", "what there is, is kept"


def test_the_union_has_a_line_once_and_running_the_last_job_again_changes_nothing(job, tmp_path):
    write(job, tasks=2, out=str(tmp_path / "all.jsonl"))
    for name, text in {"0-a": "x\ny\n", "0-b": "x\ny\nz\n", "1-c": "w\nhalf"}.items():
        (job / f"{name}.jsonl").write_text(text)
    for task in (0, 1):
        (job / f"ended-{task}").write_text(f"{task}\n")
    for _ in range(2):
        assert end_job(job) == 1, "the worst verdict of its tasks"
        assert (job / "trials.jsonl").read_text() == "x\ny\nz\nw\n"
        assert (tmp_path / "all.jsonl").read_text() == "x\ny\nz\nw\n"
    assert result(job) == {"state": "done", "exit_code": 1, "reason": ""}


@pytest.mark.parametrize(
    ("finish", "code", "wanted"), [("-c|import sys; sys.exit(2)", 0, 2), ("-c|pass", 1, 1), ("-c|pass|--replay", 1, 0)]
)
def test_what_comes_last_decides_where_it_judges_all_trials(job, finish, code, wanted):
    write(job, finish=tuple(finish.split("|")))
    (job / "0-a.jsonl").write_text("x\n")
    (job / "ended-0").write_text(f"{code}\n")
    assert end_job(job) == wanted


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_lines_are_appended_once(tmp_path, suffix):
    path = tmp_path / "new" / f"all.{suffix}"
    for lines in ([b"a", b"b"], [b"b", b"c"], [b"a"]):
        append_new_lines(path, lines)
    content = path.read_bytes()
    assert (gzip.decompress(content) if suffix.endswith("gz") else content) == b"a\nb\nc\n"
