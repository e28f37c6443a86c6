"""Changes that lead to equal code are next to no suspects: the prior over changes, from what is known of the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ci.stats.types import FloatArray

OTHER_CAUSE = 0.01
"""Prior share of all changes with equal code on both sides together: a step among them has another cause than the code
that was compared (data files, host code, a build option).  It is the error rate at which a search ends."""

Labels = Sequence[str | None]
"""Of each position what its code is: equal labels are equal code; None: not known."""


def weights(same: Sequence[bool]) -> FloatArray:
    """Prior of each change, adding up to 1.  same: whether it is known to leave the code as it was."""
    equal = np.array(same)
    apart = (~equal).sum()
    if apart in (0, len(equal)):
        return np.full(len(equal), 1 / len(equal))
    return np.asarray(np.where(equal, OTHER_CAUSE / equal.sum(), (1 - OTHER_CAUSE) / apart))


def same_code(known: Labels, measured: Mapping[int, str]) -> list[bool]:
    """Of each change, whether it lies between positions with equal code.

    known: what was known before.  measured: what trials said of the positions that they measured; it holds for all
    positions with the same known label too.
    """
    spread = {known[position]: label for position, label in measured.items() if known[position] is not None}
    launched = [measured.get(n) or spread.get(label) for n, label in enumerate(known)]
    return [one or other for one, other in zip(_between_equals(known), _between_equals(launched), strict=True)]


def _between_equals(labels: Labels) -> list[bool]:
    """Of each change, whether the nearest labels before and after it are equal."""
    before, after = _filled(labels), _filled(labels[::-1])[::-1]
    pairs = zip(before[:-1], after[1:], strict=True)
    return [one is not None and one == other for one, other in pairs]


def _filled(labels: Labels) -> list[str | None]:
    """Each label, or the last one before it."""
    found: list[str | None] = []
    for label in labels:
        found.append(label if label is not None or not found else found[-1])
    return found
