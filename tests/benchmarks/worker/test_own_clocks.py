"""Loops with a clock of their own become closures; what cannot be one stays as it is and is told."""

from __future__ import annotations

import ast
import contextlib
import linecache
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from benchmarks.worker.scripts import interception
from benchmarks.worker.scripts.interception import ClosureNames, Timing
from benchmarks.worker.scripts.own_clocks import CLOCK, OwnClocks, rewritten

FILE = "/checkout/bench/script.py"


class Taken:
    """Stands for the interceptor: calls a closure twice, and says that a call takes 0.5 s."""

    def __init__(self):
        self.taken, self.names = 0, ClosureNames(lambda file: file == FILE)
        self.closures = []

    def wants(self, frame):
        return True

    def name(self, call, frame):
        return self.names.unnumbered(frame, call).key

    def time(self, call, frame):
        self.taken += 1
        returned = [call.call(), call.call()]
        self.closures.append((self.names.of(frame, call).key, call.roots, returned))
        return Timing([0.5])


class Event:
    """Stands for torch.cuda.Event."""

    def record(self): ...

    def synchronize(self): ...

    def elapsed_time(self, other):
        return 7.0


def ran(text, monkeypatch):
    """The names that a script leaves, what was taken over, and the lines that were not, totals last."""
    monkeypatch.setitem(linecache.cache, FILE, (len(text), None, text.splitlines(keepends=True), FILE))
    interception._loops.cache_clear()
    taken = Taken()
    clocks = OwnClocks(taken)  # type: ignore[arg-type]
    held = {"__name__": "__main__", CLOCK: clocks, "Event": Event, "sync": lambda: None}
    exec(compile(rewritten(ast.parse(text), FILE, clocks), FILE, "exec"), held)
    return held, taken, [*clocks.untaken, *clocks.totals]


HOST = """
import time
def bench(fn, x, iters):
    for _ in range(3):
        fn(x)
    synchronize = sync
    synchronize()
    t0 = time.perf_counter()
    for i in range(iters):
        out = fn(x)
    synchronize()
    t1 = time.perf_counter()
    return (t1 - t0) / iters, out, i
found = [one for x in (1, 2) for one in bench(abs, x, 20)]
"""

IN_PLACE = """
import time
from time import perf_counter as now
def bench(fn):
    for size in [4]:
        begin = now()
        fn()
        took = now() - begin
    return took
def bench_ranks(all_reduce, rank):
    begin = now()
    y = all_reduce("7")
    if rank == 0:
        return now() - begin
def bench_step(step, barrier):
    barrier()
    begin = now()
    y = step("8")
    return now() - begin
found = [bench(dict), bench_ranks(int, 0), bench_step(float, sync)]
"""

EVENTS = """
import time
def bench(fn, iters):
    start, end = Event(), Event()
    times = []
    for i in range(iters):
        if fn is abs:
            start.record()
        else:
            begin = time.monotonic()
        fn(i)
        if fn is abs:
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        else:
            sync()
            times.append(1e3 * (time.monotonic() - begin))
    return sum(times) / len(times)
for provider, fn in (("mine", abs), ("other", float)):
    found = bench(fn, 5)
"""

LISTS = """
starts, ends = [Event() for _ in range(3)], [Event() for _ in range(3)]
for i in range(3):
    starts[i].record()
    abs(-3)
    ends[i].record()
found = [s.elapsed_time(e) for s, e in zip(starts, ends)]
"""

METHOD = """
import time
class Bench:
    def __init__(self):
        self.total = 0
    def run(self, n):
        start = time.time_ns()
        for _ in range(n):
            self.step(2)
        end = time.time_ns()
        return (end - start) / n
    def step(self, by):
        self.total += by
        return self.total
found = Bench().run(10)
"""


@pytest.mark.parametrize(
    ("text", "names", "returned", "seconds"),
    [
        (HOST, ["abs/bench.abs:fn=abs,x=1", "abs/bench.abs:fn=abs,x=2"], [[1, 1], [2, 2]], [0.5, 1, 19, 0.5, 2, 19]),
        (
            IN_PLACE,
            [
                "dict/bench.dict:fn=dict,size=4",
                "int/bench_ranks.int:all_reduce=int",
                "float/bench_step.float:step=float",
            ],
            [[{}, {}], [7, 7], [8.0, 8.0]],
            [0.5] * 3,
        ),
        (EVENTS, ["mine/bench.abs:fn=abs", "other/bench.float:fn=float"], [[0, 0], [0.0, 0.0]], 500.0),
        (LISTS, ["abs/call"], [[3, 3]], [500.0] * 3),
        (METHOD, ["step/Bench.run.step"], [[22, 24]], 0.5e9),
    ],
)
def test_a_region_is_one_closure_and_the_script_gets_its_samples(text, names, returned, seconds, monkeypatch):
    held, taken, untaken = ran(text, monkeypatch)
    assert untaken == []
    assert [name for name, _, _ in taken.closures] == names
    assert [values for _, _, values in taken.closures] == returned
    assert held["found"] == pytest.approx(seconds)


def test_a_round_starts_from_what_the_script_had(monkeypatch):
    """What a round computes from the one before is not carried on in the closure, and is in the script."""
    text = "import time\nx = 1\nt = time.time()\nfor _ in range(3):\n    x = max(x * 2, 0)\nfound = time.time() - t\n"
    held, taken, _ = ran(text, monkeypatch)
    assert (held["x"], taken.closures[0][2]) == (8, [2, 2])


def test_warm_up_and_repetition_are_one_closure(monkeypatch):
    more = HOST + "bench(abs, 2, 5)\nagain = bench(abs, 2, 20)[0]\nf = lambda x: x\nbench(f, 2, 20)\n"
    held, taken, _ = ran(more.replace("iters", "num_iters"), monkeypatch)
    assert [name for name, _, _ in taken.closures] == [
        "abs/bench.abs:fn=abs,x=1",
        "abs/bench.abs:fn=abs,x=2",
        "bench/x=2",
    ]
    assert held["again"] == pytest.approx(0.5)


ALIKE = """
import time
calls, made = [], []
def call(x):
    calls.append(x)
    return x
def bench(n, x):
    t0 = time.time()
    for i in range(n):
        BODY
    return time.time() - t0, i
found = [bench(1000, 2) for _ in range(3)]
"""


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ("out = call(x)", 10 + 2 + 1 + 1),
        ("call((x, i % 4)[0])", 10 + 2 + 1 + 1),
        ("call(i)", 3 * 1000 + 2),  # every round another
        ("made.append(call(x))", 3 * 1000 + 2),  # what each computes is kept
        ("x = call(x)", 3 * 1000 + 2),  # and carried on
        ("calls[0:0] = [call(x)]", 2 * (3 * 1000 + 2)),
    ],
)
def test_of_a_loop_whose_rounds_are_alike_some_are_enough(body, calls, monkeypatch):
    held, taken, untaken = ran(ALIKE.replace("BODY", body), monkeypatch)
    assert (len(held["calls"]), len(taken.closures), untaken) == (calls, 1, [])
    assert [one[0] for one in held["found"]] == pytest.approx([500.0] * 3)
    assert [one[1] for one in held["found"]] == [999] * 3


EVERY_ROUND = """
from contextlib import contextmanager
calls, kept, profiled = [], [], []
@contextmanager
def profile():
    profiled.append(1)
    yield profiled
def called(x):
    calls.append(x)
    return x
def bench(fn, iters):
    for _ in range(iters):
        WARM_UP
    starts, ends = ([Event() for _ in range(iters)] for _ in "12")
    prof = profile()
    with prof:
        for i in range(iters):
            starts[i].record()
            TIMED
            ends[i].record()
            AFTER
    return [s.elapsed_time(e) for s, e in zip(starts, ends)]
found = bench(called, 100)
"""


@pytest.mark.parametrize(
    ("warm_up", "timed", "after", "calls", "profiled"),
    [
        ("fn(3)", "fn(3)", "pass", 10 + 10 + 2, 0),
        ("out = fn(3)", "out = fn(3)", "pass", 10 + 10 + 2, 0),
        ("fn(4)", "fn(3)", "pass", 100 + 10 + 2, 0),  # another call
        ("fn(3)", "out = fn(3)", "kept.append(out)", 10 + 100 + 2, 0),  # the script has it of every round
        ("fn(3)", "fn(i)", "pass", 100 + 100 + 2, 0),  # every round another
        ("fn(3)", "fn(3)", "prof", 10 + 10 + 2, 1),
    ],
)
def test_a_loop_around_a_region_and_a_warm_up_call_it_a_few_times(warm_up, timed, after, calls, profiled, monkeypatch):
    text = EVERY_ROUND.replace("WARM_UP", warm_up).replace("TIMED", timed).replace("AFTER", after)
    held, taken, untaken = ran(text, monkeypatch)
    assert (len(held["calls"]), len(held["profiled"]), len(taken.closures), untaken) == (calls, profiled, 1, [])
    assert held["found"] == [500.0] * 100


def test_what_a_loop_meets_anew_is_timed_anew(monkeypatch):
    text = EVERY_ROUND.replace("WARM_UP", "fn(3)").replace("TIMED", "fn(3)").replace("AFTER", "pass")
    held, taken, _ = ran(text + "bench(abs, 20)\nagain = bench(called, 20)\n", monkeypatch)
    assert [key for key, _, _ in taken.closures] == ["called/bench.called:fn=called", "abs/bench.abs:fn=abs"]
    assert (held["again"], len(held["calls"])) == ([500.0] * 20, 22 + 10 + 10)


def test_what_times_more_inside_is_a_total(monkeypatch):
    total = HOST.replace("found = ", "wholes = []\ndef whole():\n    wholes.append(1)\n    return ") + (
        "def main(n):\n    begin = time.time()\n    for _ in range(n):\n        found = whole()\n"
        "    return time.time() - begin\ntook = main(30)\n"
    )
    before = time.time()
    held, taken, untaken = ran(total, monkeypatch)
    assert (len(taken.closures), len(held["wholes"]), untaken) == (2, 30, [])
    assert held["took"] <= time.time() - before


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("if fn(): return 1", "return stands"),
        ("import os; fn()", "import stands"),
        ("fn(); yield 3", "yield stands"),
        ("fn(); eval('1')", "eval"),
    ],
)
def test_what_cannot_be_taken_over_is_told_with_its_line(line, why, monkeypatch):
    text = (
        "import time\ndef bench(fn):\n    t0 = time.time()\n    for _ in range(3):\n"
        f"        {line}\n    return time.time() - t0\n"
    )
    _, taken, untaken = ran(text, monkeypatch)
    [told] = untaken
    assert (taken.closures, told[:13], why in told) == ([], "script.py:4: ", True)


def test_a_total_that_runs_once_is_left_alone(monkeypatch):
    text = "import time\nt0 = time.time()\nfound = sorted([2, 1])\nprint(time.time() - t0)\n"
    held, taken, untaken = ran(text, monkeypatch)
    assert (held["found"], taken.closures) == ([1, 2], [])
    assert "total" in untaken[0]


PROFILED = """
import torch, proton
calls = []
def bench(fn, x, n):
    with torch.profiler.profile() as prof:
        for _ in range(n):
            fn(x)
            prof.step()
    return prof.name
def label(fn, x):
    with proton.scope("mine"):
        return_ = fn(x)
    return return_
found = bench(calls.append, 1, 5), label(abs, -3)
"""


def test_what_stands_in_a_profiler_is_a_region_and_the_profiler_runs_as_it_is(monkeypatch):
    open_ = []

    @contextlib.contextmanager
    def profile(*_):
        open_.append(True)
        yield SimpleNamespace(step=lambda: open_[-1] or pytest.fail("a step outside"), name="p")
        open_.append(False)

    torch_ = SimpleNamespace(profiler=SimpleNamespace(profile=profile))
    monkeypatch.setitem(sys.modules, "torch", torch_)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "proton", SimpleNamespace(scope=profile))  # type: ignore[arg-type]
    held, taken, untaken = ran(PROFILED, monkeypatch)
    assert [key for key, _, _ in taken.closures] == ["append/bench.append:fn=append,x=1", "abs/label.abs:fn=abs,x=3"]
    assert (held["found"], untaken, len(held["calls"])) == (("p", 3), [], 5 + 2)


def test_a_profiler_from_which_it_returns_is_told(monkeypatch):
    text = "from contextlib import nullcontext as profile\ndef f(g):\n    with profile():\n        return g()\nf(int)\n"
    _, taken, untaken = ran(text, monkeypatch)
    assert (taken.closures, untaken) == ([], ["script.py:3: return stands in it"])


FLUSHED = """
from contextlib import nullcontext
flushes = []
class Cache:
    def zero_(self):
        flushes.append(1)
def bench(fn, iters, profiled, flush_l2=True):
    cache = Cache()
    if profiled:
        prof = torch.profiler.profile()
    else:
        prof = nullcontext()
    with prof:
        torch.cuda._sleep(int(2e7))
        for _ in range(iters):
            if flush_l2:
                cache.zero_()
            fn(3)
        torch.cuda.synchronize()
        dist.barrier()
for profiled, fn in ((True, abs), (False, float)):
    bench(fn, 5, profiled)
"""


def test_a_profiler_in_a_variable_is_one_and_a_flush_is_not_timed(monkeypatch):
    cuda = SimpleNamespace(_sleep=lambda cycles: None, synchronize=lambda: None)
    torch_ = SimpleNamespace(profiler=SimpleNamespace(profile=nullcontext), cuda=cuda)
    monkeypatch.setattr("builtins.torch", torch_, raising=False)
    monkeypatch.setattr("builtins.dist", SimpleNamespace(barrier=lambda: None), raising=False)
    held, taken, told = ran(FLUSHED, monkeypatch)
    assert [(key, returned) for key, _, returned in taken.closures] == [
        ("abs/bench.abs:profiled=True,fn=abs", [3, 3]),
        ("float/bench.float:profiled=False,fn=float", [3.0, 3.0]),
    ]
    assert (len(held["flushes"]), told) == (10, []), "by the script's own loop alone"


def test_events_that_no_list_of_statements_has_both_of_are_told(monkeypatch):
    text = (
        "a, b = Event(), Event()\ndef f(e):\n    e.record()\nf(a)\nabs(3)\nf(b)\n"
        "ms = [a.elapsed_time(b) for _ in '12']\n"
        "import time\nclass Timer:\n    def start(self):\n        self.t = time.time()\n"
    )
    held, taken, told = ran(text, monkeypatch)
    assert (held["ms"], taken.closures) == ([7.0, 7.0], [])
    assert told == [
        "script.py:7: its events are recorded apart, not in one list of statements",
        "script.py:11: its two readings are not in one list of statements",
    ]
