"""A finished file judged look by look: as the live comparison did, and no better for measuring on."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from ci.harness import MeasurePlan
from ci.judging import live as looks
from ci.judging import policy
from ci.judging.judge import judge
from ci.judging.types import Judgement, to_json
from ci.trials import file
from ci.trials.comparisons import comparisons
from tests.ci.judging.test_live import TREES, Player, play

RULES = policy.load()


def live(player: Player, out: Path) -> Judgement:
    """The oracle: the judgement at which the live comparison stopped."""
    return play(player, out).judgement  # type: ignore[no-any-return]


@pytest.mark.parametrize("slower", [0.0, 0.002, 0.004, 0.006, 0.03, -0.03])
def test_a_file_is_judged_as_it_was_live(slower: float, tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    said = live(Player(slower), out)
    again = looks.judged(file.read(out).trials, RULES, "gpu")
    assert to_json(again) == to_json(said)


def test_trials_beyond_the_last_look_change_nothing(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    said = live(Player(), out)
    worse = Player(slower=0.05)
    worse.written = 50
    worse(TREES, MeasurePlan(trials=12), out, Console(file=io.StringIO()))
    trials = file.read(out).trials
    assert to_json(looks.judged(trials, RULES, "gpu")) == to_json(said)
    assert to_json(judge(comparisons(trials), RULES)) != to_json(said), "all at once they would count"


def test_a_file_that_ends_early_keeps_its_last_look(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    live(Player(slower=0.03), out)
    trials = file.read(out).trials
    assert looks.judged(trials[:2], RULES, "gpu").verdict.exit_code == 2
