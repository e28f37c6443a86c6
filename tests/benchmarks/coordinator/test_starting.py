"""A forked measuring process is what a new one is, and is started anew where it cannot be forked."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FuturesTimeout
from pathlib import Path

import pytest

from benchmarks.coordinator import checkouts, ranks, starting, worker_pools
from benchmarks.coordinator.ranks import PoolDied, WorkerPool
from benchmarks.lifetime import ENDING, deferred
from tests.kit import HANGS_S


@pytest.fixture(autouse=True)
def own_servers(monkeypatch):
    """Servers of this test, ended after it."""
    monkeypatch.setattr(starting, "_servers", {})
    yield
    for server in starting._servers.values():
        if server.alive:
            server.end()


@pytest.fixture
def light(monkeypatch, tmp_path):
    """Servers that import a torch and a Triton without content, in no time: for what does not ask them anything."""
    for name in ("torch", "torch/distributed", "triton", "triton/language"):
        (tmp_path / "light" / name).mkdir(parents=True)
        (tmp_path / "light" / name / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "light"))


def pool(folder, world=1, **variables):
    return WorkerPool("head", sys.executable, folder, world, folder, variables)


def way(workers):
    """How the server of a process starts processes."""
    return workers.workers[0].process._server.way


def seen(tree, **variables):
    """What a measuring process says of its environment."""
    workers = pool(tree, **variables)
    try:
        found = workers.ask("start", 60, "probe")[0]["environment"]
        return found | {"log": workers.workers[0].tail(), "way": way(workers)}
    finally:
        workers.kill()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_both_ways_give_the_same_environment(monkeypatch, tmp_path, how):
    monkeypatch.setenv(starting.START_VARIABLE, how)
    found = seen(tmp_path, TRITON_MARK="1")
    assert found["way"] == how
    assert found["variables"]["TRITON_MARK"] == "1"
    assert "TRITON_MARK" not in os.environ


def test_all_ranks_of_all_pools_come_from_one_server(light, tmp_path):
    first, second = pool(tmp_path, 2), pool(tmp_path)
    try:
        assert len(starting._servers) == 1
        processes = [worker.process for one in (first, second) for worker in one.workers]
        assert len({process.pid for process in processes}) == 3
        assert way(first) == way(second) == "fork"
        assert all(os.getsid(process.pid) == process.pid for process in processes)
    finally:
        first.kill()
        second.kill()
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 3


@pytest.mark.slow
def test_what_no_import_reads_needs_no_server_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("SOMEBODY", "one")
    monkeypatch.setenv("RIDGELINE_HEAP", "torch")
    assert seen(tmp_path)["variables"]["RIDGELINE_HEAP"] == "torch"
    monkeypatch.delenv("SOMEBODY")
    monkeypatch.setenv("RIDGELINE_HEAP", "ipc")
    assert seen(tmp_path)["variables"]["RIDGELINE_HEAP"] == "ipc"
    monkeypatch.delenv("RIDGELINE_HEAP")
    assert "RIDGELINE_HEAP" not in seen(tmp_path)["variables"]
    assert len(starting._servers) == 1


@pytest.mark.slow
def test_a_process_that_dies_is_reported_as_ever(tmp_path):
    workers = pool(tmp_path)
    os.kill(workers.workers[0].process.pid, signal.SIGSEGV)
    with pytest.raises(PoolDied, match="was killed by SIGSEGV in step: probe"):
        workers.ask("probe", 60, "probe")


@pytest.mark.slow
def test_with_its_server_everything_it_started_ends_and_the_next_has_a_new_server(tmp_path):
    workers = pool(tmp_path)
    (server,) = starting._servers.values()
    os.kill(server._process.pid, signal.SIGKILL)
    server._process.wait()
    with pytest.raises(PoolDied, match="its parent was killed or stopped, which only a kernel does, in step: probe"):
        workers.ask("probe", 60, "probe")
    again = pool(tmp_path)
    assert way(again) == "fork"
    assert again.workers[0].process._server is not server
    assert again.ask("probe", 60, "probe")
    again.kill()


@pytest.mark.slow  # what it reaps may be a server that other tests kept busy
def test_a_server_that_is_left_ends_what_still_runs_and_a_pool_its_pipes(light, tmp_path):
    workers = pool(tmp_path)
    [rank] = workers.workers
    pipe, server = rank._write, rank.process._server
    os.kill(rank.process.pid, signal.SIGSTOP)  # it does not see that its pipe has ended
    server._link.close()
    assert server._process.wait(120.0) == 0
    workers.kill()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pipe)


def test_a_server_that_is_killed_while_it_imports_is_started_again(light, tmp_path):
    pool(tmp_path).kill()
    for unready in range(2):
        for server in starting._servers.values():
            server.served, server.alive = bool(unready), True
            os.kill(server.pid, signal.SIGKILL)
            server.waited() if not unready else server.reaped(0)
        again = pool(tmp_path)
        assert way(again) == "fork"
        again.kill()


def test_a_new_server_is_not_taken_for_what_another_one_left(light, monkeypatch, tmp_path):
    """Two lanes whose server is killed: one starts the next while the other ends what the first left running."""
    started, go_on = threading.Event(), threading.Event()

    class SlowServer(starting.ForkServer):
        def __init__(self, *told):
            super().__init__(*told)
            started.set()
            go_on.wait(HANGS_S)

    monkeypatch.setattr(starting, "ForkServer", SlowServer)

    def strays(is_stray):
        return [str(one.process) for one in starting.lifetime.children() if is_stray(one)]

    monkeypatch.setattr(starting.lifetime, "keeps_orphans", lambda: True)
    monkeypatch.setattr(starting.lifetime, "end_strays", strays)  # children of other tests are here too
    with ThreadPoolExecutor(2) as threads:
        starts = threads.submit(pool, tmp_path)
        assert started.wait(HANGS_S)
        ends = threads.submit(starting._end_orphans)
        with pytest.raises(FuturesTimeout):
            ends.result(timeout=1.0)
        go_on.set()
        ended, workers = ends.result(), starts.result()
    assert str(workers.workers[0].process._server.pid) not in ended
    assert way(workers) == "fork"
    workers.kill()


def test_a_torch_that_ends_the_server_is_met_by_the_process_itself(monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("import os\nos.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    workers = pool(tmp_path)
    assert way(workers) == "spawn"
    with pytest.raises(PoolDied, match="was killed by SIGABRT"):
        workers.ask("probe", 60, "probe")


@pytest.mark.slow
def test_a_library_with_threads_of_its_own_is_not_forked(monkeypatch, tmp_path):
    (tmp_path / "triton.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    workers = pool(tmp_path)
    assert way(workers) == "spawn"
    workers.kill()


@pytest.mark.parametrize(
    ("gpu", "asked", "policy"), [(False, None, "passive"), (False, "active", "active"), (True, None, None)]
)
def test_threads_sleep_while_they_wait_where_there_is_no_gpu(monkeypatch, gpu, asked, policy):
    monkeypatch.setattr(starting, "gpu_file", lambda: "/dev/kfd" if gpu else "")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if asked:
        monkeypatch.setenv("OMP_WAIT_POLICY", asked)
    assert starting.environment().get("OMP_WAIT_POLICY") == policy


# An interrupt at the worst moment: nothing is lost, and it takes effect.


@pytest.fixture(autouse=True)
def _handlers_are_put_back():
    """Both signals raise, also where the tests were started with one ignored, as a shell does in the background."""
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    during = {number: signal.getsignal(number) for number in ENDING}
    yield
    after = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == during


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_takes_effect_at_the_end_of_the_block(number):
    done = []

    def blocks():
        with deferred():
            signal.raise_signal(number)
            with deferred():
                signal.raise_signal(number)
            done.append("both blocks")
        done.append("too late")

    with pytest.raises(KeyboardInterrupt):
        blocks()
    assert done == ["both blocks"]


def interrupted_while_starting(monkeypatch, action):
    """Run `action`; every process it starts is followed by Ctrl-C before anything has stored it."""
    started, start = [], starting.ForkServer.started

    def interrupted(server, *given):
        started.append(start(server, *given))
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        return started[-1]

    monkeypatch.setattr(starting.ForkServer, "started", interrupted)
    with pytest.raises(KeyboardInterrupt):
        action()
    return started


@pytest.mark.slow
def test_processes_are_stored_before_an_interrupt_takes_effect(monkeypatch, tmp_path):
    setting = worker_pools.WorkerSetting(
        "gemm",
        2,
        {"head": "m"},
        gpu=False,
        arch="cpu",
        compute_units=None,
        threads=1,
        flush_bytes=0,
        heap_bytes=0,
        directory=tmp_path,
    )

    def measure():
        with worker_pools.WorkerPools([checkouts.Checkout("head", Path())], setting) as pools:
            pools.ready(["head"])

    started = interrupted_while_starting(monkeypatch, measure)
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2


@pytest.mark.slow
def test_the_process_that_describes_a_checkout_is_too(monkeypatch, tmp_path):
    checkout = checkouts.Checkout("head", Path())
    started = interrupted_while_starting(monkeypatch, lambda: checkouts.describe([checkout], tmp_path, {}, 1.0))
    assert [process.returncode for process in started] == [-signal.SIGKILL]


@pytest.mark.slow
def test_an_interrupt_while_processes_are_killed_leaves_none(monkeypatch, tmp_path):
    pool = ranks.WorkerPool("head", sys.executable, tmp_path, 2, tmp_path)
    processes = [worker.process for worker in pool.workers]
    end = starting.Forked.kill

    def kill(process):
        os.kill(os.getpid(), signal.SIGINT)
        end(process)

    monkeypatch.setattr(starting.Forked, "kill", kill)
    with pytest.raises(KeyboardInterrupt):
        pool.kill()
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2
