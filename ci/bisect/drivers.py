"""Which driver changed a speed, from the records: no trial can change a driver, but nodes and days have some.

A record is compared with those of the first driver that ran the same code, on a machine of the same kind, under the
same torch and Triton.  Such records wander apart by up to 2 % on their own (`recorded_smallest_effect` in the policy),
so that it takes several of each driver.  The newest one of a driver is held back: it is the fresh trial that a step
between the driver and the one before it must be seen in again.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ci.bisect.outcomes import RecordedSearch
from ci.bisect.types import BisectError, RowPlace, TrialOutcome
from ci.harness import MeasurePlan
from ci.records import store

SERIES = ["machine", "kernel", "backend", "case", "case_yardstick", "method", "torch", "triton", "ran"]
"""Rows that are equal in these differ by the driver, and by what wanders."""
RECORD = ["driver", "date", "machine", "commit", "env"]

TEXTS = [*SERIES[:-1], *(name for name in RECORD if name != "date"), "code", "library"]


def of_records(results: Path, plan: MeasurePlan, asked: Sequence[str] = ()) -> RecordedSearch:
    """Records of what the plan measures, by driver.  asked: the drivers in their order, () for all, the oldest first.

    Raises BisectError where fewer than two drivers ran the same code.
    """
    rows = _rows(store.load(results), plan)
    recorded = sorted(rows["driver"].unique(), key=_version)
    for one in asked:
        if one not in recorded:
            known = (
                f"recorded are {', '.join(recorded)}" if recorded else f"{results} has no record of it with a driver"
            )
            raise BisectError(f"no record of what is asked for is of driver {one!r}; {known}")
    return _search(rows, list(asked) or recorded)


def _rows(frame: pd.DataFrame, plan: MeasurePlan) -> pd.DataFrame:
    """Rows with a time and a driver, of the plan's kernels, backends and cases.  ran: what says that code is equal."""
    good = (frame["status"] == "ok") & (frame["driver"] != "") & (frame["seconds"] > 0)
    good &= frame["kernel"].isin(plan.kernels)
    if plan.backends:
        good &= frame["backend"].isin(plan.backends)
    rows = frame[good]
    named = (f"{kernel}/{case}" for kernel, case in zip(rows["kernel"], rows["case"], strict=True))
    fits = [any(fnmatch.fnmatchcase(name, glob) for glob in plan.cases or ("*",)) for name in named]
    texts = rows.loc[np.array(fits, dtype=bool)].astype(dict.fromkeys(TEXTS, str))
    own = texts["code"].where(texts["code"] != "", texts["commit"])
    return texts.assign(ran=own.where(~texts["baseline"].astype(bool), texts["library"]))


def _search(rows: pd.DataFrame, drivers: list[str]) -> RecordedSearch:
    if len(drivers) < 2:
        said = f"records of what is asked for are of {drivers[0]} alone" if drivers else "no record of it has a driver"
        raise BisectError(f"{said}; two drivers are compared: run `ridgeline run` on a node with another one")
    rows = rows[rows["driver"].isin(drivers)]
    first = rows[rows["driver"] == drivers[0]].groupby(SERIES)["seconds"].median().rename("first")
    paired = rows.join(first, on=SERIES, how="inner")
    shift = np.log(paired["seconds"] / paired["first"])
    each = paired.assign(shift=shift).groupby(RECORD, sort=True)["shift"].mean()
    by_driver = {driver: [float(one) for one in each[each.index.get_level_values(0) == driver]] for driver in drivers}
    for driver, shifts in by_driver.items():
        if not shifts:
            said = f"driver {driver} has no record of the code, torch and Triton that {drivers[0]} has one of"
            raise BisectError(f"{said}; run the same commit in the same environment under both")
    kind = str(rows["kind"].iloc[0])
    return RecordedSearch([RowPlace(one, one) for one in drivers], _outcomes(list(by_driver.values())), kind)


def _outcomes(shifts: Sequence[Sequence[float]]) -> list[TrialOutcome]:
    """Records against the first driver, then the newest one of each later driver against that of the one before it.

    shifts: of each driver its records against the first driver, the oldest first.
    """
    told = [TrialOutcome(0, at, one) for at, of in enumerate(shifts) if at for one in (of[:-1] if at > 1 else of)]
    pairs = zip(range(2, len(shifts)), shifts[1:], shifts[2:], strict=False)
    return told + [TrialOutcome(at - 1, at, after[-1] - before[-1]) for at, before, after in pairs]


def _version(driver: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", driver))
