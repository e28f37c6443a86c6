"""What the ranks of a collective put in."""

from __future__ import annotations

import torch

from kernels.collectives.sizes import total_bytes
from kernels.numerics import normal, seed_for
from kernels.spec import Case


def vector(case: Case, seed: int, rank: int) -> torch.Tensor:
    """A rank's vector [S / itemsize]: normal values of its own seed, so that a lost or swapped rank or part shows."""
    elements = total_bytes(case) // int(case.itemsize)
    return normal((elements,), case.dtype, seed_for(seed, case.name, rank), case.place.device)
