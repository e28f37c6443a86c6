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
    return [None if value != value else value for value in rounded(np.asarray(values, dtype=float), digits).tolist()]


_TENS = 10.0 ** np.arange(309)


def rounded(values: np.ndarray, digits: int = 6) -> np.ndarray:
    """Values rounded to significant digits, so that their shortest text has no more; infinities become NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.floor(np.log10(np.abs(values)))
    shift = digits - 1 - np.where(np.isfinite(size), size, 0).astype(np.int64)
    up, down = _TENS[np.clip(shift, 0, 308)], _TENS[np.clip(-shift, 0, 308)]
    return np.round(np.where(np.isfinite(values), values, np.nan) * up / down) * down / up


def one(value: float, digits: int = 6) -> float | None:
    """A single value rounded to significant digits."""
    return significant([value], digits)[0]


def minute(date: pd.Timestamp) -> str:
    """A date as "2026-11-20 09:30", "" where it is not known."""
    return "" if pd.isna(date) else date.strftime("%Y-%m-%d %H:%M")


def count(value: Any) -> int | None:
    """A whole number, None where there is none."""
    return int(value) if pd.notna(value) else None
