"""Where numbers may stand in one line, in which order, and where that line is broken.

A *lane* is a machine or, on a machine that measures the same commit under several environments, one of them.
Everything on a page is aligned to the commits of a lane, in the order of their dates.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ci.records import rates
from dashboards.values import NO_DATE, Bools, CostRow, Ints, finite, milliseconds, plain

BLOCK = 64
"""Commits in a block of a lane's history: the files of a full one are never written again.  One more commit costs what
the newest block costs, so it should be small; a page loads a file for each, so there should be few (2026-11-22, 3,000
series: 64 commits of a kernel of 60 series are 120 kB)."""

KEY = ["kernel", "case", "backend"]
"""What names a series within a lane."""

DEFINITION = ["yardstick", "case_yardstick"]
"""Columns of the digests of a number's benchmark definition: of the whole kernel, and of the case."""

_TEXTS = ["machine", "commit", "env", *KEY, "status", "why", *DEFINITION, "dtype", "tier", "baseline_name"]
NUMBERS = (
    *("seconds", "seconds_low", "seconds_high", *rates.AMOUNT.values(), "world", "roofline_seconds"),
    *("peak_share", "baseline_ratio", "samples", "trials"),
)
"""Columns of numbers (`ci.records.store.load`, `ci.records.derived.derive`) that pages show."""

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
    made: dict[Any, Any] = {"date": moments.array}
    made["baseline"] = frame["baseline"].astype("boolean").fillna(False).astype(bool).array
    made |= {name: finite(frame[name]) for name in _NUMBERS if name in frame}
    keys = {name: _plain(frame[name]) for name in ("machine", "commit", "env", *KEY)}
    for name in frame:
        if name not in made and (name in _TEXTS or (frame[name].dtype == object and name not in NUMBERS)):
            texts = keys[name] if name in keys else _plain(frame[name])
            made[name] = texts if isinstance(frame[name].dtype, pd.CategoricalDtype) else np.asarray(texts, object)
    order = _order({name: texts.codes for name, texts in keys.items()}, milliseconds(moments))
    return pd.DataFrame({name: made.get(name, frame[name].array)[order] for name in frame}, copy=False)


def _order(keys: dict[str, Ints], date_ms: Ints) -> Ints:
    """Rows in the order of history; of two rows of one arm at one commit the one that comes last stays."""
    machine, *others = keys.values()
    order = np.lexsort([*reversed(others), date_ms, machine])
    again = pd.DataFrame({name: codes[order] for name, codes in keys.items()}).duplicated(keep="last").to_numpy()
    return order[~again]


def _plain(column: pd.Series) -> pd.Categorical:
    """The texts of a column of any dtype as ordered names; what is missing is empty."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, found = column.cat.codes.to_numpy(), column.cat.categories
    else:
        codes, found = pd.factorize(column)
    names = [*(plain(str(name)) for name in found), ""]  # a missing text has the code -1, which is the last
    kept = sorted({*(names if (codes < 0).any() else names[:-1])})
    place = {name: n for n, name in enumerate(kept)}
    return pd.Categorical.from_codes(np.array([place.get(name, -1) for name in names], np.int32)[codes], kept)


def commits(frame: pd.DataFrame) -> pd.DataFrame:
    """commit, date, env: one row per commit, oldest first."""
    return frame[["commit", "date", "env"]].drop_duplicates("commit", keep="last").sort_values(["date", "commit"])


# The rows of a lane by series: one sort puts every series in one piece, and whatever a page shows is a slice of it.
#
# Beside it, on frames: which rows belong together, and which of them are the newest.


CASE = ["kernel", "case"]

Arrays = Mapping[str, npt.NDArray[Any]]
"""Columns of one length, by name."""

TEXTS = ("commit", "env", *KEY, "status", "why", *DEFINITION, "dtype", "tier", "baseline_name")
MONTH = 30
"""Days before a lane's newest record from which a trail starts, where there is so old a record."""

PAIRED = ("paired_ratio", "paired_low", "paired_high")


def by_series(rows: pd.DataFrame) -> Arrays:
    """What pages show of a lane's tidy rows, by kernel, case and backend, the oldest record of each first.

    Besides, "place": of the row in the history of the lane; "at": of its commit among `lanes.commits`.
    """
    order = np.lexsort([_alphabetical(rows[name]) for name in reversed(KEY)])
    at = pd.Index(commits(rows)["commit"].astype(object)).get_indexer(rows["commit"].astype(object))
    texts = [*TEXTS, *(["paired_with"] if "paired_with" in rows else [])]
    numbers = [*NUMBERS, *(PAIRED if "paired_with" in rows else [])]
    return {
        **{name: rows[name].to_numpy(object)[order] for name in texts},
        **{name: finite(rows[name])[order] for name in numbers},
        "baseline": rows["baseline"].to_numpy(bool)[order],
        "place": order,
        "at": at[order],
    }


def _alphabetical(column: pd.Series) -> Ints:
    if isinstance(column.dtype, pd.CategoricalDtype):  # of tidy rows: its names are in order
        return column.cat.codes.to_numpy()
    return pd.factorize(column, sort=True)[0]


def stretches(*keys: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """First and last row of each stretch of rows in which none of the keys changes."""
    starts = np.ones(len(keys[0]), bool)
    starts[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    first = np.flatnonzero(starts)
    return first, np.append(first[1:], len(starts))[: len(first)] - 1


def parts(rows: Arrays, *names: str) -> Iterator[Arrays]:
    """The rows of each stretch with the same texts in these columns."""
    for start, last in zip(*stretches(*(rows[name] for name in names)), strict=True):
        yield {name: column[start : last + 1] for name, column in rows.items()}


def costs_by_case(rows: Arrays) -> tuple[dict[tuple[str, str], list[CostRow]], Ints]:
    """What each (kernel, case) costs, each cost once, the newest that is stated last; which of them each row has."""
    fields = [np.nan_to_num(rows[name]) for name in CostRow._fields]
    first, last = stretches(*(rows[name] for name in KEY), *fields)
    cases = list(zip(*(rows[name][first].tolist() for name in CASE), strict=True))
    costs = list(itertools.starmap(CostRow, np.column_stack(fields)[first].tolist()))
    newest: dict[tuple[str, str], dict[CostRow, int]] = defaultdict(dict)
    for case, cost, place in zip(cases, costs, rows["place"][last].tolist(), strict=True):
        newest[case][cost] = max(place, newest[case].get(cost, -1))
    each = {case: sorted(found, key=lambda cost: (cost.stated, found[cost])) for case, found in newest.items()}
    number = [each[case].index(cost) for case, cost in zip(cases, costs, strict=True)]
    return each, np.repeat(np.array(number, np.int64), last - first + 1)


# ---- benchmark definitions ------------------------------------------------------------------------------------------


def alike(rows: Arrays | pd.DataFrame, some: Any, others: Any = slice(None), beside: Any = None) -> Bools:
    """Which of some rows have the benchmark definition of others: of the case, of the kernel where one lacks it.

    beside: where the others are, if not among the rows.
    """
    beside = rows if beside is None else beside
    (kernel, its), (case, own) = (
        (np.asarray(rows[name], object)[some], np.asarray(beside[name], object)[others]) for name in DEFINITION
    )
    return np.where((case != "") & (own != ""), case == own, kernel == its)


def redefined(rows: Arrays | pd.DataFrame, series: Ints) -> Ints:
    """Rows from which on another definition holds in their series (of each row): a line is broken before them.

    A row without a time counts too: it would have been measured so.
    """
    stated = np.flatnonzero(np.asarray(rows[DEFINITION[0]], object) != "")
    old, new = stated[:-1], stated[1:]
    return new[~alike(rows, new, old) & (series[old] == series[new])]


def definitions(rows: pd.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Rows from which on a benchmark definition holds for a case, with the numbers of the case and the definition.

    Case by case, the oldest first; cases and definitions are numbered as they occur among rows that state one.
    """
    stated = np.flatnonzero((rows[DEFINITION[0]] != "").to_numpy())
    case, digest = (numbers(rows.iloc[stated], names) for names in (CASE, DEFINITION))
    order = np.argsort(case, kind="stable")
    first = order[stretches(case[order], digest[order])[0]]
    return stated[first], case[first], digest[first]


# ---- frames ---------------------------------------------------------------------------------------------------------


def timed(rows: pd.DataFrame) -> Bools:
    """Which rows have a time."""
    return ((rows["status"] == "ok") & rows["seconds"].notna()).to_numpy(bool)


def numbers(rows: pd.DataFrame, columns: Sequence[str]) -> Ints:
    """A number per row: equal where all columns are equal, in the order in which the rows come."""
    number = np.zeros(len(rows), dtype=np.int64)
    for column in columns:
        codes, names = pd.factorize(rows[column])
        number = number * (len(names) + 1) + codes
    return pd.factorize(number)[0]


def latest(group: Ints, count: int, wanted: Bools | None = None) -> Bools:
    """The last rows of each group, of those that are wanted."""
    at = np.arange(len(group)) if wanted is None else np.flatnonzero(wanted)
    order = at[np.argsort(group[at], kind="stable")]
    first, last = stretches(group[order])
    found = np.zeros(len(group), bool)
    found[order[np.repeat(last, last - first + 1) - np.arange(len(order)) < count]] = True
    return found


def days(dates: pd.Series) -> Ints:
    """The day of each date (UTC), counted since 1970; -1 where it is not known."""
    found = milliseconds(dates)
    return np.where(found == NO_DATE, -1, found // 86_400_000)


def together(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each case of a lane at its newest place (commit and environment) with two or more timed backends.

    Where no place has two, the newest with one; where none has one, the newest.  rows: tidy, so in order of history.
    Failed and unsupported backends of the place stay.
    """
    return as_texts(rows[newest_places(rows)])


def newest_places(rows: pd.DataFrame) -> Bools:
    """Which rows those are."""
    case, place = numbers(rows, CASE), numbers(rows, ["commit", "env"])
    index, combined = pd.factorize(case * (place.max(initial=0) + 1) + place)
    worth = np.minimum(np.bincount(index, weights=timed(rows), minlength=len(combined)), 2)
    case, place = np.divmod(combined, place.max(initial=0) + 1)
    order = np.lexsort((place, worth, case))
    return np.isin(index, order[stretches(case[order])[1]])


def earlier(rows: pd.DataFrame, back: int) -> pd.DataFrame:
    """Of each arm of a lane the newest timed row so many days (UTC) before the lane's newest; else its oldest one."""
    day = days(rows["date"])
    old = (day >= 0) & (day <= day.max(initial=-1) - back)
    good = timed(rows)
    rows, old = rows[good], old[good]
    arm, place = numbers(rows, KEY), np.arange(len(rows))
    order = np.lexsort((np.where(old, place, -1 - place), old, arm))
    return as_texts(rows.iloc[np.sort(order[stretches(arm[order])[1]])])


def as_texts(rows: pd.DataFrame) -> pd.DataFrame:
    """The same rows with texts as texts, not as categories."""
    named = [column for column, dtype in rows.dtypes.items() if isinstance(dtype, pd.CategoricalDtype)]
    return rows.astype(dict.fromkeys(named, object))
