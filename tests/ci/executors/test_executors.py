"""Real processes under the local executor: order, isolation, and every way a job can end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.lifetime import lives
from ci import executors
from ci.calling import VERBS
from ci.executors import ExecutorError, JobSpec, JobStatus, LocalExecutor, State, job, locks
from tests.standins.slurm import until

HERE = str(Path(job.__file__).parents[2])


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A queue on a machine of its own."""
    monkeypatch.setenv(locks.VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "jobs root"


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def submit(argv: Sequence[str], root: Path, *, cwd: Path | None = None, executor: str = "local", **spec: object) -> str:
    """Queue a command and return the job's id.  cwd: where it runs (default: the current folder)."""
    known = JobSpec(cwd=str(cwd or Path.cwd()), **{"name": "test", **spec})  # type: ignore[arg-type]
    return executors.submit(argv, known, executor, root)


def shell(text: str, root: Path, **options: object) -> str:
    return submit(["bash", "-c", text], root, **options)  # type: ignore[arg-type]


def end(job_id: str, root: Path) -> JobStatus:
    return executors.wait([job_id], root=root, timeout_s=45)[0]


# ---- how a job ends ----


def test_done(root: Path, tmp_path: Path) -> None:
    status = end(shell("pwd; echo $GREETING", root, cwd=tmp_path, env={"GREETING": "it's me"}), root)
    assert (status.state, status.exit_code, status.where) == (State.DONE, 0, "cpu")
    assert executors.tail(status) == f"{tmp_path}\nit's me"
    assert status.submitted_at <= status.started_at <= status.ended_at


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [("exit 2", 2, "exit code 2"), ("kill -9 $$", -9, "SIGKILL"), ("kill -SEGV $$", -11, "SIGSEGV")],
)
def test_failed(root: Path, text: str, code: int, why: str) -> None:
    status = end(shell(text, root), root)
    assert (status.state, status.exit_code) == (State.FAILED, code)
    assert why in status.why


def test_a_job_can_be_interrupted_however_it_was_submitted(root: Path) -> None:
    """A shell has what it starts with `&` ignore SIGINT and SIGQUIT."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        status = end(shell("kill -INT $$; sleep 60", root), root)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (status.state, status.why) == (State.FAILED, "killed by SIGINT")


def test_a_hang_is_killed_with_all_it_started(root: Path, tmp_path: Path) -> None:
    """Neither a child that ignores SIGTERM nor one in its own session survives."""
    text = (
        "trap '' TERM; bash -c \"trap '' TERM; echo \\$\\$ >a; sleep 60\" & "
        "setsid bash -c 'echo $$ >b; exec sleep 60' & sleep 60; sleep 60"
    )
    started = time.monotonic()
    status = end(shell(text, root, timeout_s=1.0, grace_s=0.5, cwd=tmp_path), root)
    assert status.state is State.TIMEOUT
    assert "after 1 s" in status.why
    assert 1.5 <= time.monotonic() - started < 10
    assert not lives(pid_in(tmp_path / "a"))
    assert not lives(pid_in(tmp_path / "b"))


def test_a_job_that_ends_well_on_sigterm_gets_the_time_to(root: Path, tmp_path: Path) -> None:
    text = "trap 'echo flushed >kept; exit 0' TERM; sleep 60 & wait"
    status = end(shell(text, root, timeout_s=0.5, cwd=tmp_path), root)
    assert status.state is State.TIMEOUT
    assert (tmp_path / "kept").read_text() == "flushed\n"


def test_a_daemon_left_behind_is_killed_and_said(root: Path, tmp_path: Path) -> None:
    status = end(
        shell("setsid bash -c 'echo $$ >d; exec sleep 60' & until [ -s d ]; do sleep 0.02; done", root, cwd=tmp_path),
        root,
    )
    assert status.state is State.DONE
    assert "left behind" in status.why
    assert not lives(pid_in(tmp_path / "d"))


def test_cancel_kills_grandchildren(root: Path, tmp_path: Path) -> None:
    name = shell("bash -c 'bash -c \"echo \\$\\$ >g; sleep 60; :\"; :'; :", root, cwd=tmp_path)
    grandchild = pid_in(tmp_path / "g")
    executors.cancel([name], root=root)
    assert end(name, root).state is State.CANCELLED
    assert not lives(grandchild)
    executors.cancel([name], root=root)
    assert end(name, root).state is State.CANCELLED


def test_cancel_before_the_start(root: Path, tmp_path: Path) -> None:
    first = shell("sleep 60", root)
    second = shell("touch ran", root, cwd=tmp_path)
    executors.cancel([second], root=root)
    assert "before it started" in end(second, root).why
    executors.cancel([first], root=root)
    assert end(first, root).state is State.CANCELLED
    assert not (tmp_path / "ran").exists()


# ---- the queue ----

LOG_ME = "echo start $NAME >>order; sleep 0.15; echo end $NAME >>order"


def test_jobs_run_one_after_the_other_in_order(root: Path, tmp_path: Path) -> None:
    names = [shell(LOG_ME, root, cwd=tmp_path, env={"NAME": str(i)}) for i in range(4)]
    assert {status.state for status in executors.wait(names, root=root, timeout_s=45)} == {State.DONE}
    lines = (tmp_path / "order").read_text().split("\n")[:-1]
    assert lines == [f"{word} {i}" for i in range(4) for word in ("start", "end")]


def gated(name: str, gpus: int, root: Path) -> str:
    """A job that writes down its GPUs beside the folder of the jobs, and ends when `open_gates` says so."""
    text = f"echo $CUDA_VISIBLE_DEVICES >{name}; until [ -e go_{name} ]; do sleep 0.02; done"
    return shell(text, root, name=name, gpus=gpus, cwd=root.parent)


def open_gates(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"go_{name}").touch()


def test_each_gpu_serves_one_job_and_free_ones_serve_others(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,10")
    one, two = gated("one", 1, root), gated("two", 2, root)
    until(lambda: (tmp_path / "two").exists())
    three, small = gated("three", 3, root), gated("small", 1, root)
    open_gates(tmp_path, "one")
    end(one, root)
    time.sleep(0.5)
    waiting = {status.state for status in executors.status([three, small], root=root)}
    assert waiting == {State.PENDING}, "a small job may not overtake"
    open_gates(tmp_path, "two", "three", "small")
    assert {end(job_id, root).state for job_id in (one, two, three, small)} == {State.DONE}
    assert [(tmp_path / n).read_text().strip() for n in ("one", "two", "three")] == ["0", "1,10", "0,1,10"]


def test_more_gpus_than_there_are(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ExecutorError, match=r"wants 4 GPUs; this machine offers 2 \(0, 1\)"):
        shell("true", root, gpus=4)
    assert executors.all_jobs(root) == []


def test_two_clones_share_no_gpu_and_one_that_needs_all_gets_its_turn(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three queues of one machine: jobs of one GPU in the first two, one of both GPUs in the third."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    a, b, c = (tmp_path / name for name in "abc")
    first, second = gated("first", 1, a), gated("second", 1, b)
    until(lambda: (tmp_path / "first").exists() and (tmp_path / "second").exists())
    assert {(tmp_path / name).read_text().strip() for name in ("first", "second")} == {"0", "1"}
    both = gated("both", 2, c)
    time.sleep(0.5)
    third = gated("third", 1, a)
    open_gates(tmp_path, "first")
    end(first, a)
    time.sleep(0.5)
    assert not (tmp_path / "third").exists(), "the free GPU is kept for the job that needs both"
    open_gates(tmp_path, "second")
    until(lambda: (tmp_path / "both").exists())
    open_gates(tmp_path, "both", "third")
    assert {end(job_id, place).state for job_id, place in ((second, b), (both, c), (third, a))} == {State.DONE}


def test_a_gpu_has_one_name_on_the_machine() -> None:
    assert locks.identities(["0", "1"], {}) == {"0": "gpu-0", "1": "gpu-1"}
    within = {"ROCR_VISIBLE_DEVICES": "4, 6", "HIP_VISIBLE_DEVICES": "1"}
    assert locks.identities(["1"], within) == {"1": "gpu-6"}
    assert locks.identities(["GPU-ab/c"], {"CUDA_VISIBLE_DEVICES": "GPU-ab/c"}) == {"GPU-ab/c": "gpu-GPU-ab/c"}
    assert locks.path(Path("/l"), "gpu-GPU-ab/c") == Path("/l/gpu-GPU-ab_c")


def test_the_folder_of_locks_is_for_all_users(tmp_path: Path) -> None:
    place = locks.folder({locks.VARIABLE: str(tmp_path / "new")})
    assert place.stat().st_mode & 0o7777 == 0o1777
    with locks.opened(place / "gpu-0") as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o644
    (tmp_path / "link").symlink_to(place)
    with pytest.raises(ExecutorError, match="it is not a folder"):
        locks.folder({locks.VARIABLE: str(tmp_path / "link")})
    (place / "gpu-1").symlink_to("/etc/hostname")
    with pytest.raises(ExecutorError, match="cannot hold the locks"):
        locks.opened(place / "gpu-1")


# ---- restarts ----


def supervisor_of(name: str) -> int:
    for entry in Path("/proc").glob("[0-9]*"):
        command = (entry / "cmdline").read_bytes() if (entry / "cmdline").exists() else b""
        if b"ci.executors.local" in command and name.encode() in command:
            return int(entry.name)
    raise AssertionError(f"no supervisor of {name}")


def test_a_killed_supervisor_is_seen_its_gpu_kept_and_its_job_resumed(root: Path, tmp_path: Path) -> None:
    name = shell("echo $$ >pid; [ -e second ] && exit 0; touch second; sleep 60", root, cwd=tmp_path)
    orphan = pid_in(tmp_path / "pid")
    until(lambda: (tmp_path / "second").exists())
    os.kill(supervisor_of(name), signal.SIGKILL)
    until(lambda: executors.status([name], root=root)[0].state is State.LOST)
    status = executors.status([name], root=root)[0]
    assert (status.exit_code, f"`ridgeline jobs submit --queue '{root}' --resume {name}` queues" in status.why) == (
        3,
        True,
    )
    assert lives(orphan)
    other = shell("true", root)
    time.sleep(0.5)
    assert executors.status([other], root=root)[0].state is State.PENDING, "the orphan still uses the machine"
    executors.resume([name], root=root)
    assert end(name, root).state is State.DONE
    assert not lives(orphan)
    assert end(other, root).state is State.DONE


def test_cancel_after_the_supervisor_was_lost(root: Path, tmp_path: Path) -> None:
    name = shell("echo $$ >pid; sleep 60", root, cwd=tmp_path)
    orphan = pid_in(tmp_path / "pid")
    os.kill(supervisor_of(name), signal.SIGKILL)
    until(lambda: executors.status([name], root=root)[0].state is State.LOST)
    executors.cancel([name], root=root)
    assert end(name, root).state is State.CANCELLED
    assert not lives(orphan)


def test_a_job_lost_while_it_waited_does_not_block_the_queue(root: Path, tmp_path: Path) -> None:
    first = shell("until [ -e go ]; do sleep 0.02; done", root, cwd=tmp_path)
    second, third = shell("true", root), shell("true", root)
    os.kill(supervisor_of(second), signal.SIGKILL)
    (tmp_path / "go").touch()
    assert [status.state for status in executors.wait([first, second, third], root=root, timeout_s=45)] == [
        State.DONE,
        State.LOST,
        State.DONE,
    ]


def test_a_second_supervisor_is_refused(root: Path) -> None:
    name = shell("sleep 60", root)
    with pytest.raises(ExecutorError, match="did not start"):
        LocalExecutor(root)._supervise(root / "jobs" / name)
    assert executors.status([name], root=root)[0].state in (State.RUNNING, State.PENDING)
    executors.cancel([name], root=root)
    assert end(name, root).state is State.CANCELLED


def test_resume_of_a_job_that_runs_or_is_done(root: Path) -> None:
    name = shell("sleep 0.3", root)
    for _ in range(2):
        with pytest.raises(ExecutorError, match="only a job that was lost or failed"):
            executors.resume([name], root=root)
        end(name, root)


def test_a_job_inside_a_job_outlives_it(root: Path, tmp_path: Path) -> None:
    """A job may submit a job: ending the outer one must not take the inner one's supervisor with it."""
    code = (
        "import sys; from pathlib import Path; from ci import executors;"
        "spec = executors.JobSpec('inner', cwd=str(Path.cwd()));"
        "executors.submit(['touch', 'inner'], spec, 'local', Path(sys.argv[1]))"
    )
    outer = submit([sys.executable, "-c", code, str(root)], root, cwd=tmp_path, env={"PYTHONPATH": HERE})
    assert end(outer, root).why == ""
    until(lambda: (tmp_path / "inner").exists())


# ---- bad input ----


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a b"}, "job name 'a b'"),
        ({"name": ""}, "job name ''"),
        ({"gpus": -1}, "gpus is -1"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"env": {"A=B": "1"}}, "'A=B' cannot be"),
    ],
)
def test_bad_specifications(fields: dict, message: str) -> None:
    with pytest.raises(ExecutorError, match=message):
        JobSpec(**{"name": "ok", **fields})


@pytest.mark.parametrize("name", ["../x", "nothing", ".hidden", "a/b"])
def test_unknown_ids(root: Path, name: str) -> None:
    with pytest.raises(ExecutorError, match="lists them"):
        executors.cancel([name], root=root)


def test_an_unknown_id_is_lost(root: Path) -> None:
    assert executors.status(["nothing"], root=root)[0].state is State.LOST


def test_an_unknown_executor_and_no_command(root: Path) -> None:
    with pytest.raises(ExecutorError, match="no executor 'moon'; known: local"):
        submit(["true"], root, executor="moon")
    with pytest.raises(ExecutorError, match="no command"):
        submit([], root)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExecutorError, match="cannot queue job 'test'"):
        shell("true", tmp_path / "file")


def test_the_result_file_alone_decides_and_a_damaged_one_is_named(root: Path) -> None:
    name = shell("exit 1", root)
    end(name, root)
    path = root / "jobs" / name / "result.json"
    result = json.loads(path.read_text())
    assert {"format": "ridgeline-job", "version": 1, "state": "failed", "exit_code": 1}.items() <= result.items()
    assert not list(path.parent.glob(".*")), "no draft stays behind"
    path.write_text('{"state": "do')
    with pytest.raises(ExecutorError, match="result.json is damaged"):
        executors.status([name], root=root)


def test_the_script_is_stable(golden: Callable[[str, str], None]) -> None:
    spec = JobSpec("nightly", 8, cwd="/data/my repo", env={"B": "x y", "A": "it's"})
    argv = ["ridgeline", "run", "--kernel", "gemm", "--out", "a b.jsonl"]
    golden("executors/script.sh", executors.script(argv, spec))


# ---- devices ----


def topology(root: Path, amd: int, nvidia: int) -> Path:
    for index in range(amd + 1):
        node = root / f"sys/class/kfd/kfd/topology/nodes/{index}"
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count {0 if index else 64}\nsimd_count {1216 if index else 0}\n")
    (root / "dev").mkdir()
    for name in ["nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(nvidia))]:
        (root / "dev" / name).touch()
    return root


@pytest.mark.parametrize(
    ("amd", "nvidia", "environ", "wanted", "variable"),
    [
        (8, 0, {}, 8, "HIP_VISIBLE_DEVICES"),
        (0, 2, {}, 2, "CUDA_VISIBLE_DEVICES"),
        (0, 0, {}, 0, "CUDA_VISIBLE_DEVICES"),
        (8, 0, {"ROCR_VISIBLE_DEVICES": "2, 3"}, 2, "ROCR_VISIBLE_DEVICES"),
        (0, 8, {"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb,GPU-cc"}, 3, "CUDA_VISIBLE_DEVICES"),
        (0, 8, {"CUDA_VISIBLE_DEVICES": ""}, 0, "CUDA_VISIBLE_DEVICES"),
        (0, 8, {"CUDA_VISIBLE_DEVICES": "-1"}, 0, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_devices(tmp_path: Path, amd: int, nvidia: int, environ: dict[str, str], wanted: int, variable: str) -> None:
    root = topology(tmp_path, amd, nvidia)
    found = locks.gpus(environ, root)
    assert len(found) == wanted
    assert locks.visible(found[:1], root, environ) == {variable: ",".join(found[:1])}


# Commands that measure wait for each other and for the jobs of the local queue, by GPU, however one of them ends.


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
        return submit([sys.executable, "-c", HOLD, "0"], tmp_path / "jobs", cwd=ROOT)

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
