"""Where numbers may stand in one line, in which order, and where that line is broken.

A *lane* is a machine or, on a machine that measures the same commit under several environments, one of them.
Everything on a page is aligned to the commits of a lane, in the order of their dates.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from ci.records import rates
from dashboards.values import Ints, finite, milliseconds, plain

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
    order = _order({name: (texts.codes, len(texts.categories)) for name, texts in keys.items()}, milliseconds(moments))
    return pd.DataFrame({name: made.get(name, frame[name].array)[order] for name in frame}, copy=False)


def _order(keys: dict[str, tuple[Ints, int]], date_ms: Ints) -> Ints:
    """Rows in the order of history; of two rows of one arm at one commit the one that comes last stays."""
    dates, date = np.unique(date_ms, return_inverse=True)
    machine, *others = keys.values()
    order = np.argsort(ranks([machine, (date, len(dates)), *others]), kind="stable")
    again = pd.Series(ranks([machine, *others])[order]).duplicated(keep="last").to_numpy()
    return order[~again]


def ranks(keys: Iterable[tuple[Ints, int]]) -> Ints:
    """One number per row that orders rows as the keys do, the first key first.  keys: (values, all of them below)."""
    whole, size = np.zeros(1, np.int64), 1
    for values, count in keys:
        if size * count >= 2**62:  # no longer fits: number only what occurs
            found, whole = np.unique(whole, return_inverse=True)
            size = len(found)
        whole, size = whole * count + values, size * count
    return whole


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
    return frame.drop_duplicates("commit", keep="last")[["commit", "date", "env"]].sort_values(["date", "commit"])
