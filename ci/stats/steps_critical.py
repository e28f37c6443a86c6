"""How large the loudest split of a series without a step is, simulated: what a step must exceed, and its p-value."""

from __future__ import annotations

import numpy as np

LEVEL = 0.005
"""Null series with any alarm: half of the 1 % that is promised, because some noise is worse than what was simulated."""

TABLE = {
    6: (5.60, 12.37),
    8: (5.75, 9.46),
    10: (6.78, 9.06),
    14: (6.34, 9.16),
    20: (6.26, 8.49),
    30: (6.06, 7.96),
    50: (5.74, 7.07),
    100: (5.13, 6.14),
    200: (5.01, 5.73),
    350: (5.01, 5.58),
    512: (5.22, 5.94),
    1024: (5.42, 6.15),
}
"""Points: standard errors that 1 of 100 and 1 of 1000 null series exceed, of the worst of Gaussian, t (3 degrees),
AR(1) 0.5 and 1 % outliers.  `python -m ci.study.step_bar --series 6000`, 2026-11-22."""


def critical(points: int) -> float:
    """Standard errors that a step of a series of so many points must exceed."""
    one, step = _line(points)
    return one + step * float(np.log10(0.01 / LEVEL * _windows(points)))


def p_value(size: float, points: int) -> float:
    """Share of null series of so many points that have a split of this many standard errors.

    Log-linear through the two tails of the table and beyond them, which a normal tail falls below.
    """
    one, step = _line(points)
    return float(min(1.0, 0.01 * _windows(points) * 10 ** min((one - size) / step, 2)))


def _line(points: int) -> tuple[float, float]:
    """(standard errors at 1 of 100, further ones for a factor of 10), between the lengths of the table."""
    lengths = np.log(list(TABLE))
    one, two = (np.interp(np.log(max(points, 1)), lengths, tail) for tail in zip(*TABLE.values(), strict=True))
    return float(one), float(two - one)


def _windows(points: int) -> float:
    """A history longer than the table has so many times more places for a false alarm."""
    return max(points / max(TABLE), 1.0)
