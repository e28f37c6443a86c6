"""How samples are taken, and what of it is part of the benchmark definition.  Standard library only."""

from __future__ import annotations

import dataclasses
from typing import Any

TIMING_VERSION = 1
"""Raised when the method of taking a sample changes: part of the benchmark definition, so that old and new samples are
never compared."""

BURST_S, BURST_ROUNDS = 0.5, 8
"""Least seconds of a burst, and bursts of an arm in a trial, unless asked otherwise.  In the second half of 0.5 s the
energy counter of an H200 steps at least twice, every 100 ms; in that of 0.3 s in half of the bursts (2026-11-22).  8
are the fewest whose least and greatest enclose their median with 99 % (binomial: 1 - 2 / 2**8;
ci.records.pooling.interval), and the fewest that the policy judges (ci/policy.toml, min_rounds)."""


@dataclasses.dataclass(frozen=True)
class WarmUp:
    """How an arm is called before it is timed: for `seconds`, within fewest and most samples; then untimed rounds."""

    seconds: float = 0.02
    fewest: int = 3
    most: int = 20
    rounds: int = 2


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How samples are taken.  deadline_s: for one step of one arm.  heap: of plan.HEAPS, on GPUs.

    regime: of trial_file.REGIMES.  burst_s: least seconds of a burst; a round has one of every arm, and the caches are
    not flushed between calls (cache "cold": they rotate through copies of the buffers, where the memory has room).
    point_deadline_s: for one step of a point of a sweep, of which some hang.
    whole_calls: calls of every arm that are timed from the host's side, after the rounds.
    """

    rounds: int = 40
    trials: int = 3
    cache: str = "cold"
    seed: int = 0
    schedule_seed: int = 0
    deadline_s: float = 180.0
    heap: str = "auto"
    warm_up: WarmUp = WarmUp()
    point_deadline_s: float = 20.0
    regime: str = "spaced"
    burst_s: float = BURST_S
    whole_calls: int = 0

    @property
    def sustained(self) -> bool:
        """Whether calls follow each other without a gap."""
        return self.regime == "sustained"

    def definition_terms(self) -> dict[str, Any]:
        """The part of the benchmark definition that is not declared: case, inputs, cost, reference, baselines are.

        "spaced" is not in it: digests from before there was another regime stay as they are.
        """
        bursts = {"regime": self.regime, "burst_s": self.burst_s} if self.sustained else {}
        return {"cache": self.cache, "seed": self.seed, "timing": TIMING_VERSION, **bursts}

    def describe(self) -> dict[str, Any]:
        """The `protocol` of a trial line."""
        told = {name: getattr(self, name) for name in ("rounds", "cache", "seed", "schedule_seed", "regime")}
        told |= {"burst_s": self.burst_s} if self.sustained else {}
        return told if self.warm_up == WarmUp() else {**told, "warm_up": dataclasses.asdict(self.warm_up)}
