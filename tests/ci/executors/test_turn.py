"""Commands that measure wait for each other and for the jobs of the local queue, by GPU, however one of them ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ci import executors
from ci.calling import VERBS
from ci.executors import State, locks
from tests.ci.executors.submitting import submit

ROOT = Path(__file__).parents[3]

HOLD = """
import sys, time
from ci.executors import locks
locks.SAID_S = 0.5
with locks.taken(lambda said: print(said, flush=True)):
    print("mine", flush=True)
    time.sleep(float(sys.argv[1]))
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own, without GPUs."""
    monkeypatch.setenv(locks.VARIABLE, str(tmp_path / "locks"))
    for name in (locks.HELD, *locks.VISIBLE, "SLURM_JOB_ID", "SLURM_JOB_GPUS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path / "locks"


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    """Starts a process; it is killed in the end."""
    begun: list[subprocess.Popen[str]] = []

    def one(*argv: str, **more: str) -> subprocess.Popen[str]:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        made = subprocess.Popen([sys.executable, *argv], text=True, env={**os.environ, **more}, cwd=ROOT, **streams)  # type: ignore[call-overload]
        begun.append(made)
        return made  # type: ignore[no-any-return]

    yield one
    for process in begun:
        process.kill()
        process.communicate()


def hold(start: Start, seconds: float = 60, **more: str) -> subprocess.Popen[str]:
    return start("-c", HOLD, str(seconds), **more)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_the_second_waits_says_for_whom_and_has_its_turn_when_the_first_is_killed(start: Start) -> None:
    first = hold(start)
    assert line(first) == "mine"
    second = hold(start)
    said = line(second)
    assert said.startswith(f"waiting for this machine: process {first.pid} holds it, `")
    assert f"running since {time.strftime('%H:')}" in said or time.localtime().tm_min < 2
    assert line(second).startswith("still waiting (")
    first.send_signal(signal.SIGKILL)
    while (said := line(second)).startswith("still"):
        pass
    assert said == "mine"


def test_commands_on_other_gpus_do_not_wait(start: Start) -> None:
    for one in ("0", "1"):
        assert line(hold(start, CUDA_VISIBLE_DEVICES=one)) == "mine"
    assert line(hold(start, CUDA_VISIBLE_DEVICES="2,1")).startswith("waiting for GPU 1: ")
    assert line(hold(start)) == "mine", "one without a GPU takes the CPU"


def test_what_a_holder_starts_does_not_wait_for_it(place: Path) -> None:
    with locks.taken(print):
        nested = [sys.executable, "-c", HOLD, "0"]
        said = subprocess.run(nested, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
        assert said == "mine\n"
        mine = os.environ[locks.HELD]
    assert locks.HELD not in os.environ
    dead = subprocess.Popen(["true"])
    dead.wait()
    for told in (mine, mine.replace(str(os.getpid()), str(dead.pid)), "", "x"):
        assert locks.held_above({locks.HELD: told}) == ({"cpu"} if told == mine else set())


def test_a_lock_is_free_after_its_holder_whatever_children_live_on(start: Start, place: Path) -> None:
    with locks.taken(print):
        child = start("-c", "import time; time.sleep(60)")
    assert line(hold(start, 0)) == "mine"
    assert child.poll() is None


def test_a_job_of_slurm_takes_the_gpus_of_the_node_that_are_its_own(place: Path) -> None:
    job = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "4,6"}
    assert locks.here(job) == {"gpu-4", "gpu-6"}
    assert locks.here({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": ""}) == set(), "Slurm deals the cores"
    assert locks.here({"CUDA_VISIBLE_DEVICES": ""}) == {"cpu"}


def test_a_uuid_is_the_gpu_of_that_place(tmp_path: Path) -> None:
    for number, uuid in enumerate(("GPU-aa11", "GPU-bb22")):
        folder = tmp_path / f"proc/driver/nvidia/gpus/0000:{number}8:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t H200\nGPU UUID: \t {uuid}\nDevice Minor: \t 7\n")
    assert locks.identities(["GPU-bb", "MIG-1", "0"], {}, tmp_path) == {
        "GPU-bb": "gpu-1",
        "MIG-1": "gpu-MIG-1",
        "0": "gpu-0",
    }


def test_jobs_and_commands_wait_for_each_other_and_a_jobs_own_command_does_not(place: Path, tmp_path: Path) -> None:
    def submitted() -> str:
        return submit([sys.executable, "-c", HOLD, "0"], name="t", root=tmp_path / "jobs", cwd=ROOT)

    with locks.taken(print):
        job = submitted()
        time.sleep(1)
        [waiting] = executors.status([job], root=tmp_path / "jobs")
        assert waiting.state is State.PENDING
    [ended] = executors.wait([job], root=tmp_path / "jobs", timeout_s=45)
    assert ended.state is State.DONE
    assert Path(ended.log).read_text() == "mine\n"


MEASURING = (
    *("check", "ab main", "run", "verify", "bringup", "canary", "adopt bench.py", "bisect HEAD^ HEAD --kernel gemm"),
    *("sweep gemm --knob num_warps=4", "tune gemm", "study roofline"),
)


@pytest.mark.slow
@pytest.mark.parametrize("words", MEASURING)
def test_every_verb_that_measures_waits_and_ctrl_c_ends_the_wait(start: Start, words: str) -> None:
    assert line(hold(start)) == "mine"
    verb = start(*VERBS, *words.split())
    assert line(verb).startswith("waiting for this machine: process ")
    verb.send_signal(signal.SIGINT)
    assert verb.wait(30) == 130


def test_what_measures_nothing_does_not_wait(start: Start) -> None:
    assert line(hold(start)) == "mine"
    dry = start(*VERBS, "verify", "--dry-run")
    assert line(dry).startswith("would check ")
    assert dry.wait(30) == 0
