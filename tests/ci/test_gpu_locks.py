"""Commands that measure wait for each other, by GPU, however one of them ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ci import VERBS, gpu_locks
from ci.gpu_locks import LockError, device_locks, lock_names
from tests.kit import HANGS_S, mostly_nightly

ROOT = Path(__file__).parents[2]

HOLD = """
import sys, time
from ci import gpu_locks
gpu_locks.REPORT_S = 0.5
with gpu_locks.device_locks(lambda line: print(line, flush=True)):
    print("mine", flush=True)
    time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A machine of its own, without GPUs."""
    monkeypatch.setenv(gpu_locks.VARIABLE, str(tmp_path / "locks"))
    for name in (gpu_locks.HELD, *gpu_locks.VISIBLE, "SLURM_JOB_ID", "SLURM_JOB_GPUS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path / "locks"


@pytest.fixture
def start(place):
    """Starts a process; it is killed in the end."""
    begun = []

    def one(*argv, **more):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        made = subprocess.Popen([sys.executable, *argv], text=True, env={**os.environ, **more}, cwd=ROOT, **streams)  # type: ignore[call-overload]
        begun.append(made)
        return made  # type: ignore[no-any-return]

    yield one
    for process in begun:
        process.kill()
        process.communicate()


def hold(start, seconds=60, **more):
    return start("-c", HOLD, str(seconds), **more)


def line(process):
    assert process.stdout
    return process.stdout.readline().strip()


def test_the_second_waits_says_for_whom_and_has_its_turn_when_the_first_is_killed(start):
    first = hold(start)
    assert line(first) == "mine"
    second = hold(start)
    said = line(second)
    assert said.startswith(f"waiting for this machine (0 s): process {first.pid} (ridgeline 60) measures on it")
    assert line(second).startswith("waiting for this machine (")
    first.send_signal(signal.SIGKILL)
    while (said := line(second)).startswith("waiting"):
        pass
    assert said == "mine"


def test_commands_on_other_gpus_do_not_wait(start):
    for one in ("0", "1"):
        assert line(hold(start, CUDA_VISIBLE_DEVICES=one)) == "mine"
    assert line(hold(start, CUDA_VISIBLE_DEVICES="2,1")).startswith("waiting for GPU 1 (")
    assert line(hold(start)) == "mine", "one without a GPU takes the CPU"


def test_what_a_holder_starts_does_not_wait_for_it(place):
    with device_locks(print):
        nested = [sys.executable, "-c", HOLD, "0"]
        said = subprocess.run(nested, cwd=ROOT, capture_output=True, text=True, check=True, timeout=HANGS_S).stdout
        assert said == "mine\n"
    assert not os.environ[gpu_locks.HELD]


def test_a_lock_is_free_after_its_holder_whatever_children_live_on(start, place):
    with device_locks(print):
        child = start("-c", "import time; time.sleep(60)")
    assert line(hold(start, 0)) == "mine"
    assert child.poll() is None


def test_a_job_of_slurm_takes_the_gpus_of_the_node_that_are_its_own(place):
    job = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "4,6"}
    assert lock_names(job) == {"gpu-4", "gpu-6"}
    assert lock_names({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": ""}) == set(), "Slurm deals the cores"
    assert lock_names({"CUDA_VISIBLE_DEVICES": ""}) == {"cpu"}


def test_what_hip_chooses_within_rocr_is_locked_with_all_of_rocr():
    environ = {"ROCR_VISIBLE_DEVICES": "4,5,6", "HIP_VISIBLE_DEVICES": "0,2"}
    assert lock_names(environ) == {"gpu-4", "gpu-5", "gpu-6"}


def test_devices_are_counted_without_a_gpu_library(tmp_path):
    for number, simds in enumerate((0, 912, 912)):
        node = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 0\nsimd_count {simds}\n")
    assert lock_names({}, tmp_path) == {"gpu-0", "gpu-1"}
    other = tmp_path / "other"
    (other / "dev").mkdir(parents=True)
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (other / "dev" / name).touch()
    assert lock_names({}, other) == {"gpu-0"}
    assert lock_names({"HIP_VISIBLE_DEVICES": "-1"}, other) == {"cpu"}


def test_a_folder_that_cannot_hold_locks_is_named(place):
    place.write_text("")
    sentence = "cannot hold the lock of this machine: .*; name a folder in RIDGELINE_LOCKS"
    with pytest.raises(LockError, match=sentence), device_locks(print):
        pass


def test_a_lock_that_is_a_link_is_not_followed(place, tmp_path):
    place.mkdir()
    (tmp_path / "secret").write_text("x")
    (place / "cpu").symlink_to(tmp_path / "secret")
    with pytest.raises(LockError), device_locks(print):
        pass
    assert (tmp_path / "secret").read_text() == "x"


MEASURING = (
    *("check", "ab main", "run", "verify", "bringup", "adopt tests/kit.py HEAD^", "bisect HEAD^ HEAD --kernel gemm"),
    *("sweep gemm --knob num_warps=4", "tune gemm", "study roofline"),
)


@pytest.mark.slow
@pytest.mark.parametrize("words", mostly_nightly(MEASURING, "check", "sweep gemm --knob num_warps=4"))
def test_every_verb_that_measures_waits_and_ctrl_c_ends_the_wait(start, words):
    assert line(hold(start)) == "mine"
    verb = start(*VERBS, *words.split())
    assert line(verb).startswith("waiting for this machine (0 s): process ")
    verb.send_signal(signal.SIGINT)
    assert verb.wait(HANGS_S) == 130


def test_what_measures_nothing_does_not_wait(start):
    assert line(hold(start)) == "mine"
    dry = start(*VERBS, "verify", "--dry-run")
    assert line(dry).startswith("would check ")
    assert dry.wait(HANGS_S) == 0
