"""Which points of a sweep go on to the next rung, so that the best one is among them with a stated chance.

With n points whose log-ratios are known as m_i +- s_i, let

    U = min_j (m_j + a s_j),   a = normal quantile of 1 - miss / (2 n):   no m_j is further below its truth than a s_j
    keep i  if  m_i - b s_i <= U + indifference,   b = normal quantile of 1 - miss / 2

Whatever the truth is, the best point w fails this only if its own m_w is more than b s_w too high (chance miss / 2) or
some m_j is more than a s_j too low (chance miss / 2 for all n together, by Bonferroni): for every other j,
m_j + a s_j >= truth_j >= truth_w >= m_w - b s_w.  So the best point is lost with a chance of at most `miss` per rung,
and so is any one point that is within the indifference of the best.  How many are kept is up to the noise: nothing is
dropped because of a fixed share.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ci.stats.types import FloatArray

MISS = 0.05
"""Chance of missing the winner over all rungs, unless asked otherwise."""

INDIFFERENCE = 0.01
"""Points whose times differ by less than this share are equally good (issue 14: the winner within 1 % of the best)."""


def kept(mean: FloatArray, sd: FloatArray, miss: float, indifference: float = INDIFFERENCE) -> npt.NDArray[np.bool_]:
    """Which points go on, shape (points,).  mean, sd: of the log-ratios.  miss: chance that is spent on this rung."""
    if not len(mean):
        return np.zeros(0, dtype=np.bool_)
    reach, joint = ndtri(1 - miss / 2), ndtri(1 - miss / (2 * len(mean)))
    bound = float(np.min(mean + joint * sd)) + np.log1p(indifference)
    return np.asarray(mean - reach * sd <= bound)


def shares(miss: float, rungs: int) -> float:
    """What each of the rungs that drop points may spend, so that all together miss with a chance of at most `miss`."""
    return miss / max(1, rungs)
