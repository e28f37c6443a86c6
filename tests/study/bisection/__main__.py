"""Count and write the table.

    python -m tests.study.bisection --data tests/recordings/h200 --out tests/study/bisection

The seed is fixed: the same number of searches gives the same file.  100 take about twelve minutes on one core.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from rich.progress import track

from ci.whole_files import replace
from tests.study.bisection.cells import MOST, CountedCell, cells, compared, line_of_table

SEARCHES, SEED = 100, 2026


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("tests/recordings/h200"), help="recorded trials")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of table.md")
    parser.add_argument("--searches", type=int, default=SEARCHES, help="of each line of the table")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that share the lines")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process has one line, and small arrays
    numbers = range(len(cells(asked.data)))
    with ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool:
        others = pool.submit(compared, asked.searches, SEED)
        lines = [pool.submit(line_of_table, asked.data, number, asked.searches, SEED) for number in numbers]
        ours = [line.result() for line in track(lines, "searching")]
        replace(asked.out / "table.md", page(ours, others.result(), asked.searches))


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
{chr(10).join(map(_row, ours))}

Bisection that only asks whether a midpoint is good or bad; both know that there is a step, and the second one knows its
size and how often a trial is wrong:

{head}
{chr(10).join(map(_row, others))}
"""


def _row(cell: CountedCell) -> str:
    wrong = cell.searches - cell.right - cell.undecided
    trials = np.array(cell.trials)
    shares = f"{_share(cell.right, cell)} | {_share(wrong, cell)} | {_share(cell.undecided, cell)}"
    spent = f"{trials.mean():.1f} | {np.median(trials):.0f} | {np.quantile(trials, 0.95):.0f}"
    return f"| {cell.name} | {shares} | {spent} |"


def _share(count: int, cell: CountedCell) -> str:
    return f"{100 * count / cell.searches:.1f} %"


if __name__ == "__main__":
    main()
