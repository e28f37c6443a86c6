"""What a closure can reach, what it holds, and whether two sides' outputs agree."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from benchmarks.worker import clocks
from benchmarks.worker.scripts import closure
from benchmarks.worker.scripts.closure import EXACT, FEW_BITS, TOLERANCES, ClosureBench, agree, tolerance
from benchmarks.worker.scripts.interception import TimerCall
from benchmarks.worker.scripts.timers import quantile, statement, summary


def bench(call: Any, *roots: Any, **more: Any) -> ClosureBench:
    return ClosureBench(TimerCall("timer", call, roots, **more), 0, lambda gpu: clocks.HostClock(0, None))


GLOBAL = torch.ones(3)


def test_tensors_are_found_in_cells_partials_methods_containers_modules_and_globals() -> None:
    cell, given, module = torch.ones(1), torch.ones(2), torch.nn.Linear(4, 5)
    held = {"deep": [(cell,)]}

    def call(x: torch.Tensor) -> Any:
        return held, GLOBAL, module(x)

    shapes = {tuple(one.shape) for one in closure.tensors(functools.partial(call, given)).values()}
    assert shapes == {(1,), (2,), (3,), (5, 4), (5,)}


def test_a_digest_sees_values_types_shapes_and_swaps() -> None:
    one = torch.arange(100, dtype=torch.float32)
    others = [one.clone(), one.flip(0), one.double(), one.view(10, 10), one + 1e-6]
    assert closure.digest(one) == closure.digest(others[0])
    assert len({closure.digest(one), *map(closure.digest, others[1:])}) == 5


def test_a_closure_that_changes_its_input_starts_each_call_anew() -> None:
    x, start = torch.full((8,), 2.0), []

    def call() -> torch.Tensor:
        start.append(float(x[0]))
        return x.mul_(3)

    made = bench(call)
    facts = made.examine()
    assert len(facts["changed"]) == 1
    made.samples(["x"] * 4, False)
    assert len(set(start[3:])) == 1
    assert facts["repeats"]


def test_a_written_buffer_is_an_output_and_no_changed_input(tmp_path: Any) -> None:
    x, out = torch.randn(8), torch.zeros(8)

    def into() -> None:
        torch.add(x, 1, out=out)

    made = bench(into)
    facts = made.examine()
    assert facts["changed"] == []
    assert facts["outputs"] == ["float32[8]"]
    made.keep_outputs(str(tmp_path / "o.pt"))
    other = torch.zeros(8)
    right = bench(lambda: torch.add(x, 1, out=other) is None)
    right.examine()
    assert right.compare(str(tmp_path / "o.pt"))["right"]


def test_outputs_that_come_and_go_are_seen() -> None:
    counter = iter(range(100))
    assert not bench(lambda: torch.full((4,), float(next(counter)))).examine()["repeats"]
    assert bench(lambda: torch.rand(4)).examine()["repeats"]  # from equal random numbers


def test_gradients_are_cleared_before_each_call_as_the_timer_promises() -> None:
    w, seen = torch.ones(3, requires_grad=True), []
    loss = (w * 2).sum()

    def backward() -> None:
        seen.append(w.grad is None)
        loss.backward(retain_graph=True)

    made = bench(backward, no_grad_of=[w])
    made.examine()
    made.bundle(5, False)
    made.samples(["x"] * 3, False)
    assert all(seen)


def test_after_timing_a_closure_must_give_what_it_gave() -> None:
    state = {"calls": 0}

    def call() -> torch.Tensor:
        state["calls"] += 1
        return torch.full((4,), 1.0 if state["calls"] < 10 else 2.0)

    made = bench(call)
    assert made.examine()["repeats"]
    made.samples(["x"] * 8, False)
    assert not made.check_after()["right"]


def test_sides_agree_within_what_their_types_round() -> None:
    x = torch.randn(1000)
    assert agree([x.half()], [x], True).right
    assert not agree([x * 1.1], [x], True).right
    assert not agree([x + 0], [x.flip(0)], True).right
    different = agree([x * 1.1], [x], False)
    assert not different.compared
    assert "inputs hold other values" in different.why
    assert not agree([x], [x[:10]], True).compared
    assert not agree([], [], True).compared
    nan = torch.tensor([1.0, float("nan")])
    assert agree([nan], [nan.clone()], True).right
    assert not agree([torch.tensor([1])], [torch.tensor([2])], True).right


def test_a_tolerance_is_that_of_the_coarser_type() -> None:
    half, single = torch.ones(1).half(), torch.ones(1)
    assert tolerance(half, single) == TOLERANCES[torch.float16]
    assert tolerance(torch.ones(1, dtype=torch.int8), torch.ones(1, dtype=torch.int8)) == EXACT
    assert tolerance(single.to(torch.float8_e4m3fn), single) == FEW_BITS


@pytest.mark.parametrize(
    ("quantiles", "mode", "found"),
    [
        (None, "mean", 2.5),
        (None, "median", 2.5),
        (None, "min", 1.0),
        (None, "max", 4.0),
        (None, "all", [4.0, 1.0, 3.0, 2.0]),
        ([0.5], "mean", 2.5),
        ([0.0, 0.5, 1.0], "mean", [1.0, 2.5, 4.0]),
    ],
)
def test_summary_is_that_of_triton(quantiles: Any, mode: str, found: Any) -> None:
    times = [4.0, 1.0, 3.0, 2.0]
    assert summary(times, quantiles, mode) == found
    testing = pytest.importorskip("triton.testing")
    assert summary(times, quantiles, mode) == testing._summarize_statistics(times, quantiles, mode)


def test_quantile_is_linear_between_order_statistics() -> None:
    times = torch.rand(9).tolist()
    assert quantile(times, 0.2) == pytest.approx(float(torch.quantile(torch.tensor(times), 0.2)))


def test_a_statement_is_a_call_that_gives_the_value_of_an_expression() -> None:
    assert statement("x + y", "y = 2", {"x": 1})() == 3
    grows = statement("n += 1; seen.append(n)", "n = 0", {"seen": (seen := [])})
    grows()
    grows()
    assert seen == [1, 2]
