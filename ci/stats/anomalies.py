"""What medians hide: intermittent collapse, two speeds, and a machine that was not the same for both arms.

Pure functions on the trials of one case; each returns None where there is nothing to say.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import median

import numpy as np
from scipy.stats import poisson

from ci.stats.types import Clocks, FloatArray, PairedRounds, Role

COLLAPSE_FACTOR = 3.0
"""A call this many times slower than the median of its arm has collapsed."""

COLLAPSE_RATE = 0.002
"""Share of collapsed calls that a machine produces on its own: at most 3 of 1,521 rounds on H200 (2026-11-20)."""

COLLAPSE_TAIL, COLLAPSE_TRIALS = 1e-5, 2
"""Collapses are the head's doing if chance gives so many with this probability, and they come in so many trials."""

MODES_APART = 0.02
"""Two speeds closer than this (log-ratio) are not worth a word."""

MODES_CLEAR, MODES_SMALLEST = 6.0, 0.1
"""Two speeds are clear if the gap is 6 times their own spread and the rarer holds a tenth of the samples.  Otsu's split
of a normal distribution reaches 2.6, of a uniform one 3.5."""

CLOCK_GAP = 0.005
"""SM clocks that differ by more than 0.5 % between the arms explain that much of a ratio."""

POWER_GAP_W = 25.0
"""Watts between the arms that deserve a word: 3.5 % of the 700 W cap of an H200, beyond the +-10 W seen between
runs."""


@dataclasses.dataclass(frozen=True)
class Collapse:
    """Calls of an arm that took far longer than its median: how many of how many, how much slower, what it costs.

    probability: of so many by chance.  cost: extra time as a share of the arm's undisturbed time.
    """

    calls: int
    rounds: int
    trials: int
    factor: float
    cost: float
    probability: float

    @property
    def real(self) -> bool:
        """Too many, in too many trials, to be the machine's."""
        return self.probability <= COLLAPSE_TAIL and self.trials >= COLLAPSE_TRIALS

    def sentence(self, arm: Role) -> str:
        """For the evidence of a case."""
        return (
            f"intermittent collapse in {arm}: {self.calls} of {self.rounds} calls (in {self.trials} trials) took "
            f"{self.factor:.3g} times the median; they add {self.cost:.1%} to the mean time, the median does not "
            "show it"
        )


def collapse(mine: Sequence[FloatArray], partner: Sequence[FloatArray]) -> Collapse | None:
    """Collapsed calls of one arm beyond what its partner and the machine explain; None for fewer than three.

    mine, partner: one array per trial, time / median of the arm, the first round (warm-up) left out.
    """
    factors = np.concatenate(mine) if mine else np.zeros(0)
    collapsed = factors[factors > COLLAPSE_FACTOR]
    if len(collapsed) < 3:
        return None
    expected = len(factors) * COLLAPSE_RATE + sum(int((p > COLLAPSE_FACTOR).sum()) for p in partner)
    return Collapse(
        len(collapsed),
        len(factors),
        sum(bool((m > COLLAPSE_FACTOR).any()) for m in mine),
        float(np.median(collapsed)),
        float((collapsed - 1).sum() / len(factors)),
        float(poisson.sf(len(collapsed) - 1, expected)),
    )


@dataclasses.dataclass(frozen=True)
class Modes:
    """Two speeds: log distance between them, and the share of the slower one."""

    apart: float
    slow_share: float


def two_modes(logs: FloatArray) -> Modes | None:
    """Two clear clusters among log times of any shape: Otsu's split, then Ashman's D of the two sides."""
    values = np.sort(logs, axis=None)
    count = len(values)
    least = max(2, math.ceil(MODES_SMALLEST * count))
    if count < 2 * least:
        return None
    left = np.arange(least, count - least + 1)
    sums, squares = np.cumsum(values - values[0]), np.cumsum((values - values[0]) ** 2)
    right = count - left
    low, high = sums[left - 1] / left, (sums[-1] - sums[left - 1]) / right
    best = int(np.argmax(left * right * (high - low) ** 2))
    within = (
        squares[left[best] - 1] / left[best]
        - low[best] ** 2
        + (squares[-1] - squares[left[best] - 1]) / right[best]
        - high[best] ** 2
    ) / 2
    apart = float(high[best] - low[best])
    gap = apart / math.sqrt(max(float(within), 1e-12))
    return Modes(apart, float(right[best] / count)) if apart > MODES_APART and gap > MODES_CLEAR else None


def bimodal_sentences(base: Sequence[FloatArray], head: Sequence[FloatArray], shifts: FloatArray) -> list[str]:
    """Two speeds inside the trials, of either arm, and two values among the trials' log-ratios."""
    sentences = []
    for arm, relative in (("base", base), ("head", head)):
        modes = two_modes(np.log(np.concatenate(relative))) if relative else None
        if modes:
            sentences.append(
                f"{arm} has two speeds {math.expm1(modes.apart):.1%} apart; "
                f"{modes.slow_share:.0%} of its calls run at the slower one"
            )
    among = two_modes(shifts) if len(shifts) >= 6 else None
    if among:
        sentences.append(
            f"the ratio itself has two values {math.expm1(among.apart):.1%} apart: it depends on how the "
            f"processes start ({among.slow_share:.0%} of the trials show the larger one)"
        )
    return sentences


def clock_warnings(trials: Sequence[PairedRounds]) -> list[str]:
    """What the device reported differently for the two arms: clocks, power, throttling."""
    pairs = [
        (t.clocks["base"], t.clocks["head"]) for t in trials if t.clocks and "base" in t.clocks and "head" in t.clocks
    ]
    warnings = []
    clock = _medians(pairs, "sm_clock_mhz")
    if clock and abs(clock[1] / clock[0] - 1) > CLOCK_GAP:
        warnings.append(
            f"the arms ran at different SM clocks: base {clock[0]:.0f} MHz, head {clock[1]:.0f} MHz "
            f"({clock[1] / clock[0] - 1:+.1%})"
        )
    power = _medians(pairs, "power_w")
    if power and abs(power[1] - power[0]) > POWER_GAP_W:
        warnings.append(f"the arms drew different power: base {power[0]:.0f} W, head {power[1]:.0f} W")
    differs = sum(1 for base, head in pairs if base.throttle != head.throttle)
    if differs:
        words = sorted({c.throttle or "none" for pair in pairs for c in pair})
        warnings.append(
            f"throttling differed between the arms in {differs} of {len(pairs)} trials ({', '.join(words)})"
        )
    return warnings


def _medians(pairs: Sequence[tuple[Clocks, Clocks]], field: str) -> tuple[float, float] | None:
    known = [(getattr(base, field), getattr(head, field)) for base, head in pairs]
    known = [(base, head) for base, head in known if base and head]
    return (median(base for base, _ in known), median(head for _, head in known)) if known else None
