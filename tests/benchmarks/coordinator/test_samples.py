"""Findings about rows of samples: seen where they are, silent where they are not."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.coordinator import samples
from benchmarks.coordinator.samples import CHANGED, CodesSeen
from kernels import hardware
from kernels.spec import Cost


def noisy(count, level=1e-3, spread=0.01, seed=0):
    draw = random.Random(seed)
    return [level * (1 + draw.gauss(0, spread)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_ordinary_noise_has_no_symptom(seed):
    assert samples.symptoms_of(noisy(40, seed=seed), first_call_s=2e-3) == []


def test_what_lies_between_the_ranks():
    facts = samples.ArmFacts(by_rank=[(1.0, 3.0), (2.0, 2.5), (1.5, 5.5)])
    assert facts.ranks() == {"skew_s": [2.0, 0.5, 4.0], "rank_s": [1.5, 3.0]}


def test_a_burst_is_starved_where_more_than_a_tenth_of_its_parts_were():
    facts = samples.ArmFacts()
    for share in (0.0, 0.1, 0.2, 1.0):
        facts.add_burst(samples.ArmBurst(("head", "triton"), (1.0, 3.0), share))
    assert (facts.starved, facts.seconds) == (2, [3.0] * 4)


def test_first_call_work():
    [found] = samples.symptoms_of(noisy(40), first_call_s=2.4)
    assert found == "first call ran 2404 times longer than the median: work that belongs to set-up"
    assert samples.symptoms_of(noisy(40, level=1e-5), first_call_s=0.16) == [], "loading a module is not a search"


def test_a_slow_first_sample():
    [found] = samples.symptoms_of([4e-3, *noisy(39)])
    assert "first timed sample ran 4.0 times longer" in found


def test_a_clock_that_cannot_resolve():
    assert "cannot resolve" in samples.symptoms_of([0.0] * 5)[0]


@given(st.lists(st.floats(min_value=1e-9, max_value=10), min_size=1, max_size=60))
def test_any_row_of_samples_can_be_looked_at(row):
    assert all(isinstance(finding, str) for finding in samples.symptoms_of(row, row[0]))


# An arm that runs other machine code than before is named; another knob, or no digest, is no change.


def looked(seen, kernel, **arms):
    """The warnings of a trial of one case."""
    entry = {"arms": arms, "warnings": []}
    seen.look(kernel, {"small": entry})
    return entry["warnings"]


def arm(code, **knobs):
    return {"status": "ok", "code_hash": code, "knobs": knobs}


def test_the_arm_whose_code_is_another_is_named():
    seen = CodesSeen()
    assert looked(seen, "gemm", head=arm("a"), base=arm("a")) == []
    assert looked(seen, "gemm", head=arm("b"), base=arm("a")) == [f"head: {CHANGED}"]


def test_other_knobs_another_operator_and_an_unknown_code_are_no_change():
    seen = CodesSeen()
    for kernel, one in (("gemm", arm("a", warps=4)), ("gemm", arm("b", warps=8)), ("other", arm("c", warps=4))):
        assert looked(seen, kernel, head=one) == []
    assert looked(seen, "gemm", head=arm(None, warps=4), base={"status": "error"}) == []


# The least time of a call: what beats it is refused with both numbers, and nothing that was recorded does.


H100, MI300X = hardware.by_market_name("H100 SXM"), hardware.by_market_name("MI300X")


def test_the_issue_s_331_terabytes_per_second_are_refused_with_both_numbers():
    found = samples.physical_floor(Cost(flops=1 << 27, hbm_bytes=512 << 20), "fp32", 1, H100)
    assert found.broken_by([1.6e-6] * 40) == (
        "impossible time: 1.6 us per call, but 484.4 MB beyond the caches of an H100 SXM take at "
        "least 145 us: the timed span does not hold the whole work"
    )
    assert found.broken_by([180e-6] * 40) == ""


@pytest.mark.parametrize(
    ("cost", "dtype", "world", "seconds"),
    [
        (Cost(hbm_bytes=40 << 20), "fp16", 1, (40 << 20) / 33.5e12),  # fits in L2: caches may be fast
        (Cost(flops=10**12), "fp16", 1, 1e12 / 989.4e12),
        (Cost(flops=10**12), "fp32", 1, 1e12 / 66.9e12),  # not with TF32
        (Cost(flops=10**12), "mxfp4", 1, 1e12 / 1978.9e12),  # may be computed in fp8
        (Cost(link_bytes=10**9), "fp16", 8, 1e9 / 900e9),  # a switch may add
        (Cost(link_bytes=10**9), "fp16", 1, 0.0),
    ],
)
def test_what_bounds_a_call(cost, dtype, world, seconds):
    assert samples.physical_floor(cost, dtype, world, H100).seconds == pytest.approx(seconds)


def test_nothing_is_known_of_a_cpu_or_of_an_unknown_device():
    declared = {"cases": [{"name": "c", "dtype": "fp32", "world": 1}], "costs": {"c": {"hbm_bytes": 10**12}}}
    nothing = dict.fromkeys(("device", "arch", "compute_units", "chip_id", "memory_bytes"))
    for kind in ("cpu", "gpu"):
        assert samples.floor_of([declared], "c", {**nothing, "kind": kind}).broken_by([1e-9]) == ""
