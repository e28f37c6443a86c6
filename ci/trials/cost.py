"""What a case asks of the machine, and what a trial took of the clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


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
    """

    phases: Mapping[str, float]
    ahead_s: float = 0.0

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Spent | None:
        """From a trial line; None if it is from before 2026-11-22, when they were not written."""
        return cls(line["spent_s"], float(line.get("ahead_s") or 0.0)) if line.get("spent_s") else None
