"""The canary asks the gate by its usual way; its two trees differ in one line and measure the same thing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from ci.commands import canary
from ci.git.repository import Commit, LocalCheckout
from ci.harness import MEASURED, MeasurePlan, measure
from ci.history import kept
from ci.judging import policy
from ci.judging.live import Told
from ci.trials.comparisons import comparisons
from ci.trials.file import read
from tests.ci import made_trials
from tests.kit import ridgeline

COMMIT = Commit("c" * 40, 1_790_000_000_000, "a subject")
RULES = policy.load()


class Measured:
    """Stands in for the measuring program: writes trials whose head takes `ratio` of the time of base."""

    def __init__(self, ratio: float) -> None:
        self.ratio, self.trials = ratio, 0

    def __call__(
        self, sides: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console, told: Told
    ) -> int:
        while orders := json.loads(told()):
            for order in orders:
                self.write(sides, order["trials"], out)
        return MEASURED

    def write(self, sides: Sequence[LocalCheckout], count: int, out: Path) -> None:
        times = [1e-3 * (1 + 2e-4 * n) for n in range(20)]
        trees = {side.role: made_trials.tree(side.commit.hash) for side in sides}
        with out.open("a") as file:
            for _ in range(count):
                base = [t * (1 + 1e-5 * self.trials) for t in times]
                arms = {
                    "base/triton": made_trials.ok(base),
                    "head/triton": made_trials.ok([t * self.ratio for t in base]),
                }
                line = made_trials.trial({"m16": arms}, number=self.trials, trees=trees)
                file.write(json.dumps(line) + "\n")
                self.trials += 1


def asked(share: float, ratio: float, folder: Path) -> tuple[kept.CanaryRun, Measured]:
    measured = Measured(ratio)
    console = Console(quiet=True)
    return canary.run(share, COMMIT, RULES, "gpu", MeasurePlan(), folder, console, measured), measured


def test_what_is_planted_follows_the_policy() -> None:
    assert canary.shares(RULES.settings(machine_kind="gpu")) == (0.0, 0.01)
    assert canary.shares(RULES.settings(machine_kind="cpu")) == (0.0, 0.01, 0.1)


@pytest.mark.parametrize(
    ("share", "ratio", "outcome", "code"),
    [
        (0.0, 1.0, kept.CanaryOutcome.RIGHT, 0),
        (0.01, 1.01, kept.CanaryOutcome.FOUND, 0),
        (0.01, 1.0, kept.CanaryOutcome.MISSED, 1),
        (0.0, 1.02, kept.CanaryOutcome.FALSE, 1),
    ],
)
def test_the_gate_is_asked_and_its_answer_counted(
    tmp_path: Path, share: float, ratio: float, outcome: kept.CanaryOutcome, code: int
) -> None:
    run, _ = asked(share, ratio, tmp_path)
    assert [run.outcome(case) for case in run.cases] == [outcome]
    assert (run.planted, run.floor, run.commit, run.machine) == (share, 0.003, COMMIT.hash, "h200x2-1a2b3c4d")
    assert canary.exit_code([run]) == code


def test_an_interrupted_run_goes_on_with_the_trials_it_has(tmp_path: Path) -> None:
    first, measured = asked(0.0, 1.0, tmp_path)
    again, more = asked(0.0, 1.0, tmp_path)
    assert (measured.trials > 0, more.trials, again) == (True, 0, first)


@pytest.mark.slow
def test_the_real_trees_are_measured_and_are_not_the_same_code(tmp_path: Path) -> None:
    """For real, on this CPU: both arms are right, share their benchmark definition, and need to be timed."""
    sides = canary.trees(tmp_path, 0.01, COMMIT)
    plan = MeasurePlan(cases=("special_cpu",), trials=1, rounds=5, cache="hot")
    assert measure(sides, plan, tmp_path / "t.jsonl", Console(quiet=True)) == MEASURED
    (found,) = comparisons(read(tmp_path / "t.jsonl").trials)
    assert (found.same_code, found.base_status, found.head_status) == (None, "ok", "ok")
    (trial,) = read(tmp_path / "t.jsonl").trials
    digests = {c.declaration.cases["special_cpu"].definition for c in trial.checkouts.values() if c.declaration}
    assert len(digests) == 1
    for role, share in (("base", 0.0), ("head", 0.01)):
        assert f"SHARE = {share}" in (tmp_path / role / "canary.py").read_text()


def test_the_verb_shows_and_adds_records(tmp_path: Path) -> None:
    run, _ = asked(0.01, 1.01, tmp_path / "work")
    kept.add(tmp_path / "node", [run])
    added = ("--results", tmp_path / "results", "--add", tmp_path / "node", "--json")
    document = json.loads(ridgeline("ci", "canary", *added).stdout)
    assert document["quality"][0]["counts"] == {"found": 1}
    assert kept.canary_runs(tmp_path / "results")[0] == [run]
    said = ridgeline("ci", "canary", "--results", tmp_path / "none", "--show")
    assert "`ridgeline ci canary` makes one" in said.stdout


def test_a_dry_run_measures_and_writes_nothing(tmp_path: Path) -> None:
    said = ridgeline("ci", "canary", "--results", tmp_path, "--dry-run")
    assert said.stdout.startswith("would plant")
    assert list(tmp_path.iterdir()) == []
