"""What a case asks of the machine."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one call of a case must do, per rank (see kernels.spec.Cost); None where the declaration does not say.

    flops: FLOP.  hbm_bytes, link_bytes, payload_bytes: bytes; link_bytes by the bus convention of nccl-tests.
    """

    flops: int | None = None
    hbm_bytes: int | None = None
    link_bytes: int | None = None
    payload_bytes: int | None = None
