"""Which trials of a run a file lacks: what is measured when it is taken up again."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from ci.trials.trial import Trial


@dataclasses.dataclass(frozen=True)
class TrialBatch:
    """Trials with consecutive numbers of the same operators.  operators: () stands for all that are planned."""

    operators: tuple[str, ...]
    first: int
    count: int


def measured_operators(trials: Iterable[Trial], first: int) -> tuple[str, ...]:
    """The operators of a run as far as its trials tell: (), unless its first trial is whole.

    Operators are measured trial by trial, so the second trial begins when the first is whole.
    """
    found = list(trials)
    if not any(one.number > first for one in found):
        return ()
    return tuple(dict.fromkeys(one.operator for one in found if one.number == first))


def missing(trials: Iterable[Trial], operators: Collection[str], first: int, count: int) -> list[TrialBatch]:
    """The batches that complete `count` trials, numbered from `first`, of these operators, in the order of a run."""
    done = {(one.operator, one.number) for one in trials}
    return _joined(
        [(number, tuple(o for o in operators if (o, number) not in done)) for number in range(first, first + count)]
    )


def _joined(lacking: Sequence[tuple[int, tuple[str, ...]]]) -> list[TrialBatch]:
    """Neighbours that lack the same operators as one batch; those that lack none are left out."""
    batches: list[TrialBatch] = []
    for number, operators in lacking:
        last = batches[-1] if batches else None
        if last and last.operators == operators and last.first + last.count == number:
            batches[-1] = dataclasses.replace(last, count=last.count + 1)
        elif operators:
            batches.append(TrialBatch(operators, number, 1))
    return batches
