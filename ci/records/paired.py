"""The time of a vendor's baseline / our time, from rounds that both ran in: what clocks do to a trial cancels.

The estimate is the median over trials of the median over rounds of the log ratio; the interval over trials is that of
:func:`ci.records.pooling.interval`, which takes the ratios of a trial as it takes its seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ci.records.pooling import Cell, interval
from ci.stats.types import FloatArray
from ci.trials.pooled import PairedRatio, PooledTimes


def times_of(cell: Cell) -> PooledTimes | None:
    """What the samples of a cell come to, None where it has no times."""
    if cell.kept or not cell.trials:
        return cell.kept
    samples = np.concatenate(cell.trials)
    q25, q75 = map(float, np.percentile(samples, [25, 75]))
    low, high = interval(cell.trials)
    return PooledTimes(cell.seconds, low, high, q25, q75, len(samples), len(cell.trials), beside_fastest(cell))


def beside_fastest(cell: Cell) -> PairedRatio | None:
    """The ratio to the baseline of the least median time in the trials of a cell; None if none ran beside it."""
    beside = {name: _rounds(cell, name) for name in dict.fromkeys(name for those in cell.beside for name in those)}
    if not beside:
        return None
    name = min(beside, key=lambda one: (_median_seconds(cell, one), one))
    ratios = beside[name]
    ratio = float(np.exp(np.median([np.median(np.log(trial)) for trial in ratios])))
    low, high = interval(ratios)
    return PairedRatio(name, ratio, min(low, ratio), max(high, ratio))


def _rounds(cell: Cell, baseline: str) -> Sequence[FloatArray]:
    """Ratios round by round, shape (rounds,), of every trial that has the baseline."""
    pairs = zip(cell.trials, cell.beside, strict=True)
    return [those[baseline] / seconds for seconds, those in pairs if baseline in those]


def _median_seconds(cell: Cell, baseline: str) -> float:
    return float(np.median(np.concatenate([those[baseline] for those in cell.beside if baseline in those])))
