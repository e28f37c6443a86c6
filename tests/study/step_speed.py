"""How long change points take: a whole history from nothing, and one more commit.

    python -m tests.study.step_speed --series 17500 --points 350

Series with Gaussian noise of 2 %; a share of them has a step of 6 % somewhere.
"""

from __future__ import annotations

import time

import click
import numpy as np

from ci.stats.steps import Tail, advance
from tests.study.series_noise import gaussian

BATCH = 500
"""Series made at a time."""


def made(series: int, points: int, stepped: float) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """The values of each series."""
    rng = np.random.default_rng(0)
    found = []
    for first in range(0, series, BATCH):
        for logs in gaussian(rng, min(BATCH, series - first), points):
            if rng.random() < stepped:
                logs[rng.integers(5, points - 5) :] += np.log(1.06)
            found.append(np.exp(logs))
    return found


@click.command(help=__doc__)
@click.option("--series", type=click.IntRange(1), default=17_500, show_default=True)
@click.option("--points", type=click.IntRange(20), default=350, show_default=True)
@click.option("--stepped", type=click.FloatRange(0, 1), default=0.1, show_default=True, help="Share that has a step.")
def main(series: int, points: int, stepped: float) -> None:
    values = made(series, points, stepped)
    tails = [Tail()] * series
    for what, stop in (("from nothing", points - 1), ("one more commit", points)):
        wall, cpu = time.perf_counter(), time.process_time()
        answers = advance(tails, [one[:stop] for one in values])
        tails = [tail for tail, _ in answers]
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        found = sum(bool(steps) for _, steps in answers)
        click.echo(f"{what}: {series} series of {stop} points, {found} with a step: {wall:.1f} s, {cpu:.1f} s of CPU")


if __name__ == "__main__":
    main()
