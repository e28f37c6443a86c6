"""The live comparison: what is measured next, when it stops, what a resumed file saves.  Measuring is played."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ci import harness, options
from ci.git.repository import Commit, LocalCheckout
from ci.harness import INTERRUPTED, MEASURED, NOTHING, USAGE, MeasureError, MeasurePlan
from ci.judging import live, policy
from ci.judging import live as looks
from ci.judging.judge import judge
from ci.judging.live import Interrupted, compare, identical, next_looks
from ci.judging.types import CaseVerdict, Judgement, Verdict, to_json
from ci.options import plan, with_rounds
from ci.report.run_summary import to_decide
from ci.stats.sequential import Progress
from ci.trials import file
from ci.trials import file as trial_files
from ci.trials.comparisons import comparisons
from tests.ci import made_trials
from tests.ci import made_trials as trials
from tests.ci.made_trials import ok, parsed, trial

TREES = (
    LocalCheckout("base", Path(), Commit(trials.BASE, 0, "")),
    LocalCheckout("head", Path(), Commit(trials.HEAD, 0, "")),
)


QUIET = Console(file=io.StringIO())


class Player:
    """Plays `benchmarks run`: writes trials in which head is slower by `slower`, and remembers what was asked."""

    def __init__(self, slower=0.0, code=MEASURED, hashes=(None, None), apart=0.0):
        self.slower, self.code, self.hashes = slower, code, hashes
        self.asked = []
        self.random, self.apart = np.random.default_rng(1), apart
        self.written = 0

    def __call__(self, trees, plan, out, console, told=None):
        if told is None:
            self.write(trees, {"m16", "m64"}, plan.trials, out)
        while told and (orders := json.loads(told())):
            self.asked += orders
            for order in orders:
                if "gemm" not in order["without"]:
                    self.write(trees, set(order["cases"]) or {"m16", "m64"}, order["trials"], out)
            if self.code != MEASURED:
                break
        return self.code

    def write(self, trees, cases, count, out):
        for _ in range(count):
            out.open("a").write(json.dumps(self.trial(sorted(cases), [t.role for t in trees])) + "\n")
            self.written += 1

    def trial(self, cases, roles):
        shift = {"base": 1.0, "head": 1.0 + self.slower}
        entries = {
            case: {
                f"{role}/{backend}": {
                    **trials.ok(self.times(shift[role] if backend == "triton" else 1.0)),
                    "code_hash": self.hashes[role == "head"] if backend == "triton" else None,
                }
                for role in roles
                for backend in ("triton", "blas")
            }
            for case in cases
        }
        commits = {"base": trials.BASE, "head": trials.HEAD}
        return trials.trial(
            entries,
            number=self.written,
            minute=self.written,
            trees={role: trials.tree(commits[role]) for role in roles},
        )

    def times(self, factor, rounds=40):
        factor *= np.exp(self.apart * self.random.standard_normal()) if self.apart else 1.0
        return list(1e-3 * factor * np.exp(self.random.normal(0, 0.003, rounds)))


def play(player, out, plan=None):
    return compare(TREES, plan or MeasurePlan(), policy.load(), "gpu", out, QUIET, player)


def test_an_unchanged_head_is_same_and_stops_early(tmp_path):
    player = Player()
    outcome = play(player, tmp_path / "t.jsonl")
    assert outcome.judgement.verdict is Verdict.SAME
    assert outcome.judgement.verdict.exit_code == 0
    assert player.written <= 8


def test_a_slower_head_is_found_and_repeated_by_fresh_trials(tmp_path):
    player = Player(slower=0.03)
    outcome = play(player, tmp_path / "t.jsonl")
    assert outcome.judgement.verdict is Verdict.SLOWER
    assert outcome.judgement.verdict.exit_code == 1
    first = policy.load().settings().looks[0]
    assert player.written >= first + policy.load().settings().confirming


def test_equal_code_needs_one_trial(tmp_path):
    player = Player(hashes=("c" * 16, "c" * 16))
    outcome = play(player, tmp_path / "t.jsonl")
    assert outcome.judgement.verdict is Verdict.SAME
    assert player.written == 1


def test_a_file_with_trials_is_gone_on_with(tmp_path):
    out = tmp_path / "t.jsonl"
    first, second = Player(), Player()
    first(TREES, MeasurePlan(trials=4), out, Console())
    play(second, out)
    whole = Player()
    play(whole, tmp_path / "whole.jsonl")
    assert second.written == whole.written - 4


@pytest.mark.parametrize(("code", "error"), [(INTERRUPTED, Interrupted), (USAGE, MeasureError)])
def test_what_broke_off_is_said_and_kept(tmp_path, code, error):
    out = tmp_path / "t.jsonl"
    with pytest.raises(error, match=r"t\.jsonl"):
        play(Player(code=code), out)
    assert len(trial_files.read(out).trials) == 1


@pytest.mark.parametrize(("settings", "refused"), [(("tile=8",), False), (("base.tile=8",), False), (("nix=8",), True)])
def test_a_knob_that_no_timed_backend_has_is_refused_with_the_knobs_that_there_are(tmp_path, settings, refused):
    class Tiled(Player):
        def trial(self, cases, roles):
            line = super().trial(cases, roles)
            for case in line["cases"].values():
                case["arms"]["head/triton"]["knobs"] = case["arms"]["base/triton"]["knobs"] = {"tile": 8}
                case["arms"]["base/blas"] = case["arms"]["head/blas"] = trials.failed("unsupported")
            return line

    player, plan = Tiled(), MeasurePlan(knobs=settings)
    if refused:
        with pytest.raises(MeasureError, match=r"--set nix=8: no .* nix; .* have tile"):
            play(player, tmp_path / "t.jsonl", plan)
        assert player.written == 1
    else:
        assert play(player, tmp_path / "t.jsonl", plan).judgement.verdict is Verdict.SAME


def test_a_case_that_its_budget_will_not_decide_is_stopped_and_told_what_it_would_take(tmp_path):
    player = Player(apart=0.2)
    outcome = play(player, tmp_path / "t.jsonl")
    assert player.written < policy.load().settings().looks[-1]
    for case in outcome.judgement.cases:
        assert (case.verdict, case.wants_more) == (Verdict.CANNOT_TELL, False)
        assert re.search(r"stopped early: the chance that 12 trials decide it is \d%; ", case.evidence[-1])
        assert "trials would" in case.evidence[-1]
    patient = dataclasses.replace(policy.load().settings(), least_chance=0.0)
    rules = policy.Policy({("default", ""): dataclasses.asdict(patient)})
    player = Player(apart=0.2)
    compare(TREES, MeasurePlan(), rules, "gpu", tmp_path / "p.jsonl", QUIET, player)
    assert player.written == 12


def test_a_spent_budget_says_what_it_would_take(tmp_path):
    player = Player(apart=0.01)
    outcome = play(player, tmp_path / "t.jsonl", MeasurePlan(trials=4))
    assert player.written == 4
    for case in outcome.judgement.cases:
        assert case.verdict is Verdict.CANNOT_TELL
        assert case.more_trials
        assert case.evidence[-1] == f"about {case.more_trials} more trials would decide it with a chance of 80%"
    [sentence] = to_decide(outcome.judgement, outcome.file.trials, harness.again)
    said = r"to decide gemm: \d+ more trials, about .*: `ridgeline.* --kernel gemm --trials \d+`"
    assert re.fullmatch(said, sentence)


class DriftingPlayer(Player):
    """Head looks slower from first to last, in trials that differ too much to be sure; a trial takes 10 s."""

    def trial(self, cases, roles):
        self.slower = (0.002, 0.010)[self.written % 2]
        return {**super().trial(cases, roles), "duration_s": 10.0}


@pytest.mark.parametrize(("budget", "written"), [(0, 24), (12, 12)])
def test_a_case_whose_whole_interval_says_slower_is_measured_on_for_two_minutes(tmp_path, budget, written):
    rules = policy.Policy({("default", ""): {"false_alarm": 1e-9, "same_within": 0.004}})
    player, console = DriftingPlayer(), Console(record=True, file=io.StringIO(), width=200)
    outcome = compare(TREES, MeasurePlan(trials=budget), rules, "gpu", tmp_path / "t.jsonl", console, player)
    assert player.written == written
    assert ("look slower, not surely enough: measured on for up to 120 s" in console.export_text()) == (not budget)
    assert {case.verdict for case in outcome.judgement.cases} == {Verdict.CANNOT_TELL}, "never SAME"
    assert all(case.leans_slower for case in outcome.judgement.cases)
    if not budget:
        again = looks.judged(file.read(tmp_path / "t.jsonl").trials, rules, "gpu")
        assert to_json(again) == to_json(outcome.judgement)


def test_nothing_measured_is_no_pass(tmp_path):
    with pytest.raises(MeasureError, match="nothing was measured"):
        compare(TREES, MeasurePlan(), policy.load(), "gpu", tmp_path / "t.jsonl", QUIET, lambda *_: NOTHING)


def test_a_comparison_is_one_session_whose_first_order_is_a_trial_of_everything(tmp_path):
    player = Player(slower=0.004)
    play(player, tmp_path / "t.jsonl")
    assert player.asked[0] == {"kernel": "", "cases": [], "first_trial": 0, "trials": 1, "without": [], "rounds": {}}
    numbers = [range(one["first_trial"], one["first_trial"] + one["trials"]) for one in player.asked]
    assert [number for some in numbers for number in some] == list(range(player.written)), "no number twice, none left"


def test_orders_of_which_no_trial_comes_end_the_comparison(tmp_path):
    """As where a script's open closure runs the same code since its file was written: nothing of it is timed again."""
    player, console = Player(slower=0.004), Console(record=True, file=io.StringIO())
    player(TREES, MeasurePlan(trials=2), tmp_path / "t.jsonl", console)
    player.write = lambda *given: None  # type: ignore[method-assign]
    outcome = compare(TREES, MeasurePlan(), policy.load(), "gpu", tmp_path / "t.jsonl", console, player)
    assert outcome.judgement.verdict is Verdict.CANNOT_TELL
    assert len(player.asked) == 1
    assert "have no verdict yet; the last attempt brought no trial" in console.export_text()


def test_operators_that_an_interrupted_comparison_did_not_come_to_are_measured(tmp_path):
    out = tmp_path / "t.jsonl"
    Player()(TREES, MeasurePlan(trials=1), out, Console())
    player = Player()
    play(player, out)
    assert player.asked[0]["without"] == ["gemm"]


def test_the_same_files_are_same_without_a_base(tmp_path):
    player = Player()
    outcome = identical(TREES, MeasurePlan(), policy.load(), tmp_path / "t.jsonl", QUIET, player)
    assert outcome.judgement.verdict is Verdict.SAME
    assert [trial.checkouts.keys() for trial in outcome.file.trials] == [{"head"}]
    assert {case.verdict for case in outcome.judgement.cases} == {Verdict.SAME}


# What is measured next: open cases up to the next look, and fresh trials of what looks slower.


LOOKS = (4, 6, 8, 12)


def looked_at(name, verdict, trials, wants_more=True):
    return CaseVerdict(name, "k", "t", verdict, trials=trials, wants_more=wants_more)


@pytest.mark.parametrize(
    ("said", "trials", "names"),
    [
        *(([("a", Verdict.CANNOT_TELL, had)], target, "a") for had, target in ((4, 6), (5, 6), (6, 8), (8, 12))),
        ([("a", Verdict.CANNOT_TELL, 12)], 0, ""),
        ([("a", Verdict.SAME, 4, False), ("b", Verdict.CANNOT_TELL, 4)], 6, "b"),
        ([("a", Verdict.BROKEN, 4, False)], 0, ""),
    ],
)
def test_open_cases_are_measured_up_to_the_next_look_while_the_budget_lasts(said, trials, names):
    judgement = Judgement(Verdict.SAME, "", tuple(looked_at(*one) for one in said))
    _, _, looks = next_looks(Progress(LOOKS), lambda progress: judgement, lambda cases: 0)
    assert looks == dict.fromkeys(names, trials)


def test_slower_asks_for_fresh_trials_once_and_even_after_the_last_look():
    first, confirmed = (
        Judgement(Verdict.SLOWER, "", (looked_at("a", Verdict.SLOWER, trials, trials < 15),)) for trials in (12, 15)
    )
    _, progress, looks = next_looks(Progress(LOOKS, confirming=3), lambda progress: first, lambda cases: 0)
    assert (progress.flagged, looks) == ({"a": 12}, {"a": 15})
    _, progress, looks = next_looks(progress, lambda progress: confirmed, lambda cases: 0)
    assert (progress.flagged, looks) == ({"a": 12}, {})


class NoisyPlayer(Player):
    """Case m16 has noisy rounds; of 4 s of a trial, 3.6 are not samples.  It measures as many rounds as it is told."""

    def write(self, trees, cases, count, out):
        rounds = next((order["rounds"] for order in reversed(self.asked) if set(order["cases"]) == cases), {})
        for _ in range(count):
            line = self.trial(sorted(cases), [tree.role for tree in trees])
            for name, case in line["cases"].items():
                for key, arm in case["arms"].items():
                    noise = self.random.normal(0, 0.05 if name == "m16" else 0.001, rounds.get(name, 40))
                    slow = 1.0 + self.slower if key == "head/triton" else 1.0
                    arm["seconds"] = list(1e-3 * slow * np.exp(noise))
            line["spent_s"] = {"start": 2.0, "checks": 1.6, "rounds": 0.4}
            out.open("a").write(json.dumps(line) + "\n")
            self.written += 1


def test_rounds_are_spent_on_the_case_that_needs_them(tmp_path):
    player = NoisyPlayer()
    outcome = play(player, tmp_path / "t.jsonl")
    later = [order for order in player.asked if order["first_trial"] >= 4]
    assert later
    assert all(list(order["rounds"]) == ["m16"] for order in later), "the quiet case was settled with the usual ones"
    assert all(40 < order["rounds"]["m16"] <= 160 for order in later)
    assert all(not order["rounds"] for order in player.asked if order["first_trial"] < 2), "nothing is known yet"
    assert {case.case: case.rounds for case in outcome.judgement.cases}["gemm/triton/m64"] == 40


# A finished file judged look by look: as the live comparison did, and no better for measuring on.


RULES = policy.load()


def judged_live(player, out):
    """The oracle: the judgement at which the live comparison stopped."""
    return play(player, out).judgement  # type: ignore[no-any-return]


@pytest.mark.parametrize("slower", [0.0, 0.002, 0.004, 0.006, 0.03, -0.03])
def test_a_file_is_judged_as_it_was_live(slower, tmp_path):
    out = tmp_path / "t.jsonl"
    said = judged_live(Player(slower), out)
    again = looks.judged(file.read(out).trials, RULES, "gpu")
    assert to_json(again) == to_json(said)


def test_trials_beyond_the_last_look_change_nothing(tmp_path):
    out = tmp_path / "t.jsonl"
    said = judged_live(Player(), out)
    worse = Player(slower=0.05)
    worse.written = 50
    worse(TREES, MeasurePlan(trials=12), out, QUIET)
    trials = file.read(out).trials
    assert to_json(looks.judged(trials, RULES, "gpu")) == to_json(said)
    assert to_json(judge(comparisons(trials), RULES)) != to_json(said), "all at once they would count"


def test_a_file_that_ends_early_keeps_its_last_look(tmp_path):
    out = tmp_path / "t.jsonl"
    judged_live(Player(slower=0.03), out)
    trials = file.read(out).trials
    assert looks.judged(trials[:2], RULES, "gpu").verdict.exit_code == 2


# Times of two regimes are never compared; few bursts are judged as rounds are.


def bursts(number, slower=0.0, regime="sustained", seed=0):
    """A trial of 8 bursts: they differ by 0.1 %, trials by 0.07 %."""
    order = np.random.default_rng([seed, number])
    start = 7e-4 * np.exp(order.normal(0, 7e-4, 2) + [0.0, np.log1p(slower)])
    base, head = ((one * np.exp(order.normal(0, 1e-3, 8))).tolist() for one in start)
    library = [ok((7e-4 * np.exp(order.normal(0, 1e-3, 8))).tolist()) for _ in trials.SIDES]
    line = trials.paired({"m16": {"triton": (ok(base), ok(head)), "blas": library}}, number)
    line["protocol"]["regime"] = regime
    return parsed(line)


def judged(*trials):
    [case] = judge(comparisons(trials), policy.load()).cases
    return case


@pytest.mark.parametrize(("slower", "verdict"), [(0.0, Verdict.SAME), (0.02, Verdict.SLOWER), (-0.02, Verdict.FASTER)])
def test_eight_bursts_of_a_few_trials_are_enough_for_a_verdict(slower, verdict):
    found = [judged(*(bursts(number, slower, seed=seed) for number in range(6))).verdict for seed in range(10)]
    assert found.count(verdict) >= 9
    opposite = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}.get(verdict)
    assert opposite not in found


def test_trials_of_two_regimes_have_no_common_verdict():
    case = judged(*(bursts(number, 0.2, ("spaced", "sustained")[number % 2]) for number in range(8)))
    assert case.verdict is Verdict.CANNOT_TELL
    assert "of two regimes (spaced, sustained), whose times are never compared" in case.evidence[0]
    assert case.ratio is None


def test_a_file_of_one_regime_is_not_gone_on_with_in_another(tmp_path):
    out = made_trials.write(tmp_path / "t.jsonl", trial())

    def nothing(*_):
        raise AssertionError("nothing may be measured")

    def compare(plan):
        return live.compare((), plan, policy.load(), "gpu", out, QUIET, nothing)

    with pytest.raises(MeasureError, match=r"t\.jsonl holds trials of the spaced regime.*another file with --out"):
        compare(MeasurePlan(regime="sustained"))


@pytest.mark.parametrize(
    ("kind", "asked", "rounds", "burst_s"),
    [
        ("gpu", {}, 40, 0.0),
        ("cpu", {}, 20, 0.05),
        ("gpu", {"regime": "sustained"}, 8, 0.0),
        ("cpu", {"regime": "sustained"}, 8, 0.05),
        ("cpu", {"regime": "sustained", "burst_s": 2.0, "rounds": 3}, 3, 2.0),
    ],
)
def test_how_many_bursts_and_how_long_by_machine(monkeypatch, kind, asked, rounds, burst_s):
    monkeypatch.setattr(options, "machine_kind", lambda: kind)
    found = with_rounds(plan(**({"regime": "spaced"} | asked)))
    assert (found.rounds, found.burst_s) == (rounds, burst_s)
