"""What a closure can reach, what it holds, and whether two sides' outputs agree."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import sys
from typing import Any

import pytest
import torch
from triton import testing

from benchmarks.worker import clocks
from benchmarks.worker.scripts import closure, executed
from benchmarks.worker.scripts.closure import ClosureBench, agree
from benchmarks.worker.scripts.interception import LONGEST, ClosureNames, TimerCall, printed
from benchmarks.worker.scripts.ranks import Ranks
from benchmarks.worker.scripts.timers import statement, summary


def closure_bench(call, *roots, **more):
    clock = clocks.HostClock(0, None)
    return ClosureBench(TimerCall("timer", call, roots, **more), 0, lambda gpu: clock, lambda file: False, "/", Ranks())


GLOBAL = torch.ones(3)


def test_tensors_are_found_in_cells_partials_methods_containers_modules_and_globals():
    cell, given, module = torch.ones(1), torch.ones(2), torch.nn.Linear(4, 5)
    held = {"deep": [(cell,)]}

    def call(x):
        return held, GLOBAL, module(x)

    shapes = {tuple(one.shape) for one in closure.tensors(functools.partial(call, given)).values()}
    assert shapes == {(1,), (2,), (3,), (5, 4), (5,)}


def test_a_digest_sees_values_types_shapes_and_swaps():
    one = torch.arange(100, dtype=torch.float32)
    others = [one.clone(), one.flip(0), one.double(), one.view(10, 10), one + 1e-6]
    assert executed.digest(one) == executed.digest(others[0])
    assert len({executed.digest(one), *map(executed.digest, others[1:])}) == 5


def test_a_closure_that_changes_its_input_starts_each_call_anew():
    x, start = torch.full((8,), 2.0), []

    def call():
        start.append(float(x[0]))
        return x.mul_(3)

    made = closure_bench(call)
    facts = made.examine()
    assert len(facts["changed"]) == 1
    made.samples(["x"] * 4, False)
    assert len(set(start[3:])) == 1
    assert facts["repeats"]


def test_a_written_buffer_is_an_output_and_no_changed_input(tmp_path):
    x, out = torch.randn(8), torch.zeros(8)

    def into():
        torch.add(x, 1, out=out)

    made = closure_bench(into)
    facts = made.examine()
    assert facts["changed"] == []
    assert facts["outputs"] == ["float32[8]"]
    made.keep_outputs(str(tmp_path / "o.pt"))
    other = torch.zeros(8)
    right = closure_bench(lambda: torch.add(x, 1, out=other) is None)
    right.examine()
    assert right.compare(str(tmp_path / "o.pt"))["right"]


def test_outputs_that_come_and_go_are_seen_and_a_rank_comes_late_where_that_is_asked_for(monkeypatch):
    slept, counter = [], itertools.count()
    monkeypatch.setattr(closure.time, "sleep", slept.append)
    assert not closure_bench(lambda: torch.full((4,), float(next(counter)))).examine()["repeats"]
    found = closure_bench(lambda: torch.rand(4)).examine(late=True)  # from equal random numbers
    assert (found["repeats"], found["stale"], slept) == (True, False, [0.01])


def test_gradients_are_cleared_before_each_call_as_the_timer_promises():
    w, seen = torch.ones(3, requires_grad=True), []
    loss = (w * 2).sum()

    def backward():
        seen.append(w.grad is None)
        loss.backward(retain_graph=True)

    made = closure_bench(backward, no_grad_of=[w])
    made.examine()
    made.bundle(5, False)
    made.samples(["x"] * 3, False)
    assert all(seen)


def test_a_call_that_returns_what_an_earlier_one_computed_is_told():
    x, buffer = torch.randn(8), [torch.zeros(8)]

    @functools.cache
    def remembered():
        return x * 2

    class Deep:
        def __init__(self):
            self.out = torch.zeros(8)

    deep = [[[[[[Deep()]]]]]]  # further than closures are followed

    def into():
        out = deep[0][0][0][0][0][0].out
        out[:4] = x[:4]  # writes a part, and returns all
        return out

    with pytest.raises(closure.StaleResult, match="a call computes nothing"):
        closure_bench(lambda: remembered()).examine()
    assert torch.equal(remembered(), x * 2)
    for call in (into, lambda: buffer[0], lambda: x * 2, lambda: torch.add(x, 1, out=buffer[0])):
        assert closure_bench(call).examine()["repeats"]
    assert torch.equal(deep[0][0][0][0][0][0].out, torch.cat([x[:4], torch.zeros(4)]))


def test_leaves_are_found_through_what_is_made_of_them():
    w, x, there = (torch.ones(3, requires_grad=True) for _ in range(3))
    made = (w * x).sum()
    there.grad = torch.ones(3)
    assert {id(one) for one in closure.leaves([made, there, torch.ones(2)])} == {id(w), id(x), id(there)}
    bench = closure_bench(lambda: (made * 1).backward(retain_graph=True), [there])
    found = bench.examine()
    assert (found["outputs"], found["repeats"]) == (["float32[3]"] * 2, True)
    assert torch.equal(there.grad, torch.ones(3))


def test_gradients_that_a_closure_adds_to_those_that_are_there_are_outputs():
    """As in a script that times one backward pass after the other; an optimizer reads gradients, and needs them."""
    x = torch.ones(3, requires_grad=True)
    (x * 5).sum().backward()
    loss = (x * 2).sum()

    def anew():
        x.grad = None
        loss.backward(retain_graph=True)

    for call, given in ((lambda: loss.backward(retain_graph=True), 7.0), (anew, 2.0)):
        x.grad = torch.full((3,), 5.0)
        bench = closure_bench(call)
        assert bench.examine()["outputs"] == ["float32[3]"]
        assert torch.equal(bench._own[0], torch.full((3,), given))
    x.grad = torch.full((3,), 5.0)

    def step():  # torch.optim's own imports torch._dynamo: 4 s of CPU
        with torch.no_grad():
            x.sub_(x.grad)

    bench = closure_bench(step, [x])
    assert bench.examine()["changed"]
    assert torch.equal(x.grad, torch.full((3,), 5.0))


def test_a_digest_that_finds_no_memory_says_so(monkeypatch):
    def no_memory(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(executed, "LARGE", 0)
    monkeypatch.setattr(executed, "_sums", no_memory)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        executed.digest(torch.ones(100))


def test_a_large_tensor_in_host_memory_is_summed(monkeypatch):
    monkeypatch.setattr(executed, "LARGE", 64)

    def short(data, **_):
        assert isinstance(data, bytes)  # sums, and not the memory of a tensor
        return hashlib.sha256(data)

    monkeypatch.setattr(hashlib, "blake2b", short)
    whole = torch.arange(20_003, dtype=torch.int16)  # the last 6 bytes are no word of 8
    swapped, other, last = (whole.clone() for _ in range(3))
    swapped[[3, 7000]] = whole[[7000, 3]]
    other[19_000] += 1
    last[-1] += 1
    assert executed.digest(whole) == executed.digest(torch.cat([whole[:1], whole])[1:])
    assert len({*map(executed.digest, (whole, swapped, other, last, whole.view(torch.float16)))}) == 5


def test_after_timing_a_closure_must_give_what_it_gave():
    calls = itertools.count()
    made = closure_bench(lambda: torch.full((4,), 1.0 if next(calls) < 9 else 2.0))
    assert made.examine()["repeats"]
    made.samples(["x"] * 8, False)
    assert not made.check_after()["right"]


def test_sides_agree_within_what_their_types_round():
    x = torch.randn(1000)
    assert agree([x.half()], [x], True).right
    assert not agree([x * 1.1], [x], True).right
    assert not agree([x + 0], [x.flip(0)], True).right
    different = agree([x * 1.1], [x], False)
    assert not different.compared
    assert "inputs hold other values" in different.why
    assert not agree([x], [x[:10]], True).compared
    assert not agree([], [], True).compared
    nan = torch.tensor([1.0, torch.nan])
    assert agree([nan], [nan.clone()], True).right
    assert not agree([torch.tensor([1])], [torch.tensor([2])], True).right


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
def test_summary_is_that_of_triton(quantiles, mode, found):
    times = [4.0, 1.0, 3.0, 2.0]
    assert summary(times, quantiles, mode) == found == testing._summarize_statistics(times, quantiles, mode)


def test_a_statement_is_a_call_that_gives_the_value_of_an_expression():
    assert statement("x + y", "y = 2", {"x": 1})() == 3
    grows = statement("n += 1; seen.append(n)", "n = 0", {"seen": (seen := [])})
    grows()
    grows()
    assert seen == [1, 2]


# ClosureNames of timed closures: what they hold, and what they must not.


def here(file):
    return file == __file__


def timed(names, function=None, more=None):
    """A timer: it names what it is called for by the frame that calls it."""
    return names.of(sys._getframe(1), TimerCall("mine", abs, named=more or {}, function=function))


def bench(names, M, dtype, provider, x):
    return timed(names, lambda: x)


def test_arguments_and_loops_are_the_parameters_and_a_provider_is_the_backend():
    found = []
    names = ClosureNames(here)
    for size, (rows, columns) in [(1, (2, 3))]:
        found.append(bench(names, 64, torch.bfloat16, "cublas", torch.ones(2)))
        measured_ms = 0.123 * size * rows * columns
        found.append(timed(names))
    assert found[0].backend == "cublas"
    assert found[0].case.endswith("bench:size=1,rows=2,columns=3,M=64,dtype=bf16")
    assert "measured_ms" not in found[1].case
    assert str(measured_ms) not in found[1].case


@dataclasses.dataclass
class Input:
    x: int
    kernel_provider: str
    extra: dict[str, Any]


def of_object(names, input):
    return timed(names)


def test_fields_of_an_object_are_parameters():
    found = of_object(ClosureNames(here), Input(4, "liger", {"hidden": 8, "weights": torch.ones(2)}))
    assert found.backend == "liger"
    assert found.case.endswith("x=4,hidden=8")


def test_a_timed_functions_own_name_is_the_backend_where_nobody_says_a_provider():
    def run_ck(x):
        return x

    assert timed(ClosureNames(here), functools.partial(run_ck, 3)).backend == "run_ck"
    assert timed(ClosureNames(here), lambda: 0, {"provider": "lib", "label": "a b"}).backend == "lib"
    assert "label=a-b" in timed(ClosureNames(here), None, {"label": "a b"}).case


def test_long_names_are_cut_and_stay_apart():
    names = ClosureNames(here)
    found = {timed(names, None, {f"parameter_{i}_{j}": j for j in range(30)}).case for i in range(3)}
    assert len(found) == 3
    assert max(map(len, found)) <= LONGEST


def test_values_that_are_no_parameters_are_not_printed():
    assert printed(torch.float16) == "fp16"
    assert printed((4, 8, torch.bfloat16)) == "4x8xbf16"
    assert printed("a/b c") == "a-b-c"
    assert printed(torch.ones(3)) == printed(object()) == printed(None) == printed([]) == printed("x" * 60) == ""
    assert "/" not in printed("torch.nn/x")
