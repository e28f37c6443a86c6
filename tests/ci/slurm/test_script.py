"""The text of batch scripts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ci import slurm
from ci.slurm import Allocation, batch

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
    ("numbers", "text"), [((0,), "0"), ((0, 1, 2), "0-2"), ((5, 1, 2, 9), "1-2,5,9"), ((3, 3), "3")]
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
