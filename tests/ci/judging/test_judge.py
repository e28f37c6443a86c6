"""The verdict: on made trials with a known truth, and on recorded ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from ci.judging.judge import judge
from ci.judging.policy import FloorRule, Policy, load
from ci.judging.types import Verdict
from ci.stats import PairedRounds
from ci.stats.sequential import Progress
from ci.trials.comparisons import Comparison, Status
from tests.ci.judging import recorded_trials
from tests.kit import calls

POLICY = load()
DATA = Path(__file__).parents[2] / "recordings" / "h200"
GPUS = ("gpu0", "gpu1")


@pytest.fixture(scope="module", params=GPUS)
def recording(request):
    return recorded_trials.lock_step_trials(DATA / f"ab_trials_{request.param}.jsonl.gz")


def made(
    effect=0.0, trials=6, case="k/t/c", kernel="k", baseline=None, rounds=40, seed=0, scatter=0.002, noise=0.01, **more
):
    """A comparison of synthetic trials; baseline: effect on the baseline, None for no baseline."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(trials):
        start = scatter * rng.standard_normal()
        arms = [1e-4 * np.exp(noise * rng.standard_normal(rounds) + e) for e in (0, effect + start)]
        if baseline is not None:
            arms += [8e-5 * np.exp(noise * rng.standard_normal(rounds) + e) for e in (0, baseline)]
        rows.append(PairedRounds(number, *arms))
    name = "blas" if baseline is not None else None
    return Comparison(case, kernel, "t", tuple(rows), baseline=name, **more)


def one(comparison, policy=POLICY, progress=None):
    judgement = judge([comparison], policy, progress)
    return judgement.cases[0], judgement


@pytest.mark.parametrize(
    ("effect", "verdict", "code"), [(0.05, Verdict.SLOWER, 1), (-0.05, Verdict.FASTER, 0), (0.0, Verdict.SAME, 0)]
)
def test_verdicts_and_exit_codes(effect, verdict, code):
    case, judgement = one(made(effect))
    assert (case.verdict, judgement.verdict, judgement.verdict.exit_code) == (verdict, verdict, code)
    assert case.ci_low < np.exp(effect) < case.ci_high
    assert case.ratio == pytest.approx(np.exp(effect), abs=0.005)


def test_a_real_change_below_the_floor_is_same_and_says_so():
    case, _ = one(made(0.002, trials=12, scatter=0.0001, noise=0.001))
    assert case.verdict is Verdict.SAME
    assert any("below the smallest effect of 0.3%" in e for e in case.evidence)
    assert one(made(0.0045, trials=12, scatter=0.0001, noise=0.001))[0].verdict is Verdict.SLOWER


def test_what_ran_on_a_cpu_and_is_slower_by_less_than_the_smallest_effect_is_never_same():
    small = {"scatter": 0.001, "noise": 0.002, "trials": 12}
    for effect, verdict in ((0.03, Verdict.CANNOT_TELL), (-0.03, Verdict.SAME), (0.0, Verdict.SAME)):
        case, _ = one(made(effect, machine_kind="cpu", **small))
        assert (case.verdict, case.leans_slower) == (verdict, verdict is Verdict.CANNOT_TELL)
    assert (
        "by less than the smallest effect on a CPU (5.0%)"
        in one(made(0.03, machine_kind="cpu", **small))[0].evidence[1]
    )
    live = one(made(0.03, machine_kind="cpu", **small), progress=Progress((6, 12)))[0]
    assert (live.more_trials, live.wants_more) == (None, False), "no number of trials would make it SAME"


def test_noise_that_hides_everything_cannot_be_decided_and_asks_for_more():
    case, judgement = one(made(0.0, trials=4, scatter=0.03))
    assert case.verdict is Verdict.CANNOT_TELL
    assert case.wants_more
    assert judgement.verdict.exit_code == 2
    assert not one(made(0.0, trials=12, scatter=0.05))[0].wants_more


def test_what_two_sides_of_one_code_differ_by_on_ranks_is_no_change():
    turns = [made(sign * 0.03, trials=1, seed=seed).trials[0] for seed, sign in enumerate((1, -1, 1, -1))]
    turns = [PairedRounds(n, row.base / 8, row.head / 8) for n, row in enumerate(turns)]
    short = dataclasses.replace(made(), trials=tuple(turns))
    assert one(short)[0].verdict is Verdict.CANNOT_TELL
    assert one(dataclasses.replace(short, of_ranks=True))[0].verdict is Verdict.SAME
    assert one(made(0.05, of_ranks=True))[0].verdict is Verdict.SLOWER


def test_nothing_to_judge_is_not_a_pass():
    judgement = judge([], POLICY)
    assert (judgement.verdict, judgement.why) == (Verdict.CANNOT_TELL, "nothing was compared")
    assert judgement.verdict.exit_code == 2


def test_new_cases_that_are_right_pass_and_beside_others_they_do_not_matter():
    new = Comparison("k/t/new", "k", "t", base_status=Status.MISSING)
    alone = judge([new], POLICY)
    assert (alone.verdict, alone.verdict.exit_code) == (Verdict.SAME, 0)
    assert alone.why == "1 NEW: right, without a base to compare with"
    wrong = dataclasses.replace(new, head_status=Status.WRONG)
    assert judge([wrong], POLICY).verdict.exit_code == 1
    judgement = judge([new, made()], POLICY)
    assert judgement.verdict is Verdict.SAME
    assert "1 NEW" in judgement.why
    assert judgement.cases[0].verdict is Verdict.NEW


def test_equal_code_is_same_without_timing_and_a_movement_is_only_a_warning():
    case, _ = one(Comparison("k/t/c", "k", "t", same_code=True))
    assert case.verdict is Verdict.SAME
    assert "SAME without timing" in case.evidence[0]
    moved, _ = one(made(0.05, same_code=True))
    assert moved.verdict is Verdict.SAME
    assert any("the times alone would say SLOWER" in w for w in moved.warnings)


def test_a_wrong_head_is_broken_even_with_equal_code_or_bad_data():
    case, judgement = one(
        dataclasses.replace(
            made(),
            head_status=Status.WRONG,
            head_why="norm 0.5",
            same_code=True,
            problems=("bad",),
            head_definition="x",
            base_definition="y",
        )
    )
    assert case.verdict is Verdict.BROKEN
    assert "norm 0.5" in case.evidence[0]
    assert judgement.verdict.exit_code == 1


def test_a_moving_baseline_takes_the_blame():
    case, judgement = one(made(0.04, baseline=0.04))
    assert case.verdict is Verdict.CANNOT_TELL
    assert any("the machine moved: blas" in w for w in case.warnings)
    assert any("moved in 1 of 1 cases" in w for w in judgement.warnings)


def test_a_change_beyond_that_of_the_baseline_stands():
    case, _ = one(made(0.08, baseline=0.03))
    assert case.verdict is Verdict.SLOWER
    assert any("which stands" in w for w in case.warnings)
    assert one(made(0.08, baseline=0.0))[0].verdict is Verdict.SLOWER


def test_an_intermittent_collapse_of_head_is_slower():
    comparison = made(0.0, trials=5)
    for trial in comparison.trials:
        trial.head[7::20] *= 10
    case, _ = one(comparison)
    assert case.verdict is Verdict.SLOWER
    assert any("intermittent collapse in head" in e for e in case.evidence)
    for trial in comparison.trials:
        trial.base[7::20] *= 10
    assert one(comparison)[0].verdict is Verdict.SAME


def test_clocks_that_differ_are_a_warning():
    comparison = made()
    trials = tuple(dataclasses.replace(t, clocks_mhz=(1900.0, 1700.0)) for t in comparison.trials)
    case, _ = one(dataclasses.replace(comparison, trials=trials))
    assert any("different SM clocks" in w for w in case.warnings)


def test_shapes_of_one_kernel_that_moved_are_one_group():
    cases = [made(0.03, case=f"k/t/{i}", seed=i) for i in range(3)] + [
        made(0, case="k/t/same", seed=9),
        made(0.03, case="j/t/0", kernel="j"),
    ]
    judgement = judge(cases, POLICY)
    [group] = judgement.groups
    assert group.cases == ("k/t/0", "k/t/1", "k/t/2")
    assert group.direction == "slower"
    assert group.ci_low < np.exp(0.03) < group.ci_high
    assert "3 of 4 shapes" in group.evidence


def test_neighbours_lend_strength_to_small_changes_in_the_same_direction():
    def cases(effect):
        return [made(effect, case=f"k/t/{i}", seed=100 + i, trials=5, noise=0.02, scatter=0.004) for i in range(12)]

    alone = sum(one(c)[0].verdict is Verdict.SLOWER for c in cases(0.012))
    judgement = judge(cases(0.012), POLICY)
    borrowed = [c for c in judgement.cases if c.verdict is Verdict.SLOWER]
    assert len(borrowed) > alone
    assert any("neighbouring shapes" in e for c in borrowed for e in c.evidence)
    assert not [c for c in judge(cases(0.0), POLICY).cases if c.verdict in (Verdict.SLOWER, Verdict.FASTER)]


def test_a_baseline_that_stood_still_beside_the_findings_clears_the_machine():
    def cases(baseline):
        return [made(0.05, case=f"k{i}/t/c", kernel=f"k{i}", seed=i, baseline=baseline) for i in range(9)]

    cleared = judge(cases(0.0), POLICY)
    assert len(cleared.of(Verdict.SLOWER)) == 9
    assert cleared.warnings == ()
    [doubt] = judge(cases(None), POLICY).warnings
    assert doubt.startswith("all 9 findings point one way (slower)")
    moved = judge([*cases(None), made(0.1, case="m/t/c", kernel="m", seed=20, baseline=0.04)], POLICY)
    assert len(moved.of(Verdict.SLOWER)) == 10
    assert any("all 10 findings point one way" in w for w in moved.warnings), "a baseline that moved clears nothing"


def test_a_warning_of_all_cases_is_said_once():
    cases = [made(case=f"k/t/{i}", seed=i, warnings=("torn",)) for i in range(3)]
    judgement = judge(cases, POLICY)
    assert judgement.warnings == ("torn",)
    assert all(not c.warnings for c in judgement.cases)


def test_slower_waits_for_fresh_trials_and_they_decide():
    progress = Progress((4, 6, 8, 12), 3)
    first, _ = one(made(0.05, trials=4), progress=progress)
    assert (first.verdict, first.wants_more) == (Verdict.SLOWER, True)
    progress = progress.advanced({first.case: first.trials})
    confirmed, _ = one(made(0.05, trials=7), progress=progress)
    assert (confirmed.verdict, confirmed.wants_more) == (Verdict.SLOWER, False)
    assert any("confirmed" in e for e in confirmed.evidence)
    before, after = made(0.08, trials=4, scatter=0), made(0.0, trials=3, scatter=0, seed=5)
    mixed = before.trials + tuple(dataclasses.replace(t, number=t.number + 4) for t in after.trials)
    refuted, _ = one(dataclasses.replace(before, trials=mixed), progress=progress)
    assert refuted.verdict is not Verdict.SLOWER


def test_a_look_uses_only_its_share_of_the_error():
    tried = (made(0.0085, trials=4, seed=seed) for seed in range(200))
    comparison = next(c for c in tried if one(c)[0].verdict is Verdict.SLOWER and one(c)[0].p_value > 1.5e-4)
    assert one(comparison, progress=Progress())[0].verdict is Verdict.CANNOT_TELL


def test_floors_against_the_baseline():
    rule = FloorRule(kernel="k", share=0.9, reason="why", date=POLICY.floors[0].date)
    for baseline, state in ((None, "absent"), (0.0, "missed"), (0.5, "met")):
        comparison = made(0.0, baseline=baseline)
        [floor] = judge([comparison], Policy(floors=(rule,))).floors
        assert floor.state == state
    judgement = judge([made(0.0, baseline=0.0)], Policy(floors=(rule,)))
    assert not judgement.floors[0].new
    assert judgement.verdict is Verdict.SAME
    new = judge(
        [dataclasses.replace(made(0.2, baseline=0.0), base_status=Status.OK)],
        Policy(floors=(dataclasses.replace(rule, share=0.75),)),
    )
    assert new.floors[0].new
    assert new.verdict is Verdict.SLOWER


PROMISES = (("tgemm", "head1", 8), ("mm_m16", "head2", 12), ("copy", "head3", 4), ("mm_m16", "head6", 4))
"""(case, arm, trials) that must be found in 95 % of draws: arm headN does N more steps of work."""


@pytest.mark.parametrize(("case", "arm", "trials"), PROMISES)
def test_promised_power_on_the_recordings(recording, case, arm, trials):
    rng = np.random.default_rng(1)
    values = recorded_trials.cases_of({case: recording[case]}, arm)[case]
    drawn = values[recorded_trials.subsets(rng, 500, len(values.shift), trials)]
    found = recorded_trials.findings([drawn], 40, POLICY.settings())
    assert np.mean(found > 0) >= 0.95
    assert not np.any(found < 0)


def test_no_false_alarm_in_recorded_trials(recording):
    rng = np.random.default_rng(2)
    cases = list(recorded_trials.cases_of(recording, "same").values())
    for trials in (3, 4, 6, 8, 12):
        index = recorded_trials.subsets(rng, 800, len(cases[0].shift), trials)
        assert np.sum(recorded_trials.findings([c[index] for c in cases], 40, POLICY.settings()) != 0) == 0


@pytest.mark.parametrize("gpu", GPUS)
def test_pairs_of_separate_runs_that_agree_by_chance_are_as_rare_as_in_the_study(gpu):
    rng = np.random.default_rng(3)
    rounds, pairs = recorded_trials.separate_pairs(DATA / f"separate_runs_{gpu}.jsonl.gz")
    alarms = []
    for values in pairs.values():
        index = recorded_trials.subsets(rng, 200, len(values.shift), 16)
        drawn = values[index[:, :8], index[:, 8:]]
        alarms.append(np.mean(recorded_trials.findings([drawn], rounds, POLICY.settings()) != 0))
    assert 0 < np.mean(alarms) < 0.001
    assert max(alarms) <= 0.005


@pytest.mark.parametrize("arm", ["same", "head1", "head3"])
def test_draws_count_what_judge_says(recording, arm):
    rng = np.random.default_rng(4)
    shifts = recorded_trials.cases_of(recording, arm)
    index = recorded_trials.subsets(rng, 12, 39, 5)
    counted = recorded_trials.findings([s[index] for s in shifts.values()], 40, POLICY.settings())
    for draw, chosen in enumerate(index):
        comparisons = [
            Comparison(case, case, trials=tuple(PairedRounds(int(i), arms["base"][i], arms[arm][i]) for i in chosen))
            for case, arms in recording.items()
        ]
        said = [{Verdict.SLOWER: 1, Verdict.FASTER: -1}.get(c.verdict, 0) for c in judge(comparisons, POLICY).cases]
        assert said == counted[draw].tolist()


def test_work_grows_with_the_number_of_cases_alone():
    """Twice the cases are twice the calls: 3,000 take seconds."""
    few, many = many_cases(100), many_cases(200)
    of_few, of_many = calls(lambda: judge(few, POLICY), 1_000_000), calls(lambda: judge(many, POLICY), 1_000_000)
    assert of_many < 2.1 * of_few
    assert of_many / 200 < 1_500


def many_cases(count):
    rng = np.random.default_rng(0)
    base, head = (np.exp(0.01 * rng.standard_normal((10 * count, 40))) for _ in range(2))
    return [
        Comparison(
            f"k{i // 30}/t/{i}",
            f"k{i // 30}",
            "t",
            tuple(PairedRounds(n, base[10 * i + n], head[10 * i + n]) for n in range(10)),
        )
        for i in range(count)
    ]


def test_what_became_far_too_fast_is_questioned():
    found = one(made(trials=4, effect=-1.8))[0]
    assert found.verdict is Verdict.FASTER
    assert any(said.endswith("as fast as base: look whether it still does the same work") for said in found.warnings)
    assert not any("still does" in said for said in one(made(trials=4, effect=-1.5))[0].warnings)


def test_arms_that_scatter_are_said_to_be_measured_apart_only_where_that_may_be():
    apart = made(trials=12, scatter=0.03, noise=0.0005)
    [said] = one(apart)[0].warnings
    assert said.startswith("the arms look as if measured apart: ")
    [said] = one(dataclasses.replace(apart, lock_step=True))[0].warnings
    assert "apart" not in said
    assert said.startswith("trials differ by far more than their rounds explain: something else changed between them")
