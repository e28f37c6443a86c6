"""On recorded trials: a start of the processes counts for as much as rounds, and kernels that share it are not tied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.study.budget import starts

FILES = sorted((Path(__file__).resolve().parents[2] / "tests" / "recordings" / "h200").glob("ab_trials_*.jsonl.gz"))


def made(tau: float, of_round: float, common: float = 0.0) -> starts.Pairs:
    """Three cases of 200 starts; common: a shift that all cases of a start share."""
    random = np.random.default_rng(3)
    shared = random.normal(0.0, common, (200, 1)) if common else 0.0

    def pair() -> tuple[np.ndarray, np.ndarray]:
        base = np.exp(random.normal(0.0, of_round, (200, 40)))
        own = random.normal(0.0, tau, (200, 1)) + shared
        return base, np.exp(random.normal(0.0, of_round, (200, 40)) + own)

    return {name: pair() for name in "abc"}


def test_what_a_start_adds_is_found_again():
    for tau in (0.0, 0.002, 0.01):
        found = starts.between_starts(*made(tau, 0.01)["a"])
        assert found == pytest.approx(tau, abs=0.0007, rel=0.1)


def test_kernels_that_are_tied_are_seen(monkeypatch):
    for common, is_tied in ((0.0, False), (0.01, True)):
        monkeypatch.setattr(starts, "pairs", lambda file, common=common: made(0.004, 0.01, common))
        mean, _, spread = starts.tied([Path()])
        assert (mean > 0.5) == is_tied
        assert (spread > 3) == is_tied


def test_kernels_of_one_start_are_not_tied_on_an_h200():
    mean, error, spread = starts.tied(FILES)
    assert abs(mean) < 2 * error < 0.1
    assert 0.7 < spread < 1.35


def test_a_start_is_worth_tens_of_rounds_on_an_h200(capsys):
    for file in FILES:
        found = starts.pairs(file)
        for base, head in found.values():
            tau = starts.between_starts(base, head)
            assert 0.0003 < tau < 0.006
        assert len(list(starts.rows(found))) == 1 + len(found)
