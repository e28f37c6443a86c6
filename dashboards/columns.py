"""The records as arrays: one sort puts every series in one piece, and whatever a page shows is a slice of it.

Texts are numbers into a short ordered list of names.  Rows are in the order machine, kernel, case, backend, then
history (date of the commit, commit, environment); of two rows of one arm at one commit and environment the later stays.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from ci.records import rates

Ints = npt.NDArray[np.signedinteger]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Rows = slice | Ints | Bools

TEXTS = (
    *("machine", "commit", "env", "kernel", "case", "backend", "status", "why"),
    *("yardstick", "case_yardstick", "dtype", "tier", "baseline_name"),
)
NUMBERS = (
    *("seconds", "seconds_low", "seconds_high", *rates.AMOUNT.values(), "world", "roofline_seconds"),
    *("peak_share", "baseline_ratio", "samples", "trials"),
)
"""Columns of the frame (`ci.records.store.load`, `ci.records.derived.derive`) that pages show."""

NO_DATE = np.iinfo(np.int64).max
"""Stands for a date that is not known: such commits come last, as pandas sorts them."""

_REPLACED = {0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


def plain(text: str) -> str:
    """A text that UTF-8 and HTML can carry: lone surrogates and NUL become U+FFFD."""
    return text if text.isascii() and "\0" not in text else text.translate(_REPLACED)


@dataclasses.dataclass(frozen=True, eq=False)
class TextColumn:
    """A column of texts.  names: each once, in order; codes: for each row the place of its text among them."""

    names: tuple[str, ...]
    codes: npt.NDArray[np.int32]

    @classmethod
    def of(cls, column: pd.Series) -> Self:
        """A column of any dtype; missing texts are empty."""
        codes, found = _factorized(column)
        names = [*(plain(str(name)) for name in found), ""]
        ordered = sorted(set(names) if (codes < 0).any() else set(names[:-1]))
        place = {name: n for n, name in enumerate(ordered)}
        return cls(tuple(ordered), np.array([place.get(name, -1) for name in names], np.int32)[codes])

    def __getitem__(self, rows: Rows) -> TextColumn:
        return TextColumn(self.names, self.codes[rows])

    def at(self, row: int) -> str:
        """The text of a row."""
        return self.names[self.codes[row]]

    def list(self) -> list[str]:
        """The text of every row."""
        return [self.names[code] for code in self.codes]

    def equal(self, text: str) -> Bools:
        """Which rows hold this text."""
        return self.codes == (self.names.index(text) if text in self.names else -1)

    def present(self) -> list[str]:
        """The texts of these rows, each once, in order."""
        found = np.zeros(len(self.names), bool)
        found[self.codes] = True
        return [self.names[code] for code in np.flatnonzero(found)]

    def content(self) -> bytes:
        """The texts of these rows as bytes, the same for the same texts."""
        names = "\0".join(self.present()).encode() + b"\0\0"
        return names + _places(self.codes).tobytes()


def _places(codes: Ints) -> npt.NDArray[np.int32]:
    """For each row the place of its code among those that occur."""
    found = np.zeros(int(codes.max(initial=-1)) + 1, bool)
    found[codes] = True
    places: npt.NDArray[np.int32] = (np.cumsum(found) - 1).astype(np.int32)[codes]
    return places


def _factorized(column: pd.Series) -> tuple[npt.NDArray[np.signedinteger], Iterable[Any]]:
    """(codes, what they stand for); -1 for a missing value."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(), column.cat.categories
    codes, found = pd.factorize(column)
    return codes, found


@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
    """Rows of the records, all columns of one length.

    when: place of the row's commit in the history of its machine, counted over all machines.  date_ms: of its commit.
    origin: row of the frame.
    """

    texts: Mapping[str, TextColumn]
    numbers: Mapping[str, Floats]
    baseline: Bools
    when: Ints
    date_ms: Ints
    origin: Ints

    def __len__(self) -> int:
        return len(self.when)

    def __getitem__(self, rows: Rows) -> Columns:
        texts = {name: column[rows] for name, column in self.texts.items()}
        numbers = {name: column[rows] for name, column in self.numbers.items()}
        rest = (self.baseline[rows], self.when[rows], self.date_ms[rows], self.origin[rows])
        return Columns(texts, numbers, *rest)

    def digest(self) -> str:
        """SHA-256 of all that pages can show of these rows, whatever other rows there are."""
        whole = hashlib.sha256()
        for column in self.texts.values():
            whole.update(column.content())
        whole.update(_places(self.when).tobytes() + self.date_ms.tobytes() + self.baseline.tobytes())
        for values in self.numbers.values():
            whole.update(np.ascontiguousarray(values))
        return whole.hexdigest()

    def runs(self, *names: str) -> Runs:
        """Stretches of rows with the same texts in these columns, of those that the rows are sorted by."""
        return Runs.of(*(self.texts[name].codes for name in names))

    def parts(self, *names: str) -> Iterator[Columns]:
        """The rows of each such stretch."""
        return (self[start:stop] for start, stop in self.runs(*names).pairs())


@dataclasses.dataclass(frozen=True, eq=False)
class Runs:
    """Stretches of neighbouring rows that belong together.  bounds: first row of each, and the number of rows."""

    bounds: Ints

    @classmethod
    def of(cls, *keys: Ints) -> Self:
        """A stretch ends where any of the keys changes."""
        count = len(keys[0])
        changes = np.zeros(max(count - 1, 0), bool)
        for key in keys:
            changes |= key[1:] != key[:-1]
        return cls(np.concatenate([[0], np.flatnonzero(changes) + 1, [count]] if count else [[0]]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def first(self) -> Ints:
        """First row of each."""
        return self.bounds[:-1]

    @property
    def last(self) -> Ints:
        """Last row of each."""
        return self.bounds[1:] - 1

    def pairs(self) -> list[tuple[int, int]]:
        """(first row, row behind the last) of each."""
        return list(zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True))

    def number(self) -> Ints:
        """For each row, which stretch it is in."""
        return np.repeat(np.arange(len(self)), np.diff(self.bounds))

    def latest(self, wanted: Bools) -> Ints:
        """The last row of each that is wanted, -1 where none is."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.maximum.reduceat(np.where(wanted, np.arange(len(wanted)), -1), self.first)


def columns(frame: pd.DataFrame) -> Columns:
    """The frame of `ci.records.store.load` with the columns of `ci.records.derived.derive`, in any order of rows."""
    texts = {name: TextColumn.of(frame[name]) for name in TEXTS}
    when, date_ms = _history(texts["machine"], texts["commit"], milliseconds(frame["date"]))
    arm = [(texts[name].codes, len(texts[name].names)) for name in ("machine", "kernel", "case", "backend")]
    key = ranks([*arm, (when, int(when.max(initial=0)) + 1), (texts["env"].codes, len(texts["env"].names))])
    order = np.argsort(key, kind="stable")
    order = order[np.append(np.diff(key[order]) != 0, np.ones(min(len(order), 1), bool))]
    return Columns(
        {name: column[order] for name, column in texts.items()},
        {name: _finite(frame[name])[order] for name in NUMBERS},
        frame["baseline"].astype("boolean").fillna(False).to_numpy(bool)[order],
        when[order],
        date_ms[order],
        order,
    )


def ranks(keys: Iterable[tuple[Ints, int]]) -> Ints:
    """One number per row that orders rows as the keys do, the first key first.  keys: (values, all of them below)."""
    whole, size = np.zeros(1, np.int64), 1
    for values, count in keys:
        if size * count >= 2**62:  # no longer fits: number only what occurs
            found, whole = np.unique(whole, return_inverse=True)
            size = len(found)
        whole, size = whole * count + values, size * count
    return whole


def _history(machine: TextColumn, commit: TextColumn, date_ms: Ints) -> tuple[Ints, Ints]:
    """(place of each row's commit in the order machine, date, commit; date of that commit).  Its latest date counts."""
    pair = machine.codes.astype(np.int64) * len(commit.names) + commit.codes
    latest = np.full(len(machine.names) * len(commit.names), np.iinfo(np.int64).min)
    np.maximum.at(latest, pair, date_ms)
    known = np.flatnonzero(latest > np.iinfo(np.int64).min)
    place = np.zeros(len(latest), np.int64)
    place[known[np.lexsort((known % len(commit.names), latest[known], known // len(commit.names)))]] = np.arange(
        len(known)
    )
    return place[pair], latest[pair]


def milliseconds(dates: pd.Series) -> Ints:
    """Dates as milliseconds since 1970, NO_DATE where they are not known."""
    moments = pd.to_datetime(dates, utc=True)
    values = moments.dt.tz_localize(None).to_numpy("datetime64[ms]").astype(np.int64)
    return np.where(moments.isna().to_numpy(), NO_DATE, values)


def _finite(column: pd.Series) -> Floats:
    values = column.to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


@dataclasses.dataclass(frozen=True, eq=False)
class Commits:
    """The commits of some rows, oldest first.  hashes, dates ("" where not known), envs: of each; at: of each row."""

    hashes: list[str]
    dates: list[str]
    envs: list[str]
    at: Ints

    @classmethod
    def of(cls, rows: Columns) -> Self:
        """Of rows of one lane, in which a commit has one environment."""
        row = np.full(int(rows.when.max(initial=-1)) + 1, -1)
        row[rows.when] = np.arange(len(rows))
        one_of = row[row >= 0]
        hashes, envs = rows.texts["commit"][one_of].list(), rows.texts["env"][one_of].list()
        at = (np.cumsum(row >= 0) - 1)[rows.when]
        return cls(hashes, [minute(ms) for ms in rows.date_ms[one_of].tolist()], envs, at)


def minute(date_ms: int) -> str:
    """A date as "2026-11-20 09:30", "" where it is not known."""
    if date_ms == NO_DATE:
        return ""
    return str(np.datetime64(date_ms, "ms").astype("datetime64[m]")).replace("T", " ")
