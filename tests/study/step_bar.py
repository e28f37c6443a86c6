"""How large the loudest split of a series without a step is: the table of `ci.stats.steps`, simulated anew.

    python -m tests.study.step_bar --series 20000

Takes about 10 minutes on one core.  A row is a number of points and the sizes that 1 of 100 and 1 of 1000 series
exceed, of the kind of noise that is worst at that length.
"""

from __future__ import annotations

import click
import numpy as np
from rich.progress import track

from ci.options import err_console
from ci.stats.steps import Sums, loudest, scan, without_spikes
from ci.stats.types import FloatArray
from tests.study.series_noise import KINDS, PROMISED

LENGTHS = (6, 8, 10, 14, 20, 30, 50, 100, 200, 350, 512, 1024)
TAILS = (0.01, 0.001)
BATCH = 1000
"""Series at a time."""


def sizes(kind: str, points: int, series: int, rng: np.random.Generator) -> FloatArray:
    """Standard errors of the loudest split of each of so many null series."""
    sums = Sums.of(without_spikes(KINDS[kind](rng, series, points)))
    splits = scan(sums)
    return np.array([loudest(sums, splits, i)[0] for i in range(series)])


def bar(points: int, series: int, seed: int) -> list[float]:
    """The sizes that a share TAILS of null series exceeds, for the worst kind of noise."""
    rng = np.random.default_rng([seed, points])
    tails = []
    for kind in PROMISED:
        batches = [sizes(kind, points, min(BATCH, series), rng) for _ in range(max(series // BATCH, 1))]
        tails.append(np.quantile(np.concatenate(batches), [1 - tail for tail in TAILS]))
    return [float(worst) for worst in np.max(tails, axis=0)]


@click.command(help=__doc__)
@click.option("--series", type=click.IntRange(100), default=20_000, show_default=True, help="Null series of each kind.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
def main(series: int, seed: int) -> None:
    for points in track(LENGTHS, "simulating", console=err_console()):
        found = ", ".join(f"{size:.2f}" for size in bar(points, series, seed))
        click.echo(f"    {points}: ({found}),")


if __name__ == "__main__":
    main()
