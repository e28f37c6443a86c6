"""Columns of the records as the plain values that pages and figures draw, and as JSON that is safe inside a script."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd

from ci.records import derived, rates
from ci.records.rates import Rate

Ints = npt.NDArray[np.signedinteger]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

NO_DATE = np.iinfo(np.int64).max
"""Stands for a date that is not known: such commits come last, as pandas sorts them."""

ESCAPED = {character: f"\\u{ord(character):04x}".encode() for character in "<>&\u2028\u2029"}
"""What must not stand in a script as it is; these occur in strings only."""

_REPLACED = {0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


def plain(text: str) -> str:
    """A text that UTF-8 and HTML can carry: lone surrogates and NUL become U+FFFD."""
    return text if text.isascii() and "\0" not in text else text.translate(_REPLACED)


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

    def known(self) -> dict[str, float]:
        """What is known of it, exactly; whole numbers without ".0"."""
        known = {name: value for name, value in self._asdict().items() if value}
        return {name: int(value) if value.is_integer() and value < 2**53 else value for name, value in known.items()}


def costs(rows: pd.DataFrame) -> list[CostRow]:
    """The cost of each row."""
    return [CostRow(*row) for row in np.nan_to_num(rows[list(CostRow._fields)].to_numpy(float)).tolist()]


def newest_stated(found: Sequence[CostRow]) -> CostRow:
    """Of costs of one case, oldest first, the last that is stated; the last where none is."""
    return next((cost for cost in reversed(found) if cost.stated), found[-1])


def headline(rows: pd.DataFrame) -> Rate:
    """The unit in which a case is quoted, by its newest stated cost."""
    return rates.headline(newest_stated(costs(rows)))


def in_rate(rows: pd.DataFrame, rate: Rate, column: str = "seconds") -> np.ndarray:
    """Times of a column in a rate, as :func:`ci.records.derived.in_rate`, but TIME is in microseconds."""
    scale = 1e6 if rate is Rate.TIME else 1.0
    return derived.in_rate(rows, rate, column).to_numpy(float) * scale


def ends_in_rate(rows: pd.DataFrame, rate: Rate) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of the intervals of rows in a rate: the longest time is the lowest rate."""
    short, long = (in_rate(rows, rate, column) for column in ("seconds_low", "seconds_high"))
    return (short, long) if rate is Rate.TIME else (long, short)


_TENS = 10.0 ** np.arange(309)


def rounded(values: np.ndarray, digits: int = 6) -> np.ndarray:
    """Values rounded to significant digits, so that their shortest text has no more; infinities become NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.floor(np.log10(np.abs(values)))
    shift = digits - 1 - np.where(np.isfinite(size), size, 0).astype(np.int64)
    up, down = _TENS[np.clip(shift, 0, 308)], _TENS[np.clip(-shift, 0, 308)]
    return np.round(np.where(np.isfinite(values), values, np.nan) * up / down) * down / up


AS_IS = frozenset({type(None), str, int, bool})
"""Types of what is told as it is: most of what pages have."""


def told(value: Any, digits: int = 6) -> Any:
    """A value of any depth as pages and files have it: numbers in six significant digits, None where they are none.

    Arrays of numbers stay arrays, with NaN for a hole.  Data classes become objects, names of a choice texts.  A whole
    number that must not be rounded is an int.
    """
    kind = type(value)
    if kind in AS_IS:
        return value
    if kind is dict:
        return {key: item if type(item) in AS_IS else told(item, digits) for key, item in value.items()}
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [item if type(item) in AS_IS else told(item, digits) for item in value]
    if isinstance(value, np.ndarray):
        return rounded(value, digits) if value.dtype.kind == "f" else value
    if isinstance(value, enum.Enum):
        return str(value)
    if dataclasses.is_dataclass(value):
        value = vars(value)
    return {key: told(item, digits) for key, item in value.items()} if isinstance(value, Mapping) else value


def minute(date: pd.Timestamp) -> str:
    """A date as "2026-11-20 09:30", "" where it is not known."""
    return "" if pd.isna(date) else date.strftime("%Y-%m-%d %H:%M")


def count(value: Any) -> int | None:
    """A whole number, None where there is none."""
    return int(value) if pd.notna(value) else None


def milliseconds(dates: pd.Series) -> Ints:
    """Dates as milliseconds since 1970, NO_DATE where they are not known."""
    moments = pd.to_datetime(dates, utc=True)
    values = moments.dt.tz_localize(None).to_numpy("datetime64[ms]").astype(np.int64)
    return np.where(moments.isna().to_numpy(), NO_DATE, values)


def finite(column: pd.Series) -> Floats:
    """A column as numbers; what is missing or infinite is NaN."""
    values = column.to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def half_width(rows: pd.DataFrame) -> Floats:
    """Half of the width of the 99 % interval of each time, as a logarithm; NaN without one."""
    low, high = rows["seconds_low"].to_numpy(float), rows["seconds_high"].to_numpy(float)
    known = (low > 0) & (high >= low)
    return np.where(known, np.log(np.where(known, high, 1.0) / np.where(known, low, 1.0)) / 2, np.nan)


# ---- JSON -----------------------------------------------------------------------------------------------------------


def script_json(value: Any) -> bytes:
    """JSON in UTF-8 without <, > and &.  NaN, which JSON lacks, is null: a hole in a line of numbers.

    Lone surrogates and NUL become U+FFFD: UTF-8 and HTML cannot carry them.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:  # lone surrogates, or a type that it does not know
        text = orjson.dumps(_plain(value))
    if b"\\u0000" in text:
        text = orjson.dumps(_plain(value))
    for character, escape in ESCAPED.items():
        text = text.replace(character.encode(), escape)
    return text


def receive(path: str, content: bytes) -> bytes:
    """A data file: a script that hands JSON to the page."""
    return b"Ridgeline.receive(" + script_json(path) + b"," + content + b");\n"


def _plain(value: Any) -> Any:
    """The same with texts that UTF-8 and HTML can carry, and in types that JSON knows."""
    if isinstance(value, str):
        return plain(str(value))
    if isinstance(value, dict):
        return {plain(str(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
