"""What was timed round by round beside something else, in a block of commits: static/views/compare_sides.js reads it.

Two ratios to one baseline, each from rounds that both ran in, are compared without what the device does to both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dashboards.lanes import KEY
from dashboards.values import significant
from dashboards.views.together import numbers

RATIO = ["paired_ratio", "paired_low", "paired_high"]


def paired_block(rows: pd.DataFrame) -> dict[str, Any]:
    """{"commits": [hash], "baselines": [name], "series": [[kernel, case, backend, [[index of the commit, index of the
    baseline, its time / the row's time, low, high of the 99 % interval]]]]}; rows: tidy, of a block."""
    if "paired_with" not in rows:
        return {"commits": [], "baselines": [], "series": []}
    values = rows[RATIO].to_numpy(float)
    rows = rows[(np.isfinite(values) & (values > 0)).all(axis=1) & (rows["status"] == "ok").to_numpy()]
    series = numbers(rows, KEY)
    order = np.argsort(series, kind="stable")
    rows, series = rows.iloc[order], series[order]
    commit, commits = pd.factorize(rows["commit"].astype(str))
    baseline, baselines = pd.factorize(rows["paired_with"].astype(str))
    ratios = (significant(rows[name].to_numpy(float), 6) for name in RATIO)
    points = list(zip(commit.tolist(), baseline.tolist(), *ratios, strict=True))
    starts = np.flatnonzero(np.diff(series, prepend=-1)).tolist()
    named = rows[KEY].iloc[starts].astype(str).itertuples(index=False)
    ends = [*starts[1:], len(points)] if starts else []
    parts = zip(named, starts, ends, strict=True)
    return {
        "commits": commits.tolist(),
        "baselines": baselines.tolist(),
        "series": [[*names, points[start:end]] for names, start, end in parts],
    }
