"""Trials of two places, measured now: one start of the measuring program each, into one file that is the memory."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console

from ci.bisect.axes import Axis
from ci.bisect.reading import outcomes_of
from ci.bisect.types import BisectError, TrialOutcome
from ci.git.repository import LocalCheckout
from ci.harness import INTERRUPTED, USAGE, MeasureError, MeasurePlan, measure
from ci.judging.live import Interrupted
from ci.trials.file import Followed

Measuring = Callable[[Sequence[LocalCheckout], MeasurePlan, Path, Console], int]


@dataclasses.dataclass
class LiveTrials:
    """Measures places of an axis into the file `out`, one trial at a time."""

    axis: Axis
    plan: MeasurePlan
    out: Path
    console: Console
    measuring: Measuring = measure

    def __post_init__(self) -> None:
        self._file, self._broke_off = Followed(self.out), False

    def before(self) -> list[TrialOutcome]:
        """What the file holds already.  BisectError if it holds trials of something else."""
        trials = self._file.read().trials
        found = outcomes_of(trials, self.axis.position)
        if trials and not found:
            said = f"{self.out} has trials of other {self.axis.what}s than these {len(self.axis.places)}"
            raise BisectError(f"{said}; give another file with --out")
        return found

    def __call__(self, low: int, high: int) -> TrialOutcome:
        """One more trial.  A place whose trial leaves no result failed; twice in a row, the machine did: MeasureError.

        Raises Interrupted on Ctrl-C.
        """
        known = len(self._file.read().trials)
        with self.axis.sides(low, high, self.plan) as (checkouts, plan):
            one = dataclasses.replace(plan, trials=1, first_trial=known)
            code = self.measuring(checkouts, one, self.out, self.console)
        if code == INTERRUPTED:
            raise Interrupted(f"interrupted; the finished trials are in {self.out}, and the same command goes on")
        found = outcomes_of(self._file.read().trials[known:], self.axis.position)
        if code == USAGE and not found:
            if self._broke_off or (low, high) == (0, len(self.axis.places) - 1):
                kept = f"; finished trials are in {self.out}" if known else ""
                raise MeasureError(f"measuring broke off; the reason is printed above{kept}")
            self._broke_off = True
        else:
            self._broke_off = False
        return found[-1] if found else TrialOutcome(low, high, failed={high: "measuring it leaves no result"})


@contextlib.contextmanager
def alone(out: Path) -> Iterator[None]:
    """Nobody else measures into this file meanwhile.  BisectError."""
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out.with_name(f".{out.name}.lock"), timeout=0):
            yield
    except Timeout:
        said = f"{out} is being measured by another call"
        raise BisectError(f"{said}; wait for it, or give another file with --out") from None
