"""An interrupt at the worst moment: nothing is lost, and it takes effect."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.coordinator import checkouts, ranks, starting, worker_pools
from benchmarks.lifetime import ENDING, deferred


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


def test_an_error_inside_does_not_swallow_it():
    def block():
        with deferred():
            signal.raise_signal(signal.SIGINT)
            raise OSError("no such file")

    with pytest.raises(KeyboardInterrupt) as raised:
        block()
    assert isinstance(raised.value.__context__, OSError)
    with pytest.raises(OSError, match="no such file"), deferred():
        raise OSError("no such file")


def test_another_thread_defers_nothing():
    seen = []

    def block():
        with deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


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


def test_the_process_that_describes_a_checkout_is_too(monkeypatch, tmp_path):
    checkout = checkouts.Checkout("head", Path())
    started = interrupted_while_starting(monkeypatch, lambda: checkouts.describe([checkout], tmp_path, {}, 1.0))
    assert [process.returncode for process in started] == [-signal.SIGKILL]


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
