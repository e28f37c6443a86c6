"""What an attempt at a case found out about its arms, and the order of their samples."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.coordinator.sustained.rounds import ArmBurst
from benchmarks.plan import PlannedArm

STARVED_PARTS = 0.1
"""Share of the parts of a burst that the device may begin before the host has enqueued them (2026-11-22)."""


@dataclasses.dataclass
class ArmFacts:
    """What an attempt found out about one arm.  seconds, by_rank: by round, of the slowest and of every rank.

    whole_s: of calls from the host's side, of the slowest rank.
    energy_j, energy_s: of a call, and the seconds in which it was counted, by burst; None where that is not known.
    """

    knobs: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: dict[str, float] = dataclasses.field(default_factory=dict)
    code_hash: str | None = None
    first_call_s: float = 0.0
    compile_s: float = 0.0
    expected_s: float = 0.0
    starved: int = 0
    seconds: list[float] = dataclasses.field(default_factory=list)
    by_rank: list[Sequence[float]] = dataclasses.field(default_factory=list)
    whole_s: list[float] = dataclasses.field(default_factory=list)
    energy_j: list[float | None] = dataclasses.field(default_factory=list)
    energy_s: list[float | None] = dataclasses.field(default_factory=list)

    def add_sample(self, by_rank: Sequence[float], starved: int) -> None:
        """One sample: the slowest rank counts."""
        self.seconds.append(max(by_rank))
        self.by_rank.append(by_rank)
        self.starved = starved

    def add_burst(self, burst: ArmBurst[Any]) -> None:
        """One burst; it counts as starved if more than STARVED_PARTS of its parts were."""
        self.add_sample(burst.by_rank, self.starved + (burst.starved > STARVED_PARTS))
        self.energy_j.append(burst.joules)
        self.energy_s.append(burst.energy.seconds if burst.energy else None)

    def energy(self) -> dict[str, Any]:
        """Of an arm that was timed in bursts."""
        return {"energy_j": self.energy_j, "energy_s": self.energy_s} if any(self.energy_j) else {}

    def ranks(self) -> dict[str, list[float]]:
        """Seconds between the ranks by round, and the median of each rank: one that is always slower is its GPU."""
        skew_s = [max(one) - min(one) for one in self.by_rank]
        return {"skew_s": skew_s, "rank_s": [statistics.median(rank) for rank in zip(*self.by_rank, strict=True)]}

    def proven(self) -> dict[str, Any]:
        """The part of its entry that needs no timing."""
        return {key: getattr(self, key) for key in ("knobs", "error", "code_hash", "first_call_s", "compile_s")}


def joint(hashes: Sequence[str | None]) -> str | None:
    """One digest for all ranks, None if any is unknown."""
    if any(one is None for one in hashes):
        return None
    return hashes[0] if len(set(hashes)) == 1 else hashlib.sha256("".join(map(str, hashes)).encode()).hexdigest()[:16]


def shuffled(arms: Sequence[PlannedArm], rounds: int, order: random.Random) -> Iterator[PlannedArm]:
    """Every arm once per round, each round in an order of its own."""
    for _ in range(rounds):
        yield from order.sample(list(arms), len(arms))


def same_code(arms: Sequence[PlannedArm], hashes: Sequence[str | None]) -> dict[str, str]:
    """By key of a point, the key of the first arm that launches the same code in the same way.

    Arms that are no points are never left out: of a backend, the case series has its own samples.
    """
    first: dict[str, str] = {}
    found = {}
    for arm, code_hash in zip(arms, hashes, strict=True):
        if code_hash and arm.point and code_hash in first:
            found[arm.key] = first[code_hash]
        elif code_hash:
            first.setdefault(code_hash, arm.key)
    return found
