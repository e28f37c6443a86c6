"""Cases timed in graphs, run for real on ranks that live in this process; only the capture is simulated."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from benchmarks.coordinator import case_run
from benchmarks.coordinator.case_run import CaseRun
from benchmarks.coordinator.lanes import Quiet
from benchmarks.coordinator.ranks import Failure, StepFailed
from benchmarks.plan import PlannedArm, PlannedCase, Protocol
from benchmarks.worker import arms, clocks, failures
from benchmarks.worker.requests import Service
from kernels.spec import Case, Cost, Kernel, Place, Tolerance

toy = Kernel("toy", cases=[Case("c", tier="pr", dtype="fp32", n=16)], tolerance=Tolerance(), live=("x",))


@toy.inputs
def inputs(case: Case, seed: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(case.n)}


@toy.cost
def cost(case: Case) -> Cost:
    return Cost()


@toy.reference
def reference(case: Case, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return inputs["x"] * 2


def doubling(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    out = torch.empty_like(inputs["x"])
    return lambda: torch.mul(inputs["x"], 2, out=out)


toy.backend("good")(doubling)
toy.baseline("library")(doubling)


@toy.backend("slow")
def slow(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    call = doubling(case, inputs)

    def late() -> torch.Tensor:
        time.sleep(case_run.SAMPLE_S)
        return call()

    return late


@toy.backend("stubborn")
def stubborn(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    call = doubling(case, inputs)

    def checked() -> torch.Tensor:
        if SimulatedGraph.capturing:
            raise RuntimeError("operation not permitted when stream is capturing")
        return call()

    return checked


@toy.backend("forgetful")
def forgetful(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Right when called, but writes nothing when it is replayed: as a graph of a call that decides on the host."""
    out, replaying = torch.empty_like(inputs["x"]), SimulatedGraph
    return lambda: out if replaying.replaying else torch.mul(inputs["x"], 2, out=out)


@toy.backend("copies_the_first")
def copies_the_first(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Computes for the first copy of the inputs and gives that result for all."""
    out, first = torch.empty_like(inputs["x"]), FIRST.setdefault("x", inputs["x"])
    return lambda: torch.mul(first, 2, out=out)


FIRST: dict[str, torch.Tensor] = {}


class SimulatedGraph:
    """Replays by calling again."""

    capturing = replaying = False

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self._calls = calls

    def replay(self) -> None:
        SimulatedGraph.replaying = True
        for call in self._calls:
            call()
        SimulatedGraph.replaying = False


def simulated_capture(calls: Sequence[Callable[[], Any]]) -> tuple[SimulatedGraph, list[Any]]:
    SimulatedGraph.capturing = True
    try:
        return SimulatedGraph(calls), [call() for call in calls]
    finally:
        SimulatedGraph.capturing = False


class LocalPool:
    """One rank in this process."""

    def __init__(self) -> None:
        self.alive = True
        self._service = Service(".", None)
        self._service._kernel, self._service._backends, self._service._place = toy, toy.backends, Place()
        self._service._bench_of, self._service._torch = arms.CaseBench, torch
        self._service._clock, self._service._numerics = clocks.HostClock(0, None), arms.harness_numerics()
        self._request: tuple[str, dict[str, Any]] | None = None

        self._service.do_ran = lambda tops: {}

    def post(self, step: str, limit_s: float, op: str, **fields: Any) -> None:
        self._request = op, fields

    def collect(self) -> list[Any]:
        op, fields = self._request
        try:
            return [self._service.perform(op, fields)]
        except Exception as error:
            answer = failures.answer(error)
            raise StepFailed(
                Failure(answer["status"], answer["why"], answer["detail"], True, answer["spoiled"])
            ) from error

    def ask(self, step: str, limit_s: float, op: str, **fields: Any) -> list[Any]:
        assert self.alive
        self.post(step, limit_s, op, **fields)
        return self.collect()

    def kill(self) -> None:
        self.alive = False


class LocalPools(SimpleNamespace):
    quiet = Quiet()
    setting = SimpleNamespace(gpu=False)
    flush_s = 0.0

    strayed: ClassVar[dict[str, str]] = {}

    def tops(self, role: str) -> list[str]:
        return []

    def look_at(self, role: str, answers: list[Any]) -> None:
        assert answers == [{}]

    def compiled(self, case: str) -> None:
        pass

    def ready(self, roles: Iterable[str]) -> None:
        for role in roles:
            if role not in self.pools or not self.pools[role].alive:
                self.pools[role] = LocalPool()
                self.starts += 1


@pytest.fixture
def run_case(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, Any], LocalPools]]:
    monkeypatch.setattr(clocks, "capture", simulated_capture)

    def run(*backends: str, copies: int = 4, calls: int = 4) -> tuple[dict[str, Any], LocalPools]:
        planned = tuple(PlannedArm("head", name) for name in backends)
        case = PlannedCase("c", 1, planned, "graph", copies, calls, 0)
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


def test_flushes_of_large_caches_are_time_that_samples_may_take(run_case, monkeypatch):
    """Flushing 480 MB of cache takes 0.1 s on an idle CPU: 20 warm-up samples are no hang, and requests stay short."""
    allowed, post = [], LocalPool.post

    def posts(self, step, limit_s, op, **fields):
        if op == "samples":
            allowed.append((limit_s, len(fields["order"])))
        return post(self, step, limit_s, op, **fields)

    monkeypatch.setattr(LocalPool, "post", posts)
    monkeypatch.setattr(LocalPools, "flush_s", 2.0)
    run_case("good", "library")
    assert len(allowed) > 4
    for limit_s, count in allowed:
        assert limit_s >= Protocol().deadline_s + 10 * 2.0 * count
    assert max(count for _, count in allowed[2:]) <= 3


def test_a_slow_call_needs_fewer_in_a_graph(run_case):
    entry, workers = run_case("good", "slow", copies=12, calls=12)
    assert entry["arms"]["head/slow"]["calls_per_sample"] == case_run.LEAST_CALLS
    assert entry["arms"]["head/good"]["calls_per_sample"] == 12
    assert entry["arms"]["head/slow"]["status"] == "ok", "only what is in the graph is checked"
    assert len(workers.pools["head"]._service._bench.arms["slow"].outputs) == case_run.LEAST_CALLS


def test_one_copy_can_be_called_many_times(run_case):
    entry, workers = run_case("good", copies=1, calls=6)
    assert entry["arms"]["head/good"]["calls_per_sample"] == 6
    assert len(workers.pools["head"]._service._bench.arms["good"].calls) == 1


def test_one_arm_that_cannot_be_captured_puts_the_whole_case_on_events(run_case):
    entry, workers = run_case("good", "stubborn", "library")
    assert entry["method"] == "events"
    assert all(arm["status"] == "ok" and arm["calls_per_sample"] == 1 for arm in entry["arms"].values())
    assert "head/stubborn cannot be captured in a graph (RuntimeError: operation not permitted" in entry["warnings"][0]
    assert workers.starts == 2, "a failed capture is followed by a fresh process"


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

        def __init__(self, graph: Any, capture_error_mode: str) -> None:
            streams.append("capturing")

        def __enter__(self) -> None: ...

        def __exit__(self, *raised: object) -> None:
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
