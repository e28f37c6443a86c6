"""How many rounds a trial of an undecided case should have, so that a second tells most.

With n rounds the shift of a trial has the variance tau^2 + w / n (tau: what is different from one start of the
processes to the next, w: of one round), and the trial takes start_s + n round_s.  What T seconds of such trials tell of
the effect, the inverse of its variance, is T / ((start_s + n round_s) (tau^2 + w / n)), largest at

    n = sqrt(start_s / round_s * w / tau^2)

(Cochran, Sampling Techniques, 1977, section 10.6: optimum subsampling in two stages).  Only the noise decides, never
the effect, so this is no look at the effect.  `python -m ci.study.budget.starts` has both on the recorded H200 trials.
"""

from __future__ import annotations

import dataclasses
import math

from ci.stats.paired import BLOCK, Shifts
from ci.stats.types import FloatArray

MOST = 4
"""Times the usual rounds.  Beyond that tau decides: with w / tau^2 = 40, a trial of 160 rounds has a variance of 0.63,
one of 1000 of 0.52 times that of 40."""


@dataclasses.dataclass(frozen=True)
class TrialSeconds:
    """What a trial costs for one case: its part of what is ahead of the samples and behind them, and a round."""

    start_s: float
    round_s: float


def best(found: Shifts, rounds: FloatArray, start_noise: float, cost: TrialSeconds) -> int:
    """The rounds of the next trials.  found: of the trials so far, shape (trials,), and `rounds`, how many each had.

    start_noise: the least tau, as a log-ratio.  Whole blocks (ci.stats.paired), from the fewest so far to MOST times
    as many as these; fewer than two trials say nothing of tau.
    """
    fewest = int(rounds.min())
    of_round = float((found.variance * rounds).mean())
    if len(rounds) < 2 or min(of_round, cost.start_s, cost.round_s) <= 0:
        return fewest
    between = max(start_noise**2, float(found.shift.var(ddof=1) - found.variance.mean()))
    wanted = math.sqrt(cost.start_s / cost.round_s * of_round / between)
    return int(min(max(fewest, wanted // BLOCK * BLOCK), MOST * fewest))
