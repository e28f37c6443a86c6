"""Planted slow-downs in a made history: how many are open events at the right commit, and how many series were alarmed
that nobody touched.

    python -m tests.study.history.planted --series 1000 --commits 300 --seed 1
    python -m tests.study.history.planted --series 17500 --commits 350 --planted 700

Times wander as those of a GPU do: a machine drifts slowly (all series alike), each series has noise of its own with
heavier tails than a normal one, and 1 % of the points are outliers.  Every series has a baseline in the same trial: one
without opens nothing.  Prints JSON; `possible` is what an oracle could place: of 4 % at sigma 2 % 0.953, of which 0.90
are found (2026-11-22).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import sys
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ci.history.analysis import History, analyse
from ci.history.series import BoolArray, IntArray
from ci.history.types import EventKind, EventState, SeriesKey
from ci.stats.types import FloatArray
from tests.study.history.limit import limit

SIZES = (0.04, 0.08)
"""Slow-downs, as shares of the time: 4 % is twice the noise of a point at sigma 2 %, 8 % four times (2026-11-22)."""
FEWEST_AFTER, RIGHT = 5, 2
"""Points after a slow-down from which it must be found, and commits it may be off."""
CASES = 10
"""Cases of an operator."""
TAILS = 5
"""Degrees of freedom of the noise."""
OUTLIERS, OUTLIER = 0.01, 0.30
"""Share and size of the points that a busy node spoils."""
DRIFT = 0.01
"""Standard deviation of the machine's drift: clocks and heat move an H200 by 1 to 2 % within a day (2026-11)."""
DAY_MS = 86_400_000


@dataclasses.dataclass(frozen=True)
class PlantedPlan:
    """What is made.  sigma: standard deviation of a point (log)."""

    series: int = 1000
    commits: int = 300
    planted: int = 200
    sigma: float = 0.01
    seed: int = 1


@dataclasses.dataclass(frozen=True)
class Planted:
    """A slow-down: its series, first slow commit (index) and size."""

    series: int
    commit: int
    size: float


def names(plan: PlantedPlan) -> list[SeriesKey]:
    """The series: operators with CASES cases each."""
    return [
        SeriesKey("made-1", f"operator_{number // CASES:04d}", "triton", f"case_{number % CASES}")
        for number in range(plan.series)
    ]


def planted(plan: PlantedPlan) -> list[Planted]:
    """Slow-downs of both sizes in distinct series, anywhere but in the first tenth and the last FEWEST_AFTER points."""
    rng = np.random.default_rng([plan.seed, 1])
    series = rng.permutation(plan.series)[: plan.planted]
    commits = rng.integers(plan.commits // 10, plan.commits - FEWEST_AFTER + 1, plan.planted)
    places = zip(map(int, series), map(int, commits), strict=True)
    return [Planted(*place, SIZES[number % len(SIZES)]) for number, place in enumerate(places)]


def frame(plan: PlantedPlan) -> pd.DataFrame:
    """A derived frame of the made history: `series` series of ours and half as many of the baseline."""
    rng = np.random.default_rng([plan.seed, 0])
    count = plan.commits + 1  # the last one is not shown: the numbers told in this file were drawn so
    drift = DRIFT * _slow(rng, count)
    level = np.exp(rng.uniform(np.log(1e-5), np.log(1e-2), plan.series))
    ours = np.log(level)[:, None] + drift + plan.sigma * _noise(rng, plan.series, count)
    for one in planted(plan):
        ours[one.series, one.commit :] += np.log1p(one.size)
    paired = np.ones(plan.series, bool)
    together = 2 * plan.sigma * _noise(rng, plan.series, count) * paired[:, None]  # what both arms of a trial see alike
    vendor = np.log(level)[:, None] + drift + plan.sigma / 10 * _noise(rng, plan.series, count) + together
    stop = plan.commits
    return _rows(plan, np.exp(ours + together)[:, :stop], np.exp(vendor)[:, :stop], paired)


def _slow(rng: np.random.Generator, count: int) -> FloatArray:
    """AR(1) with 0.95: a few days of memory; standard deviation 1."""
    steps = rng.standard_normal(count)
    for at in range(1, count):
        steps[at] = 0.95 * steps[at - 1] + (1 - 0.95**2) ** 0.5 * steps[at]
    return np.asarray(steps)


def _noise(rng: np.random.Generator, series: int, count: int) -> FloatArray:
    """Student's t with TAILS degrees of freedom, scaled to a standard deviation of 1."""
    return np.asarray(rng.standard_t(TAILS, (series, count)) * ((TAILS - 2) / TAILS) ** 0.5)


def _rows(plan: PlantedPlan, ours: FloatArray, vendor: FloatArray, paired: BoolArray) -> pd.DataFrame:
    rng = np.random.default_rng([plan.seed, 2])
    spoilt = rng.random((plan.series, plan.commits + 1))[:, : ours.shape[1]] < OUTLIERS
    ours = np.where(spoilt, ours * (1 + OUTLIER), ours)
    ratio = np.where(paired[:, None], vendor / ours, np.nan)
    mine = _arm(plan, ours, np.arange(plan.series), "triton", ratio)
    theirs = _arm(plan, vendor[paired], np.flatnonzero(paired), "blas", np.ones((int(paired.sum()), ours.shape[1])))
    whole = pd.concat([mine, theirs], ignore_index=True)
    whole = whole.astype(dict.fromkeys(("kernel", "backend", "case", "baseline_name"), "category"))  # as records
    return whole.sort_values("date", kind="stable", ignore_index=True)


def _arm(plan: PlantedPlan, seconds: FloatArray, series: IntArray, backend: str, ratio: FloatArray) -> pd.DataFrame:
    count = seconds.shape[1]
    keys = np.array(names(plan), dtype=object)[series]
    commits = np.array([f"{number:040x}" for number in range(count)], dtype=object)
    dates = pd.to_datetime(1_700_000_000_000 + DAY_MS * np.arange(count), unit="ms", utc=True)
    wide = {
        "machine": keys[:, 0], "kernel": keys[:, 1], "backend": np.full(len(keys), backend, object), "case": keys[:, 3]
    }  # fmt: skip
    return pd.DataFrame(
        {name: pd.Categorical(np.repeat(values, count)) for name, values in wide.items()}
        | {
            "commit": pd.Categorical(np.tile(commits, len(keys))),
            "date": np.tile(dates, len(keys)),
            "env": pd.Categorical(np.full(count * len(keys), "py3.12-torch2.11.0-triton3.6.0", object)),
            "yardstick": pd.Categorical(np.full(count * len(keys), "1", object)),
            "baseline": backend == "blas",
            "seconds": seconds.ravel(),
            "baseline_ratio": ratio.ravel(),
            "baseline_name": pd.Categorical(np.repeat(np.where(np.isfinite(ratio[:, 0]), "blas", ""), count)),
        }
    )


@dataclasses.dataclass(frozen=True)
class PlantedScore:
    """planted, found: by size; alarmed: series that nobody touched and that are in an event.

    possible: share of each size that an oracle places within RIGHT commits (tests.study.history.limit).
    """

    planted: dict[str, int]
    found: dict[str, int]
    possible: dict[str, float]
    untouched: int
    alarmed: int
    open_regressions: int


def score(plan: PlantedPlan, history: History) -> PlantedScore:
    """What an analysis found of what was planted."""
    keys, marks = names(plan), planted(plan)
    place = {commit: number for number, commit in enumerate(history.commits)}
    wanted = [e for e in history.events if e.state is EventState.OPEN and e.kind is EventKind.KERNEL]
    found: dict[SeriesKey, list[int]] = {}
    for event in wanted:
        for one in event.moved:
            found.setdefault(one.key, []).append(place[event.first_bad.hash])
    hits = [any(abs(at - one.commit) <= RIGHT for at in found.get(keys[one.series], ())) for one in marks]
    touched = {keys[one.series] for one in marks}
    alarmed = {m.key for e in history.events for m in e.moved if m.key not in touched and m.key.backend == "triton"}
    sizes = [f"{one.size:.0%}" for one in marks]
    count = {size: sizes.count(size) for size in sorted(set(sizes))}
    hit = {size: sum(h for h, s in zip(hits, sizes, strict=True) if s == size) for size in count}
    noise = (plan.sigma, TAILS, OUTLIERS, float(np.log1p(OUTLIER)), RIGHT)
    possible = {f"{size:.0%}": round(limit(float(np.log1p(size)), *noise), 3) for size in SIZES}
    return PlantedScore(count, hit, possible, plan.series - len(touched), len(alarmed), len(wanted))


def main(arguments: Sequence[str] | None = None) -> int:
    """Make, analyse, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in dataclasses.fields(PlantedPlan):
        kind = float if field.name == "sigma" else int
        parser.add_argument(f"--{field.name}", type=kind, default=field.default)
    print(json.dumps(_measured(PlantedPlan(**vars(parser.parse_args(arguments)))), indent=1))
    return 0


def _measured(plan: PlantedPlan) -> dict[str, object]:
    made = frame(plan)
    wall, used = time.perf_counter(), _cpu_seconds()
    history = analyse(made)
    spent = {"wall_s": round(time.perf_counter() - wall, 2), "cpu_s": round(_cpu_seconds() - used, 2)}
    size = {"rows": len(made), "series": history.series, "points": history.points, "commits": len(history.commits)}
    return {**size, **spent, **dataclasses.asdict(score(plan, history)), "notes": history.notes}


def _cpu_seconds() -> float:
    """Of this process and of those it started and that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


if __name__ == "__main__":
    sys.exit(main())
