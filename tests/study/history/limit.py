"""How often the place of a step can be told at all: what an oracle gets that knows more than any detector may.

It knows that there is one step, its size, the old level and how the noise is distributed, and names the likeliest
place.  No detector can be within RIGHT commits more often, since the points about the step say no more.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import t

from ci.stats.types import FloatArray

DRAWS, BESIDE = 20_000, 40
"""Steps that are drawn, and points on either side of each: beyond them no place is ever the likeliest."""


def limit(size: float, sigma: float, tails: float, outliers: float, outlier: float, right: int) -> float:
    """Share of steps of `size` (log) that the oracle places within `right` points.

    sigma, tails: standard deviation and degrees of freedom of the noise (Student's t); outliers, outlier: share and
    size (log) of points that are slower for a reason of their own.
    """
    rng = np.random.default_rng(0)
    shape = 2, DRAWS, BESIDE
    scale = sigma * ((tails - 2) / tails) ** 0.5
    noise = rng.standard_t(tails, shape) * scale + outlier * (rng.random(shape) < outliers)
    before, after = noise[0], size + noise[1]

    def density(x: FloatArray) -> FloatArray:
        return np.asarray((1 - outliers) * t.pdf(x / scale, tails) + outliers * t.pdf((x - outlier) / scale, tails))

    lost = [np.log(density(before - size) / density(before)), np.log(density(after) / density(after - size))]
    earlier, later = (np.cumsum(one, axis=1) for one in lost)  # what is likelier if the step were so many points off
    whole = np.concatenate([earlier[:, ::-1], np.zeros((DRAWS, 1)), later], axis=1)
    off = np.abs(np.argmax(whole, axis=1) - BESIDE)
    return float(np.mean(off <= right))
