"""Times of two regimes are never compared; few bursts are judged as rounds are."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from rich.console import Console

from ci import harness, options
from ci.harness import MeasureError, MeasurePlan
from ci.judging import live, policy
from ci.judging.judge import judge
from ci.judging.types import Verdict
from ci.options import plan, with_rounds
from ci.report import run_summary, terminal
from ci.report.model import report_of
from ci.trials.comparisons import comparisons
from ci.trials.trial import Trial
from tests.ci import made_trials
from tests.ci.made_trials import BASE, ok, parsed, tree, trial


def bursts(number: int, slower: float = 0.0, regime: str = "sustained", seed: int = 0) -> Trial:
    """A trial of 8 bursts: they differ by 0.1 %, trials by 0.07 %."""
    order = np.random.default_rng([seed, number])
    start = 7e-4 * np.exp(order.normal(0, 7e-4, 2) + [0.0, np.log1p(slower)])
    base, head = ((one * np.exp(order.normal(0, 1e-3, 8))).tolist() for one in start)
    library = {f"{role}/blas": ok((7e-4 * np.exp(order.normal(0, 1e-3, 8))).tolist()) for role in ("base", "head")}
    arms = {"base/triton": ok(base), "head/triton": ok(head), **library}
    line = trial({"m16": arms}, number, trees={"base": tree(BASE), "head": tree()})
    line["protocol"]["regime"] = regime
    return parsed(line)


def judged(*trials: Trial) -> Any:
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


def test_a_file_of_one_regime_is_not_gone_on_with_in_another(tmp_path: Path):
    out = made_trials.write(tmp_path / "t.jsonl", trial())

    def nothing(*_: Any) -> int:
        raise AssertionError("nothing may be measured")

    def compare(plan: MeasurePlan) -> Any:
        return live.compare((), plan, policy.load(), "gpu", out, Console(file=io.StringIO()), nothing)

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


def test_the_measuring_program_is_told_only_of_another_regime():
    spaced = harness.command([], MeasurePlan(burst_s=0.05), Path("t.jsonl"))
    assert not {"--regime", "--burst"} & set(spaced)
    told = harness.command([], MeasurePlan(regime="sustained", burst_s=0.05), Path("t.jsonl"))
    assert told[told.index("--regime") :][:4] == ["--regime", "sustained", "--burst", "0.05"]


def test_a_burst_needs_the_sustained_regime():
    with pytest.raises(click.UsageError, match="it needs --regime sustained"):
        plan(regime="spaced", burst_s=1.0)


def test_the_report_and_the_summary_say_what_was_measured():
    found = [bursts(number) for number in range(4)]
    report = report_of(judge(comparisons(found), policy.load()), found)
    assert "calls back to back in bursts" in terminal.render(report)
    assert "bursts" not in terminal.render(report_of(judge([], policy.load()), [parsed(trial())]))
    line = trial({"m16": {"head/triton": ok() | {"energy_j": [0.41] * 8, "energy_s": [0.14] * 8}, "head/blas": ok()}})
    line["protocol"]["regime"] = "sustained"
    out = io.StringIO()
    run_summary.show([parsed(line)], Console(file=out, width=160))
    assert "J per call (99 %)" in out.getvalue()
    assert "0.41 (0.4096 to 0.4104)" in out.getvalue()
    out = io.StringIO()
    run_summary.show([parsed(trial())], Console(file=out, width=160))
    assert "J per call" not in out.getvalue()
