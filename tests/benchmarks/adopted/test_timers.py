"""Timers of packages that are not here, and how one closure is timed on two sides, by stand-ins of both."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.adopted import session
from benchmarks.adopted.session import WARM_UP
from benchmarks.adopted.sides import ScriptCase
from benchmarks.coordinator.lanes import Quiet
from benchmarks.coordinator.ranks import Failure, StepFailed
from benchmarks.plan import Protocol
from benchmarks.trial_file import Status
from benchmarks.worker.scripts import timers
from benchmarks.worker.scripts.interception import Timing


class Taking:
    """An interceptor that calls each closure twice and says 2 and 4 ms."""

    def __init__(self):
        self.seen = []

    def wants(self, frame):
        return True

    def time(self, call, frame):
        self.seen.append(call)
        call.call()
        return Timing([2e-3, 4e-3], call.call())


def test_each_checkout_builds_extensions_in_a_folder_of_its_own(monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/builds")
    one, other = (session.builds_of(Path(path))["TORCH_EXTENSIONS_DIR"] for path in ("/a", "/b"))
    assert one != other
    assert one.startswith("/builds/")


def test_timeit_gives_seconds_of_so_many_calls():
    to, calls = Taking(), []
    real = importlib.util.find_spec("timeit")
    assert real is not None
    assert real.loader is not None
    module = importlib.util.module_from_spec(real)
    real.loader.exec_module(module)
    timers.of_timeit(module, to)  # type: ignore[arg-type]
    assert module.timeit(lambda: calls.append(1), number=10) == pytest.approx(0.03)
    assert module.repeat("calls.append(n)", "n = 2", repeat=2, number=100, globals={"calls": calls}) == [0.3] * 2
    assert module.Timer("1 + 1", timer=module.default_timer).autorange() == (1, 3e-3)
    assert calls == [1, 1, 2, 2]


EVENTS_IN_A_PACKAGE = """
import torch

def in_turn(fns, repeat=30):
    starts = [[torch.cuda.Event(enable_timing=True) for _ in range(repeat)] for _ in fns]
    ends = [[torch.cuda.Event(enable_timing=True) for _ in range(repeat)] for _ in fns]
    for i in range(repeat):
        for j in range(len(fns)):
            starts[j][i].record()
            fns[j]()
            ends[j][i].record()
    return [[s.elapsed_time(e) for s, e in zip(starts[j], ends[j])] for j in range(len(fns))]
"""

IRIS = """
def do_bench(fn, barrier_fn=lambda: None, preamble_fn=lambda: None, n_repeat=9, quantiles=None, return_mode="mean"):
    raise RuntimeError("it is replaced")
"""


@pytest.mark.slow  # times two sides
def test_events_in_lists_of_a_package_and_what_is_called_before_each_call(adopt):
    script = """
import functools, torch, iris.util
from mylib.own.helpers import in_turn

def double(x):
    return x * 2

def half(x):
    return x / 2

x, y = torch.ones(64), torch.ones(64)
print("times", [len(one) for one in in_turn([functools.partial(double, x), functools.partial(half, x)])])
params = {"backend": "iris", "M": 64}
print("ms", iris.util.do_bench(lambda: y.mul_(2), preamble_fn=lambda: y.fill_(1), return_mode="all") and float(y[0]))
"""
    files = {"mylib/own/__init__.py": "", "mylib/own/helpers.py": EVENTS_IN_A_PACKAGE,
             "iris/__init__.py": "", "iris/util.py": IRIS}  # fmt: skip
    found = adopt(script, "--device", "cpu", base=files, head=files)
    assert found.code == 0, found.said
    arms = found.arms()
    assert {name.partition("/")[2] for name in arms} == {
        *("double/in_turn.double:j=0", "half/in_turn.half:j=1", "iris/M=64")
    }
    assert {arm["status"] for arm in arms.values()} == {"ok"}
    assert "times [30, 30]" in found.printed()
    assert "ms 2.0" in found.printed(), "what is set up before a call is set up before each of ours"


@pytest.mark.slow  # times two sides
def test_what_finds_no_memory_on_either_side_is_not_measured_and_no_failure(adopt):
    script = """
import torch, mylib
from triton.testing import do_bench

def full():
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 97.00 GiB")

print(do_bench(lambda: mylib.double(torch.ones(4))), do_bench(full))
"""
    found = adopt(script, "--device", "cpu")
    assert found.code == 0, found.said
    full = [arm for name, arm in found.arms().items() if "/full/" in name]
    assert [(arm["status"], arm["why"]) for arm in full] == [
        ("skipped", "not measured on either side: out of memory")
    ] * 2


# One closure on two sides, with sides that answer as a GPU's would: the graph, and what a failure costs.


FACTS = {
    "first_call_s": 1.0,
    "expected_s": 1e-5,
    "inputs": [],
    "outputs": [],
    "changed": [],
    "prepared": False,
    "repeats": True,
    "bits": "",
    "held": "",
    "stale": False,
    "on_gpu": True,
}
AGREE = {"compared": True, "right": True, "why": "", "norm": 0.0, "peak": 0.0}


class AnsweringSide:
    """A side that waits at a timer.  answers: by step, over those of a side in which all is well."""

    def __init__(self, **answers):
        self.asked = []
        own = {"examine": FACTS, "compare": AGREE, "check_after": AGREE, "bundle": "", "drop": None}
        self.answers = {**own, "keep_outputs": {"outputs": 1}, **answers}

    def post(self, step, limit_s, op, **fields):
        self.asked.append(op)
        self.fields = fields

    def collect(self):
        answer = self.answers.get(self.asked[-1])
        if isinstance(answer, Failure):
            raise StepFailed(answer)
        if self.asked[-1] == "bundle":
            return [answer if self.fields["graph"] else ""]
        if self.asked[-1] != "samples":
            return [answer]
        order = self.fields["order"]
        return [{"seconds": [1e-5] * len(order), "starved": dict.fromkeys(order, 0), "spot": None}]

    def ask(self, step, limit_s, op, **fields):
        self.post(step, limit_s, op, **fields)
        return self.collect()


def run_case(base, head):
    pools = SimpleNamespace(pools={"base": base, "head": head}, lost={}, quiet=Quiet(), flush_s=0.0)
    pools.ready = lambda roles: None
    protocol = Protocol(rounds=5, deadline_s=10.0, warm_up=WARM_UP)
    case = ScriptCase(pools, "script/call", protocol, random.Random(0), Path("."))
    arms = case.run()["arms"]
    return case, {arm.partition("/")[0]: entry for arm, entry in arms.items()}


def test_short_closures_of_a_gpu_are_timed_in_a_graph_on_both_sides():
    base, head = AnsweringSide(), AnsweringSide()
    pair, arms = run_case(base, head)
    assert pair.method == "graph"
    assert [len(arm["seconds"]) for arm in arms.values()] == [5, 5]
    assert base.asked.count("bundle") == head.asked.count("bundle") == 1


def test_where_one_side_cannot_be_captured_neither_is():
    base, head = AnsweringSide(), AnsweringSide(bundle="RuntimeError: it synchronizes")
    pair, arms = run_case(base, head)
    assert (pair.method, pair.no_graph) == ("events", True)
    assert base.asked.count("bundle") == head.asked.count("bundle") == 2
    assert arms["base"]["status"] == Status.OK
    assert "it synchronizes" in pair.warnings[0]


def test_long_closures_and_those_that_change_inputs_are_timed_by_events():
    for facts in ({**FACTS, "expected_s": 1e-3}, {**FACTS, "changed": ["0.x"]}):
        assert run_case(AnsweringSide(examine=facts), AnsweringSide(examine=facts))[0].method == "events"


def test_a_side_that_fails_costs_itself_and_the_other_is_timed():
    head = AnsweringSide(samples=Failure(Status.ERROR, "an illegal access"))
    _, arms = run_case(AnsweringSide(), head)
    assert arms["head"]["status"] == Status.ERROR
    assert len(arms["base"]["seconds"]) == 5
    wrong = AnsweringSide(compare={**AGREE, "right": False, "why": "output 0 differs"})
    _, arms = run_case(AnsweringSide(), wrong)
    assert (arms["head"]["status"], arms["base"]["status"]) == (Status.WRONG, Status.OK)
    assert wrong.asked.count("samples") == 0


def test_outputs_that_change_from_call_to_call_are_not_compared():
    facts = {**FACTS, "repeats": False}
    base = AnsweringSide(examine=facts)
    assert "equal calls give different outputs (base)" in run_case(base, AnsweringSide())[0].warnings[0]
    assert "keep_outputs" not in base.asked


def test_a_side_that_needs_no_rank_late_is_the_only_measure():
    stale = AnsweringSide(examine={**FACTS, "stale": True})
    assert run_case(AnsweringSide(), stale)[1]["head"]["status"] == Status.WRONG
    assert ["base" in one for one in run_case(stale, stale)[0].warnings] == [True, False]


@pytest.mark.parametrize(("bits", "asks"), [("a", False), ("b", True), ("", True)])
def test_outputs_of_the_same_bits_need_not_be_sent(bits, asks):
    base = AnsweringSide(examine={**FACTS, "bits": "a" if bits else ""})
    _, arms = run_case(base, AnsweringSide(examine={**FACTS, "bits": bits}))
    assert ("keep_outputs" in base.asked) is asks
    assert arms["head"]["error"] == {"norm": 0.0, "peak": 0.0}
