"""What runs below a process is counted, and where the heap of ranks is is found out once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from benchmarks.coordinator import ranks, worker_pools
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.ranks import Failure, PoolDied
from benchmarks.coordinator.worker_pools import WorkerPools, WorkerSetting
from benchmarks.plan import HEAP_VARIABLE, HEAPS
from benchmarks.trial_file import Status, Unfit, check
from ci import harness
from kernels import symmetric_heap
from tests.ci.made_trials import trial

FAMILY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('ready', flush=True); input()"], stdin=subprocess.PIPE)
input()
"""


def test_children_of_children_count():
    before = ranks.below(os.getpid())
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", FAMILY], **pipes) as parent:
        assert parent.stdout.readline() == b"ready\n"
        assert ranks.below(os.getpid()) == before + 2
        assert ranks.below(parent.pid) == 1
        parent.stdin.close()


def test_an_answer_that_does_not_end_is_refused_where_it_is_longer_than_any(monkeypatch):
    monkeypatch.setattr(ranks, "LONGEST_ANSWER", 4)
    read, write = os.pipe()
    rank = SimpleNamespace(_read=read, _buffer=bytearray())
    os.write(write, b"four")
    assert ranks.RankProcess.receive(rank) is None
    os.write(write, b"5")
    with pytest.raises(ranks.BrokenChannel, match="more than 4 bytes without an end"):
        ranks.RankProcess.receive(rank)


def test_a_kill_that_may_be_the_kernels_is_told_as_such():
    assert "(often the out-of-memory killer" in ranks.ending_in_words(-9)


# Which home the heap has is found out once and then the same for every process; a crash on the way is survived.


FOUND = {"home": "ipc", "homes": {"torch": {"why": "", "gbs": [[0, 30], [30, 0]]}}}


class StandIn:
    """A pool that was told a home, and answers with what it found; started: (label, home) in order."""

    started: ClassVar[list[tuple[str, str]]] = []
    answers: ClassVar[dict[str, object]] = {}

    def __init__(self, label, python, checkout, world, directory, variables, ledger, left, quiet):
        self.home = variables.get(HEAP_VARIABLE, "")
        self.label, self.alive = label, True
        type(self).started.append((label, self.home))

    def post(self, *_, per_rank, **__):
        self.per_rank = per_rank

    def collect(self):
        answer = self.answers.get(self.home, {"home": self.home})
        if isinstance(answer, Exception):
            self.alive = False
            raise answer
        return [{"flush_s": 0.0, "no_heap": "", "heap": answer}] * 2

    def lives(self):
        return self.alive

    def kill(self):
        self.alive = False

    quit = close = kill


def setting(**changes):
    given = {"kernel": "k", "world": 2, "modules": {"base": "m", "head": "m"}, "gpu": True, "arch": "gfx942"}
    given |= {"compute_units": 304, "threads": 1, "flush_bytes": 0, "heap_bytes": 0, "directory": Path("/nowhere")}
    return WorkerSetting(**{**given, **changes})


@pytest.fixture
def pools(monkeypatch):
    monkeypatch.setattr(worker_pools, "WorkerPool", StandIn)
    monkeypatch.setattr(WorkerSetting, "request", lambda self, role: {})
    monkeypatch.setattr(StandIn, "started", [])
    monkeypatch.setattr(StandIn, "answers", {"auto": FOUND})
    checkouts = [Checkout("base", Path()), Checkout("head", Path())]

    def make(**changes):
        made = WorkerPools(checkouts, setting(**changes))
        made.ready(["base", "head"])
        return made

    return make


def test_the_first_pool_finds_out_alone_and_the_second_is_told(pools):
    made = pools()
    assert StandIn.started == [("k.base", "auto"), ("k.head", "ipc")]
    assert made.heaps == {"base": FOUND, "head": {"home": "ipc"}}


def test_a_home_that_was_asked_for_is_told_to_all(pools):
    assert pools(heap="torch").heaps == {"base": {"home": "torch"}, "head": {"home": "torch"}}
    assert StandIn.started == [("k.base", "torch"), ("k.head", "torch")]


@pytest.mark.parametrize(("cores", "of_rank"), [((), [None] * 5), ((4, 6), [4, 6, 4, 6, 4])])
def test_ranks_share_the_cores_that_are_theirs_in_turn(pools, cores, of_rank):
    ranks = pools(world=5, gpu=False, cores=cores).pools["head"].per_rank
    assert [(one["rank"], one["device"], one["core"]) for one in ranks] == [(n, "cpu", of_rank[n]) for n in range(5)]


def test_a_crash_while_the_homes_are_tried_leads_to_ipc(pools):
    StandIn.answers["auto"] = PoolDied(Failure(Status.CRASH, "rank 1 of 2 was killed by SIGABRT in step: start"))
    made = pools()
    assert StandIn.started == [("k.base", "auto"), ("k.base", "ipc"), ("k.head", "ipc")]
    assert made.lost == {}
    assert made.notes == [
        "base: while the homes of the heap were tried, rank 1 of 2 was killed by SIGABRT in step: start; now with "
        "--heap ipc"
    ]


def test_a_crash_in_the_home_that_was_asked_for_is_the_end(pools):
    StandIn.answers["torch"] = PoolDied(Failure(Status.CRASH, "rank 0 of 2 was killed by SIGABRT in step: start"))
    made = pools(heap="torch")
    assert set(made.lost) == {"base", "head"}
    assert made.notes == []


@pytest.mark.parametrize(
    ("statuses", "everywhere"),
    [(["error", "error"], True), (["unsupported", "error"], False), (["ok", "error"], False)],
)
def test_the_rank_that_failed_first_speaks_for_all_and_whether_all_failed_alike_is_known(statuses, everywhere):
    pool = ranks.WorkerPool.__new__(ranks.WorkerPool)
    pool.workers = [SimpleNamespace(rank=rank) for rank in range(2)]
    rest = {"detail": "", "spoiled": False, "fatal": False}
    answers = {
        rank: {"ok": status == "ok", "status": status, "why": f"of rank {rank}", "failed_at": 2.0 - rank, **rest}
        for rank, status in enumerate(statuses)
    }
    with pytest.raises(ranks.StepFailed) as error:
        pool._results(answers)
    assert (error.value.failure.why, error.value.failure.everywhere) == ("of rank 1", everywhere)


def test_the_names_of_the_homes_are_the_same_everywhere():
    assert HEAPS == harness.HEAPS == symmetric_heap.CHOICES
    assert HEAP_VARIABLE == symmetric_heap.VARIABLE


def test_a_trial_line_holds_what_was_found():
    check({**trial(), "heap": {"w2": FOUND, "w4": {"home": "torch"}}})
    wrong = {"home": "ipc", "homes": {"torch": {"why": "", "gbs": [[0, -3]]}}}
    with pytest.raises(Unfit, match=r"heap\.w2\.homes\.torch\.gbs"):
        check({**trial(), "heap": {"w2": wrong}})
