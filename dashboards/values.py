"""Columns of the records as the plain values that pages and figures draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ci.records import derived, rates
from ci.records.rates import Rate


class CostRow(NamedTuple):
    """What, with a time, gives every rate of a row; 0 where not known.  static/values.js reads it by these names."""

    flops: float
    hbm_bytes: float
    link_bytes: float
    payload_bytes: float
    world: float
    roofline_seconds: float

    @property
    def stated(self) -> bool:
        """Does the record tell any of it?"""
        return any((self.flops, self.hbm_bytes, self.link_bytes, self.payload_bytes))


def costs(rows: pd.DataFrame) -> list[CostRow]:
    """The cost of each row."""
    return [CostRow(*row) for row in np.nan_to_num(rows[list(CostRow._fields)].to_numpy(float)).tolist()]


def different(found: Iterable[CostRow]) -> list[CostRow]:
    """Each cost once; the newest stated one comes last."""
    last = {cost: n for n, cost in enumerate(found)}
    return sorted(last, key=lambda cost: (cost.stated, last[cost]))


def headline(rows: pd.DataFrame) -> Rate:
    """The unit in which a case is quoted, by its newest stated cost."""
    return rates.headline(different(costs(rows))[-1])


def in_rate(rows: pd.DataFrame, rate: Rate, column: str = "seconds") -> np.ndarray:
    """Times of a column in a rate, as :func:`ci.records.derived.in_rate`, but TIME is in microseconds."""
    scale = 1e6 if rate is Rate.TIME else 1.0
    return derived.in_rate(rows, rate, column).to_numpy(float) * scale


def ends_in_rate(rows: pd.DataFrame, rate: Rate) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of the intervals of rows in a rate: the longest time is the lowest rate."""
    short, long = (in_rate(rows, rate, column) for column in ("seconds_low", "seconds_high"))
    return (short, long) if rate is Rate.TIME else (long, short)


def significant(values: np.ndarray | Sequence[float], digits: int = 6) -> list[float | None]:
    """Values rounded to significant digits; NaN and infinities become None, which JSON knows."""
    array = np.asarray(values, dtype=float)
    good = np.isfinite(array)
    safe = np.where(good & (array != 0), np.abs(array), 1.0)
    shift = digits - 1 - np.floor(np.log10(safe)).astype(int)
    up, down = 10.0 ** np.maximum(shift, 0), 10.0 ** np.maximum(-shift, 0)
    rounded = np.round(np.where(good, array, 0.0) * up / down) * down / up
    return [float(v) if ok else None for v, ok in zip(rounded, good, strict=True)]


def one(value: float, digits: int = 6) -> float | None:
    """A single value rounded to significant digits."""
    return significant([value], digits)[0]


def minute(date: pd.Timestamp) -> str:
    """A date as "2026-11-20 09:30", "" where it is not known."""
    return "" if pd.isna(date) else date.strftime("%Y-%m-%d %H:%M")


def count(value: Any) -> int | None:
    """A whole number, None where there is none."""
    return int(value) if pd.notna(value) else None
