"""The wall clock of a verb that measures, and what it says of it at its end."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from ci.options import flag, out_console
from ci.report.seconds import RunSeconds, seconds_of
from ci.trials.trial import Trial

TIMINGS = flag("--timings", "Show where the seconds went, phase by phase.")


class VerbClock:
    """Runs from the start of a verb."""

    def __init__(self) -> None:
        self._begun, self._moment_s = time.monotonic(), time.time()

    def spent(self, trials: Sequence[Trial]) -> RunSeconds | None:
        """Where the seconds went until now; None if nothing was measured since.  trials: of a file, earlier ones too.

        The moments of trials are whole seconds, cut off.
        """
        own = [trial for trial in trials if trial.started_ms >= 1000 * (int(self._moment_s) - 1)]
        return seconds_of(own, time.monotonic() - self._begun)

    def say(self, trials: Sequence[Trial], timings: bool, to_stderr: bool = False) -> None:
        """One line; the table where it is asked for."""
        found = self.spent(trials)
        if found is None:
            return
        if timings and not to_stderr:
            out_console().print(found.table())
        else:
            click.echo(found.sentence(), err=to_stderr)
