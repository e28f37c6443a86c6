"""The points of recorded sweeps over the commits: series of their own, beside those of the cases.

A series is a point under a regime on a machine, against the same anchor; its value at a commit is the ratio to the
anchor, which falls when the point gains on the default.  The environment is not part of a series: whether the best
point moved with a new compiler is what it is asked.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from ci.records.sweeps import keeping
from ci.sweeps.measured import Measured, gathered

SERIES = ("machine", "operator", "case", "backend", "point", "anchor", "regime")
"""What tells a series from others."""

VALUES = ("value", "low", "high", "seconds", "trials", "rounds", "rung", "status", "why", "equal_to", "code_hash")
"""What is known of it at a commit; value: the ratio to the anchor, low and high its interval."""

COLUMNS = (*SERIES, "knobs", "config", "is_anchor", "commit", "date_ms", "measured_at", "env", *VALUES)
"""knobs: what the point overrides, config: all of the launch, both JSON texts.  date_ms: of the commit, ms since 1970
UTC; measured_at: ISO, start of the sweep."""


def series(results: Path) -> pd.DataFrame:
    """Every point of every recorded sweep at every commit, oldest commit first; see COLUMNS.

    `frame.attrs["problems"]` has a sentence on each line that cannot be used.  No sweeps give no rows.
    """
    trials, problems = keeping.load(results)
    parts = [_of(one) for one in gathered(trials)]
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))
    found = found.sort_values(["date_ms", "measured_at", *SERIES], kind="stable", ignore_index=True)
    found.attrs["problems"] = problems
    return found


def _of(one: Measured) -> pd.DataFrame:
    """The rows of one sweep."""
    rows = one.frame.rename(columns={"ratio": "value"})
    told = {"machine": one.origin.machine, "commit": one.origin.commit, "env": one.origin.env}
    rows = rows.assign(**told, date_ms=one.date_ms or 0, measured_at=one.started_at)
    for name in ("knobs", "config"):
        rows[name] = [json.dumps(knobs, sort_keys=True) for knobs in rows[name]]
    return rows[list(COLUMNS)]
