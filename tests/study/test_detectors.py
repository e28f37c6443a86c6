"""The studies of change points run and say what they say they do."""

from __future__ import annotations

import json

import numpy as np
from click.testing import CliRunner

from tests.study import detectors, step_bar, step_speed
from tests.study.series_noise import KINDS, SIGMA


def test_noise_is_what_its_name_says():
    rng = np.random.default_rng(0)
    made = {kind: noise(rng, 200, 400) for kind, noise in KINDS.items()}
    for kind in ("gaussian", "t, 3 degrees", "AR(1) 0.5"):
        assert 0.8 * SIGMA < made[kind].std() < 1.2 * SIGMA
    one = made["AR(1) 0.5"]
    assert abs(np.mean(one[:, 1:] * one[:, :-1]) / one.var() - 0.5) < 0.03
    assert abs(np.mean(made["1 % outliers"] > 0.15) - 0.01) < 0.003


def test_every_detector_sees_a_plain_step_and_none_a_flat_series():
    step = detectors.Task("gaussian", 1.5, 0.005).series(1, 0)[0]
    flat = detectors.Task("gaussian").series(1, 0)[0]
    for name, detector in detectors.detectors().items():
        assert any(abs(index - 150) <= 2 for index in detector(step)), name
        assert detector(flat) == [], name


def test_a_detector_that_fails_is_counted():
    def failing(values):
        raise ValueError

    assert detectors.score(failing, np.ones((4, 300)), 150).failed == 1.0


def test_the_comparison_prints_and_repeats(monkeypatch):
    monkeypatch.setattr(detectors, "TASKS", (detectors.Task("gaussian"), detectors.Task("gaussian", 1.05)))
    run = [CliRunner().invoke(detectors.main, ["--trials", "3", "--json"]) for _ in range(2)]
    assert run[0].exit_code == 0, run[0].output
    assert run[0].stdout == run[1].stdout
    rows = json.loads(run[0].stdout)
    assert rows[1]["scores"]["ours"]["found"] == 1.0
    shown = CliRunner().invoke(detectors.main, ["--trials", "3"]).output
    assert "no step: gaussian" in shown


def test_the_bar_and_the_speed_are_printed(monkeypatch):
    monkeypatch.setattr(step_bar, "LENGTHS", (20,))
    assert CliRunner().invoke(step_bar.main, ["--series", "100"]).stdout.strip().startswith("20: (")
    shown = CliRunner().invoke(step_speed.main, ["--series", "20", "--points", "60"]).stdout
    assert "one more commit: 20 series of 60 points" in shown
