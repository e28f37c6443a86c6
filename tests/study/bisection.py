"""The study of `ridgeline bisect`: how often it is right and how many trials it takes, beside pass/fail bisection."""

from __future__ import annotations

import argparse
import dataclasses
import math
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from rich.progress import track

from ci.bisect import axes
from ci.bisect.search import Draw, heavy, simulated
from ci.stats.bisection import FoundSteps, Line
from ci.stats.interval import shifts
from ci.stats.types import FloatArray
from ci.whole_files import replace
from tests.study.simulate import lock_step_trials, trial_files

# What a trial's log-ratio scatters like: normal, with heavy tails, and as recorded on H200s.


RECORDED = ("mm_m16", "tgemm_m64")
"""The two noisiest cases of the recordings: A/A trials of 0.4 and 0.6 %."""
A_A, MORE_WORK = ("same",), ("head1", "head2", "head3", "head6")
"""Arms of the recordings against base: the same code in another process; 1 to 6 % more work in a third one."""


def of_t(sd: float, tails: float) -> Draw:
    """Student's t scaled to a standard deviation `sd`; normal for tails = inf."""
    return lambda rng: sd * heavy(rng, tails)


def recorded(data: Path, case: str, arms: Sequence[str] = A_A) -> Draw:
    """Log-ratios of recorded trials, about their median, drawn with repetition."""
    found = shifts_of(data, case, arms)
    return lambda rng: float(rng.choice(found))


def shifts_of(data: Path, case: str, arms: Sequence[str] = A_A) -> FloatArray:
    """The log-ratios themselves, of each of these arms to base on both GPUs, each about its median."""
    runs: list[Mapping[str, FloatArray]] = [lock_step_trials(file)[case] for file in trial_files(data)]
    values = [shifts(run["base"], run[arm]).shift for run in runs for arm in arms]
    return np.concatenate([one - np.median(one) for one in values])


# Bisection by pass and fail, to compare with: each midpoint is called good or bad.


RUNS = 10
"""Trials per midpoint of the plain one."""
SURE = 0.99


def plain(rng: np.random.Generator, last: int, place: int, shift: float, noise: Draw) -> tuple[int, int]:
    """(change found, trials): ten trials per midpoint, bad if their mean is above half the step between the ends."""

    def mean(position: int) -> float:
        return float(np.mean([shift * (position >= place) + noise(rng) for _ in range(RUNS)]))

    bound, low, high, spent = mean(last) / 2, 0, last, RUNS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if mean(middle) > bound else (middle, high)
        spent += RUNS
    return high, spent


def bayesian(
    rng: np.random.Generator, last: int, place: int, shift: float, noise: Draw, most: int = 1000
) -> tuple[int, int]:
    """(change found, trials): one trial at a time, nearest to the median of what is believed; called good or bad.

    It knows the step and how often a single trial is called wrong, which no real search does.
    """
    wrong = float(np.mean([noise(rng) > shift / 2 for _ in range(2000)]))
    belief = np.full(last, 1 / last)
    spent = 0
    while belief.max() < SURE and spent < most:
        position = int(np.abs(np.cumsum(belief) - 0.5).argmin()) + 1
        bad = shift * (position >= place) + noise(rng) > shift / 2
        reached = np.arange(1, last + 1) <= position
        belief = belief * np.where(reached == bad, 1 - wrong, wrong)
        belief, spent = belief / belief.sum(), spent + 1
    return int(belief.argmax()) + 1, spent


# What is simulated: rows of changes, steps in them, noise; and what is counted of each.


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
    normal, tailed = of_t(0.004, NORMAL), of_t(0.004, 3.0)
    real = [SearchCell(f"1 % step, recorded noise of {c}", recorded(data, c)) for c in RECORDED]
    return [
        SearchCell("1 % step, normal noise", normal),
        SearchCell("1 % step, t noise with 3 df", tailed),
        *real,
        SearchCell("1 % step, recorded noise of copy", recorded(data, "copy")),
        SearchCell("1 % step, recorded noise of tgemm_m64 against more work", recorded(data, "tgemm_m64", MORE_WORK)),
        SearchCell("0.3 % step, the smallest looked for, normal noise of 0.2 %", of_t(0.002, NORMAL), (0.003,)),
        SearchCell("1 % step, normal noise, 7 code classes", normal, classes=7),
        SearchCell("1 % step, t noise with 3 df, 7 code classes", tailed, classes=7),
        SearchCell("1 % step, normal noise, 32 code classes", normal, classes=32),
        SearchCell("1 % step among 53 changes, normal noise, 7 code classes", normal, changes=53, classes=7),
        SearchCell("1 % faster, t noise with 3 df", tailed, (-0.01,)),
        SearchCell("two steps of 3 % and 1 %, normal noise", normal, (0.03, 0.01)),
        SearchCell("no step, normal noise", normal, ()),
        SearchCell("no step, t noise with 3 df", tailed, ()),
        SearchCell("no step, recorded noise of tgemm_m64", recorded(data, "tgemm_m64"), ()),
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
        ways = (("ten trials per midpoint", plain), ("Bayes over pass and fail", bayesian))
        for title, way in ways:
            right, spent = 0, list[int]()
            for number in range(searches):
                rng = np.random.default_rng([seed, number])
                place = int(rng.integers(1, 257))
                found_at, trials = way(rng, 256, place, math.log1p(0.01), of_t(0.004, tails))
                right, spent = right + (found_at == place), [*spent, trials]
            found.append(CountedCell(f"{title}, {name}", searches, right, 0, spent))
    return found


# Count and write the table.
#
#     python -m tests.study.bisection --data tests/recordings/h200
#
# The seed is fixed: the same number of searches gives the same file.  100 take about twelve minutes on one core.


SEARCHES, SEED = 100, 2026


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("tests/recordings/h200"), help="recorded trials")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"), help="the table")
    parser.add_argument("--searches", type=int, default=SEARCHES, help="of each line of the table")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that share the lines")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process has one line, and small arrays
    numbers = range(len(cells(asked.data)))
    with ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool:
        others = pool.submit(compared, asked.searches, SEED)
        lines = [pool.submit(line_of_table, asked.data, number, asked.searches, SEED) for number in numbers]
        ours = [line.result() for line in track(lines, "searching")]
        replace(asked.out, page(ours, others.result(), asked.searches))


def page(ours: list[CountedCell], others: list[CountedCell], searches: int) -> str:
    """The table in Markdown."""
    head = "| what | right | wrong | undecided | trials, mean | median | 95 % |\n|---|---:|---:|---:|---:|---:|---:|"
    return f"""# How `ridgeline bisect` finds a commit: simulated searches

{searches} searches per line, 256 changes unless said otherwise, at most {MOST} trials; a trial is one paired log-ratio
with a standard deviation of 0.4 % unless it is drawn from recorded A/A trials of H200s (copy 0.25 %, mm_m16 0.4 %,
tgemm_m64 0.6 %), or from those of tgemm_m64 against arms with more work. No number of the search was fitted to them.
Size, noise and place of the step are unknown to the search; so is whether there is one. Right: exactly the change that
has the step, the larger of two, or "no step" where there is none. Written by `python -m tests.study.bisection`.

{head}
{chr(10).join(map(row_of_cell, ours))}

Bisection that only asks whether a midpoint is good or bad; both know that there is a step, and the second one knows its
size and how often a trial is wrong:

{head}
{chr(10).join(map(row_of_cell, others))}
"""


def row_of_cell(cell: CountedCell) -> str:
    wrong = cell.searches - cell.right - cell.undecided
    trials = np.array(cell.trials)
    shares = f"{_share(cell.right, cell)} | {_share(wrong, cell)} | {_share(cell.undecided, cell)}"
    spent = f"{trials.mean():.1f} | {np.median(trials):.0f} | {np.quantile(trials, 0.95):.0f}"
    return f"| {cell.name} | {shares} | {spent} |"


def _share(count: int, cell: CountedCell) -> str:
    return f"{100 * count / cell.searches:.1f} %"


if __name__ == "__main__":
    main()
