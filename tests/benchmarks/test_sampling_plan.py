"""What is measured where, how, and the sentences about the rest."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import plan
from benchmarks.plan import PlannedArm, Selection, UsageError
from kernels.spec import Cost

CPU = {
    "kind": "cpu",
    "arch": "cpu",
    "device": "CPU",
    "count": 1,
    "compute_units": None,
    "chip_id": None,
    "memory_bytes": 16 << 30,
    "cpu_count": 4,
}
H200 = {
    "kind": "gpu",
    "arch": "sm_90",
    "device": "NVIDIA H200",
    "count": 2,
    "compute_units": 132,
    "chip_id": "2335",
    "memory_bytes": 150_754_820_096,
    "cpu_count": 16,
}
STRANGE = {**H200, "arch": "sm_999", "device": "NVIDIA X1", "chip_id": "ffff"}


def declaration(*cases, backends=("ours", "library"), cost=None):
    described = [{"name": f"c{i}", "tier": "pr", "world": 1, "dtype": "fp16", **case} for i, case in enumerate(cases)]
    numbers = dataclasses.asdict(cost or Cost(10**6, 10**6, 10**6, 10**6))
    return {
        "kernel": "toy",
        "cases": described,
        "backends": list(backends),
        "knobs": dict.fromkeys(backends, []),
        "costs": {case["name"]: numbers for case in described},
        "cost_errors": {},
        "method": None,
    }


def planned(machine, *cases, selection=None, **more):
    return plan.plan_kernel({"head": declaration(*cases, **more)}, machine, selection or Selection(), "cold")


@pytest.mark.parametrize(("tier", "names"), [("pr", ["c0"]), ("nightly", ["c0", "c1"]), ("sweep", ["c0", "c1", "c2"])])
def test_a_tier_includes_the_quicker_ones(tier, names):
    cases = planned(CPU, {"tier": "pr"}, {"tier": "nightly"}, {"tier": "sweep"}, selection=Selection(tier=tier))
    assert [case.name for case in cases] == names


@pytest.mark.parametrize(
    ("machine", "worlds"),
    [
        (CPU | {"cpu_count": 64}, [1, 2, 4]),
        (H200 | {"count": 1}, [1, 2, 4]),
        (H200, [1, 2, 4]),
        (H200 | {"count": 4}, [1, 2, 4]),
        (H200 | {"count": 8}, [1, 2, 8]),
    ],
)
def test_the_pr_tier_has_the_worlds_that_the_machine_is_used_with(machine, worlds):
    every = [{"world": world} for world in (1, 2, 4, 8)]
    assert [case.world for case in planned(machine, *every)] == worlds
    assert [case.world for case in planned(machine, *every, selection=Selection("nightly"))] == [1, 2, 4, 8]


def test_patterns_choose_cases_by_name_or_with_the_kernel():
    chosen = planned(CPU, {}, {}, selection=Selection(cases=("toy/c1",)))
    assert [case.name for case in chosen] == ["c1"]


def test_an_arm_is_a_tree_and_a_backend_and_only_what_a_tree_declares():
    both = {"head": declaration({}, {}), "base": declaration({}, backends=("ours",))}
    first, second = plan.plan_kernel(both, CPU, Selection(), "cold")
    assert [arm.key for arm in first.arms] == ["head/ours", "head/library", "base/ours"]
    assert [arm.key for arm in second.arms] == ["head/ours", "head/library"]


@pytest.mark.parametrize(
    ("cost", "machine", "asked", "method"),
    [
        (Cost(hbm_bytes=10**6), CPU, None, "clock"),
        (Cost(hbm_bytes=200 * 10**6), H200, None, "graph"),  # 200 MB / 4.8 TB/s = 42 us
        (Cost(hbm_bytes=300 * 10**6), H200, None, "events"),  # 62 us
        (Cost(flops=45 * 10**9), H200, None, "graph"),  # 45 GFLOP / 989 TFLOP/s = 45 us
        (Cost(link_bytes=30 * 10**6), H200, None, "events"),  # 30 MB / 450 GB/s = 67 us
        (Cost(hbm_bytes=10**6), H200, "events", "events"),
        (Cost(hbm_bytes=10**6), STRANGE, None, "graph"),
        (Cost(flops=10**12), STRANGE, None, "events"),
    ],
)
def test_declared_cost_and_hardware_choose_the_method(cost, machine, asked, method):
    assert plan.choose_method(cost, "fp16", 2, machine, asked) == method


@pytest.mark.parametrize(
    ("machine", "case", "cost", "why"),
    [
        (H200, {"world": 4}, Cost(), "needs 4 GPUs, this machine has 2"),
        (H200, {"world": 2}, Cost(), ""),
        (CPU, {"world": 8}, Cost(), "needs 8 ranks, this machine has 4 CPU cores"),
        (CPU, {}, Cost(flops=3 * 10**10), "too large for a CPU"),
        (CPU, {}, Cost(hbm_bytes=2 * 10**9), "too large for a CPU: over"),
        (CPU, {}, Cost(flops=int(plan.CPU_FLOPS), hbm_bytes=int(plan.CPU_BYTES)), ""),
        (H200, {}, Cost(hbm_bytes=50 * 10**9), "needs about 300.0 GB of memory, this device has 150.8 GB"),
    ],
)
def test_what_cannot_be_measured_says_why(machine, case, cost, why):
    [found] = planned(machine, case, cost=cost, selection=Selection("nightly"))
    assert why in found.skip
    assert bool(found.skip) == bool(why)


@pytest.mark.parametrize(("moved", "copies"), [(10**6, plan.GRAPH_CALLS), (10**8, 6), (2 * 10**8, 3)])
def test_a_graph_goes_round_enough_buffers_that_none_is_still_cached(moved, copies):
    [short] = planned(H200, {}, cost=Cost(hbm_bytes=moved))
    assert (short.method, short.copies, short.calls) == ("graph", copies, plan.GRAPH_CALLS)
    assert moved * copies >= plan.COLD_BYTES or copies == plan.GRAPH_CALLS


@pytest.mark.parametrize(
    ("cost", "world", "cache", "copies"),
    [
        (Cost(hbm_bytes=10**9), 1, "cold", plan.PLACES),
        (Cost(hbm_bytes=10**9, flops=10**12), 1, "cold", 1),  # its matrix units are what it waits for
        (Cost(hbm_bytes=10**9), 1, "hot", 1),
        (Cost(hbm_bytes=10**9), 2, "cold", 1),
        (Cost(hbm_bytes=10**10), 1, "cold", 1),  # no room for more
    ],
)
def test_a_long_call_that_waits_for_memory_is_timed_on_buffers_in_several_places(cost, world, cache, copies):
    both = {
        role: {**declaration({"world": world}), "costs": {"c0": dataclasses.asdict(cost)}} for role in ("head", "base")
    }
    [case] = plan.plan_kernel(both, H200, Selection(), cache)
    assert (case.method, case.copies, case.calls) == ("events", copies, 1)


def test_a_failing_cost_is_an_error_of_its_arms():
    broken = {**declaration({}), "costs": {}, "cost_errors": {"c0": "cost: ValueError: no"}}
    [case] = plan.plan_kernel({"head": broken}, CPU, Selection(), "cold")
    assert case.errors == {"head/ours": "cost: ValueError: no", "head/library": "cost: ValueError: no"}


def test_a_name_that_means_two_world_sizes_is_an_error_of_one_tree():
    both = {"head": declaration({"world": 2}), "base": declaration({"world": 4})}
    [case] = plan.plan_kernel(both, H200, Selection(), "cold")
    assert case.world == 2
    assert set(case.errors) == {"base/ours", "base/library"}
    assert "declares c0 for 4 ranks, the other for 2" in case.errors["base/ours"]


def test_knobs_go_to_the_backends_that_have_them():
    one = declaration({})
    one["knobs"] = {"ours": ["tile"], "library": []}
    [case] = plan.plan_kernel({"head": one}, CPU, Selection(knobs={"tile": 8}), "cold")
    assert [dict(arm.overrides) for arm in case.arms] == [{"tile": 8}, {}]


def test_heaps_of_all_trees_and_ranks_fit_into_the_memory():
    arms = (PlannedArm("head", "a"), PlannedArm("head", "b"), PlannedArm("base", "a"))
    cost = Cost(payload_bytes=512 << 20)
    assert plan.heap_bytes(cost, 1, 2, arms, H200) == plan.HEAP_SLACK_BYTES + 3 * (512 << 20)
    assert plan.heap_bytes(cost, 1, 4, arms, CPU) * 4 * 2 <= plan.HEAP_SHARE * CPU["memory_bytes"]


def test_the_flush_is_more_than_twice_the_caches():
    assert plan.flush_bytes(CPU, [], 32 << 20) > 2 * (32 << 20)
    assert plan.flush_bytes(H200, [{"l2_bytes": 50 << 20}], 0) > 2 * (60 << 20)
    mi300x = {
        **H200,
        "arch": "gfx942",
        "device": "AMD Instinct MI300X",
        "compute_units": 304,
        "chip_id": "74a1",
        "memory_bytes": 192 << 30,
    }
    assert plan.flush_bytes(mi300x, [{"l2_bytes": 4 << 20}], 0) > 2 * (288 << 20)
    assert plan.flush_bytes(STRANGE, [{"l2_bytes": None}], 0) > 2 * (288 << 20)


def test_kernels_and_tiers_that_do_not_exist():
    with pytest.raises(UsageError, match="no kernel 'b'; known: a"):
        plan.choose_kernels(["b"], [{"a": {}}], [])
    assert plan.choose_kernels(["b"], [{"a": {}}], ["broken.module"]) == ["b"]
    assert plan.choose_kernels([], [{"b": {}}, {"a": {}}], []) == ["a", "b"]
    with pytest.raises(UsageError, match="tier 'daily' is not one of pr, nightly, sweep"):
        plan.tiers_of("daily")


def test_a_case_of_another_tier_is_named_with_the_tier_that_has_it():
    declared = {"kernel": "k", "backends": ["b"], "knobs": {}, "cases": [{"name": "m", "tier": "nightly"}]}
    with pytest.raises(UsageError, match="no case of tier pr fits 'k/m'; with --tier nightly there is one"):
        plan.check_selection(plan.Selection("pr", ("k/m",)), [{"k": declared}], ["k"])
    plan.check_selection(plan.Selection("nightly", ("k/m",)), [{"k": declared}], ["k"])
