"""Best configurations that moved, for the report of a pull request: from the lines of sweeps among its trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ci.trials.trial import Trial

if TYPE_CHECKING:
    from ci.history.configurations import SweptCase


def moved_configurations(trials: Sequence[Trial]) -> tuple[str, ...]:
    """A sentence on each backend and case whose knobs in use lost to others that were measured beside them."""
    if not any(trial.sweep for trial in trials):
        return ()
    from ci.history.configurations import swept_in  # pandas takes 0.3 s to import, and most reports have none
    from ci.sweeps.measured import gathered

    swept = [one for found in gathered(trials) for one in swept_in(found)]
    return tuple(filter(None, map(_sentence, swept)))


def _sentence(swept: SweptCase) -> str:
    from ci.history.configurations import better_knobs, loss_of

    loss = loss_of(swept)
    if loss is None:
        return ""
    key, size = swept.key, f"{loss.ratio:.3f} ({loss.low:.3f} to {loss.high:.3f})"
    knobs = better_knobs(swept.chosen, loss.better)
    return f"{key.kernel}/{key.backend}/{key.case}: the knobs in use take {size} of the time of {knobs}"
