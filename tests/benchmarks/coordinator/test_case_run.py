"""Cases timed in graphs, run for real on ranks that live in this process; only the capture is simulated."""

from __future__ import annotations

import dataclasses
import random
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from benchmarks.channel import error_answer
from benchmarks.coordinator import case_run
from benchmarks.coordinator.case_run import CaseRun
from benchmarks.coordinator.lanes import Quiet
from benchmarks.coordinator.ranks import Failure, StepFailed
from benchmarks.plan import PlannedArm, PlannedCase, Protocol
from benchmarks.worker import arms, clocks
from benchmarks.worker.arms import CaseBench
from benchmarks.worker.requests import Service
from kernels.spec import Case, Cost, Kernel, Place, Tolerance

toy = Kernel("toy", cases=[Case("c", tier="pr", dtype="fp32", n=16)], tolerance=Tolerance(), live=("x",))


@toy.inputs
def inputs(case, seed):
    return {"x": torch.randn(case.n)}


@toy.cost
def cost(case):
    return Cost()


@toy.reference
def reference(case, inputs):
    return inputs["x"] * 2


def doubling(case, inputs):
    out = torch.empty_like(inputs["x"])
    return lambda: torch.mul(inputs["x"], 2, out=out)


toy.backend("good")(doubling)
toy.baseline("library")(doubling)


@toy.backend("slow")
def slow(case, inputs):
    call = doubling(case, inputs)

    def late():
        time.sleep(case_run.SAMPLE_S)
        return call()

    return late


@toy.backend("waits_for_peers")
def waits_for_peers(case, inputs):
    """Slow while other processes have the device in turn."""
    call = doubling(case, inputs)

    def in_turn():
        time.sleep(0 if LocalPools.quiet._timing else case_run.SAMPLE_S)
        return call()

    return in_turn


@toy.backend("stubborn")
def stubborn(case, inputs):
    call = doubling(case, inputs)

    def checked():
        if SimulatedGraph.capturing:
            raise RuntimeError("operation not permitted when stream is capturing\nDevice-side assertions are off.")
        return call()

    return checked


@toy.backend("forgetful")
def forgetful(case, inputs):
    """Right when called, but writes nothing when it is replayed: as a graph of a call that decides on the host."""
    out, replaying = torch.empty_like(inputs["x"]), SimulatedGraph
    return lambda: out if replaying.replaying else torch.mul(inputs["x"], 2, out=out)


@toy.backend("copies_the_first")
def copies_the_first(case, inputs):
    """Computes for the first copy of the inputs and gives that result for all."""
    out, first = torch.empty_like(inputs["x"]), FIRST.setdefault("x", inputs["x"])
    return lambda: torch.mul(first, 2, out=out)


FIRST = {}


class SimulatedGraph:
    """Replays by calling again."""

    capturing = replaying = False

    def __init__(self, calls):
        self._calls = calls

    def replay(self):
        SimulatedGraph.replaying = True
        for call in self._calls:
            call()
        SimulatedGraph.replaying = False


def simulated_capture(calls):
    SimulatedGraph.capturing = True
    try:
        return SimulatedGraph(calls), [call() for call in calls]
    finally:
        SimulatedGraph.capturing = False


class LocalPool:
    """One rank in this process."""

    def __init__(self):
        self.alive = True
        self._service = Service(".", None)
        self._service._kernel, self._service._backends, self._service._place = toy, toy.backends, Place()
        self._service._bench_of, self._service._torch = arms.CaseBench, torch
        self._service._clock, self._service._numerics = clocks.HostClock(0, None), arms.harness_numerics()
        self._request = None

        self._service.do_ran = lambda tops: {}

    def post(self, step, limit_s, op, **fields):
        self._request = op, fields

    def collect(self):
        op, fields = self._request
        try:
            return [self._service.perform(op, fields)]
        except Exception as error:
            answer = error_answer(error)
            raise StepFailed(
                Failure(answer["status"], answer["why"], answer["detail"], True, answer["spoiled"])
            ) from error

    def ask(self, step, limit_s, op, **fields):
        assert self.alive
        self.post(step, limit_s, op, **fields)
        return self.collect()

    def kill(self):
        self.alive = False


class LocalPools(SimpleNamespace):
    quiet = Quiet()
    setting = SimpleNamespace(gpu=False)
    flush_s = 0.0

    strayed: ClassVar[dict[str, str]] = {}

    def tops(self, role):
        return []

    def look_at(self, role, answers):
        assert answers == [{}]

    def compiled(self, case):
        pass

    def ready(self, roles):
        for role in roles:
            if role not in self.pools or not self.pools[role].alive:
                self.pools[role] = LocalPool()
                self.starts += 1


@pytest.fixture
def run_case(monkeypatch):
    monkeypatch.setattr(clocks, "capture", simulated_capture)

    def run(*backends, copies=4, calls=4, world=1):
        planned = tuple(PlannedArm("head", name) for name in backends)
        case = PlannedCase("c", world, planned, "graph", copies, calls)
        setting = SimpleNamespace(gpu=True)
        workers = LocalPools(pools={}, lost={}, starts=0, setting=setting)
        run_of = CaseRun(workers, case, Protocol(rounds=5), random.Random(0), {})
        run_of.secret = 3
        return run_of.run(), workers

    return run


def test_a_graph_sample_is_one_replay_divided_by_its_calls(run_case):
    entry, workers = run_case("good", "library")
    assert entry["method"] == "graph"
    assert all(arm["status"] == "ok" and arm["calls_per_sample"] == 4 for arm in entry["arms"].values())
    assert len(entry["arms"]["head/good"]["seconds"]) == 5
    arm = workers.pools["head"]._service._bench.arms["good"]
    assert len({output.data_ptr() for output in arm.outputs}) == 4, "every copy has buffers of its own"


def test_a_slow_call_needs_fewer_in_a_graph(run_case, monkeypatch):
    monkeypatch.setattr(case_run, "SAMPLE_S", 0.02)  # far above a quick call, also on a machine at work
    entry, workers = run_case("good", "slow", copies=12, calls=12)
    assert entry["arms"]["head/slow"]["calls_per_sample"] == case_run.LEAST_CALLS
    assert entry["arms"]["head/good"]["calls_per_sample"] == 12
    assert entry["arms"]["head/slow"]["status"] == "ok", "only what is in the graph is checked"
    assert len(workers.pools["head"]._service._bench.arms["slow"].outputs) == case_run.LEAST_CALLS


def test_ranks_that_were_slow_beside_others_have_as_many_calls_in_a_graph_as_with_nothing_beside(run_case, monkeypatch):
    monkeypatch.setattr(case_run, "SAMPLE_S", 0.02)
    with LocalPools.quiet.lane(lambda: 0):
        entry, _ = run_case("waits_for_peers", copies=12, calls=12, world=2)
    assert entry["arms"]["head/waits_for_peers"].get("calls_per_sample") == 12, entry


def test_one_arm_that_cannot_be_captured_puts_the_whole_case_on_events(run_case):
    entry, workers = run_case("good", "stubborn", "library")
    assert entry["method"] == "events"
    assert all(arm["status"] == "ok" and arm["calls_per_sample"] == 1 for arm in entry["arms"].values())
    why = "RuntimeError: operation not permitted when stream is capturing"
    assert f"head/stubborn cannot be captured in a graph ({why})" in entry["warnings"][0], "the error's first line"
    assert workers.starts == 2, "a failed capture is followed by a fresh process"


@pytest.mark.slow
def test_a_call_that_is_right_but_not_in_a_graph_puts_the_whole_case_on_events(run_case):
    entry, workers = run_case("good", "forgetful")
    assert entry["method"] == "events"
    assert {arm["status"] for arm in entry["arms"].values()} == {"ok"}
    assert (
        "head/forgetful gives another result in a graph (check of the graph: the output is nan" in entry["warnings"][0]
    )
    assert workers.starts == 2


def test_a_capture_that_fails_leaves_the_stream_as_it_was(monkeypatch):
    streams = ["own"]

    class Graph:
        """As torch.cuda.graph: its stream stays the current one if the end of the capture raises."""

        def __init__(self, graph, capture_error_mode):
            streams.append("capturing")

        def __enter__(self): ...

        def __exit__(self, *raised):
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", Graph)
    monkeypatch.setattr(clocks.bound, "current_stream", lambda: streams[-1])
    monkeypatch.setattr(clocks.bound, "set_stream", streams.append)
    with pytest.raises(RuntimeError, match="previous error"):
        clocks.capture([lambda: None])
    assert streams == ["own", "capturing", "own"]


def test_the_copies_of_the_inputs_differ_and_so_must_their_results(run_case):
    FIRST.clear()
    entry, workers = run_case("good", "copies_the_first")
    assert entry["arms"]["head/good"]["status"] == "ok"
    assert set(workers.pools["head"]._service._bench.values.held) == {0, 1}
    assert entry["arms"]["head/copies_the_first"]["status"] == "wrong"
    assert entry["arms"]["head/copies_the_first"]["why"].startswith("check: ")


# Points of a sweep.


ANCHOR = PlannedArm("head", "good")
POINTS = tuple(PlannedArm("head", "good", point=name) for name in ("p1", "p2", "p3"))


@pytest.mark.slow
def test_a_batch_that_keeps_its_inputs_makes_them_once(monkeypatch):
    made = []
    init = CaseBench.__init__
    monkeypatch.setattr(CaseBench, "__init__", lambda self, *rest: made.append("inputs") or init(self, *rest))
    workers = LocalPools(pools={}, lost={}, starts=0)
    for keep, count in ((True, 1), (True, 1), (False, 2)):
        case = PlannedCase("c", 1, (ANCHOR, dataclasses.replace(POINTS[0])), "clock")
        entry = CaseRun(workers, case, Protocol(rounds=2), random.Random(0), {}, keep_inputs=keep).run()
        assert {arm["status"] for arm in entry["arms"].values()} == {"ok"}
        assert len(made) == count
        assert set(workers.pools["head"]._service._bench.arms) == {"good", "good@p1"}
