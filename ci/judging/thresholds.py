"""Floors against the vendor baseline: is ours at least so many times as fast as what a user would call otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

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
    return tuple(_floor(c, rule, *share) for (c, rule), share in zip(rows, shares, strict=True))


def _shares(comparisons: Sequence[Comparison], policy: Policy) -> list[tuple[Effect | None, float | None]]:
    """Per comparison: log(baseline time / head time) with its interval, and the plain share of base."""
    usable, found = [], []
    for i, c in enumerate(comparisons):
        settings = policy.settings(c.kernel, c.machine_kind)
        pairs = [
            PairedRounds(t.number, t.head, t.baseline_head)
            for t in c.trials
            if t.baseline_head is not None and len(t.baseline_head) == len(t.head) >= settings.min_rounds
        ]
        if len(pairs) >= settings.min_trials:
            usable.append((i, pairs, settings))
    measured = [s for s in samples([pairs for _, pairs, _ in usable]) if s is not None]
    for (i, _, _), effect in zip(usable, effects(measured, (_scale(s) for _, _, s in usable)), strict=True):
        found.append((i, effect))
    by_index = dict(found)
    return [(by_index.get(i), _base_share(c)) for i, c in enumerate(comparisons)]


def _scale(settings: Settings) -> Scale:
    return Scale(settings.trial_noise, 0.0, settings.confidence)


def _base_share(c: Comparison) -> float | None:
    pairs = [(t.baseline_base, t.base) for t in c.trials if t.baseline_base is not None]
    return _median([_ratio(control, base) for control, base in pairs]) if pairs else None


def _ratio(control: FloatArray, ours: FloatArray) -> float:
    return _median(control.tolist()) / _median(ours.tolist())


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _floor(c: Comparison, rule: FloorRule, effect: Effect | None, base_share: float | None) -> Floor:
    baseline = c.baseline or rule.baseline
    if effect is None:
        return Floor(c.case, baseline, rule.share, rule.reason, "absent", base_share=base_share)
    low, high = math.exp(effect.low), math.exp(effect.high)
    state: Literal["met", "missed", "cannot tell"] = (
        "missed" if high < rule.share else "met" if low >= rule.share else "cannot tell"
    )
    return Floor(c.case, baseline, rule.share, rule.reason, state, math.exp(effect.log_ratio), low, high, base_share)
