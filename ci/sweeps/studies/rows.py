"""What a study has measured, as one frame: a row for each point, whatever file or record it comes from."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Iterable, Sequence

import pandas as pd

from benchmarks.points import split
from benchmarks.studies.types import Rows, StudyPart
from ci.sweeps.measured import Measured
from ci.trials.trial import DeclaredCase, Machine

KEYS = ["machine", "env", "commit", "operator", "case", "backend", "point", "regime"]
"""What tells two rows apart."""

_MACHINE = ("arch", "device", "market_name", "compute_units", "chip_id", "memory_bytes", "kind", "count")


def of_sweeps(found: Iterable[Measured]) -> pd.DataFrame:
    """The rows of measured sweeps, with what the declaration and the machine say of each."""
    frames = [_of_sweep(one) for one in found]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _of_sweep(measured: Measured) -> pd.DataFrame:
    frame, machine = measured.frame, measured.machine
    declared = {name: one.cases for name, one in measured.declarations.items()}
    baselines = {name: set(one.baselines) for name, one in measured.declarations.items()}
    pairs = list(zip(frame["operator"], frame["case"], strict=True))
    cases = [declared.get(operator, {}).get(case, DeclaredCase(case)) for operator, case in pairs]
    said = pd.DataFrame([_of_case(case) for case in cases], index=frame.index)
    whole = whole_seconds(measured)
    keys = zip(frame["operator"], frame["case"], frame["backend"], frame["point"], strict=True)
    arms = zip(frame["operator"], frame["backend"], strict=True)
    found: pd.DataFrame = pd.concat([frame, said], axis=1).assign(
        **_of_machine(machine),
        env=measured.origin.env,
        commit=measured.origin.commit or "",
        kernel=frame["operator"],
        baseline=[backend in baselines.get(operator, ()) for operator, backend in arms],
        whole_s=[whole.get(key, math.nan) for key in keys],
    )
    return found


def _of_case(case: DeclaredCase) -> dict[str, object]:
    cost = dataclasses.asdict(case.cost)
    return {"dims": dict(case.shape), "dtype": case.dtype, "world": case.world, "tier": case.tier, **cost}


def _of_machine(machine: Machine) -> dict[str, str | float]:
    said = {name: getattr(machine, name) for name in _MACHINE}
    return {"machine": machine.name, **{name: math.nan if one is None else one for name, one in said.items()}}


def whole_seconds(measured: Measured) -> dict[tuple[str, str, str, str], float]:
    """Seconds of a call from the host's side, median over everything measured, by operator, case, backend and point."""
    found: dict[tuple[str, str, str, str], list[float]] = {}
    for trial in measured.trials:
        for case, role, label, arm in trial.arms():
            if role == "head" and arm.ok:
                found.setdefault((trial.operator, case, *split(label)), []).extend(arm.whole_s)
    return {key: statistics.median(seconds) for key, seconds in found.items() if seconds}


def of_records(frame: pd.DataFrame, parts: Sequence[StudyPart]) -> pd.DataFrame:
    """Rows of the long frame of records that a study's plain arms are; of each case and arm the newest.

    ratio: of the medians of the same commit, without an interval: the arms may be of different trials.
    """
    mine = pd.concat([_of_part(frame, part) for part in parts]) if len(frame) else frame
    keys = ["machine", "kernel", "case", "backend"]
    newest = mine.sort_values("date", kind="stable").drop_duplicates(keys, keep="last")
    dims = [json.loads(shape) if shape else {} for shape in newest["shape"].astype(str)]
    rows = newest.assign(
        operator=newest["kernel"].astype(str),
        dims=pd.Series(dims, index=newest.index, dtype=object),
        config=pd.Series([{} for _ in dims], index=newest.index, dtype=object),
        knobs=pd.Series([{} for _ in dims], index=newest.index, dtype=object),
        point="",
        regime="spaced",
        low=math.nan,
        high=math.nan,
        whole_s=math.nan,
        equal_to="",
    )
    return _against_anchor(rows.reset_index(drop=True), parts)


def _of_part(frame: pd.DataFrame, part: StudyPart) -> pd.DataFrame:
    wanted = {part.anchor, *part.arms}
    mine = frame[(frame["kernel"] == part.operator) & frame["backend"].isin(wanted)]
    return mine[[part.has(str(case), int(world)) for case, world in zip(mine["case"], mine["world"], strict=True)]]


def _against_anchor(rows: pd.DataFrame, parts: Sequence[StudyPart]) -> pd.DataFrame:
    anchors = {part.operator: part.anchor for part in parts}
    named = rows["operator"].map(anchors)
    its = rows["backend"].astype(str) == named
    keys = list(zip(rows["machine"], rows["operator"], rows["case"], strict=True))
    anchored = dict(zip(itertools.compress(keys, its), rows["seconds"][its], strict=True))
    seconds = pd.Series([anchored.get(key, math.nan) for key in keys], index=rows.index)
    return rows.assign(anchor=named, is_anchor=its, ratio=rows["seconds"] / seconds)


def chosen(frame: pd.DataFrame, rows: Rows) -> pd.DataFrame:
    """The rows that a figure or a table shows; those without a time are never among them."""
    kept = frame[frame["status"] == "ok"]
    for name, values in rows.where.items():
        kept = kept[kept[name].isin(list(values))]
    return picked(kept, rows.pick)


def picked(frame: pd.DataFrame, pick: str) -> pd.DataFrame:
    """all; best: the fastest of each case and backend; plain: without a point; tried: points only."""
    if pick == "plain":
        return frame[frame["point"] == ""]
    if pick == "tried":
        return frame[frame["point"] != ""]
    if pick == "best":
        keys = ["machine", "operator", "case", "backend", "regime"]
        return frame.loc[sorted(frame.dropna(subset=["seconds"]).groupby(keys, sort=False)["seconds"].idxmin())]
    return frame
