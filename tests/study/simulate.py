"""Draws of trials from recordings, and the verdict rule on thousands of draws at once: what the study counts.

`findings` asks the rules of `ci.judging.judge` about whole runs at once; a test holds the two together.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ci.judging.judge import NOMINAL, is_large
from ci.judging.policy import Settings
from ci.stats.interval import Fit, Shifts, fit, shifts, two_sided
from ci.stats.sequential import significant
from ci.stats.types import FloatArray

US = 1e-6


def trial_files(data: Path) -> list[Path]:
    """The recorded A/B trials in a folder, one file for each GPU."""
    files = sorted(data.glob("ab_trials_*.jsonl.gz"))
    if not files:
        raise FileNotFoundError(f"{data}: no ab_trials_*.jsonl.gz; give the folder of the H200 recordings")
    return files


def recorded(path: Path) -> list[dict[str, Any]]:
    """The lines of a recording."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def lock_step_trials(path: Path, rounds: int | None = None) -> dict[str, dict[str, FloatArray]]:
    """Recorded A/B trials: {case: {arm: seconds, shape (trials, rounds)}}, the first `rounds` rounds."""
    lines = recorded(path)
    return {
        case: {arm: np.array([line["cases"][case][arm][:rounds] for line in lines]) * US for arm in arms}
        for case, arms in lines[0]["cases"].items()
    }


def separate_runs(path: Path) -> dict[str, dict[str, FloatArray]]:
    """Recorded runs of one process each: {way of taking samples: {case: seconds, shape (runs, samples)}}."""
    lines = recorded(path)
    return {
        way: {case: np.array([line[way][case] for line in lines]) * US for case in lines[0][way]}
        for way in ("seq", "il", "gr")
    }


def all_pairs(runs: FloatArray) -> Shifts:
    """Every run as base against every run as head; fields of shape (runs, runs)."""
    count = len(runs)
    rows, columns = (grid.ravel() for grid in np.meshgrid(range(count), range(count), indexing="ij"))
    flat = shifts(runs[rows], runs[columns])
    return Shifts(*(getattr(flat, f.name).reshape(count, count) for f in dataclasses.fields(Shifts)))


def subsets(rng: np.random.Generator, draws: int, of: int, size: int) -> np.ndarray[tuple[int, int], np.dtype[np.intp]]:
    """`draws` random subsets without repetition, in random order; shape (draws, size)."""
    return np.argsort(rng.random((draws, of)), axis=1)[:, :size]


def judged(
    cases: Sequence[Shifts], rounds: int, settings: Settings, share: float = 1.0
) -> tuple[Fit, npt.NDArray[np.bool_]]:
    """(fit of all draws and cases in one row, whether a change is real, of shape (draws, cases)).

    cases: one entry per case of a run, fields of shape (draws, trials).  share: of the false-alarm rate.
    """
    draws, count = len(cases[0].shift), len(cases)
    fields = [np.stack([getattr(c, f.name) for c in cases], axis=1) for f in dataclasses.fields(Shifts)]
    together = Shifts(*(field.reshape(draws * count, -1) for field in fields))
    run = np.repeat(np.arange(draws), count)
    [fitted] = fit([(together, rounds, np.full(draws * count, settings.trial_noise))], [run])
    bias = np.log1p(settings.arm_bias)
    p_values = two_sided(fitted.below(bias), fitted.above(-bias)).reshape(draws, count)
    return fitted, significant(p_values, NOMINAL * settings.false_alarm * share, settings.false_share) > 0


def findings(cases: Sequence[Shifts], rounds: int, settings: Settings, share: float = 1.0) -> FloatArray:
    """-1 FASTER, 0 nothing found, +1 SLOWER for every draw and case; shape (draws, cases); see `judged`."""
    fitted, real = judged(cases, rounds, settings, share)
    effect = fitted.effect.reshape(real.shape)
    return np.where(real & is_large(effect, settings), np.sign(effect), 0.0)


@dataclasses.dataclass(frozen=True)
class Noise:
    """Synthetic rounds.  Shares of the time: `rounds` and `trials` scatter, `apart` per arm and trial.

    tails: degrees of freedom of the trial scatter (inf is normal).  two_states: the trial scatter is +-1 instead.
    drift: slope over the rounds of a trial, the same for both arms.  spikes: share of rounds 3 times slower.
    """

    rounds: float = 0.01
    trials: float = 0.001
    tails: float = np.inf
    two_states: bool = False
    apart: bool = False
    drift: float = 0.0
    spikes: float = 0.0


def synthetic(
    rng: np.random.Generator, noise: Noise, draws: int, trials: int, rounds: int, effect: float = 0.0
) -> Shifts:
    """Trials of one case made of noise, fields of shape (draws, trials)."""
    count = draws * trials
    arms = []
    for arm in range(2):
        start = rng.choice([-1.0, 1.0], count) if noise.two_states else rng.standard_normal(count)
        if np.isfinite(noise.tails):
            start = start / np.sqrt(rng.chisquare(noise.tails, count) / noise.tails)
        level = start * noise.trials * (1.0 if arm or noise.apart else 0.0)
        slope = noise.drift * np.linspace(0, 1, rounds) * (rng.standard_normal(count)[:, None] if noise.apart else 1.0)
        logs = level[:, None] + slope + noise.rounds * rng.standard_normal((count, rounds)) / np.sqrt(2)
        logs += np.log(3) * (rng.random((count, rounds)) < noise.spikes)
        arms.append(np.exp(logs + arm * np.log1p(effect)))
    flat = shifts(arms[0] * 1e-4, arms[1] * 1e-4)
    return Shifts(*(getattr(flat, f.name).reshape(draws, trials) for f in dataclasses.fields(Shifts)))


def cases_of(trials: Mapping[str, Mapping[str, FloatArray]], arm: str) -> dict[str, Shifts]:
    """Every case of recorded A/B trials, base against the given arm; fields of shape (trials,)."""
    return {case: shifts(arms["base"], arms[arm]) for case, arms in trials.items()}
