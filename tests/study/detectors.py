"""Change-point detectors side by side: false alarms on series without a step, and steps found.

    python -m tests.study.detectors --trials 200

Ours, asv's step detection (what its regressions page shows), Apache Otava where it is installed, and a t-test of 12
points against 12 with a threshold of 7, as Mozilla's Perfherder has (its defaults, treeherder, 2026-11).  Each in its
own defaults.  A step counts as found where any change is reported, and as placed where one is within 5 points of it.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ci.options import JSON, err_console
from ci.stats.steps import find_many
from ci.stats.types import FloatArray
from tests.study.series_noise import KINDS, SIGMA

POINTS = 300
NEAR = 5
"""Points between a step and where it is reported."""

WINDOW, THRESHOLD = 12, 7.0
"""Points on either side, and the t value, of the t-test."""

WIDTH = 130
"""Columns of the table, however narrow the terminal: wrapped rows cannot be compared."""

Detector = Callable[[FloatArray], list[int]]


@dataclasses.dataclass(frozen=True)
class Task:
    """Series of one kind: a step of `ratio` at `place` where the noise is `sigma`; 1.0 for none."""

    kind: str
    ratio: float = 1.0
    sigma: float = SIGMA
    place: int = POINTS // 2
    points: int = POINTS

    @property
    def name(self) -> str:
        noise = f"{self.kind}, {self.sigma:.1%}, n = {self.points}"
        return f"no step: {noise}" if self.ratio == 1 else f"{self.ratio - 1:+.0%} at {self.place}: {noise}"

    def series(self, trials: int, seed: int) -> FloatArray:
        """The values, shape (trials, points)."""
        rng = np.random.default_rng([seed, self.points, self.place, round(1e4 * self.ratio)])
        logs = KINDS[self.kind](rng, trials, self.points) * (self.sigma / SIGMA)
        logs[:, self.place :] += np.log(self.ratio)
        return np.asarray(np.exp(logs))


@dataclasses.dataclass(frozen=True)
class Score:
    """Shares of the trials: any change reported, one reported near the step, the detector failed; with standard errors.

    Of a series without a step `near` says nothing.
    """

    found: float
    found_error: float
    near: float
    near_error: float
    failed: float


NOISES = ("gaussian", "t, 3 degrees", "AR(1) 0.5")
SIZES = ((1.01, 0.005), (1.02, 0.02), (1.05, 0.02))
TASKS = (
    *(Task(kind) for kind in KINDS),
    *(Task("gaussian", points=points) for points in (30, 100, 1000)),
    *(Task(kind, ratio, sigma) for kind in NOISES for ratio, sigma in SIZES),
    *(Task("gaussian", ratio, sigma, place=POINTS - 5) for ratio, sigma in ((1.04, 0.01), (1.08, 0.02))),
)
"""The nulls, steps in the middle, and steps with five points after them."""


def ours(values: FloatArray) -> list[int]:
    return [step.index for step in find_many([values])[0]]


def asv(values: FloatArray) -> list[int]:
    """First points of the levels of asv's fit, but the first."""
    levels = importlib.import_module("asv.step_detect").detect_steps(values.tolist())
    return [int(level[0]) for level in levels[1:]]


def t_test(values: FloatArray) -> list[int]:
    """Where the means of the 12 points before and after differ by more than 7 standard errors."""
    stretch = np.lib.stride_tricks.sliding_window_view(values, WINDOW)
    mean, scatter = stretch.mean(axis=1), stretch.var(axis=1, ddof=1)
    error = np.sqrt((scatter[:-WINDOW] + scatter[WINDOW:]) / WINDOW)
    t = np.abs(mean[WINDOW:] - mean[:-WINDOW]) / np.maximum(error, np.finfo(float).tiny)
    return (np.flatnonzero(t > THRESHOLD) + WINDOW).tolist()


def otava() -> Detector | None:
    """Apache Otava with its defaults; None where it is not installed."""
    try:
        analysis = importlib.import_module("otava.analysis")
    except ImportError:
        return None
    return lambda values: [int(point.index) for point in analysis.compute_change_points(values.tolist())[0]]


def detectors() -> dict[str, Detector]:
    """By name; those that are installed."""
    found = {"ours": ours, "asv": asv, "otava": otava(), "t-test": t_test}
    return {name: one for name, one in found.items() if one is not None}


def score(detector: Detector, series: FloatArray, place: int) -> Score:
    """How a detector does on series with a step at one place."""
    reported = [_reported(detector, values) for values in series]
    answers = [one for one in reported if one is not None]
    found = [bool(one) for one in answers]
    near = [any(abs(index - place) <= NEAR for index in one) for one in answers]
    return Score(*_share(found), *_share(near), 1 - len(answers) / len(series))


def _reported(detector: Detector, values: FloatArray) -> list[int] | None:
    """None where the detector fails: Otava 0.8.0 raises ValueError for about one series in some hundreds."""
    try:
        return detector(values)
    except ValueError:
        return None


def _share(hits: list[bool]) -> tuple[float, float]:
    """(share, standard error), the latter of one hit more and one miss more, so that it is never 0."""
    n = len(hits)
    p = (sum(hits) + 1) / (n + 2)
    return (sum(hits) / n if n else 0.0), (p * (1 - p) / (n + 2)) ** 0.5


def compare(tasks: tuple[Task, ...], trials: int, seed: int) -> Iterator[tuple[Task, Mapping[str, Score]]]:
    """Every detector on the same series of every task."""
    able = detectors()
    for task in tasks:
        series = task.series(trials, seed)
        yield task, {name: score(one, series, task.place) for name, one in able.items()}


def table(rows: list[tuple[Task, Mapping[str, Score]]]) -> Table:
    names = list(rows[0][1])
    made = Table("series", *names, box=None)
    for task, scores in rows:
        made.add_row(task.name, *(_cell(task, scores[name]) for name in names))
    return made


def _cell(task: Task, score: Score) -> str:
    failed = f", fails {score.failed:.1%}" if score.failed else ""
    if task.ratio == 1:
        return f"{score.found:.3f} ± {score.found_error:.3f}{failed}"
    return f"{score.found:.2f} ± {score.found_error:.2f}, near {score.near:.2f}{failed}"


@click.command(help=__doc__)
@click.option("--trials", type=click.IntRange(1), default=200, show_default=True, help="Series of each row.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@JSON
def main(trials: int, seed: int, as_json: bool) -> None:
    console = err_console()
    rows = list(track(compare(TASKS, trials, seed), "comparing", total=len(TASKS), console=console, transient=True))
    if otava() is None:
        console.print("Apache Otava is not installed; its column is left out (pip install apache-otava).")
    if as_json:
        click.echo(json.dumps([_plain(task, scores) for task, scores in rows], indent=1))
    else:
        out = Console(highlight=False)
        out.width = max(out.width, WIDTH)
        out.print(table(rows))
        click.echo(f"{trials} series in each row, seed {seed}; share of series with any change ± its standard error")


def _plain(task: Task, scores: Mapping[str, Score]) -> dict[str, Any]:
    return {**dataclasses.asdict(task), "scores": {name: dataclasses.asdict(one) for name, one in scores.items()}}


if __name__ == "__main__":
    main()
