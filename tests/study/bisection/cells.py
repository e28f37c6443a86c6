"""What is simulated: rows of changes, steps in them, noise; and what is counted of each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ci.bisect import axes
from ci.bisect.search import Draw, simulated
from ci.stats.bisection import FoundSteps, Line
from ci.stats.types import FloatArray
from tests.study.bisection import noises, pass_fail

MOST = 200
"""Trials after which a search has failed."""
NORMAL = math.inf


@dataclasses.dataclass(frozen=True)
class SearchCell:
    """One line of the table.  steps: sizes, as shares of the time; classes: runs of equal code, 0: all may differ."""

    name: str
    draw: Draw
    steps: tuple[float, ...] = (0.01,)
    changes: int = 256
    classes: int = 0


@dataclasses.dataclass(frozen=True)
class CountedCell:
    """What came of the searches of a cell.  right, undecided: how many of them; trials: of each."""

    name: str
    searches: int
    right: int
    undecided: int
    trials: Sequence[int]


def cells(data: Path) -> list[SearchCell]:
    """The table of the study."""
    normal, tailed = noises.of_t(0.004, NORMAL), noises.of_t(0.004, 3.0)
    real = [SearchCell(f"1 % step, recorded noise of {c}", noises.recorded(data, c)) for c in noises.RECORDED]
    return [
        SearchCell("1 % step, normal noise", normal),
        SearchCell("1 % step, t noise with 3 df", tailed),
        *real,
        SearchCell("1 % step, recorded noise of copy", noises.recorded(data, "copy")),
        SearchCell(
            "1 % step, recorded noise of tgemm_m64 against more work",
            noises.recorded(data, "tgemm_m64", noises.MORE_WORK),
        ),
        SearchCell("0.3 % step, the smallest looked for, normal noise of 0.2 %", noises.of_t(0.002, NORMAL), (0.003,)),
        SearchCell("1 % step, normal noise, 7 code classes", normal, classes=7),
        SearchCell("1 % step, t noise with 3 df, 7 code classes", tailed, classes=7),
        SearchCell("1 % step, normal noise, 32 code classes", normal, classes=32),
        SearchCell("1 % step among 53 changes, normal noise, 7 code classes", normal, changes=53, classes=7),
        SearchCell("1 % faster, t noise with 3 df", tailed, (-0.01,)),
        SearchCell("two steps of 3 % and 1 %, normal noise", normal, (0.03, 0.01)),
        SearchCell("no step, normal noise", normal, ()),
        SearchCell("no step, t noise with 3 df", tailed, ()),
        SearchCell("no step, recorded noise of tgemm_m64", noises.recorded(data, "tgemm_m64"), ()),
    ]


def counted(cell: SearchCell, searches: int, seed: int) -> CountedCell:
    """Search so many times."""
    right, undecided, spent = 0, 0, list[int]()
    for number in range(searches):
        rng = np.random.default_rng([seed, number])
        line, steps = _row(rng, cell)
        seen, answer = simulated(rng, line, steps, cell.draw, MOST)
        right += answer is not None and is_right(answer, steps)
        undecided += answer is None
        spent.append(len(seen))
    return CountedCell(cell.name, searches, right, undecided, spent)


def line_of_table(data: Path, number: int, searches: int, seed: int) -> CountedCell:
    """A cell by its number in the table, for a process of its own: noises are functions and cannot be sent to one."""
    return counted(cells(data)[number], searches, seed)


def is_right(answer: FoundSteps, steps: dict[int, float]) -> bool:
    """The largest step first and nothing that is no step; "no step" where there is none."""
    found = [one.high for one in answer.culprits if one.high == one.low + 1]
    if not steps or not found:
        return not steps and not answer.culprits
    largest = max(steps, key=lambda place: abs(steps[place]))
    return found[0] == largest and set(found) <= set(steps)


def _row(rng: np.random.Generator, cell: SearchCell) -> tuple[Line, dict[int, float]]:
    """A row with its prior, and steps at changes that it allows."""
    labels = [None] * (cell.changes + 1) if not cell.classes else _labels(rng, cell)
    weights: FloatArray = axes.weights(axes.same_code(labels, {}))
    possible = np.flatnonzero(weights > weights.max() / 2) + 1
    places = rng.choice(possible, len(cell.steps), replace=False)
    steps = {int(place): math.log1p(size) for place, size in zip(places, cell.steps, strict=True)}
    return Line(weights), steps


def _labels(rng: np.random.Generator, cell: SearchCell) -> list[str | None]:
    """Runs of equal code with ends at random."""
    ends = set(rng.choice(np.arange(1, cell.changes + 1), cell.classes - 1, replace=False).tolist())
    run, labels = 0, list[str | None]()
    for position in range(cell.changes + 1):
        run += position in ends
        labels.append(str(run))
    return labels


def compared(searches: int, seed: int) -> list[CountedCell]:
    """Bisection by pass and fail on the first two cells, which are those without classes."""
    found = []
    for name, tails in (("normal noise", NORMAL), ("t noise with 3 df", 3.0)):
        ways = (("ten trials per midpoint", pass_fail.plain), ("Bayes over pass and fail", pass_fail.bayesian))
        for title, way in ways:
            right, spent = 0, list[int]()
            for number in range(searches):
                rng = np.random.default_rng([seed, number])
                place = int(rng.integers(1, 257))
                found_at, trials = way(rng, 256, place, math.log1p(0.01), noises.of_t(0.004, tails))
                right, spent = right + (found_at == place), [*spent, trials]
            found.append(CountedCell(f"{title}, {name}", searches, right, 0, spent))
    return found
