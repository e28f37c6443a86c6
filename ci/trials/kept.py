"""What a trial keeps of its samples where they are elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class KeptTimes:
    """What a trial keeps of the times of an arm when its samples are elsewhere.

    rounds: how many.  median, q25, q75, longest: seconds.  collapsed: calls that took at least 3 times the median.
    log_ratio: median over the rounds of log(baseline's time / own time), by the baselines that ran beside it.
    """

    rounds: int
    median: float
    q25: float
    q75: float
    longest: float
    collapsed: int = 0
    log_ratio: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class SamplesAt:
    """Where the samples of a trial are, below the project's place for samples.  digest: of all of them."""

    path: str
    digest: str
