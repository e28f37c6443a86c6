"""What stopping hopeless cases early costs, on recorded trials: cases stopped that the budget would have decided.

    python -m tests.study.budget.early_stop --data tests/recordings/h200 --draws 200

Runs of five cases are drawn from the recorded trials of each GPU and arm, as they are, and with the scatter between
their trials stretched until many cannot be decided.  Each is judged look by look by the policy, without early stopping;
the chance is computed at every look at which a case is open.  One line per level: of the cases that were open at a
look, how many would be stopped, how many of these the budget would have decided, and how many trials are saved.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ci.judging import policy
from ci.judging.judge import NOMINAL, of_interval
from ci.judging.policy import Settings
from ci.stats.interval import Shifts
from ci.stats.sequential import DecisionRule, SoFar, chance
from ci.stats.types import FloatArray
from tests.study import simulate
from tests.study.simulate import subsets

ARMS = ("same", "head1", "head2", "head3", "head6")
STRETCH = (1.0, 3.0, 10.0, 30.0)
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2)


@dataclasses.dataclass(frozen=True)
class OpenLook:
    """A case that was open at a look: its chance then, whether the budget decided it, trials that stopping saves."""

    stretch: float
    trials: int
    chance: float
    decided: bool
    saved: int


def open_looks(data: Path, draws: int, seed: int, stretches: Sequence[float] = STRETCH) -> Iterator[OpenLook]:
    """Every look at every open case of all draws."""
    rng, settings = np.random.default_rng(seed), policy.load().settings()
    for file, arm, stretch in itertools.product(simulate.trial_files(data), ARMS, stretches):
        cases = simulate.cases_of(simulate.lock_step_trials(file), arm)
        wide = [_stretched(values, stretch) for values in cases.values()]
        index = subsets(rng, draws, len(wide[0].shift), settings.looks[-1])
        yield from _of_runs([values[index] for values in wide], stretch, settings)


def _stretched(values: Shifts, factor: float) -> Shifts:
    """The same middle, with trials that differ by more; the rounds do not explain it."""
    middle = np.median(values.shift)
    return dataclasses.replace(values, shift=middle + factor * (values.shift - middle))


def _of_runs(cases: Sequence[Shifts], stretch: float, settings: Settings) -> Iterator[OpenLook]:
    """Looks of many runs at once; fields of the cases are of shape (draws, trials)."""
    looks = settings.looks
    at = {n: _judged([values[:, :n] for values in cases], settings) for n in looks}
    over = np.array([at[n][0] for n in looks]).cumsum(axis=0) > 0  # decided at this look or before
    last_trials = np.array(looks)[np.where(over.any(axis=0), over.argmax(axis=0), len(looks) - 1)]
    for place, n in enumerate(looks[:-1]):
        _, effect, half = at[n]
        for draw, case in zip(*np.nonzero(~over[place]), strict=True):
            found = chance(SoFar(effect[draw, case], half[draw, case], n), looks[-1], rule_of(settings))
            saved = int(last_trials[draw, case]) - n
            yield OpenLook(stretch, n, found, bool(over[-1][draw, case]), saved)


def rule_of(settings: Settings) -> DecisionRule:
    """The policy at one look of several."""
    tail = NOMINAL * settings.false_alarm / len(settings.looks) / 2
    limits = (settings.same_within, settings.smallest_effect, settings.arm_bias)
    within, smallest, bias = (float(np.log1p(one)) for one in limits)
    return DecisionRule(within, smallest, bias, tail, settings.confidence)


def _judged(cases: Sequence[Shifts], settings: Settings) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(decided, effect, half of the interval), shape (draws, cases) each: the rule of ci.judging.judge."""
    fitted, real = simulate.judged(cases, 40, settings, 1 / len(settings.looks))
    edges = (fitted.effect, *fitted.interval(settings.confidence))
    effect, low, high = (edge.reshape(real.shape) for edge in edges)
    large, within, leans = of_interval(effect, low, high, settings)
    decided = (real & large) | (within & (real | ~leans))
    return decided.astype(np.float64), effect, (high - low) / 2


def rows(looks: Sequence[OpenLook]) -> Iterator[str]:
    """The table, by stretch and level."""
    yield "scatter x  level  open looks  stopped  lost (would have been decided)  trials saved a stopped case"
    for stretch, level in itertools.product(sorted({one.stretch for one in looks}), LEVELS):
        these = [one for one in looks if one.stretch == stretch]
        stopped = [one for one in these if one.chance < level]
        lost = sum(one.decided for one in stopped)
        share = f"{100 * lost / len(stopped):.1f} %" if stopped else "-"
        saved = f"{np.mean([one.saved for one in stopped]):.1f}" if stopped else "-"
        yield f"{stretch:9g}  {level:5g}  {len(these):10d}  {len(stopped):7d}  {lost:6d}  {share:>8}  {saved:>8}"


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--draws", type=int, default=200)
    options.add_argument("--seed", type=int, default=15)
    asked = options.parse_args()
    print(*rows(list(open_looks(asked.data, asked.draws, asked.seed))), sep="\n")


if __name__ == "__main__":
    main()
