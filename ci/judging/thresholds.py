"""Floors against the baseline: is ours at least so many times as fast as what a user would call otherwise?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ci.judging.policy import FloorRule, Policy, Settings
from ci.judging.types import Floor
from ci.stats.measured import Effect, Scale, effects, samples
from ci.stats.types import FloatArray, PairedRounds
from ci.trials.compared import Comparison, Status


def check(comparisons: Sequence[Comparison], policy: Policy) -> tuple[Floor, ...]:
    """Every floor that applies to a comparison whose head ran, in order."""
    rows = [
        (c, rule)
        for c in comparisons
        if c.head_status is Status.OK and not c.problems
        for rule in policy.floor_rules(c.kernel, c.backend, c.case)
        if rule.baseline in ("*", c.baseline) or c.baseline is None
    ]
    shares = _shares([c for c, _ in rows], policy)
    return tuple(_floor(c, rule, share) for (c, rule), share in zip(rows, shares, strict=True))


def _shares(comparisons: Sequence[Comparison], policy: Policy) -> list[Effect | None]:
    """Per comparison: log(baseline time / head time) with its interval, None where the baseline was not timed."""
    usable = []
    for i, c in enumerate(comparisons):
        settings = policy.settings(c.kernel, c.machine_kind)
        pairs = _beside_head(c, settings.min_rounds)
        if len(pairs) >= settings.min_trials:
            usable.append((i, pairs, settings))
    measured = [s for s in samples([pairs for _, pairs, _ in usable]) if s is not None]
    fitted = effects(measured, (_scale(settings) for _, _, settings in usable))
    found = {i: effect for (i, _, _), effect in zip(usable, fitted, strict=True)}
    return [found.get(i) for i in range(len(comparisons))]


def _beside_head(c: Comparison, min_rounds: int) -> list[PairedRounds]:
    """Head against its baseline, as if they were base and head."""
    timed = [(t, t.baseline_head) for t in c.trials if t.baseline_head is not None]
    return [
        PairedRounds(t.number, t.head, baseline)
        for t, baseline in timed
        if len(baseline) == len(t.head) and len(baseline) >= min_rounds
    ]


def _scale(settings: Settings) -> Scale:
    return Scale(settings.trial_noise, 0.0, settings.confidence)


def _base_share(c: Comparison) -> float | None:
    """Median over the trials of baseline time / our time on the side of base."""
    shares = [_ratio(t.baseline_base, t.base) for t in c.trials if t.baseline_base is not None]
    return float(np.median(shares)) if shares else None


def _ratio(baseline: FloatArray, ours: FloatArray) -> float:
    return float(np.median(baseline) / np.median(ours))


def _floor(c: Comparison, rule: FloorRule, share: Effect | None) -> Floor:
    baseline, base_share = c.baseline or rule.baseline, _base_share(c)
    if share is None:
        return Floor(c.case, baseline, rule.share, rule.reason, "absent", base_share=base_share)
    middle, low, high = share.ratios
    state: Literal["met", "missed", "cannot tell"] = "cannot tell"
    if high < rule.share or low >= rule.share:
        state = "missed" if high < rule.share else "met"
    return Floor(c.case, baseline, rule.share, rule.reason, state, middle, low, high, base_share)
