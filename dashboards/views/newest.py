"""The data that three pages draw (backends, shapes, roofline): the newest numbers of every case of a lane."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ci.records import derived, rates
from ci.stats.types import FloatArray
from ci.trials.file import read
from ci.trials.trial import Trial
from dashboards.lanes import DEFINITION, KEY, MONTH, PAIRED, Arrays, earlier, natural, timed
from dashboards.sources import Lane
from dashboards.values import costs, different, half_width, in_rate, microseconds, minute, significant
from dashboards.views import CHARTS, Made, SiteInput, View, beside
from kernels.hardware import Hardware

CASES = ("values.js", *CHARTS, "views/cases.js")
"""Scripts of a view that draws these data."""


def newest_data(rows: pd.DataFrame) -> dict[str, Any]:
    """What the scripts read.  rows: of a lane, as `dashboards.lanes.together` gives them.

    {"cases": [{"kernel", "case", "tier", "dtype", "world", "commit", "date", "env", "rate", "shape": {name: value},
    "cost": {field of CostRow: value}, "arms": [{"backend", "baseline", "status", "why", "us", "low", "high", "value",
    "of_best", "standing"}]}]}

    of_best: speed / speed of the best backend, at most 1.  standing: "best", "tied" (it and the best are apart by no
    more than their 99 % intervals together) or "".
    """
    texts = (*KEY, "tier", "dtype", "world", "commit", "env", "status", "why", "baseline")
    columns: dict[str, Sequence[Any]] = {name: rows[name].tolist() for name in texts}
    columns["date"] = [minute(date) for date in rows["date"]]
    columns["shape"] = rows["shape"].tolist() if "shape" in rows else [""] * len(rows)
    ends = (("us", "seconds"), ("low", "seconds_low"), ("high", "seconds_high"))
    columns |= {name: microseconds(rows, column) for name, column in ends}
    speeds = {rate: significant(in_rate(rows, rate)) for rate in rates.Rate}
    times, cost = contenders(rows), costs(rows)
    cases: dict[tuple[str, str], list[int]] = {}
    for _, _, i in sorted(zip(columns["baseline"], columns["backend"], range(len(rows)), strict=True)):  # ours first
        cases.setdefault((columns["kernel"][i], columns["case"][i]), []).append(i)
    found = []
    for _, at in sorted(cases.items(), key=lambda case: (case[0][0], natural(case[0][1]))):
        own, newest = (
            different(cost[i] for i in sorted(at))[-1],
            {name: column[max(at)] for name, column in columns.items()},
        )
        rate = rates.headline(own)
        of_best, standing = standings({name: column[at] for name, column in times.items()})
        told = ("kernel", "case", "tier", "dtype", "world", "commit", "date", "env")
        arms = [
            {name: columns[name][i] for name in ("backend", "baseline", "status", "why", "us", "low", "high")}
            | {"value": speeds[rate][i], "of_best": share, "standing": word}
            for i, share, word in zip(at, significant(of_best, 4), standing, strict=True)
        ]
        about = {name: newest[name] for name in told} | {"rate": rate.value, "shape": shape_of(newest["shape"])}
        found.append(about | {"cost": {name: value for name, value in own._asdict().items() if value}, "arms": arms})
    return {"cases": found}


def shape_of(text: str) -> dict[str, Any]:
    """The dimensions of a case; what is no number that JSON knows is left out."""
    values = json.loads(text or "{}")
    return {name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)}


# ---- who is best -----------------------------------------------------------------------------------------------------


def contenders(rows: pd.DataFrame) -> Arrays:
    """Times of rows and where they lie beside a baseline, for `standings`; NaN where not known.

    seconds; half: half of the 99 % interval of the time, as a logarithm.  backend; paired_with: the baseline that was
    timed round by round beside the row ("" without); ratio, ratio_half: baseline's time / time, as logarithms.
    """
    names, nothing = np.full(len(rows), "", object), np.full(len(rows), np.nan)
    told: Arrays = {"paired_with": names, "ratio": nothing, "ratio_half": nothing}
    if "paired_with" in rows:
        ratio, low, high = (rows[name].to_numpy(float) for name in PAIRED)
        with np.errstate(divide="ignore", invalid="ignore"):
            told = {"ratio": np.log(ratio), "ratio_half": np.log(high / low) / 2}
        told |= {"paired_with": rows["paired_with"].to_numpy(object)}
    own = {"seconds": np.where(timed(rows), rows["seconds"], np.nan), "half": half_width(rows)}
    return {**told, **own, "backend": rows["backend"].to_numpy(object)}


def standings(rows: Arrays) -> tuple[FloatArray, list[str]]:
    """Speed relative to the best backend, NaN without a time, and "best", "tied" or "" of each row of one case.

    Where two rows were timed round by round beside the same baseline, their ratios to it are compared: what the device
    does to all backends is not in them.  Else their times are.  Two estimates are tied if their logarithms are apart by
    no more than the root of the sum of the squared half-widths (Zou and Donner, Statistics in Medicine 27(10), 2008).
    """
    seconds = rows["seconds"]
    if not np.isfinite(seconds).any():
        return seconds, [""] * len(seconds)
    best = int(np.nanargmin(seconds))
    name = rows["paired_with"][best] or rows["backend"][best]
    mine, itself = rows["paired_with"] == name, rows["backend"] == name
    place, half = (np.where(itself, 0.0, np.where(mine, rows[end], np.nan)) for end in ("ratio", "ratio_half"))
    paired = np.isfinite(place) & np.isfinite(place[best])
    apart = np.where(paired, place[best] - place, np.log(seconds / seconds[best]))
    half, alone = np.nan_to_num(half), np.nan_to_num(rows["half"])
    reach = np.where(paired, np.hypot(half, half[best]), np.hypot(alone, alone[best]))
    standing = ["best" if i == best else "tied" if apart[i] <= reach[i] else "" for i in range(len(seconds))]
    return seconds[best] / seconds, standing


# ---- files -----------------------------------------------------------------------------------------------------------


def newest(site: SiteInput) -> Made:
    """The data file of each lane; the same numbers for other programs, one row per case and backend."""
    for lane in site.lanes:
        data = newest_data(site.newest[lane.slug])
        yield f"{lane.slug}/newest", data
        yield from beside(f"{lane.slug}/newest", [_flat(case, arm) for case in data["cases"] for arm in case["arms"]])


def _flat(case: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    cost = {name: case["cost"].get(name) for name in ("flops", "hbm_bytes", "link_bytes", "payload_bytes")}
    kept = {key: value for key, value in case.items() if key not in ("arms", "cost", "shape")}
    return kept | cost | {"shape": " ".join(f"{k}={v}" for k, v in case["shape"].items())} | arm


# Backends beside each other: every case with every backend, which is best, and which are as good within the noise.


BACKENDS = View("backends", "Backends", newest, scripts=(*CASES, "views/backends.js"), styles=("views/views.css",))


# Speed over the shape of a case, and tile configurations over shapes where sweeps are recorded.


SWEEPS = ("sweeps", "curves")
"""Folders below the records whose trial files hold one operator with many settings of its knobs."""

LEAST_CONFIGURATIONS = 2
"""Fewer than these in one backend are no sweep."""

Knobs = str
"""Knobs of an arm as JSON with sorted keys: equal texts are equal settings."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Times of one backend of one operator.  seconds: median over trials of a trial's median, by case and knobs."""

    kernel: str
    backend: str
    seconds: Mapping[tuple[str, Knobs], float]


def sweeps(trials: Iterable[Trial]) -> list[Sweep]:
    """The sweeps in the trials of one machine."""
    found: dict[tuple[str, str], dict[tuple[str, Knobs], list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        for case, _, backend, arm in trial.arms():
            if arm.ok and arm.knobs:
                found[trial.operator, backend][case, knobs(arm.knobs)].append(float(np.median(arm.seconds)))
    medians = {key: {at: float(np.median(times)) for at, times in points.items()} for key, points in found.items()}
    several = {key for key, points in medians.items() if len({k for _, k in points}) >= LEAST_CONFIGURATIONS}
    return [Sweep(*key, medians[key]) for key in sorted(several)]


def knobs(values: Mapping[str, Any]) -> Knobs:
    """The text that stands for a setting."""
    return json.dumps(dict(values), sort_keys=True)


def configurations(sweep: Sweep, chosen: Mapping[str, Knobs]) -> dict[str, Any]:
    """What static/views/shapes.js reads; only knobs that differ are told.

    {"kernel", "backend", "cases": [name], "configs": [{knob: value}], "us": [[of config] of case], "running": [config
    of the newest record of the case, or null], "chosen": [its index where the sweep has it, or null]}
    """
    cases = sorted({case for case, _ in sweep.seconds}, key=natural)
    settings = sorted({setting for _, setting in sweep.seconds}, key=natural)
    times = [[sweep.seconds.get((case, setting), np.nan) * 1e6 for setting in settings] for case in cases]
    running = [chosen.get(case) for case in cases]
    told = _differing(
        [json.loads(setting) for setting in {**dict.fromkeys(settings), **dict.fromkeys(running)} if setting]
    )
    return {
        "kernel": sweep.kernel,
        "backend": sweep.backend,
        "cases": cases,
        "configs": [told(setting) for setting in settings],
        "running": [told(setting) if setting else None for setting in running],
        "us": [significant(row) for row in times],
        "chosen": [settings.index(setting) if setting in settings else None for setting in running],
    }


def _differing(settings: Sequence[Mapping[str, Any]]) -> Callable[[Knobs], dict[str, Any]]:
    """What tells a setting from the others."""
    names = sorted({name for setting in settings for name in setting})
    kept = [name for name in names if len({json.dumps(setting.get(name)) for setting in settings}) > 1]

    def told(setting: Knobs) -> dict[str, Any]:
        values = json.loads(setting)
        return {name: values[name] for name in kept if name in values}

    return told


def _shapes(site: SiteInput) -> Made:
    trials = list(_trials(site.results_dir)) if site.results_dir else []
    for lane in site.lanes:
        found = sweeps(trial for trial in trials if trial.machine.name == lane.machine)
        yield f"{lane.slug}/configurations", [configurations(one, _chosen(site, lane, one)) for one in found]


def _trials(results: Path) -> Iterator[Trial]:
    for path in sorted(path for folder in SWEEPS for path in (results / folder).glob("*.jsonl*")):
        yield from read(path).trials


def _chosen(site: SiteInput, lane: Lane, sweep: Sweep) -> dict[str, Knobs]:
    """By case, the knobs with which the newest record of the swept backend was made."""
    rows = site.newest[lane.slug]
    rows = rows[(rows["kernel"] == sweep.kernel) & (rows["backend"] == sweep.backend)]
    places = rows[["commit", "env"]].drop_duplicates().itertuples(index=False)
    trials = [trial for commit, env in places for trial in site.notes_of(lane.machine, commit, env)]
    mine = sorted((trial for trial in trials if trial.operator == sweep.kernel), key=lambda trial: trial.order)
    arms = [(case, arm) for trial in mine for case, _, backend, arm in trial.arms() if backend == sweep.backend]
    return {case: knobs(arm.knobs) for case, arm in arms if arm.ok}


SHAPES = View(
    "shapes", "Shapes", _shapes, scripts=(*CASES, "views/shapes.js"), styles=("views/views.css",), reads=("*/newest",)
)


# The roofline of a machine: what cases achieve over their intensity, under the roofs, and where they were before.


def roofline_data(newest: pd.DataFrame, before: pd.DataFrame) -> dict[str, Any]:
    """What static/views/roofline.js reads beside the newest numbers; rows as `dashboards.lanes` gives them.

    {"roofs": {"device", "hbm": bytes/s, "peaks": {dtype: FLOP/s}} or null, "before": [{"kernel", "case", "backend",
    "us", "commit", "date"}]}, before: older times under the same benchmark definition, of another commit.
    """
    return {"roofs": roofs(newest), "before": _before(newest, before)}


def roofs(rows: pd.DataFrame) -> dict[str, Any] | None:
    """The peaks of one device of the machine (kernels.hardware) for the dtypes of its cases; None if it is unknown."""
    hardware = derived.hardware_of(rows.iloc[-1])
    if hardware is None:
        return None
    return {"device": hardware.market_name, "hbm": hardware.hbm_bandwidth, "peaks": _peaks(hardware, rows["dtype"])}


def _peaks(hardware: Hardware, dtypes: pd.Series) -> dict[str, float]:
    found = {}
    for dtype in sorted(map(str, dtypes.unique())):
        with contextlib.suppress(ValueError):  # a dtype without matrix units has no roof
            found[dtype] = hardware.peak(dtype)
    return found


def _before(newest: pd.DataFrame, before: pd.DataFrame) -> list[dict[str, Any]]:
    columns = [*KEY, *DEFINITION, "commit"]
    pairs = before.merge(newest.loc[timed(newest), columns], on=KEY, suffixes=("", "_now"))
    pairs = pairs[_same_definition(pairs) & (pairs["commit"] != pairs["commit_now"])].reset_index(drop=True)
    pairs = pairs.assign(us=microseconds(pairs), date=[minute(date) for date in pairs["date"]])
    found: list[dict[str, Any]] = pairs[[*KEY, "us", "commit", "date"]].to_dict("records")
    return found


def _same_definition(pairs: pd.DataFrame) -> np.ndarray:
    """Of the case, or of the kernel where one side lacks notes."""
    kernel, case = ((pairs[f"{name}_now"] == pairs[name]).to_numpy() for name in DEFINITION)
    known = ((pairs[DEFINITION[1]] != "") & (pairs[f"{DEFINITION[1]}_now"] != "")).to_numpy()
    return np.where(known, case, kernel)


def _roofline(site: SiteInput) -> Made:
    for lane in site.lanes:
        yield f"{lane.slug}/roofline", roofline_data(site.newest[lane.slug], earlier(lane.frame, MONTH))


ROOFLINE = View(
    "roofline",
    "Roofline",
    _roofline,
    scripts=(*CASES, "views/roofline.js"),
    styles=("views/views.css",),
    reads=("*/newest",),
)
