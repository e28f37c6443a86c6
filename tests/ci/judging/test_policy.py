import datetime

import pytest

from ci.judging import policy
from ci.judging.policy import PolicyError, load, parse

GOOD = {"reason": "because", "date": datetime.date(2026, 11, 20)}


def test_the_shipped_policy_is_sound_and_gives_a_reason_for_every_section():
    shipped = load()
    assert shipped.settings() == policy.Settings()
    assert shipped.settings("gemm", "cpu").smallest_effect > shipped.settings("gemm", "gpu").smallest_effect
    assert [r.share for r in shipped.floor_rules("all_gather", "triton", "all_gather/triton/small")] == [0.95]
    assert all(rule.reason and rule.date for rule in shipped.floors)


def test_sections_override_in_order_machine_kernel():
    made = parse(
        {
            "default": {**GOOD, "smallest_effect": 0.001},
            "machine": {"cpu": {**GOOD, "same_within": 0.2, "smallest_effect": 0.05}},
            "kernel": {"gemm": {**GOOD, "smallest_effect": 0.004, "confidence": 0.5}},
        }
    )
    assert made.settings("gemm").confidence == 0.5
    assert made.settings("copy").smallest_effect == 0.001
    assert made.settings("copy", "cpu").smallest_effect == 0.05
    assert made.settings("gemm", "cpu").smallest_effect == 0.004
    assert made.settings("gemm", "cpu").same_within == 0.2


@pytest.mark.parametrize(("seconds", "effect", "within"), [(10e-6, 0.05, 0.11), (10e-3, 0.003, 0.03)])
def test_ranks_are_held_to_what_a_barrier_leaves_between_two_sides(seconds, effect, within):
    settings = policy.Settings(smallest_effect=0.003, same_within=0.01).of_ranks(seconds)
    assert (settings.smallest_effect, settings.same_within) == pytest.approx((effect, within))


BAD = {
    "unknown section": ({"defaults": GOOD}, r"unknown key 'defaults'; known: default, machine, kernel, floor"),
    "unknown key": ({"default": {**GOOD, "treshold": 1}}, "default: unknown key 'treshold'; known: smallest"),
    "no reason": ({"default": {"date": GOOD["date"]}}, "reason is missing"),
    "bad date": ({"default": {**GOOD, "date": "yesterday"}}, 'date is "yesterday"; allowed: a day, such as 2026-11-20'),
    "percent": ({"default": {**GOOD, "smallest_effect": 3}}, "smallest_effect is 3; allowed: a share of the time, "),
    "no noise": ({"default": {**GOOD, "trial_noise": 0}}, "trial_noise is 0; allowed: a share of the time, 0 < value"),
    "two trials": ({"default": {**GOOD, "min_trials": 2}}, "min_trials is 2; allowed: a whole number from 3 "),
    "falling looks": ({"default": {**GOOD, "looks": [8, 4]}}, "looks is .* a rising list"),
    "unknown kind": ({"machine": {"tpu": GOOD}}, 'a key of machine is "tpu"; allowed: gpu, cpu'),
    "floors in one table": ({"floor": GOOD}, "floor is .*; allowed: a list"),
    "floor without share": ({"floor": [{**GOOD, "kernel": "a"}]}, r"floor\[0\].share is missing"),
    "crossed": ({"default": {**GOOD, "smallest_effect": 0.02}}, "smallest_effect 0.02 is above same_within 0.01"),
}


@pytest.mark.parametrize(("data", "says"), BAD.values(), ids=BAD)
def test_mistakes_are_errors_that_name_what_is_allowed(data, says):
    with pytest.raises(PolicyError, match=says):
        parse(data, "my.toml")


def test_file_faults(tmp_path):
    with pytest.raises(PolicyError, match=r"none\.toml: cannot be read"):
        load(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("default = [")
    with pytest.raises(PolicyError, match=r"bad\.toml: not TOML"):
        load(bad)


def test_floor_patterns():
    rule = policy.FloorRule(kernel="all_*", share=0.95, **GOOD, backend="triton", case="large_*")
    assert rule.applies("all_gather", "triton", "all_gather/triton/large_8")
    assert not rule.applies("all_gather", "gluon", "large_8")
    assert not rule.applies("gemm", "triton", "large_8")
    assert not rule.applies("all_gather", "triton", "small")
