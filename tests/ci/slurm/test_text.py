"""Parsers on what three versions of Slurm printed about the same jobs."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ci import slurm
from ci.slurm import Allocation, Slurm, SlurmAway, SlurmError, batch, new_token
from tests.standins.slurm import SlurmCluster, until

RECORDINGS = Path(__file__).parents[2] / "recordings" / "slurm"
VERSIONS = ("22.05", "24.11", "26.05")


def printed(version: str, name: str) -> str:
    return (RECORDINGS / version / f"{name}.txt").read_text()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_queue(version: str) -> None:
    content = printed(version, "squeue_r")
    rows = {row.id: row for row in slurm.queue_rows(content)}
    assert len(rows) == len(content.splitlines()), "every line is a row"
    states = {
        name: next(row.state for row in rows.values() if row.name == name)
        for name in ("ok", "bad", "sig", "can", "run")
    }
    assert states == {"ok": "COMPLETED", "bad": "FAILED", "sig": "FAILED", "can": "CANCELLED", "run": "RUNNING"}
    assert (rows["4_0"].array_id, rows["4_0"].raw_id != "4", rows["4_5"].raw_id) == ("4", True, "4")
    assert (rows["4_5"].waiting, rows["4_5"].ended, rows["4_5"].reason, rows["4_5"].nodes) == (
        True,
        False,
        "JobArrayTaskLimit",
        "",
    )
    assert rows["1"].comment == "perfci req=1"
    assert rows["2"].comment == ""
    assert rows["1"].is_ours("ok")
    assert not rows["2"].is_ours("")


@pytest.mark.parametrize("version", VERSIONS)
def test_tasks_that_wait_together(version: str) -> None:
    together = [row for row in slurm.queue_rows(printed(version, "squeue")) if "[" in row.id]
    assert [row.array_id for row in together] == ["4"]


def test_a_name_and_a_comment_of_somebody_else_may_hold_anything() -> None:
    line = "7|7|a|RUNNING|b|PENDING|Priority|p|n|0:00|10:00|N/A|N/A|x|y|gres/gpu:1"
    (row,) = slurm.queue_rows(line)
    assert (row.id, row.state, row.comment) == ("7", "PENDING", "x|y")
    assert slurm.queue_rows("slurm_load_jobs error: Invalid job id specified") == []


@pytest.mark.parametrize(
    ("said", "wanted"),
    [("17\n", "17"), ("17;alpha\n", "17"), ("the budget is nearly spent\n17\n", "17"), ("", ""), ("Submitted 17", "")],
)
def test_the_id_that_sbatch_prints(said: str, wanted: str) -> None:
    assert slurm.submitted_id(said) == wanted


# The text of batch scripts.


SMALL = Allocation("mi300x", "60", "/jobs/output-%a.txt", "/clone")


def test_all_options(golden: Callable[[str, str], None]) -> None:
    everything = Allocation(
        partition="mi300x",
        time="2:00:00",
        output="/jobs/my folder/output-%a.txt",
        chdir="/home/a user/clone#1",
        account="amd-frameworks",
        gres="gpu:mi300x:8",
        constraint="gfx942&nps1",
        exclusive=True,
        exclude=("node-3", "node-7"),
        requeue=False,
        shards=(0, 1, 2, 5),
        options=("--qos=benchmark", "--reservation=night run"),
    )
    golden("slurm/all_options.sh", batch(everything, "#!/bin/bash\necho hello\n"))


def test_nothing_of_the_submitter_enters_and_output_is_kept() -> None:
    lines = SMALL.lines()
    assert {"--export=NONE", "--open-mode=append", "--requeue", "--nodes=1"} <= set(lines)
    assert not any(line.startswith(("--gres", "--array", "--account", "--dependency")) for line in lines)


@pytest.mark.parametrize(
    ("numbers", "text"), [((0,), "0"), ((0, 1, 2), "0-2"), ((5, 1, 2, 9, 8), "1-2,5,8-9"), ((3, 3), "3")]
)
def test_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert slurm.ranges(numbers) == text


@pytest.mark.parametrize(
    ("time", "wanted"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-12", 129_600), ("1-12:30", 131_400), ("0-0:0:7", 7)],
)
def test_time_limits(time: str, wanted: int) -> None:
    assert slurm.seconds(time) == wanted


@pytest.mark.parametrize(("seconds", "text"), [(1, "1"), (60, "1"), (60.1, "2"), (3600, "60")])
def test_minutes(seconds: float, text: str) -> None:
    assert slurm.minutes(seconds) == text


class Task:
    """A task of an array that runs outside Slurm: what it printed, and what it asked Slurm for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.task = folder, folder / "my job/shards/3"
        (folder / "bin").mkdir()
        for name, text in {"squeue": "echo $NAMED", "scontrol": f'echo "$@" >>{folder}/asked'}.items():
            (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / "bin" / name).chmod(0o755)

    def start(self, command: str, named: str = "rl-x", node: str = "n1") -> tuple[int, str]:
        """Run the command as the task; its exit code, and what it wrote to stderr."""
        ids = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_NAME": "rl-x"}
        env = {
            **ids,
            "SLURM_JOB_NODELIST": "n1",
            "SLURMD_NODENAME": node,
            "NAMED": named,
            "PATH": f"{self.folder}/bin:/usr/bin:/bin",
        }
        text = slurm.requeueing(
            self.folder / "my job/shards", f"#!/bin/bash\nset -uo pipefail\nsleep() {{ :; }}\n{command}\n"
        )
        done = subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, cwd=self.folder)
        return done.returncode, done.stderr

    @property
    def asked(self) -> list[str]:
        """What scontrol was called with."""
        file = self.folder / "asked"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


NO_GPU = "said='1 GPU is missing'; exit 3"


def test_a_task_that_did_not_begin_is_requeued_three_times_and_then_lost(task: Task) -> None:
    for number in (1, 2, 3):
        code, said = task.start(NO_GPU)
        assert code == 3
        assert f"is requeued ({number} of 3 times): 1 GPU is missing" in said
    code, said = task.start(NO_GPU)
    assert (code, "did not begin at 4 starts and is lost" in said) == (3, True)
    assert task.asked == ["requeue 7_3"] * 3
    assert [line.split(" on ")[1] for line in (task.task / "not_begun").read_text().splitlines()] == [
        "n1: 1 GPU is missing"
    ] * 4


@pytest.mark.parametrize(
    "command", ["exit 0", "kill -TERM $$", "exit 143", "mkdir -p '{task}'; touch '{task}/../../cancel'; exit 3"]
)
def test_a_task_that_ended_or_was_ended_is_not_requeued(task: Task, command: str) -> None:
    task.start(command.format(task=task.task))
    assert task.asked == []


def test_a_task_that_began_is_not_requeued_whatever_came_of_it(task: Task) -> None:
    attempt = task.task / "attempts/0/attempt.json"
    attempt.parent.mkdir(parents=True)
    assert task.start(f"echo $RIDGELINE_START >'{attempt}'; exit 1")[0] == 1
    assert task.asked == []
    assert task.start("exit 125")[0] == 125, "another start of it began"
    assert task.start("exit 255")[0] == 255
    assert task.asked == ["requeue 7_3"] * 2


def test_a_task_whose_starts_cannot_be_counted_is_not_requeued_for_ever(task: Task) -> None:
    task.task.parent.mkdir(parents=True)
    task.task.touch()  # no folder can be made there
    assert task.start(NO_GPU)[0] == 3
    assert task.asked == []


def test_a_wrong_node_is_left_and_an_id_that_belongs_to_another_job_is_left_alone(task: Task) -> None:
    code, said = task.start("touch ran", node="n2")
    assert (code, "given n1 and started on n2" in said, (task.folder / "ran").exists()) == (3, True, False)
    assert task.asked == ["requeue 7_3"]
    code, said = task.start(NO_GPU, named="rl-other")
    assert "did not requeue task 3, which is lost" in said
    assert task.asked == ["requeue 7_3"]


# Our client against a real Slurm.


def submitted(cluster: SlurmCluster, folder: Path, text: str, *options: str) -> tuple[str, str]:
    """Id and token of a job that runs a line of bash."""
    script, token = folder / "job.sh", new_token("test")
    script.write_text(f"#!/bin/bash\n{text}\n")
    out = f"--output={folder}/out-%a"
    return cluster.slurm.sbatch(script, token, [out, "--export=NONE", f"--chdir={folder}", *options]), token


def ended(cluster: SlurmCluster, job: str, token: str, seconds: float = 45.0) -> list[str]:
    """States of a job's tasks when all have ended."""
    until(lambda: (rows := cluster.slurm.find(job, token)) and all(row.ended for row in rows), f"job {job}", seconds)
    return sorted(row.state for row in cluster.slurm.find(job, token))


def test_an_id_without_our_token_is_nobody_of_ours(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    job, token = submitted(slurm_cluster, tmp_path, "sleep 60", "-pmi300x")
    assert slurm_cluster.slurm.find(job, "rl-another") == []
    assert not slurm_cluster.slurm.scancel(job, "rl-another")
    assert slurm_cluster.slurm.squeue(["99999"]) == []
    assert slurm_cluster.slurm.scancel(job, token)
    assert ended(slurm_cluster, job, token) == ["CANCELLED"]


def test_what_slurm_refuses_is_said(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="Requested node configuration is not available"):
        submitted(slurm_cluster, tmp_path, "true", "-pmi300x", "--gres=gpu:mi355x:1")
    with pytest.raises(SlurmError, match="invalid partition specified: mi999x"):
        submitted(slurm_cluster, tmp_path, "true", "-pmi999x")


def test_a_controller_that_is_away_is_no_lost_job(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    job, token = submitted(slurm_cluster, tmp_path, "true", "-pmi300x")
    ended(slurm_cluster, job, token)
    restart = threading.Thread(target=slurm_cluster.restart_controller, kwargs={"away_s": 1.0})
    restart.start()
    until(lambda: "is DOWN" in slurm_cluster.command("scontrol", "ping", check=False), "the controller to be away")
    assert [row.state for row in slurm_cluster.slurm.find(job, token)] == ["COMPLETED"]
    restart.join()


def test_no_slurm_here(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="there is no squeue here"):
        Slurm({"PATH": str(tmp_path)}).squeue(["1"])


def test_a_controller_that_stays_away(tmp_path: Path) -> None:
    program = tmp_path / "squeue"
    program.write_text(
        "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    with pytest.raises(SlurmAway, match="connect failure"):
        Slurm({"PATH": f"{tmp_path}:/bin"}, patience_s=0).squeue(["1"])
