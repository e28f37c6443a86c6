"""One recorded commit against another: paired where they ran together, beside the baseline where they did not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ci.judging import policy
from ci.judging import recorded as gate
from ci.judging.types import Verdict
from ci.records import store as records
from tests.ci import made_trials as trials


def times(factor: float, seed: int, rounds: int = 40) -> list[float]:
    return list(1e-3 * factor * np.exp(np.random.default_rng(seed).normal(0, 0.003, rounds)))


def session(
    commit: str, role: str = "head", ours: float = 1.0, wander: float = 0.0, count: int = 4, seed: int = 0, **arm: Any
) -> list[dict[str, Any]]:
    """Trials of one commit; in each of them the clocks wander, for us and the baseline alike."""
    random = np.random.default_rng(seed)
    lines = []
    for number in range(count):
        clock = float(np.exp(random.normal(0, wander)))
        lines.append(
            trials.trial(
                {
                    "m16": {
                        f"{role}/triton": {**trials.ok(times(ours * clock, seed * 100 + number)), **arm},
                        f"{role}/blas": trials.ok(times(0.9 * clock, seed * 100 + 50 + number)),
                    }
                },
                number=number,
                session=f"{seed:016x}",
                trees={role: trials.tree(commit)},
            )
        )
    return lines


def recorded(tmp_path: Path, *lines: Mapping[str, Any]) -> Path:
    results = tmp_path / "results"
    done = records.record([trials.write(tmp_path / "trials.jsonl", *lines)], results)
    assert not done.problems
    return results


def judged(results: Path) -> gate.Judged:
    found = gate.gate(results, trials.BASE, trials.HEAD, policy.load())
    assert len(found) == 1
    return found[0]


def test_a_slower_commit_recorded_apart_is_slower(tmp_path: Path) -> None:
    results = recorded(
        tmp_path, *session(trials.BASE, seed=1, wander=0.02), *session(trials.HEAD, seed=2, ours=1.15, wander=0.02)
    )
    answer = judged(results)
    assert not answer.paired
    assert answer.judgement.verdict is Verdict.SLOWER
    assert answer.judgement.cases[0].ratio == pytest.approx(1.15, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_code_recorded_twice_is_same_however_the_clocks_wander(tmp_path: Path, seed: int) -> None:
    results = recorded(
        tmp_path, *session(trials.BASE, seed=10 + seed, wander=0.03), *session(trials.HEAD, seed=20 + seed, wander=0.03)
    )
    assert judged(results).judgement.verdict is Verdict.SAME


def test_commits_that_ran_together_are_paired(tmp_path: Path) -> None:
    def both(number: int, ours: float, theirs: float) -> list[Any]:
        return [trials.ok(times(factor, number + 100 * side)) for side, factor in enumerate((ours, theirs))]

    lines = [
        trials.paired({"m16": {"triton": both(n, 1.0, 1.01), "blas": both(200 + n, 0.9, 0.9)}}, n, minute=n)
        for n in range(6)
    ]
    answer = judged(recorded(tmp_path, *lines))
    assert answer.paired
    assert answer.judgement.verdict is Verdict.SLOWER


def test_a_head_that_is_wrong_is_broken(tmp_path: Path) -> None:
    wrong = session(trials.HEAD, seed=6)
    for line in wrong:
        line["cases"]["m16"]["arms"]["head/triton"] = trials.failed("wrong", "norm 0.5 is over 0.01")
    results = recorded(tmp_path, *session(trials.BASE, seed=5), *wrong)
    assert judged(results).judgement.verdict is Verdict.BROKEN


def test_without_both_commits_the_message_says_what_is_there(tmp_path: Path) -> None:
    results = recorded(tmp_path, *session(trials.BASE, seed=1))
    with pytest.raises(gate.GateError, match=r"bbbbbbbb.*ridgeline run"):
        gate.gate(results, trials.BASE, trials.HEAD, policy.load())
    with pytest.raises(gate.GateError, match="holds no records"):
        gate.gate(tmp_path / "nothing", trials.BASE, trials.HEAD, policy.load())
