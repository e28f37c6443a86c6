"""Draws of recorded trials of H200s, and the verdict rule on thousands of draws at once.

`findings` asks the rules of `ci.judging.judge` about whole runs at once; a test holds the two together.
"""

from __future__ import annotations

import dataclasses
import gzip
import json

import numpy as np

from ci.judging.judge import NOMINAL, is_large
from ci.stats.interval import Shifts, fit, shifts, two_sided
from ci.stats.sequential import significant

US = 1e-6


def trial_files(data):
    """The recorded A/B trials in a folder, one file for each GPU."""
    files = sorted(data.glob("ab_trials_*.jsonl.gz"))
    if not files:
        raise FileNotFoundError(f"{data}: no ab_trials_*.jsonl.gz; give the folder of the H200 recordings")
    return files


def recorded(path):
    """The lines of a recording."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def lock_step_trials(path):
    """Recorded A/B trials: {case: {arm: seconds, shape (trials, rounds)}}."""
    lines = recorded(path)
    return {
        case: {arm: np.array([line["cases"][case][arm] for line in lines]) * US for arm in arms}
        for case, arms in lines[0]["cases"].items()
    }


def separate_pairs(path):
    """(samples of a run, by case every run as base against every run as head) of recorded runs of one process each.

    Fields of shape (runs, runs).
    """
    lines = recorded(path)
    found, rounds = {}, 0
    for case in lines[0]["seq"]:
        runs = np.array([line["seq"][case] for line in lines]) * US
        rounds = runs.shape[1]
        bases, heads = np.repeat(runs, len(runs), axis=0), np.tile(runs, (len(runs), 1))
        flat = shifts(bases, heads)
        found[case] = Shifts(*(getattr(flat, f.name).reshape(len(runs), -1) for f in dataclasses.fields(Shifts)))
    return rounds, found


def subsets(rng, draws, of, size):
    """`draws` random subsets without repetition, in random order; shape (draws, size)."""
    return np.argsort(rng.random((draws, of)), axis=1)[:, :size]


def findings(cases, rounds, settings):
    """-1 FASTER, 0 nothing found, +1 SLOWER for every draw and case; shape (draws, cases).

    cases: one entry per case of a run, fields of shape (draws, trials).
    """
    draws, count = len(cases[0].shift), len(cases)
    fields = [np.stack([getattr(c, f.name) for c in cases], axis=1) for f in dataclasses.fields(Shifts)]
    together = Shifts(*(field.reshape(draws * count, -1) for field in fields))
    run = np.repeat(np.arange(draws), count)
    [fitted] = fit([(together, rounds, np.full(draws * count, settings.trial_noise))], [run])
    bias = np.log1p(settings.arm_bias)
    p_values = two_sided(fitted.below(bias), fitted.above(-bias)).reshape(draws, count)
    real = significant(p_values, NOMINAL * settings.false_alarm, settings.false_share) > 0
    effect = fitted.effect.reshape(real.shape)
    return np.where(real & is_large(effect, settings), np.sign(effect), 0.0)


def cases_of(trials, arm):
    """Every case of recorded A/B trials, base against the given arm; fields of shape (trials,)."""
    return {case: shifts(arms["base"], arms[arm]) for case, arms in trials.items()}
