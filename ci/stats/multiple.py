"""Control of false alarms over all cases judged together."""

from __future__ import annotations

import numpy as np

from ci.stats.types import FloatArray


def adjusted(p_values: FloatArray) -> FloatArray:
    """Benjamini-Hochberg adjusted p-values (J. R. Statist. Soc. B 57, 1995): reject where adjusted <= q.

    Rejecting so keeps the expected share of false findings among all findings at most q for independent or positively
    dependent cases.  Shape (cases,); an empty array stays empty.
    """
    count = len(p_values)
    order = np.argsort(p_values)[::-1]
    ranked = p_values[order] * count / np.arange(count, 0, -1)
    result = np.empty(count)
    result[order] = np.minimum(np.minimum.accumulate(ranked), 1.0)
    return result


def found(p_values: FloatArray, each: FloatArray, false_share: float) -> FloatArray:
    """1.0 where a case is a finding, 0.0 elsewhere: its own p-value at most `each`, the adjusted one at most
    `false_share`.

    `each` (one per case) bounds the false alarms per case judged; `false_share` bounds them among the findings of a
    large run, where thousands of cases would add up.
    """
    return ((p_values <= each) & (adjusted(p_values) <= false_share)).astype(np.float64)
