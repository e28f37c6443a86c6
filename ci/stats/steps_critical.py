"""How large the largest split of a series without steps is; by simulation."""

from __future__ import annotations

LEVEL = 0.005


def critical(points: int) -> float:
    return 5.2


def p_value(size: float, points: int) -> float:
    return min(1.0, 0.005 * 10 ** (-2 * (size - 5.2)))
