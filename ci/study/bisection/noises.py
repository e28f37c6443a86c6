"""What a trial's log-ratio scatters like: normal, with heavy tails, and as recorded on H200s."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ci.bisect.expect import Draw, heavy
from ci.stats.paired import shifts
from ci.stats.types import FloatArray
from ci.study.simulate import lock_step_trials

RECORDED = ("mm_m16", "tgemm_m64")
"""The two noisiest cases of the recordings: A/A trials of 0.4 and 0.6 %."""


def of_t(sd: float, tails: float) -> Draw:
    """Student's t scaled to a standard deviation `sd`; normal for tails = inf."""
    return lambda rng: sd * heavy(rng, tails)


def recorded(data: Path, case: str) -> Draw:
    """Log-ratios of recorded trials of the same code in two processes, about their median, drawn with repetition."""
    found = shifts_of(data, case)
    return lambda rng: float(rng.choice(found))


def shifts_of(data: Path, case: str) -> FloatArray:
    """The log-ratios themselves, of both GPUs, each about its median."""
    runs: list[Mapping[str, FloatArray]] = [lock_step_trials(one)[case] for one in sorted(data.glob("ab_trials_*"))]
    if not runs:
        raise FileNotFoundError(f"{data}: no ab_trials_*.jsonl.gz; give the folder of the H200 recordings")
    values = [shifts(arms["base"], arms["same"]).shift for arms in runs]
    return np.concatenate([one - np.median(one) for one in values])
