"""Changes that lead to equal code are next to no suspects: the prior over changes, from what is known of the code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ci.stats.types import FloatArray

OTHER_CAUSE = 0.01
"""Prior share of all changes with equal code on both sides together: a step among them has another cause than the code
that was compared (data files, host code, a build option).  An error rate of the search itself, which ends at 99 %."""


def weights(labels: Sequence[str | None]) -> FloatArray:
    """Prior of each change; labels: of positions 0..last, equal for equal code, None where it is not known.

    A change between two positions that are known to be equal is a suspect only as OTHER_CAUSE says.
    """
    same = np.array(same_code(labels))
    apart = (~same).sum()
    if apart == 0 or apart == len(same):
        return np.full(len(same), 1 / len(same))
    return np.asarray(np.where(same, OTHER_CAUSE / same.sum(), (1 - OTHER_CAUSE) / apart))


def same_code(labels: Sequence[str | None]) -> list[bool]:
    """Of each change: whether the nearest known positions before and after it have one label."""
    before: list[str | None] = []
    for label in labels:
        before.append(label if label is not None or not before else before[-1])
    after: list[str | None] = []
    for label in reversed(labels):
        after.append(label if label is not None or not after else after[-1])
    after.reverse()
    pairs = zip(before[:-1], after[1:], strict=True)
    return [one is not None and one == other for one, other in pairs]


def count(labels: Sequence[str | None]) -> int:
    """Runs of code that may differ: 1 + the changes that may have changed it."""
    return 1 + same_code(labels).count(False)
