"""Whether the comparison still tells right from wrong: tried on two tensors whose difference was known before.

What an operator changes below Python (an operation of torch's dispatcher that it implements anew) has no name that
could be watched; the comparison of these two rests on the same operations.
"""

from __future__ import annotations

from types import ModuleType

import torch

CHANGED = (
    "it changes what torch computes: the harness's comparison of two known tensors comes out otherwise than before"
)


class KnownPair:
    """Two tensors on a device, and what their comparison gave before an operator was imported."""

    def __init__(self, numerics: ModuleType, device: str) -> None:
        drawn = torch.randn(2, 64, generator=torch.Generator().manual_seed(2026)).to(device)
        self._pairs = [(drawn[0], drawn[1]), (drawn[0], drawn[0].clone())]
        self._compare, self._tolerance = numerics.compare_all, numerics.Tolerance(1e-6, 1e-6)
        self._was = self._found()

    def disturbed(self) -> str:
        """What is said if it gives something else now."""
        return "" if self._found() == self._was else CHANGED

    def _found(self) -> list[tuple[bool, float]]:
        return [(one.ok, round(one.norm, 6)) for one in self._compare(self._pairs, self._tolerance)]
