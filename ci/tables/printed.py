"""Ratios that somebody printed beside the numbers, checked against them: a column `A/B` of a table with A and B."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

RATIO = re.compile(r"([0-9]+(?:\.([0-9]+))?)\s*[x×]?")
"""A printed ratio, such as 1.203x: its digits behind the point say how exact it is."""


@dataclass(frozen=True)
class PrintedOff:
    """A printed ratio that its numbers do not have, or a text that is no ratio (`ratio` is then NaN)."""

    row: int
    printed: str
    ratio: float


@dataclass(frozen=True)
class PrintedRatios:
    """A column of printed ratios.  largest: the largest |printed - computed| of the rows, NaN where there are none."""

    column: str
    rows: int
    largest: float
    off: tuple[PrintedOff, ...]


def check(frame: pd.DataFrame, printed: Sequence[tuple[str, str, str]]) -> tuple[PrintedRatios, ...]:
    """Each printed column against numerator / denominator; off by more than half of its last digit is named.

    frame: printed columns as text, the others as numbers.  printed: (column, numerator, denominator).
    """
    return tuple(_checked(frame, *one) for one in printed if {one[1], one[2]} <= set(frame.columns))


def _checked(frame: pd.DataFrame, column: str, over: str, under: str) -> PrintedRatios:
    found = list(_differences(frame, column, over, under))
    known = [difference for _, difference, _ in found if math.isfinite(difference)]
    off = tuple(one for one, difference, allowed in found if not difference <= allowed)
    return PrintedRatios(column, len(known), max(known, default=math.nan), off)


def _differences(frame: pd.DataFrame, column: str, over: str, under: str) -> Iterator[tuple[PrintedOff, float, float]]:
    """(row, |printed - computed|, what rounding allows) where there is a text and both numbers."""
    computed = frame[over] / frame[under]
    for row, (text, ratio) in enumerate(zip(frame[column], computed, strict=True)):
        if text and math.isfinite(ratio):
            match = RATIO.fullmatch(text)
            shown = float(match[1]) if match else math.nan
            rounding = 0.5 * 10.0 ** -len(match[2] or "") if match else 0.0
            yield PrintedOff(row, text, float(ratio)), abs(shown - float(ratio)), rounding * (1 + 1e-9)
