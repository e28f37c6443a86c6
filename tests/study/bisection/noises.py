"""What a trial's log-ratio scatters like: normal, with heavy tails, and as recorded on H200s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ci.bisect.search import Draw, heavy
from ci.stats.interval import shifts
from ci.stats.types import FloatArray
from tests.study.simulate import lock_step_trials

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
    runs: list[Mapping[str, FloatArray]] = [lock_step_trials(one)[case] for one in sorted(data.glob("ab_trials_*"))]
    if not runs:
        raise FileNotFoundError(f"{data}: no ab_trials_*.jsonl.gz; give the folder of the H200 recordings")
    values = [shifts(run["base"], run[arm]).shift for run in runs for arm in arms]
    return np.concatenate([one - np.median(one) for one in values])
