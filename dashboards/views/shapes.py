"""Speed over the shape of a case, and tile configurations over shapes where sweeps are recorded."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ci.trials.file import read
from ci.trials.trial import Trial
from dashboards.lanes import natural
from dashboards.sources import Lane
from dashboards.values import significant
from dashboards.views import SiteInput, View
from dashboards.views.newest import CASES

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


def _data(site: SiteInput) -> Iterator[tuple[str, Any]]:
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


VIEW = View(
    "shapes",
    "Shapes",
    scripts=(*CASES, "views/shapes.js"),
    styles=("views/views.css",),
    reads=("*/newest",),
    data=_data,
)
