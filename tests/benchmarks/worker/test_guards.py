"""What of the objects that the harness measures with is another one now, and what inputs and comparisons hold."""

from __future__ import annotations

import contextlib

import pytest
import torch

from benchmarks.worker import arms, bound, clocks, guards
from benchmarks.worker.arms import _marks, _words
from benchmarks.worker.guards import WORDS
from kernels.spec import Case, Cost, Kernel, Place, Tolerance
from tests.benchmarks.worker.test_clocks import Device, Event, device  # noqa: F401  (a fixture)


def test_flushes_that_take_less_time_than_they_can_are_told():
    fast, usual_s = [1e-6] * guards.FEWEST, 1e-3
    assert guards.unflushed(fast, usual_s).startswith("the caches are not flushed between calls: a flush takes 1 us")
    for flushes_s, usual in ((fast, 0.0), (fast[1:], usual_s), ([usual_s] * guards.FEWEST, usual_s)):
        assert guards.unflushed(flushes_s, usual) == ""


class Root:
    def inherited(self):
        return 1


class Leaf(Root):
    def own(self):
        return 2


class Elsewhere(Root):
    pass


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(bound, "_WATCHED", ((Leaf, "Leaf", ("own", "inherited")),))
    return bound.Originals()


def other(self):
    return 3


def test_nothing_is_replaced_as_long_as_nobody_does(watched):
    assert watched.replaced() == []


@pytest.mark.parametrize("owner", [Leaf, Root])
@pytest.mark.parametrize("attribute", ["own", "inherited"])
def test_a_name_is_seen_wherever_it_is_put(watched, monkeypatch, owner, attribute):
    hidden = owner is Root and attribute == "own"
    monkeypatch.setattr(owner, attribute, other, raising=False)
    assert watched.replaced() == ([] if hidden else [f"Leaf.{attribute}"])


def test_another_body_is_seen(watched, monkeypatch):
    monkeypatch.setattr(Leaf.own, "__code__", other.__code__)
    assert watched.replaced() == ["Leaf.own"]


def test_other_bases_are_seen(watched):
    Leaf.__bases__ = (Elsewhere,)
    try:
        assert watched.replaced() == ["the bases of Leaf"]
    finally:
        Leaf.__bases__ = (Root,)


# By which a changed input is found.


BYTES = torch.arange(48, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [
        (BYTES, torch.int64),
        (BYTES[4:], torch.int32),
        (BYTES[2:], torch.int16),
        (BYTES[1:], torch.uint8),
        (BYTES.view(torch.float16).reshape(4, 6).T, torch.int64),
        (BYTES.view(torch.float8_e4m3fn)[:47], torch.uint8),
        (torch.zeros(0, dtype=torch.float16), torch.int64),
        (torch.tensor(1.5), torch.int32),
    ],
)
def test_bits_are_read_as_words_as_wide_as_they_can_be(tensor, kind):
    words = _words(tensor)
    assert words.dtype is kind
    assert words.nbytes == tensor.nbytes
    assert WORDS[words.element_size()] is kind


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.int64])
def test_one_changed_bit_is_seen_and_by_its_copy_and_name(dtype):
    copies = [{"x": torch.zeros(6, dtype=dtype), "y": torch.ones(3, dtype=dtype)} for _ in range(2)]
    before = _marks([*copies, None])
    assert _marks([*copies, None]) == before
    copies[1]["y"].view(torch.uint8)[-1] ^= 1
    after = _marks([*copies, None])
    assert [(copy, name) for copy in range(2) for name in "xy" if before[copy][name] != after[copy][name]] == [(1, "y")]
    assert after[2] == {}


def test_a_comparison_that_changes_is_seen_on_two_tensors_that_did_not(monkeypatch):
    pair = guards.KnownPair(arms.harness_numerics(), "cpu")
    assert pair.disturbed() == ""
    monkeypatch.setattr(torch.linalg, "vector_norm", lambda tensor, dtype: torch.zeros((), dtype=dtype))
    assert pair.disturbed() == guards.COMPARED_OTHERWISE


# What needs a GPU, on a stand-in: streams, events and graphs; clocks that disagree; flushes that do nothing; memory
# that two processes have open.


toy = Kernel("toy", cases=[Case("c", tier="pr", dtype="fp32", n=64)], tolerance=Tolerance(), live=("x",))
toy.inputs(lambda case, seed: {"x": torch.randn(case.n)})
toy.cost(lambda case: Cost())
toy.reference(lambda case, inputs: inputs["x"] * 2)


class Stream:
    """Work in it is done when somebody waits for it: it lags behind the current stream, whose work is done at once."""

    def __init__(self):
        self.waiting = []

    def do(self):
        while self.waiting:
            self.waiting.pop(0)()


SIDE = Stream()


def on_the_side(joined):
    def build(case, inputs):
        out = torch.empty_like(inputs["x"])

        def call():
            SIDE.waiting.append(lambda: torch.mul(inputs["x"], 2, out=out))
            if joined(out):
                SIDE.do()
            return out

        return call

    return build


toy.backend("never_joined")(on_the_side(lambda out: bool(torch.isnan(out[0]))))
toy.backend("joined")(on_the_side(lambda out: True))


PUT_OFF = []


@toy.backend("puts_off")
def puts_off(case, inputs):
    """Works when nobody waits for it any more."""
    out = torch.empty_like(inputs["x"])

    def call():
        PUT_OFF.append(lambda: torch.mul(inputs["x"], 2, out=out))
        return out

    return call


@pytest.mark.parametrize("kind", ["outputs", "inputs"])
def test_what_is_done_while_it_is_compared_was_late(bench, kind, monkeypatch):
    bench.build("puts_off", "puts_off", {})
    bench.call("puts_off")
    PUT_OFF.pop()()
    compare_all = bench.numerics.compare_all

    def comparing(pairs, tolerance):
        results = compare_all(pairs, tolerance)
        while PUT_OFF:
            PUT_OFF.pop()()
        return results

    monkeypatch.setattr(bench.numerics, "compare_all", comparing)
    found = bench.samples(["puts_off"], False, {"kind": kind, "secret": 11})["spot"]
    assert found["late"]
    assert found["why"], "its output was not there when it was compared"


CALLED = []


@toy.backend("rests")
def rests(case, inputs):
    """Leaves the output of the third copy as it is from its third call on, when it has been checked."""
    out, mine = torch.empty_like(inputs["x"]), len(CALLED)
    CALLED.append(0)

    def call():
        CALLED[mine] += 1
        return out if mine == 2 and CALLED[mine] > 2 else torch.mul(inputs["x"], 2, out=out)

    return call


@pytest.fixture
def bench(device, monkeypatch, request):  # noqa: F811
    """A case whose clock is that of a simulated device, which has a side stream."""
    waiting = device.synchronize

    def synchronize(*given):
        SIDE.do()
        waiting()

    monkeypatch.setattr(bound, "synchronize", synchronize)
    with contextlib.suppress(IndexError):
        SIDE.waiting.clear()
    clock = clocks.DeviceClock(torch.device("cpu"), 64, None)
    made = arms.CaseBench(
        toy, toy.case("c").at(Place()), 0, getattr(request, "param", 1), clock, arms.harness_numerics(), secret=5
    )
    made.make_reference()
    return made


def spotted(bench, name, kind):
    """What a spot check finds of a backend that passed its check."""
    bench.build(name, name, {})
    bench.call(name)
    bench.poison(name)
    bench.check(name)
    return bench.samples([name] * 3, False, {"kind": kind, "secret": 11})["spot"]


@pytest.mark.parametrize("kind", ["outputs", "inputs"])
def test_a_side_stream_that_nobody_waits_for_is_late(bench, kind):
    found = spotted(bench, "never_joined", kind)
    assert found["late"]
    assert found["why"] == "", "once the device is idle the output is right: only the order of the streams tells"


@pytest.mark.parametrize("kind", ["outputs", "inputs"])
def test_a_side_stream_that_is_joined_is_in_time(bench, kind):
    found = spotted(bench, "joined", kind)
    assert not any(found[what] for what in ("late", "left", "stale", "why", "misshapen"))
    assert bench.values.held == [0], "the inputs have their values back"
    bench.check("joined")


def launches(device, count):  # noqa: F811
    return [clocks.Timed(lambda: device.enqueue("call", 100.0))] * count


def test_events_that_say_half_are_seen_by_the_host_s_clock(device, monkeypatch):  # noqa: F811
    monkeypatch.setattr(bound, "elapsed_time", lambda start, end: Event.elapsed_time(start, end) / 2)
    clock = clocks.DeviceClock(torch.device("cpu"), 64, None)
    clock.run(launches(device, 5 * clocks.QUEUE_DEPTH))
    said = clock.disturbed()
    assert "(5 of 5 spans): the time of this process cannot be trusted" in said
    assert clock.disturbed() == "", "said once"


def test_a_host_that_notices_late_in_few_spans_is_no_disagreement():
    good, late = (10e-3, 10.1e-3), (10e-3, 30e-3)
    assert guards.disagreement([good, good, late, late]) == ""
    assert guards.disagreement([late, late, late]) == "", "too few to say"
    assert "(3 of 4 spans)" in guards.disagreement([good, late, late, late])
    assert guards.disagreement([(1e-3, 1.9e-3)] * 9) == "", "short spans are mostly ends"


def test_a_flush_that_reads_nothing_is_seen(device, monkeypatch):  # noqa: F811
    clock = clocks.DeviceClock(torch.device("cpu"), 64, None)
    monkeypatch.setattr(bound, "total", lambda *_, **__: device.enqueue("nothing", 1.0))
    clock.run(launches(device, 20))
    assert clock.disturbed().startswith("the caches are not flushed between calls: a flush takes ")


@pytest.mark.parametrize("make", [lambda: clocks.HostClock(1 << 16, None)])
def test_a_buffer_that_was_shrunk_flushes_nothing(make):
    clock = make()
    assert clock.disturbed() == ""
    clock._flush.resize_(1)
    assert clock.disturbed() == clocks.FLUSH_CHANGED


def test_copies_of_inputs_are_made_by_copying_where_they_are_whole_plain_tensors():
    given, one = {"x": torch.arange(4.0), "w": torch.ones(2, 3)}, torch.ones(4)
    copied = arms._copied(given)
    assert all(torch.equal(copied[name], given[name]) for name in given)
    assert {copied[name].data_ptr() for name in given}.isdisjoint(given[name].data_ptr() for name in given)
    for other in (
        {"x": one[:2]},
        {"x": one, "y": one},
        {"x": 1},
        [one],
        {"x": torch.ones(2, 3).T},
        {"x": torch.nn.Parameter(one)},
    ):
        assert arms._copied(other) is None, other


@pytest.mark.parametrize("bench", [3], indirect=True)
def test_samples_take_the_copies_of_the_inputs_in_turn_and_a_spot_check_any_of_them(bench):
    CALLED.clear()
    bench.build("rests", "rests", {})
    bench.call("rests")
    bench.poison("rests")
    bench.check("rests")
    bench.samples(["rests"] * 6, False)
    assert CALLED == [4, 4, 4], "two calls that were checked, and two samples"
    spots = [{"kind": kind, "secret": secret} for secret in range(8) for kind in ("outputs", "inputs")]
    found = [bench.samples(["rests"], False, spot)["spot"] for spot in spots]
    of_the_third = sum(CALLED) - 12 - sum(one["why"] == "" for one in found)
    assert 0 < of_the_third == CALLED[2] - 4 < 16, "what is not computed is found, whichever copy it is"
