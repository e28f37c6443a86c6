"""One side of a script: its process, which answers at each timer with what it meets, and is asked for samples there."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.coordinator import starting
from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.coordinator.ranks import Failed, Failure, PoolDied, StepFailed, WorkerPool
from benchmarks.trial_file import Status

RUN_S = 7 * 86400.0
"""How long a script may run in all: what limits it is the time between two timers."""

LATE = "the script did not come to its next timer in time; it was killed"


class ScriptSide:
    """A process that runs the script of one side, from its start to `ended`.

    held: an event that came and has not been dealt with.
    """

    def __init__(self, checkout: Checkout, directory: Path, variables: Mapping[str, str]) -> None:
        self.role = checkout.role
        self.ended: dict[str, Any] | None = None
        self.failure: Failure | None = None
        self.held: dict[str, Any] | None = None
        self._runs, self._printed = False, ""
        try:
            with starting.ready(checkout.python):
                self.pool = WorkerPool(checkout.role, checkout.python, checkout.path, 1, directory, variables)
        except OSError as error:
            raise CheckoutError(f"checkout {checkout.role}: cannot start {checkout.python}: {error}") from error
        self.begin = time.monotonic()

    @property
    def running(self) -> bool:
        """Whether the script has neither ended nor died."""
        return self.ended is None and self.failure is None

    def start(self, **fields: Any) -> None:
        """Have the process run the script."""
        self._go_on("script", **fields)

    def resume(self) -> None:
        """Let the script go on with the samples that it has."""
        self._go_on("resume")

    def next(self, limit_s: float) -> dict[str, Any] | None:
        """The next timer; None when the script has ended, died, or come to none for so many seconds."""
        if not self._runs:
            return None
        self._runs = False
        try:
            [found] = self.pool.collect(limit_s)
        except Failed as error:
            self._died(error.failure)
            return None
        if "event" in found:
            event: dict[str, Any] = found
            return event
        self.ended = found
        return None

    def ask(self, step: str, limit_s: float, op: str, **fields: Any) -> Any:
        """One request to a script that waits at a timer.  Raises StepFailed, or PoolDied if it died or hung."""
        if not self.running:
            raise PoolDied(self.failure or Failure(Status.CRASH, f"{step}: the script ended"))
        try:
            return self.pool.ask(step, limit_s, op, **fields)[0]
        except PoolDied as error:
            self._died(error.failure)
            raise
        except StepFailed as error:
            raise StepFailed(dataclasses.replace(error.failure, why=f"{step}: {error.failure.why}")) from None

    def printed(self) -> str:
        """The end of what the script printed."""
        return self.pool.workers[0].tail() if self.pool.alive else self._printed

    def kill(self) -> None:
        """End the process with all it started."""
        self._printed = self.printed()
        self.pool.kill()

    def _go_on(self, op: str, **fields: Any) -> None:
        if self.running:
            self.pool.post("the script", RUN_S, op, **fields)
            self._runs = True

    def _died(self, failure: Failure) -> None:
        self._printed = failure.detail.removeprefix("rank 0: ")
        late = failure.status == Status.HANG
        self.failure = dataclasses.replace(failure, why=LATE, detail=self._printed) if late else failure
