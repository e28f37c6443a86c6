"""Statistics of paired timings: pure functions on arrays, and here the values that they work on and produce.

Times are **seconds**; a ratio is head time / base time, above 1 is slower.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

Role = Literal["base", "head"]


@dataclasses.dataclass(frozen=True)
class Clocks:
    """What the device reported around one arm of one trial; None where it reported nothing.

    sm_clock_mhz: MHz; power_w: W; temperature_c: degrees Celsius; throttle: the device's own words.
    """

    sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class PairedRounds:
    """The samples of both sides of one case in one trial, round by round.  Arrays have shape (rounds,), in seconds.

    number: of the trial; it tells which cases shared processes.  Sample i of every array belongs to round i.
    `baseline_*` is the baseline, timed in the same rounds by the process of the same side; None where there
    is none.  clocks_mhz: median SM clocks while base, and head, was at work; None where they were not read.
    """

    number: int
    base: FloatArray
    head: FloatArray
    baseline_base: FloatArray | None = None
    baseline_head: FloatArray | None = None
    clocks_mhz: tuple[float, float] | None = None

    def scaled(self, base: float, head: float) -> PairedRounds:
        """Both arms of each side times a factor."""
        factors = {"base": base, "head": head, "baseline_base": base, "baseline_head": head}
        arms = {name: getattr(self, name) for name in factors}
        found = {name: arm * factors[name] for name, arm in arms.items() if arm is not None}
        return dataclasses.replace(self, **found)


@dataclasses.dataclass(frozen=True)
class Step:
    """A change of level between two neighbouring points of a series.

    index: the first point of the new level, among the series' measured points.  before, after: medians of the two
    levels.  ratio: after / before, with its 99 % interval.
    """

    index: int
    before: float
    after: float
    ratio: float
    ratio_low: float
    ratio_high: float
    p_value: float
