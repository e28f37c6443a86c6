"""Collectives over the CUs that they take: ours by programs, the library by channels, and one against the other."""

from __future__ import annotations

import math
from collections.abc import Hashable

import pandas as pd

from ci.sweeps.studies.across.lookup import looked_up, placed, seconds_by

LIBRARY = "library"


def cus(frame: pd.DataFrame) -> pd.Series:
    """CUs or SMs that a row takes: its knob `channels` or `programs`; NaN where the library chooses for itself."""
    taken = [config.get("channels") or config.get("programs") or math.nan for config in frame["config"]]
    return pd.Series(taken, index=frame.index, dtype=float)


def maker(frame: pd.DataFrame) -> pd.Series:
    """Who wrote the kernel: "library" for a baseline, else the backend."""
    pairs = zip(frame["baseline"], frame["backend"], strict=True)
    return pd.Series([LIBRARY if base else backend for base, backend in pairs], index=frame.index, dtype=object)


def library_percent(frame: pd.DataFrame) -> pd.Series:
    """Bandwidth of a row / bandwidth of the library with as many CUs in the same case, in percent."""
    keys: list[Hashable] = list(zip(placed(frame), frame["case"], cus(frame), strict=True))
    library = frame["baseline"].astype(bool) & cus(frame).notna()
    return looked_up(frame, seconds_by(frame, keys, library), keys) / frame["seconds"] * 100
