"""What a case asks of the machine, and what a trial took of the clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one call of a case must do, per rank (see kernels.spec.Cost); None where the declaration does not say.

    flops: FLOP.  hbm_bytes, link_bytes, payload_bytes: bytes; link_bytes by the bus convention of nccl-tests.
    """

    flops: int | None = None
    hbm_bytes: int | None = None
    link_bytes: int | None = None
    payload_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Spent:
    """Where the wall time of a trial went.  phases: seconds by name (benchmarks.coordinator.session.ledger).

    ahead_s: seconds of its session between the trial before, or the start, and this one.
    side_by_side: trials that were prepared at the same time, at most.
    """

    phases: Mapping[str, float]
    ahead_s: float = 0.0
    side_by_side: int = 1

    @classmethod
    def of(
        cls, phases: Mapping[str, float] | None, ahead_s: float | None, side_by_side: int | None = None
    ) -> Spent | None:
        """From the fields of a trial line; None if it is from before 2026-11-22, when they were not written.

        No phases: the machine could measure none of its cases.
        """
        return None if phases is None else cls(phases, float(ahead_s or 0.0), side_by_side or 1)
