"""Grouped GEMM: routing, the Triton kernels in the interpreter, and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import grouped_gemm
from kernels.grouped_gemm import autotune, cases, config, routing, vendors
from kernels.numerics import compare
from kernels.spec import TUNES, Case, Place, Tolerance, Unsupported
from tests.kernels.ranks import run_alone

KERNELS = {
    "forward": grouped_gemm.grouped_gemm_forward,
    "dgrad": grouped_gemm.grouped_gemm_dgrad,
    "wgrad": grouped_gemm.grouped_gemm_wgrad,
}
CPU = Place()


# ---- routing -------------------------------------------------------------------------------------------------------


@given(name=st.sampled_from(routing.ROUTINGS), groups=st.integers(1, 64), mean=st.integers(0, 5000))
def test_every_routing_hands_out_every_token(name, groups, mean):
    counts = routing.lens(name, groups, mean)
    assert len(counts) == groups
    assert min(counts) >= 0
    assert sum(counts) == groups * mean
    assert routing.ends(counts)[-1] == groups * mean
    assert counts == routing.lens(name, groups, mean)


@pytest.mark.parametrize(("groups", "mean"), [(4, cases.MEANS[0]), (32, cases.MEANS[-1])])
def test_routings_are_as_skewed_as_they_say(groups, mean):
    assert set(routing.lens("balanced", groups, mean)) == {mean}
    mild = routing.lens("mild", groups, mean)
    assert max(mild) / mean == pytest.approx(2.0, abs=0.05)
    assert min(mild) > 0
    extreme = routing.lens("extreme", groups, mean)
    assert max(extreme) == groups * mean // 2
    assert extreme.count(0) == groups // 4


def test_an_unknown_routing_is_named():
    with pytest.raises(ValueError, match="'wild' is not one of balanced, mild, extreme"):
        routing.lens("wild", 4, 8)


# ---- against the reference, in the interpreter ---------------------------------------------------------------------

EXACT = Tolerance()


def whole(shape, seed):
    """Small whole numbers: any order of summation gives the same fp32 and fp16 result."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, tuple(shape), generator=generator).to(torch.float16)


def operands(counts, n, k):
    rows = sum(counts)
    ends = torch.tensor(routing.ends(counts), dtype=torch.int32)
    return {"a": whole((rows, k), 1), "b": whole((len(counts), n, k), 2), "dy": whole((rows, n), 3), "ends": ends}


ROWS = ("forward", "dgrad")
"""The products of rows: `split` is a knob of theirs, `queue` of the third alone."""


def check_products(counts, n, k, products=(*ROWS, "wgrad"), **knobs):
    """Run the products in this process's interpreter and demand the bits of the reference."""
    x = operands(counts, n, k)
    case = Case("t", dtype="fp16", G=len(counts), M=0, N=n, K=k).at(CPU)
    for name in products:
        kernel, other = KERNELS[name], "split" if name == "wgrad" else "queue"
        chosen = {**config.candidates(case, "cpu", name)[0], **{k: v for k, v in knobs.items() if k != other}}
        call = kernel.backends["triton"].build(case, x, **chosen)
        expected = kernel.function("reference")(case, x).half()
        for _ in range(2):  # flags and queues are not set back by hand
            call().fill_(float("nan"))
            verdict = compare(call() + 0, expected + 0, EXACT)  # so that -0 counts as 0
            assert verdict.ok, (name, counts, chosen, verdict.why)


def interpreted_tails():
    counts = (37, 0, 100, 1, 64)
    for tma in (False, True):
        check_products(counts, 72, 88, tma=tma)
    check_products(counts, 72, 88, products=["wgrad"], queue=True)
    check_products(counts, 72, 88, products=ROWS, tma=True, split=4)
    check_products((50, 30), 80, 40, block_m=32, block_n=32, block_k=64, group_m=1, tma=True)
    check_products((70, 66, 5, 0, 64), 200, 64, tma=True, block_n=128, groups_per_cu=2)


def interpreted_sharing():
    """The last round of tiles cut in 2 to 5 pieces, also unequal ones, by programs of which some have none."""
    for split, products in ((2, ROWS), (3, ROWS), (5, (*ROWS, "wgrad"))):
        check_products((96, 0, 33), 64, 104, products, block_k=16, tma=True, split=split, groups_per_cu=split * 2 + 1)
    check_products((200, 56), 64, 96, ROWS, block_m=32, block_n=32, block_k=16, tma=True, split=4, groups_per_cu=5)


def interpreted_edges():
    check_products((96,), 64, 64)  # one expert
    check_products((0, 0, 65), 48, 32, tma=True)  # the first experts are empty
    check_products((33, 0), 32, 48, queue=True)  # the last is
    check_products((0, 0), 32, 32)  # all are
    check_products((3,) * 40, 16, 16, block_m=16, block_n=16, block_k=16, tma=True)  # more than 32 experts


def interpreted_strides():
    """Operands that are windows of wider tensors, with a row length that no descriptor can have."""
    x = operands((40, 25), 48, 72)
    case = Case("t", dtype="fp16", G=2, M=0, N=48, K=72).at(CPU)
    wide = x | {name: torch.nn.functional.pad(x[name], (3, 4))[..., 3:-4] for name in ("a", "b", "dy")}
    assert wide["a"].stride(0) == 79
    for name, kernel in KERNELS.items():
        knobs = {**config.candidates(case, "cpu", name)[0], "tma": True, "split": 1 if name == "wgrad" else 2}
        got = kernel.backends["triton"].build(case, wide, **knobs)()
        assert compare(got + 0, kernel.function("reference")(case, x).half() + 0, EXACT).ok


def interpreted_neighbours():
    """What another group's rows hold is no group's business, not even where a block reaches into them."""
    x = operands((40, 25, 0, 30), 48, 72)
    case = Case("t", dtype="fp16", G=4, M=0, N=48, K=72).at(CPU)
    spoilt = x | {name: x[name].clone() for name in ("a", "dy")}
    for name in ("a", "dy"):
        spoilt[name][40:65] = float("nan")
    for name, kernel in KERNELS.items():
        clean = kernel.function("reference")(case, x).half()
        for tma in (False, True):
            knobs = {**config.candidates(case, "cpu", name)[0], "tma": tma}
            got = kernel.backends["triton"].build(case, spoilt, **knobs)()
            rest = [0, 2, 3] if name == "wgrad" else [*range(40), *range(65, 95)]
            assert compare(got[rest] + 0, clean[rest] + 0, EXACT).ok, (name, tma)
            assert not compare(got + 0, clean + 0, EXACT).ok


@pytest.mark.nightly
@pytest.mark.parametrize(
    "function",
    ["interpreted_tails", "interpreted_sharing", "interpreted_edges", "interpreted_strides", "interpreted_neighbours"],
)
def test_triton_gives_the_bits_of_the_reference(function):
    run_alone("tests.kernels.test_grouped_gemm", function, TRITON_INTERPRET="1")


def interpreted_fault():
    """A kernel that reads one row too far must be seen: the last row of each group moves to the next group."""
    x = operands((40, 24), 32, 32)
    case = Case("t", dtype="fp16", G=2, M=0, N=32, K=32).at(CPU)
    for kernel in KERNELS.values():
        shifted = {**x, "ends": torch.tensor([39, 64], dtype=torch.int32)}
        got = kernel.backends["triton"].build(case, shifted, **config.candidates(case, "cpu")[0])()
        assert not compare(got + 0, kernel.function("reference")(case, x).half() + 0, EXACT).ok


@pytest.mark.slow
def test_a_row_given_to_the_wrong_expert_is_seen():
    run_alone("tests.kernels.test_grouped_gemm", "interpreted_fault", TRITON_INTERPRET="1")


# ---- the other backends --------------------------------------------------------------------------------------------


@pytest.fixture(params=sorted(KERNELS))
def tiny(request):
    kernel = KERNELS[request.param]
    case = kernel.case("tiny_extreme").at(CPU)
    return kernel, case, kernel.function("inputs")(case, 0)


class Stream:
    """Takes the place of a stream of a GPU; order: what all of them were told, by name."""

    order: list[tuple[str, str]] = []

    def __init__(self, name):
        self.name = str(name)

    def wait_stream(self, other):
        self.order.append((self.name, other.name))


@pytest.fixture
def streams(monkeypatch):
    """Streams of a GPU that work at once."""
    names = itertools.count()
    monkeypatch.setattr(Stream, "order", [])
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(next(names)))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("main"))
    monkeypatch.setattr(
        torch.cuda, "stream", lambda stream: contextlib.nullcontext(Stream.order.append(("on", stream.name)))
    )
    return Stream.order


def test_a_loop_on_streams_is_the_loop_between_two_meetings(tiny, streams):
    kernel, case, x = tiny
    case = case.at(Place(arch="sm_90"))
    call = kernel.backends["loop"].build(case, x, streams=3)
    call().fill_(float("nan"))
    assert torch.equal(call(), kernel.backends["loop"].build(case, x)())
    filled = sum(rows.stop > rows.start for rows in vendors.host_slices(case))
    half = len(streams) // 2
    assert streams[:half] == streams[half:]
    assert streams[:3] == [("0", "main"), ("1", "main"), ("2", "main")]
    assert streams[3:-3][: half - 6] == [("on", str(i % 3)) for i in range(filled)]
    assert streams[half - 3 : half] == [("main", "0"), ("main", "1"), ("main", "2")]


def test_the_knob_streams_is_no_part_of_the_definition(tiny):
    kernel, case, x = tiny
    given, digest = kernel.backends["loop"], kernel.definition_digest()
    assert given.knobs(case, "sm_90") == {}
    assert given.knobs(case, "sm_90", {"streams": 4}) == {"streams": 4}
    with pytest.raises(Unsupported, match="a loop on 2 streams needs a GPU"):
        given.build(case, x, streams=2)
    with pytest.raises(ValueError, match="streams 0: at least 1"):
        given.build(case, x, streams=0)
    kernel.backends["loop"] = dataclasses.replace(given, build=vendors.loop)
    assert kernel.definition_digest() == digest
    kernel.backends["loop"] = given


def tuned(kernel, case, x):
    call = autotune.best(kernel, case, x)
    assert call.choice == ""
    getattr(call, TUNES)()
    return call


def test_autotune_that_nobody_tuned_does_so_at_its_first_call(tiny):
    kernel, case, x = tiny
    call = autotune.best(kernel, case, x)
    assert compare(call(), kernel.function("reference")(case, x), kernel.tolerance_for(case)).ok
    assert call.choice
    assert (call() is call()) is not call.functional, "either one output for all calls or, where marked, one for each"


def test_autotune_names_its_choice_and_skips_what_is_wrong(tiny, monkeypatch):
    kernel, case, x = tiny
    right = vendors.loop(kernel.name.rsplit("_", 1)[1], case, x)
    wrong = torch.zeros_like(right())
    monkeypatch.setattr(autotune, "_calls", lambda *_: iter([("fast but wrong", lambda: wrong), ("loop", right)]))
    monkeypatch.setattr(autotune, "_on_host", lambda call: 1.0 if call is right else 0.5)
    assert tuned(kernel, case, x).choice == "loop"
    monkeypatch.setattr(autotune, "_calls", lambda *_: iter([("fast but wrong", lambda: wrong)]))
    with pytest.raises(Unsupported, match="correctly here; tried: fast but wrong"):
        autotune.best(kernel, case, x)


def test_autotune_spends_its_rounds_on_calls_that_may_be_the_fastest(tiny, monkeypatch):
    kernel, case, x = tiny
    right = vendors.loop(kernel.name.rsplit("_", 1)[1], case, x)
    calls = {name: (lambda: right()) for name in ("slow", "near", "fast")}
    times, rounds = {"slow": 1.2, "near": 1.05, "fast": 1.0}, Counter()

    def on_host(call):
        name = next(name for name, one in calls.items() if one is call)
        rounds[name] += 1
        return times[name]

    monkeypatch.setattr(autotune, "_calls", lambda *_: iter(calls.items()))
    monkeypatch.setattr(autotune, "_on_host", on_host)
    assert tuned(kernel, case, x).choice == "fast"
    assert rounds == {"slow": autotune.FIRST_ROUNDS, "near": autotune.ROUNDS, "fast": autotune.ROUNDS}


# ---- bad input -----------------------------------------------------------------------------------------------------


def refuse(message, change=None, product="forward", **knobs):
    case = Case("t", dtype="fp16", G=2, M=0, N=32, K=32).at(Place(device="cuda:0", arch="sm_90", compute_units=132))
    x = {**operands((10, 20), 32, 32), **(change or {})}
    knobs = {**config.candidates(case, "sm_90", product)[0], **knobs}
    with pytest.raises(ValueError, match=message):
        KERNELS[product].backends["triton"].build(case, x, **knobs)


def test_what_does_not_fit_is_named_before_a_launch():
    refuse("a is .30, 32. and b .2, 32, 33.: dimension 1 of a must equal", {"b": whole((2, 32, 33), 0)})
    refuse("30 rows of the left operand; it ends at 31", {"ends": torch.tensor([10, 31], dtype=torch.int32)})
    refuse("falls by 5", {"ends": torch.tensor([35, 30], dtype=torch.int32)})
    refuse("ends is torch.int64", {"ends": torch.tensor([10, 30])})
    refuse("stride 2 in its last dimension", {"a": whole((30, 64), 0)[:, ::2]})
    refuse("block_k is 48; it must be a power of two", block_k=48)
    refuse("split is 4; .* without tma .this is forward with tma False", tma=False)
    refuse(
        "queue is True; .* by wgrad without tma only .this is dgrad with tma False",
        product="dgrad",
        tma=False,
        split=1,
        queue=True,
    )
    refuse("needs 254464 bytes of shared memory; sm_90 has 232448", num_stages=5)
    refuse("block_n is 64; with roles it must be 128 or 192 or 256", block_n=64)
