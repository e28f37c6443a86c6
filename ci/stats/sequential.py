"""When to stop measuring: looks at fixed numbers of trials, an error budget split over them, fresh trials as a check.

Every look at the data is a chance to be wrong, so each look may use only its share of the false-alarm rate; the shares
add up to 1 and the rate over all looks is at most the rate allowed (Bonferroni; nothing is assumed about how the looks
depend on each other).  A finding of SLOWER must then be repeated by trials that had no part in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

import numpy as np

from ci.stats.types import FloatArray

# Control of false alarms over all cases judged together.


def two_sided(not_slower: FloatArray, not_faster: FloatArray) -> FloatArray:
    """The p-value of a change in either direction, from the tails of both; any shape."""
    return np.asarray(np.minimum(1.0, 2 * np.minimum(not_slower, not_faster)))


def adjusted(p_values: FloatArray) -> FloatArray:
    """Benjamini-Hochberg adjusted p-values (J. R. Statist. Soc. B 57, 1995): reject where adjusted <= q.

    Rejecting so keeps the expected share of false findings among all findings at most q for independent or positively
    dependent cases.  Shape (cases,), or (runs, cases): each run by itself; an empty array stays empty.
    """
    count = p_values.shape[-1]
    order = np.argsort(p_values, axis=-1)[..., ::-1]
    ranked = np.take_along_axis(p_values, order, axis=-1) * count / np.arange(count, 0, -1)
    result = np.empty(p_values.shape)
    np.put_along_axis(result, order, np.minimum(np.minimum.accumulate(ranked, axis=-1), 1.0), axis=-1)
    return result


def found(p_values: FloatArray, each: FloatArray | float, false_share: float) -> FloatArray:
    """1.0 where a case is a finding, 0.0 elsewhere: its own p-value at most `each`, the adjusted one at most
    `false_share`.

    `each` (one per case, or one for all) bounds the false alarms per case judged; `false_share` bounds them among the
    findings of a large run, where thousands of cases would add up.
    """
    return ((p_values <= each) & (adjusted(p_values) <= false_share)).astype(np.float64)


CONFIRMING_TAIL = 0.05
"""Fresh trials confirm if, on their own, the probability of no slowdown is at most this."""


class CaseState(Protocol):
    """What the look at one case came to.  case: its name; trials: those used so far.

    slower: fresh trials must confirm it; undecided: more trials may settle it; wants_more: it is still open.
    """

    @property
    def case(self) -> str: ...
    @property
    def trials(self) -> int: ...
    @property
    def slower(self) -> bool: ...
    @property
    def undecided(self) -> bool: ...
    @property
    def wants_more(self) -> bool: ...


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a live comparison has got: its looks, and the number of trials at which a case first looked slower.

    looks: numbers of trials at which cases are judged, rising.  confirming: fresh trials that must repeat a SLOWER.
    """

    looks: tuple[int, ...] = (4, 6, 8, 12)
    confirming: int = 3
    flagged: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def budget(self) -> int:
        """Most trials of a case, confirmation apart."""
        return self.looks[-1]

    @property
    def most(self) -> int:
        """Most trials of a case in all: the budget, then fresh trials for a finding at the last look."""
        return self.budget + self.confirming

    def advanced(self, cases: Iterable[CaseState]) -> Progress:
        """The state after a look: cases that look slower for the first time are remembered with their trials."""
        flagged = dict(self.flagged)
        for case in cases:
            if case.slower and case.case not in flagged:
                flagged[case.case] = case.trials
        return dataclasses.replace(self, flagged=flagged)


@dataclasses.dataclass(frozen=True)
class Decision:
    """What to do after a look.  trials: how many trials each of `cases` should have at the next look."""

    action: Literal["stop", "more"]
    trials: int
    cases: tuple[str, ...]


def share(trials: int, looks: tuple[int, ...]) -> float:
    """Share of the false-alarm rate that a look after this many trials may use; 0 before the first look.

    Equal shares: an early look that finds a large change ends the measuring, a late one has the trials to be strict.
    """
    if trials < looks[0]:
        return 0.0
    return 1.0 / len(looks)


def decide(state: Progress, cases: Iterable[CaseState]) -> Decision:
    """Stop, or measure which cases up to how many trials.  `state` must have been advanced over these cases."""
    open_cases = {case.case: _target(case, state) for case in cases}
    wanted = {name: target for name, target in open_cases.items() if target}
    if not wanted:
        return Decision("stop", 0, ())
    trials = min(wanted.values())
    return Decision("more", trials, tuple(name for name, target in wanted.items() if target >= trials))


def _target(case: CaseState, state: Progress) -> int:
    """Trials this case should have next, 0 if it is settled or its budget is spent."""
    if not case.wants_more:
        return 0
    seen = state.flagged.get(case.case)
    if seen is not None and case.trials < seen + state.confirming:
        return seen + state.confirming
    if not case.undecided:
        return 0
    return next((look for look in state.looks if look > case.trials), 0)
