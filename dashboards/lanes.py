"""Where numbers may stand in one line, in which order, and where that line is broken.

A *lane* is a machine or, on a machine that measures the same commit under several environments, one of them.
Everything on a page is aligned to the commits of a lane, in the order of their dates.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable

import numpy as np
import pandas as pd

from ci.records import rates

KEY = ["kernel", "case", "backend"]
"""What names a series within a lane."""

DEFINITION = ["yardstick", "case_yardstick"]
"""Columns of the digests of a number's benchmark definition: of the whole kernel, and of the case."""

_TEXTS = ["machine", "commit", "env", *KEY, "status", "why", *DEFINITION, "dtype", "tier", "baseline_name"]
_NUMBERS = ["seconds", "seconds_low", "seconds_high", *rates.AMOUNT, "roofline_seconds", "peak_share", "baseline_ratio"]


@dataclasses.dataclass(frozen=True)
class Lane:
    """A machine, or one environment of a machine that measures commits under several; `frame` holds its tidy rows."""

    machine: str
    env: str | None
    frame: pd.DataFrame

    @property
    def slug(self) -> str:
        """Folder of its data files."""
        return slug(self.machine if self.env is None else f"{self.machine}--{self.env}")


def slug(name: str) -> str:
    """A file name for `name`: itself if it is plain lower-case, else cleaned, with a digest that keeps it unique."""
    if re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,79}", name):
        return name
    clean = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:60]
    return f"{clean or 'x'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def natural(name: str) -> list[tuple[int, int, str]]:
    """Key for the order people expect: m64 before m512."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame in the order of history: one row per lane, commit and arm; no nulls in texts, no infinities."""
    frame = frame.copy()
    for column in _TEXTS:
        frame[column] = frame[column].astype(object).where(frame[column].notna(), "").map(str)
    frame[_NUMBERS] = frame[_NUMBERS].astype(float).replace([np.inf, -np.inf], np.nan)
    frame["date"] = pd.to_datetime(frame["date"], utc=True)
    frame["baseline"] = frame["baseline"].fillna(False).astype(bool)
    frame = frame.sort_values(["machine", "date", "commit", "env", *KEY], kind="stable")
    return frame.drop_duplicates(["machine", "commit", "env", *KEY], keep="last").reset_index(drop=True)


def lanes(frame: pd.DataFrame) -> list[Lane]:
    """The lanes of a tidy frame, the one with the newest commit first (then by name)."""
    by_machine = frame.groupby("machine", sort=True)
    found = [Lane(str(machine), env, part) for machine, rows in by_machine for env, part in _by_environment(rows)]
    return sorted(found, key=lambda lane: (-lane.frame["date"].max().value, lane.machine, lane.env or ""))


def _by_environment(rows: pd.DataFrame) -> Iterable[tuple[str | None, pd.DataFrame]]:
    """All rows if a machine changes its environment now and then, one part per environment if commits have several."""
    per_commit = rows.groupby("commit")["env"].nunique()
    if per_commit.max() <= 1:
        return [(None, rows)]
    return [(str(env), part) for env, part in rows.groupby("env", sort=True)]


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


def same_definition(rows: pd.DataFrame, other: pd.Series) -> np.ndarray:
    """Which rows have the benchmark definition of `other`: that of the case, or of the kernel where one lacks notes."""
    kernel, case = (rows[column].to_numpy(str) for column in DEFINITION)
    known = (case != "") & (other["case_yardstick"] != "")
    return np.where(known, case == other["case_yardstick"], kernel == other["yardstick"])
