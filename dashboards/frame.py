"""What pages show of the records: machines, and on each of them series over commits, with what may be compared.

A *lane* is a machine or, on a machine that measures the same commit under several environments, one of them.  Its rows
lie series by series (kernel, case, backend), the oldest commit first: whatever a page shows of a series is a slice.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ci.history.analysis import History
from ci.history.exact import CodeRecord
from ci.history.series import coded
from ci.history.types import Moved, SeriesKey
from ci.records import rates
from ci.records.rates import Rate
from ci.trials.trial import Trial
from dashboards.charts import numbers
from dashboards.files import slug

KEY = ["kernel", "case", "backend"]
"""What names a series within a lane."""

RECENT = 10
"""Measured commits over which the front page tells how a number changed."""

UNITS = {Rate.TFLOPS: "TFLOPS", Rate.GBS: "GB/s", Rate.ALGBW: "GB/s", Rate.BUSBW: "GB/s", Rate.TIME: "s"}
NAMES = {
    Rate.TFLOPS: "TFLOPS",
    Rate.GBS: "HBM GB/s",
    Rate.ALGBW: "algbw, GB/s",
    Rate.BUSBW: "busbw, GB/s",
    Rate.TIME: "time (less is better)",
}
FEW_TRIALS = 3
"""Of fewer trials an interval says little: how fresh processes differ is not in it."""

RATIO = "ratio to the library"
"""What the paired ratio is called: the library's time / ours, in the rounds of one trial; above 1 ours is faster."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
NotesOf = Callable[[str, str, str], Sequence[Trial]]
"""(machine, commit, env) -> the trials of that record, oldest first (`ci.records.store.trials`)."""

DRAWN = ("value", "seconds", "seconds_low", "seconds_high", "ratio", "ratio_low", "ratio_high")

_TEXTS = ("commit", "env", *KEY, "status", "why", "dtype", "tier", "shape", "method")
_NUMBERS = ("seconds", "seconds_low", "seconds_high", "peak_share", "trials", "world")
_COSTS = tuple(rates.AMOUNT.values())


class Commit(NamedTuple):
    """A recorded commit.  date: "2026-11-20 09:30", UTC; "" where it is not known."""

    hash: str
    date: str


class Change(NamedTuple):
    """How much longer something takes: new time / old time - 1, with the ends of its 99 % interval, or NaN."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """A backend in a case.  rows: its rows in the lane; good: those with a time, of which there may be none."""

    kernel: str
    case: str
    backend: str
    baseline: bool
    rows: slice
    good: Ints

    @property
    def newest(self) -> int:
        """Its last row, with a time or without."""
        return self.rows.stop - 1


@dataclasses.dataclass(frozen=True, eq=False)
class Lane:
    """A machine, or one environment of it.

    newest: a derived row of its newest commit, which says what the machine is.  columns: all its rows, series by
    series, as arrays; "at": place of the commit in `commits`; "ratio", "ratio_low", "ratio_high": see RATIO;
    "library": whose time it is; "definition": digest of the benchmark definition of the case, else of the kernel;
    "value": the rate in which the case is quoted.
    """

    machine: str
    env: str | None
    newest: pd.Series
    commits: Sequence[Commit]
    columns: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def of(cls, machine: str, env: str | None, frame: pd.DataFrame) -> Lane:
        """Of the derived rows of a lane."""
        moments = pd.to_datetime(frame["date"], utc=True)
        code, names = coded(frame["commit"])
        newest = last_of_each(code, len(names))
        dated = pd.DataFrame({"commit": pd.Series(names, dtype=object), "row": newest})[newest >= 0]
        dated["date"] = moments.iloc[dated["row"]].array
        dated = dated.sort_values(["date", "commit"], kind="stable")
        commits = [Commit(commit, minute(date)) for commit, date in zip(dated["commit"], dated["date"], strict=True)]
        place = np.zeros(len(names), np.int64)
        place[dated.index] = np.arange(len(dated))
        at = place[code]
        keys = [pd.factorize(frame[name], sort=True)[0] for name in KEY]
        order = np.lexsort([at, *reversed(keys)])
        again = np.zeros(len(order), bool)
        again[:-1] = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in (*keys, at)])
        order = order[~again]  # of two rows of one arm at one commit the one that comes last stays
        columns = {name: column[order] for name, column in _columns(frame, moments)} | {"at": at[order]}
        return cls(machine, env, frame.iloc[int(np.argmax(at))], commits, columns)

    @functools.cached_property
    def drawn(self) -> Mapping[str, Floats]:
        """The columns that charts draw, in the digits of a page."""
        return {name: numbers(self.columns[name]) for name in DRAWN}

    @functools.cached_property
    def drawn_ends(self) -> Mapping[str, Floats]:
        """The ends of the intervals that charts draw: NaN where there are few trials."""
        ends = (name for name in DRAWN if name.endswith(("_low", "_high")))
        return {name: np.where(self.of_few_trials, np.nan, self.drawn[name]) for name in ends}

    @functools.cached_property
    def of_few_trials(self) -> npt.NDArray[np.bool_]:
        """Rows whose points are hollow."""
        return np.asarray(self.columns["trials"] < FEW_TRIALS)

    @property
    def slug(self) -> str:
        """Folder of its data files."""
        return slug(self.machine if self.env is None else f"{self.machine}--{self.env}")

    @functools.cached_property
    def cpu(self) -> bool:
        """Whether it has no GPU: its times differ by tens of percent from process to process."""
        return str(self.newest.get("kind")) == "cpu"

    @functools.cached_property
    def series(self) -> Sequence[Series]:
        """In the order of the rows."""
        rows = self.columns
        bounds = stretches(*(rows[name] for name in KEY))
        good = np.flatnonzero((rows["status"] == "ok") & np.isfinite(rows["seconds"]))
        parts = np.split(good, np.searchsorted(good, bounds[1:-1]))
        keys = (rows[name][bounds[:-1]].tolist() for name in KEY)
        ends = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        return [
            Series(kernel, case, backend, bool(rows["baseline"][stop - 1]), slice(start, stop), mine)
            for kernel, case, backend, (start, stop), mine in zip(*keys, ends, parts, strict=True)
        ]

    @functools.cached_property
    def cases(self) -> Mapping[str, Mapping[str, Sequence[Series]]]:
        """By kernel and case, ours before the libraries'."""
        found: dict[str, dict[str, list[Series]]] = {}
        for one in sorted(self.series, key=lambda one: (one.baseline, one.backend)):
            found.setdefault(one.kernel, {}).setdefault(one.case, []).append(one)
        return {kernel: found[kernel] for kernel in sorted(found)}

    @functools.cached_property
    def rate(self) -> Mapping[tuple[str, str], Rate]:
        """By kernel and case, the unit in which it is quoted."""
        return {
            (kernel, case): Rate(str(self.columns["rate"][those[0].newest]))
            for kernel, cases in self.cases.items()
            for case, those in cases.items()
        }

    @functools.cached_property
    def place(self) -> Mapping[str, int]:
        """The index of each commit."""
        return {commit.hash: n for n, commit in enumerate(self.commits)}

    def commit(self, row: int) -> Commit:
        """The commit of a row."""
        return self.commits[self.columns["at"][row]]

    def ratio(self, row: int) -> tuple[float, float, float] | None:
        """The ratio to the library of a row, with its interval; None without one."""
        values = [float(self.columns[name][row]) for name in ("ratio", "ratio_low", "ratio_high")]
        return (values[0], values[1], values[2]) if np.isfinite(values[0]) else None

    def recent(self, series: Series) -> Change | None:
        """The change of the paired ratio over the last RECENT measured commits; None without two that compare.

        Of an absolute time of another day nothing is told: the clock moves it by percents.
        """
        rows, good = self.columns, series.good
        good = good[np.isfinite(rows["ratio"][good])]
        if len(good) < 2:
            return None
        last = good[-1]
        same = (rows["definition"][good] == rows["definition"][last]) & (rows["library"][good] == rows["library"][last])
        first = good[len(good) - np.argmin(same[::-1])] if not same.all() else good[0]
        earlier = good[max(np.searchsorted(good, first), len(good) - 1 - RECENT)]
        if earlier >= last:
            return None
        found = change(self.ratio(earlier), self.ratio(last))
        few = min(rows["trials"][earlier], rows["trials"][last]) < FEW_TRIALS
        return Change(found.value, np.nan, np.nan) if found and few else found  # one process says little of the next


def change(old: tuple[float, float, float] | None, new: tuple[float, float, float] | None) -> Change | None:
    """From the ratio to a library then and now, how much longer the call takes: their quotient cancels what the device
    does to both.  Half-widths of the logarithms add as squares (Zou and Donner, Statistics in Medicine 27(10), 2008).
    """
    if old is None or new is None:
        return None
    middle = np.log(old[0] / new[0])
    half = np.hypot(np.log(old[2] / old[1]) / 2, np.log(new[2] / new[1]) / 2)
    return Change(*(float(np.expm1(end)) for end in (middle, middle - half, middle + half)))


def _columns(frame: pd.DataFrame, moments: pd.Series) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """(name, column) in the order of the frame's rows, one after the other: a large frame's columns are a gigabyte."""
    for name in _TEXTS:
        yield name, _texts(frame, name)
    for name in (*_NUMBERS, *_COSTS):
        yield name, _floats(frame, name)
    paired = _floats(frame, "paired_ratio")
    known = np.isfinite(paired)
    baseline = frame["baseline"].astype("boolean").fillna(False).to_numpy(bool)
    pooled = np.where(baseline, np.nan, _floats(frame, "baseline_ratio"))
    yield "baseline", baseline
    yield "ratio", np.where(known, paired, pooled)
    yield "ratio_low", _floats(frame, "paired_low")
    yield "ratio_high", _floats(frame, "paired_high")
    yield "library", np.where(known, _texts(frame, "paired_with"), _texts(frame, "baseline_name"))
    of_case = _texts(frame, "case_yardstick")
    yield "definition", np.where(of_case != "", of_case, _texts(frame, "yardstick"))
    rate = _rates(frame, moments)
    yield "rate", rate
    yield "value", _in_rates(frame, rate)


def _texts(frame: pd.DataFrame, name: str) -> npt.NDArray[Any]:
    if name not in frame:
        return np.full(len(frame), "", object)
    column = frame[name]
    if isinstance(column.dtype, pd.CategoricalDtype):
        names = np.append(column.cat.categories.astype(object).to_numpy(object), "")
        return names[column.cat.codes.to_numpy()]  # a missing text has the code -1, which is the last
    return column.astype(object).where(column.notna(), "").to_numpy(object)


def _floats(frame: pd.DataFrame, name: str) -> Floats:
    if name not in frame:
        return np.full(len(frame), np.nan)
    values = frame[name].to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def _rates(frame: pd.DataFrame, moments: pd.Series) -> npt.NDArray[Any]:
    """The unit in which the case of each row is quoted, by the newest cost that is stated."""
    stated = np.logical_or.reduce([np.nan_to_num(frame[name].to_numpy(np.float64)) != 0 for name in _COSTS])
    (kernel, kernels), (case, cases) = coded(frame["kernel"]), coded(frame["case"])
    case = kernel.astype(np.int64) * len(cases) + case
    by_date = np.argsort(moments.dt.tz_localize(None).to_numpy(), kind="stable")
    by_date = by_date[stated[by_date]]
    newest = last_of_each(case[by_date], len(kernels) * len(cases))
    rate = np.full(len(newest), "time", object)
    known = np.flatnonzero(newest >= 0)
    costs = frame[["flops", "hbm_bytes", "link_bytes"]].iloc[by_date[newest[known]]]
    rate[known] = [str(rates.headline(_Cost(*cost))) for cost in costs.itertuples(index=False)]
    return np.asarray(rate[case])


def last_of_each(code: Ints, count: int) -> Ints:
    """The last place of each number below `count`, -1 for one that does not occur."""
    last = np.full(count, -1)
    last[code] = np.arange(len(code))
    return last


class _Cost(NamedTuple):
    flops: float
    hbm_bytes: float
    link_bytes: float


def _in_rates(frame: pd.DataFrame, rate: npt.NDArray[Any]) -> Floats:
    value = _floats(frame, "seconds")
    for name in rates.AMOUNT:
        value = np.where(rate == name.value, _floats(frame, name.value), value)
    return value


def stretches(*keys: npt.NDArray[Any]) -> Ints:
    """Where each stretch of rows begins in which none of the keys changes, and at the end their number."""
    starts = np.ones(len(keys[0]), bool)
    starts[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return np.append(np.flatnonzero(starts), len(starts))


def minute(date: Any) -> str:
    """A date as "2026-11-20 09:30", "" where it is not known."""
    return "" if pd.isna(date) else str(date.strftime("%Y-%m-%d %H:%M"))


def lanes(frame: pd.DataFrame) -> list[Lane]:
    """The lanes of a derived frame, the one with the longest history first (then by newest commit, then by name)."""
    lanes_of_machines: list[Lane] = []
    for machine, rows in _parts(frame, "machine"):
        several = rows[["commit", "env"]].drop_duplicates()["commit"].duplicated().any()
        parts = _parts(rows, "env") if several else [(None, rows)]
        lanes_of_machines += [Lane.of(machine, env, part) for env, part in parts]
    return sorted(lanes_of_machines, key=lambda lane: (-len(lane.commits), _reversed(lane.commits[-1].date), lane.slug))


def _parts(frame: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each name in a column; all of them without a copy, which of a long history is a gigabyte."""
    rows_of = frame.groupby(column, observed=True).indices if len(frame) else {}
    for name, rows in sorted(rows_of.items()):
        yield str(name), frame if len(rows) == len(frame) else frame.iloc[rows]


def _reversed(text: str) -> list[int]:
    return [-ord(character) for character in text]


STILL_READ = (
    *("machine", "kernel", "case", "backend", "commit", "env", "date", "status", "devices"),
    *("seconds", "paired_ratio", "paired_low", "paired_high"),
)
"""Columns of the frame that pages read beside their lanes: sustained calls, and devices at work.  The others go: of a
long history they are half a gigabyte."""


@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """All that pages are made of.

    results: the folder of records.  frame: all of them, derived; STILL_READ at least.  notes_of: trials of a record.
    code: the recorded machine code, oldest commit first.  problems: sentences about what could not be used.
    """

    results: Path
    frame: pd.DataFrame
    lanes: Sequence[Lane]
    history: History
    notes_of: NotesOf = lambda machine, commit, env: ()
    code: Sequence[CodeRecord] = ()
    problems: Sequence[str] = ()

    @functools.cached_property
    def steps(self) -> Mapping[SeriesKey, Sequence[Moved]]:
        """Of each series, its steps, one for each commit: of those seen in ratio and seconds that of the ratio."""
        surest = {
            key: {one.first_bad: one for one in sorted(those, key=lambda one: one.judged_by, reverse=True)}
            for key, those in self.history.steps.items()
        }
        return {key: list(those.values()) for key, those in surest.items()}

    @functools.cached_property
    def event_of(self) -> Mapping[tuple[SeriesKey, str], str]:
        """By series and first bad commit, the id of the event that a step is part of."""
        return {(moved.key, moved.first_bad): event.id for event in self.history.events for moved in event.moved}

    def kernels(self) -> Iterator[str]:
        """Every operator, by name."""
        yield from sorted({kernel for lane in self.lanes for kernel in lane.cases})
