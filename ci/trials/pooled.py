"""What is kept of samples that are elsewhere: by each trial, and in a line of its own of one operator at one place.

A median over the samples of several trials cannot be made of the trials' medians, so it is kept, to the last digit.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from benchmarks.shapes import Unfit, items, maybe, name, number, one_of, record, whole

FORMAT, VERSION = "ridgeline-pooled", 1


@dataclasses.dataclass(frozen=True)
class KeptTimes:
    """What a trial keeps of the times of an arm when its samples are elsewhere.

    rounds: how many.  median, q25, q75, longest: seconds.  collapsed: calls that took at least 3 times the median.
    log_ratio: median over the rounds of log(baseline's time / own time), by the baselines that ran beside it.
    """

    rounds: int
    median: float
    q25: float
    q75: float
    longest: float
    collapsed: int = 0
    log_ratio: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class SamplesAt:
    """Where the samples of a trial are, below the project's place for samples.  digest: of all of them."""

    path: str
    digest: str


@dataclasses.dataclass(frozen=True)
class PairedRatio:
    """Baseline time / our time, above 1 ours is faster, with its 99 % interval.  name: the fastest baseline."""

    name: str
    ratio: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class PooledTimes:
    """The times of one backend in one case over all trials of a place; seconds.

    seconds: median over all samples.  low, high: 99 % interval.  q25, q75: quartiles over all samples.
    samples, trials: how many.  paired: against the fastest baseline, None where none ran beside it.
    """

    seconds: float
    low: float
    high: float
    q25: float
    q75: float
    samples: int
    trials: int
    paired: PairedRatio | None = None


@dataclasses.dataclass(frozen=True)
class PooledLine:
    """One operator at one place.  trials: ids of the trials that were pooled.  times: by (backend, case)."""

    operator: str
    trials: frozenset[str]
    times: Mapping[tuple[str, str], PooledTimes]

    @classmethod
    def of(cls, data: Any) -> PooledLine:
        """From the JSON value of a line.  Raises Unfit."""
        LINE(data, "")
        found = {}
        for index, cell in enumerate(data["cells"]):
            if len(cell) != len(CELL):
                raise Unfit(f"cells[{index}]", len(cell), f"a list of {len(CELL)}: {', '.join(CELL)}")
            for (field, check), value in zip(CELL.items(), cell, strict=True):
                check(value, f"cells[{index}] ({field})")
            if len({one is None for one in cell[PAIRED:]}) > 1:
                raise Unfit(f"cells[{index}]", cell[PAIRED:], "a baseline with its ratio and interval, or null for all")
            paired = PairedRatio(*cell[PAIRED:]) if cell[PAIRED] is not None else None
            found[cell[0], cell[1]] = dataclasses.replace(PooledTimes(*cell[2:PAIRED]), paired=paired)
        return cls(data["kernel"], frozenset(data["trials"]), found)

    @property
    def text(self) -> str:
        """The line, without its newline."""
        cells = [[*key, *_flat(times)] for key, times in sorted(self.times.items())]
        head = {"format": FORMAT, "version": VERSION, "kernel": self.operator, "trials": sorted(self.trials)}
        return json.dumps({**head, "columns": list(CELL), "cells": cells}, allow_nan=False, separators=(",", ":"))


def _flat(times: PooledTimes) -> list[Any]:
    *flat, paired = (getattr(times, field.name) for field in dataclasses.fields(times))
    return [*flat, *(dataclasses.astuple(paired) if paired else (None,) * 4)]


CELL = {
    "backend": name,
    "case": name,
    **dict.fromkeys(("seconds", "low", "high", "q25", "q75"), number()),
    **dict.fromkeys(("samples", "trials"), whole(1)),
    "baseline": maybe(name),
    **dict.fromkeys(("ratio", "ratio_low", "ratio_high"), maybe(number())),
}
"""Columns of a cell and what each may hold.  The interval of two trials far apart is wider than any call."""

PAIRED = list(CELL).index("baseline")
"""Where the columns of a paired ratio begin."""

LINE = record(
    {
        "format": one_of(FORMAT),
        "version": one_of(VERSION),
        "kernel": name,
        "trials": items(name),
        "columns": items(one_of(*CELL)),
        "cells": items(lambda value, where: _list(value, where)),
    },
    {},
)
"""A line."""


def _list(value: Any, where: str) -> None:
    if type(value) is not list:
        raise Unfit(where, value, f"a list of {len(CELL)}: {', '.join(CELL)}")
