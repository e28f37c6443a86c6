"""Where numbers may stand in one line, in which order, and where that line is broken.

A *lane* is a machine or, on a machine that measures the same commit under several environments, one of them.
Everything on a page is aligned to the commits of a lane, in the order of their dates.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ci.records import rates
from dashboards.columns import NUMBERS, Bools, Columns, Ints, TextColumn, columns, milliseconds, plain, ranks

BLOCK = 64
"""Commits in a block of a lane's history: the files of a full one are never written again.  One more commit costs what
the newest block costs, so it should be small; a page loads a file for each, so there should be few (2026-11-22, 3,000
series: 64 commits of a kernel of 60 series are 120 kB)."""

KEY = ["kernel", "case", "backend"]
"""What names a series within a lane."""

DEFINITION = ["yardstick", "case_yardstick"]
"""Columns of the digests of a number's benchmark definition: of the whole kernel, and of the case."""

_TEXTS = ["machine", "commit", "env", *KEY, "status", "why", *DEFINITION, "dtype", "tier", "baseline_name"]
_NUMBERS = ["seconds", "seconds_low", "seconds_high", *rates.AMOUNT, "roofline_seconds", "peak_share", "baseline_ratio"]


def slug(name: str) -> str:
    """A file name for `name`: itself if it is plain lower-case, else cleaned, with a digest that keeps it unique."""
    if re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,79}", name):
        return name
    clean = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:60]
    return f"{clean or 'x'}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:8]}"


def lane_slug(machine: str, env: str | None) -> str:
    """Folder of the data files of a lane."""
    return slug(machine if env is None else f"{machine}--{env}")


def natural(name: str) -> list[tuple[int, int, str]]:
    """Key for the order people expect: m64 before m512."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def without_ranks(case: str, world: int) -> str:
    """The name of a case without its number of ranks: "w4_fp16_64MB" is "fp16_64MB" with 4 ranks."""
    kept = [part for part in case.split("_") if part != f"w{world}"]
    return "_".join(kept) or case


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame in the order of history: one row per lane, commit and arm; no nulls in texts, no infinities.

    Texts keep their dtype, categories come in order.  Lone surrogates and NUL become U+FFFD.
    """
    moments = pd.to_datetime(frame["date"], utc=True)
    order = _order(
        {name: TextColumn.of(frame[name]) for name in ("machine", "commit", "env", *KEY)}, milliseconds(moments)
    )
    made = {"date": moments, "baseline": frame["baseline"].astype("boolean").fillna(False).astype(bool)}

    def column(name: Any) -> Any:
        if name in made:
            return made[name].array[order]
        if name in _NUMBERS:
            return _finite(frame[name])[order]
        texts = name in _TEXTS or (frame[name].dtype == object and name not in NUMBERS)
        return (_plain(frame[name]) if texts else frame[name].array)[order]

    return pd.DataFrame({name: column(name) for name in frame}, copy=False)


def _order(texts: Mapping[str, TextColumn], date_ms: Ints) -> Ints:
    """Rows in the order of history; of two rows of one arm at one commit the one that comes last stays."""
    keys = {name: (texts[name].codes, len(texts[name].names)) for name in ("machine", "commit", "env", *KEY)}
    dates, date = np.unique(date_ms, return_inverse=True)
    machine = keys.pop("machine")
    order = np.argsort(ranks([machine, (date, len(dates)), *keys.values()]), kind="stable")
    arm = ranks([machine, *keys.values()])[order]
    again = pd.Series(arm).duplicated(keep="last").to_numpy()
    return order[~again]


def _plain(column: pd.Series) -> Any:
    """The texts of a column, none missing, in the dtype that it had."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        names = list(column.cat.categories)
        if names == sorted(map(plain, map(str, names))) and not column.hasnans:
            return column.array
        texts = TextColumn.of(column)
        return pd.Categorical.from_codes(texts.codes, list(texts.names), ordered=False)
    texts = TextColumn.of(column)
    return np.array(texts.names, dtype=object)[texts.codes]


def _finite(column: pd.Series) -> np.ndarray:
    values = column.to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


@dataclasses.dataclass(frozen=True, eq=False)
class CommitCounts:
    """How many rows each commit of a lane has, oldest first.  ok: with this status; timed: with a time besides."""

    commits: tuple[str, ...] = ()
    ok: tuple[int, ...] = ()
    timed: tuple[int, ...] = ()

    @classmethod
    def of(cls, rows: pd.DataFrame) -> CommitCounts:
        """Of tidy rows of a lane."""
        place, names = pd.factorize(rows["commit"])
        ok = rows["status"] == "ok"
        count = [
            np.bincount(place[good.to_numpy(bool)], minlength=len(names)) for good in (ok, ok & rows["seconds"].notna())
        ]
        return cls(tuple(map(str, names)), *(tuple(one.tolist()) for one in count))

    def and_then(self, newer: CommitCounts) -> CommitCounts:
        """Both, one after the other."""
        return CommitCounts(*(getattr(self, f.name) + getattr(newer, f.name) for f in dataclasses.fields(self)))


@dataclasses.dataclass(frozen=True, eq=False)
class Lane:
    """A machine, or one environment of a machine that measures commits under several.

    frame: its tidy rows, all of them or those that `dashboards.recent.lasting` keeps; told: of all rows, where not all
    are there.
    """

    machine: str
    env: str | None
    frame: pd.DataFrame
    told: CommitCounts | None = None

    @functools.cached_property
    def counts(self) -> CommitCounts:
        """Rows of each commit."""
        return CommitCounts.of(self.frame) if self.told is None else self.told

    @property
    def slug(self) -> str:
        """Folder of its data files."""
        return lane_slug(self.machine, self.env)

    @property
    def cpu(self) -> bool:
        """Whether it is a machine without a GPU: what its backends are compared with is no vendor's library."""
        return "kind" in self.frame and str(self.frame["kind"].iloc[-1]) == "cpu"

    @functools.cached_property
    def columns(self) -> Columns:
        """The same rows as arrays, every series in one piece."""
        return columns(self.frame)


def commits(frame: pd.DataFrame) -> pd.DataFrame:
    """commit, date, env: one row per commit, oldest first."""
    return frame.drop_duplicates("commit", keep="last")[["commit", "date", "env"]].sort_values(["date", "commit"])


def breaks(rows: pd.DataFrame, at: np.ndarray) -> list[int]:
    """Indices of commits from which on another benchmark definition holds: the line is broken before them.

    at: index of the commit of each row.  A row without a time counts too: it would have been measured so.
    """
    stated = (rows["yardstick"] != "").to_numpy()
    kernel, case = (rows[column].to_numpy(str)[stated] for column in DEFINITION)
    known = (case[1:] != "") & (case[:-1] != "")
    changed = np.where(known, case[1:] != case[:-1], kernel[1:] != kernel[:-1])
    return [int(i) for i in at[stated][1:][changed]]


def definition_changes(rows: Columns, series: Ints) -> Ints:
    """Rows from which on another benchmark definition holds in their series (of each row), as `breaks` says."""
    stated = np.flatnonzero(~rows.texts["yardstick"].equal(""))
    old, new = stated[:-1], stated[1:]
    differs = ~alike(rows, new, old)
    return new[differs & (series[old] == series[new])]


def alike(rows: Columns, some: Ints, others: Ints) -> Bools:
    """Which of some rows have the benchmark definition of the other: of the case, of the kernel where one lacks it."""
    kernel, case = (rows.texts[column] for column in DEFINITION)
    known = ~(case.equal("")[some] | case.equal("")[others])
    return np.where(known, case.codes[some] == case.codes[others], kernel.codes[some] == kernel.codes[others])
