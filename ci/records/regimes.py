"""Records of other regimes than "spaced", in folders of their own: times of two regimes are never compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.trial_file import REGIMES
from ci.trials.file import TrialFile
from ci.trials.trial import Trial

# Where the records of a regime are.
#
# Sustained times lie in `results_sustained/`, a folder like `results/` in every respect (asv.sustained.json is its
# configuration for asv), with series and benchmark definitions of its own.  Whoever reads a folder so has times of one
# regime, and none of the readers needs to know that there are two.


SPACED, SUSTAINED = REGIMES


def folder_of(results: Path, regime: str) -> Path:
    """The records of a regime, beside `results`, which holds those of "spaced"."""
    return results if regime == SPACED else results.parent / f"{results.name}_{regime}"


def by_regime(files: Sequence[TrialFile]) -> dict[str, list[TrialFile]]:
    """The same files with the trials of each regime that occurs.  The lines they reject stay with the first.

    A line of a sweep stays with "spaced": it is of no case series, and says its regime itself (`ci.trials.trial`).
    """
    there = {_kept_with(trial) for file in files for trial in file.trials}
    regimes = [one for one in REGIMES if one in there] or [SPACED]
    return {one: [_of(file, one, one == regimes[0]) for file in files] for one in regimes}


def _kept_with(trial: Trial) -> str:
    return SPACED if trial.sweep else trial.regime


def _of(file: TrialFile, regime: str, first: bool) -> TrialFile:
    trials = tuple(trial for trial in file.trials if _kept_with(trial) == regime)
    return TrialFile(file.path, trials, file.rejected if first else (), file.pooled if first else ())
