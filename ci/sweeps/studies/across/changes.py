"""Before and after: the two points of every declared change (benchmarks.studies.types.Change) as one row.

Of the two rows the one that was tried carries both: the other may be the default, which several changes share.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks.studies import studies
from benchmarks.studies.types import Change
from ci.sweeps.studies.across import code
from ci.sweeps.studies.across.lookup import timed


@dataclasses.dataclass(frozen=True)
class ChangedPair:
    """A change in one case.  bearer: index of the row that carries it; off, on: of the two points."""

    change: str
    bearer: Hashable
    off: Hashable
    on: Hashable


@functools.cache
def declared() -> tuple[Change, ...]:
    """The changes of all studies."""
    return tuple(change for study in studies().values() for change in study.changes)


def pairs(frame: pd.DataFrame) -> list[ChangedPair]:
    """Every change in every case where both points have a time."""
    rows = frame[timed(frame)]
    keys = ["machine", "regime", "operator", "case", "backend"]
    groups = rows.groupby(keys, sort=False, observed=True)
    return [pair for (_, _, operator, case, backend), own in groups for pair in _of_case(own, operator, case, backend)]


def _of_case(rows: pd.DataFrame, operator: str, case: str, backend: str) -> list[ChangedPair]:
    found = []
    for change in declared():
        if (change.operator, change.backend) != (operator, backend) or not _takes_part(change, case):
            continue
        off, on = _row(rows, change.off), _row(rows, change.on)
        if off is not None and on is not None:
            bearer = on if rows.at[on, "point"] else off
            found.append(ChangedPair(change.name, bearer, off, on))
    return found


def _takes_part(change: Change, case: str) -> bool:
    return any(fnmatch.fnmatchcase(case, pattern) for pattern in change.cases)


def _row(rows: pd.DataFrame, knobs: Mapping[str, Any]) -> Hashable | None:
    """The row whose launch has these knobs and else those of the default; of several, that which changes least."""
    fitting = [
        (len(changed), index)
        for index, config, changed in zip(rows.index, rows["config"], rows["knobs"], strict=True)
        if all(config.get(name) == value for name, value in knobs.items()) and set(changed) <= set(knobs)
    ]
    return min(fitting)[1] if fitting else None


def change(frame: pd.DataFrame) -> pd.Series:
    """Name of the change that a row carries, "" for none."""
    return _carried(frame, lambda pair: pair.change, "")


def before(frame: pd.DataFrame) -> pd.Series:
    """Microseconds of the point without the change."""
    return _carried(frame, lambda pair: frame.at[pair.off, "seconds"] * 1e6)


def after(frame: pd.DataFrame) -> pd.Series:
    """Microseconds of the point with it."""
    return _carried(frame, lambda pair: frame.at[pair.on, "seconds"] * 1e6)


def ratio(frame: pd.DataFrame) -> pd.Series:
    """After / before, each a ratio to the same anchor."""
    return _carried(frame, lambda pair: frame.at[pair.on, "ratio"] / frame.at[pair.off, "ratio"])


def low(frame: pd.DataFrame) -> pd.Series:
    """Lower end of the ratio's interval."""
    return _carried(frame, lambda pair: _end(frame, pair, -1))


def high(frame: pd.DataFrame) -> pd.Series:
    """Upper end of the ratio's interval."""
    return _carried(frame, lambda pair: _end(frame, pair, 1))


def _end(frame: pd.DataFrame, pair: ChangedPair, side: int) -> float:
    """Of two ratios to an anchor, each with its interval: the logarithmic half widths add up in squares."""
    on, off = frame.loc[pair.on], frame.loc[pair.off]
    width = math.hypot(_half(on), _half(off))
    return float(on["ratio"] / off["ratio"]) * math.exp(side * width)


def _half(row: pd.Series) -> float:
    """Half of a ratio's logarithmic interval; the anchor's is 0."""
    return 0.0 if row["is_anchor"] else math.log(row["high"] / row["low"]) / 2


def code_before(frame: pd.DataFrame, name: str) -> pd.Series:
    """A number of the machine code (code.METRICS) without the change."""
    return _carried(frame, lambda pair: code.number(frame, pair.off, name))


def code_after(frame: pd.DataFrame, name: str) -> pd.Series:
    """The same with it."""
    return _carried(frame, lambda pair: code.number(frame, pair.on, name))


def of_code(found: Sequence[code.PointCode]) -> pd.DataFrame:
    """Numbers of the code before and after each change, by architecture, case and change: without a GPU."""
    rows = [
        row
        for change in declared()
        for (operator, case, backend, arch), own in _by_launch(found).items()
        if (operator, backend) == (change.operator, change.backend) and _takes_part(change, case)
        for row in _code_rows(change, case, arch, own)
    ]
    return pd.DataFrame(rows)


def _by_launch(found: Sequence[code.PointCode]) -> dict[tuple[str, str, str, str], list[code.PointCode]]:
    groups: dict[tuple[str, str, str, str], list[code.PointCode]] = {}
    for one in found:
        groups.setdefault((one.operator, one.case, one.backend, one.arch), []).append(one)
    return groups


def _code_rows(change: Change, case: str, arch: str, own: Sequence[code.PointCode]) -> Iterator[dict[str, Any]]:
    """One row if both points are there.  A point that is the default has no knobs: it is what is left of a change."""
    off, on = _code_of(own, change.off), _code_of(own, change.on)
    if off is None or on is None or off is on:
        return
    sides = {"before": off, "after": on}
    numbers = {f"{n}_{side}": one.numbers.get(n, math.nan) for n in code.METRICS for side, one in sides.items()}
    why = off.why or on.why
    yield {"change": change.name, "operator": change.operator, "case": case, "arch": arch, **numbers, "why": why}


def _code_of(own: Sequence[code.PointCode], knobs: Mapping[str, Any]) -> code.PointCode | None:
    """The point that has these knobs, as far as they differ from the default; of several that which has most."""
    fitting = [one for one in own if one.knobs.items() <= knobs.items()]
    return max(fitting, key=lambda one: len(one.knobs), default=None)


def _carried(frame: pd.DataFrame, of: Any, nothing: Any = math.nan) -> pd.Series:
    values = {pair.bearer: of(pair) for pair in pairs(frame)}
    return pd.Series([values.get(index, nothing) for index in frame.index], index=frame.index)
