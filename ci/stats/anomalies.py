"""What medians hide: intermittent collapse, two speeds, and a machine that was not the same for both arms.

Decided here and nowhere else: judging asks for a pair of arms (:func:`of_pair`), a plain run for one (:func:`of_arm`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import median

import numpy as np

from ci.stats import FloatArray, PairedRounds, Role

COLLAPSE_FACTOR = 3.0
"""A call this many times slower than the median of its arm has collapsed."""

COLLAPSE_LEAST = 3
"""Fewer collapsed calls than this are not reported: any machine produces one or two (H200, 2026-11-20)."""

COLLAPSE_RATE = 0.002
"""Share of collapsed calls that a machine produces on its own: at most 3 of 1,521 rounds on H200 (2026-11-20)."""

COLLAPSE_TAIL, COLLAPSE_TRIALS, COLLAPSE_LIKELY = 1e-5, 2, 0.01
"""Collapses are certainly the arm's own if chance gives so many with probability TAIL at most and they occur in so many
trials; they are reported from probability LIKELY on (chosen 2026-11-20 on the H200 recordings)."""

MODES_APART = 0.02
"""Two speeds closer than this (log-ratio) are not reported: half the noise of a short call on H200 (2026-11-20)."""

MODES_CLEAR, MODES_SMALLEST = 6.0, 0.1
"""Two speeds are clear if the gap is 6 times their own spread and the rarer holds a tenth of the samples.  Otsu's split
of a normal distribution reaches 2.6, of a uniform one 3.5."""

FAST = MODES_SMALLEST / 2
"""The quantile of a trial's calls that is at the faster speed even where this is the rarer one."""

CLOCK_GAP = 0.005
"""SM clocks that differ by more than 0.5 % between the arms explain that much of a ratio."""


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """One finding about an arm (None: about the ratio of a pair), as a sentence for people.

    collapse: calls that took far longer than the others, which neither chance nor the machine explains.
    """

    sentence: str
    arm: Role | None = None
    collapse: bool = False


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
    def certain(self) -> bool:
        """Too many, in too many trials, to be the machine's."""
        return self.probability <= COLLAPSE_TAIL and self.trials >= COLLAPSE_TRIALS

    def anomaly(self, arm: Role | None = None) -> Anomaly:
        """The finding, naming the arm where there are two."""
        where = f" in {arm}" if arm else ""
        trials = f"{self.trials} trial{'s' * (self.trials != 1)}"
        took = f"{self.calls} of {self.rounds} calls (in {trials}) took {self.factor:.3g} times the median"
        cost = f"they add {self.cost:.1%} to the mean time, and the median does not show it"
        sentence = f"intermittent collapse{where}: {took}; {cost}"
        return Anomaly(sentence, arm, self.certain)


@dataclasses.dataclass(frozen=True)
class Modes:
    """Two speeds: log distance between them, and the share of the slower one."""

    apart: float
    slow_share: float


def of_arm(seconds_per_trial: Sequence[FloatArray]) -> list[Anomaly]:
    """Findings about one arm that has no partner; an array of shape (rounds,) per trial, in seconds."""
    relative = [trial[1:] / np.median(trial) for trial in map(np.asarray, seconds_per_trial) if np.all(trial > 0)]
    collapsed, modes = collapse(relative, ()), _speeds(relative)
    collapses = [collapsed.anomaly()] if collapsed and collapsed.probability < COLLAPSE_LIKELY else []
    return [*collapses, *([_two_speeds(modes)] if modes else [])]


def of_pair(base: Sequence[FloatArray], head: Sequence[FloatArray], shifts: FloatArray) -> list[Anomaly]:
    """Findings about two arms timed side by side.

    base, head: one array per trial, time / median of the arm, the first round (warm-up) left out.
    shifts: log(head / base) of each trial.  A collapse in base is reported only where it is certain.
    """
    arms: tuple[tuple[Role, Sequence[FloatArray]], ...] = (("base", base), ("head", head))
    anomalies = [_two_speeds(modes, arm) for arm, relative in arms if (modes := _speeds(relative))]
    among = two_modes(shifts) if len(shifts) >= 6 else None
    if among:
        anomalies.append(_two_ratios(among))
    worse = collapse(head, _scaled_by_other_arm(base, -shifts))
    better = collapse(base, _scaled_by_other_arm(head, shifts))
    if worse and (worse.certain or worse.probability < COLLAPSE_LIKELY):
        anomalies.append(worse.anomaly("head"))
    if better and better.certain:
        anomalies.append(better.anomaly("base"))
    return anomalies


def _scaled_by_other_arm(partner: Sequence[FloatArray], behind: FloatArray) -> list[FloatArray]:
    """The partner's calls / median of the other arm, where the partner is the slower one.

    Calls that collapse in both arms are the machine's, also where they are most of the partner's and so its median.
    behind: log(partner / other) of each trial.
    """
    if not len(partner):  # calls are not always kept
        return []
    slower = np.exp(np.maximum(behind, 0.0))
    return [np.asarray(trial) * factor for trial, factor in zip(partner, slower, strict=True)]


def collapse(mine: Sequence[FloatArray], partner: Sequence[FloatArray]) -> Collapse | None:
    """Collapsed calls of one arm beyond what its partner and the machine explain; None for fewer than three.

    mine, partner: one array per trial, time / median of the arm, the first round (warm-up) left out.
    """
    factors = np.concatenate(mine) if mine else np.zeros(0)
    collapsed = factors[factors > COLLAPSE_FACTOR]
    if len(collapsed) < COLLAPSE_LEAST:
        return None
    expected = len(factors) * COLLAPSE_RATE + sum(int((p > COLLAPSE_FACTOR).sum()) for p in partner)
    trials = sum(bool((m > COLLAPSE_FACTOR).any()) for m in mine)
    cost = float((collapsed - 1).sum() / len(factors))
    chance = poisson_tail(len(collapsed), expected)
    return Collapse(len(collapsed), len(factors), trials, float(np.median(collapsed)), cost, chance)


def poisson_tail(count: int, expected: float) -> float:
    """Probability of `count` events or more where `expected` are expected (Poisson's law).

    Summed term by term, not with scipy: a node that only measures has no scipy, and `ridgeline run` looks here too.
    """

    def term_of(number: int) -> float:
        return math.exp(number * math.log(expected) - expected - math.lgamma(number + 1))

    if count <= expected:
        return 1.0 - sum(map(term_of, range(count)))
    term, total = term_of(count), 0.0
    while term > 1e-17 * total:
        total, count = total + term, count + 1
        term *= expected / count
    return min(total, 1.0)


def _speeds(relative: Sequence[FloatArray]) -> Modes | None:
    """Two speeds among the calls that have not collapsed: a collapsed call is not a second speed.

    Each trial is put on the scale of its fast calls: its median lies at either speed where both are as frequent.
    """
    kept = [np.log(trial[trial <= COLLAPSE_FACTOR]) for trial in relative]
    scaled = [logs - np.sort(logs)[int(FAST * len(logs))] for logs in kept if len(logs)]
    return two_modes(np.concatenate(scaled)) if scaled else None


def two_modes(logs: FloatArray) -> Modes | None:
    """Two clear clusters among log times of any shape: Otsu's split, then Ashman's D of the two sides."""
    values = np.sort(logs, axis=None)
    count = len(values)
    least = max(2, math.ceil(MODES_SMALLEST * count))
    if count < 2 * least:
        return None
    left = np.arange(least, count - least + 1)
    right = count - left
    sums, squares = np.cumsum(values - values[0]), np.cumsum((values - values[0]) ** 2)
    low, high = sums[left - 1] / left, (sums[-1] - sums[left - 1]) / right
    best = int(np.argmax(left * right * (high - low) ** 2))
    below = squares[left[best] - 1] / left[best] - low[best] ** 2
    above = (squares[-1] - squares[left[best] - 1]) / right[best] - high[best] ** 2
    apart = float(high[best] - low[best])
    gap = apart / math.sqrt(max(float(below + above) / 2, 1e-12))
    return Modes(apart, float(right[best] / count)) if apart > MODES_APART and gap > MODES_CLEAR else None


def _two_speeds(modes: Modes, arm: Role | None = None) -> Anomaly:
    who = f"{arm} has two speeds" if arm else "two speeds"
    sentence = f"{who} {math.expm1(modes.apart):.1%} apart; {modes.slow_share:.0%} of its calls run at the slower one"
    return Anomaly(sentence, arm)


def _two_ratios(modes: Modes) -> Anomaly:
    values = f"the ratio itself has two values {math.expm1(modes.apart):.1%} apart"
    share = f"{modes.slow_share:.0%} of the trials show the larger one"
    sentence = f"{values}: it depends on how the processes start ({share})"
    return Anomaly(sentence)


TOO_FAST = 5.0
"""What is so many times as fast as before has rather lost its work than its waste."""


def too_fast(log_ratio: float) -> list[str]:
    """Whether head is so fast that what it computes should be looked at first.  log_ratio: of head's time to base's."""
    times = math.exp(-log_ratio)
    return [f"{times:.3g} times as fast as base: look whether it still does the same work"] if times > TOO_FAST else []


def clock_warnings(trials: Sequence[PairedRounds]) -> list[str]:
    """Whether the SM clocks differed while each arm was at work."""
    known = [trial.clocks_mhz for trial in trials if trial.clocks_mhz]
    if not known:
        return []
    base, head = map(median, zip(*known, strict=True))
    sentence = f"the arms ran at different SM clocks: base {base:.0f} MHz, head {head:.0f} MHz ({head / base - 1:+.1%})"
    return [sentence] if abs(head / base - 1) > CLOCK_GAP else []
