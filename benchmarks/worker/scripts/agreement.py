"""Whether the outputs of two sides agree: base is the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from ..arms import harness_numerics

NUMERICS = harness_numerics()
Tolerance = NUMERICS.Tolerance

_HALF = Tolerance(norm=2e-3, peak=5e-2)
TOLERANCES = {
    torch.float64: Tolerance(norm=1e-10, peak=1e-8),
    torch.float32: Tolerance(norm=1e-3, peak=1e-2),
    torch.float16: _HALF,
    torch.bfloat16: Tolerance(norm=1e-2, peak=0.2),
}
"""How far two right kernels may be apart, by type of the output.  fp32, fp16 and bf16: what our own operators allow
against fp32 or fp64 references (kernels/grouped_gemm, gemm, all_reduce; 2026-11), doubled where both sides round;
fp32 is that of a product whose inputs TF32 rounds."""

FEW_BITS = Tolerance(norm=5e-2, peak=1.0)
"""For types of 8 bits and fewer: fp8 rounds to 2**-4, so two right results are up to 6 % of a value apart."""

EXACT = Tolerance()
"""For whole numbers and booleans."""


@dataclasses.dataclass(frozen=True)
class Agreement:
    """compared: there was something to compare.  norm, peak: as in kernels.spec.Tolerance.  why: one sentence."""

    compared: bool
    right: bool = True
    why: str = ""
    norm: float = 0.0
    peak: float = 0.0


def agree(ours: Sequence[torch.Tensor], reference: Sequence[torch.Tensor], same_inputs: bool) -> Agreement:
    """Hold outputs against a reference.  Where the inputs differ too, a difference says nothing: not compared."""
    if not ours and not reference:
        return Agreement(False, why="not compared: it returns no tensors and writes none that can be seen")
    if [one.shape for one in ours] != [one.shape for one in reference]:
        return Agreement(
            False, why=f"not compared: its outputs are {_shapes(ours)} here and {_shapes(reference)} in base"
        )
    worst = Agreement(True)
    for index, (one, other) in enumerate(zip(ours, reference, strict=True)):
        if one.dtype == other.dtype and (torch.equal(one, other) or _both_not_finite(one, other)):
            continue
        found = NUMERICS.compare(one, other, tolerance(one, other))
        if not found.ok and not same_inputs:
            return Agreement(
                False, why="not compared: its inputs hold other values than in base, and so do its outputs"
            )
        if not found.ok:
            return Agreement(True, False, f"output {index} differs from base: {found.why}")
        worst = dataclasses.replace(worst, norm=max(worst.norm, found.norm), peak=max(worst.peak, found.peak))
    return worst


def tolerance(one: torch.Tensor, other: torch.Tensor) -> Any:
    """Of the coarser of two types."""
    kinds = (one.dtype, other.dtype)
    if not all(kind.is_floating_point or kind.is_complex for kind in kinds):
        return EXACT
    if any(kind.itemsize == 1 for kind in kinds):
        return FEW_BITS
    found = [TOLERANCES.get(kind, TOLERANCES[torch.float32]) for kind in kinds]
    return max(found, key=lambda one: one.norm)


def _both_not_finite(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both hold the same values that are not finite at the same places and agree elsewhere exactly."""
    if not one.dtype.is_floating_point:
        return False
    wide = (one.float(), other.float())
    return bool(torch.equal(torch.nan_to_num(wide[0]), torch.nan_to_num(wide[1])))


def _shapes(tensors: Sequence[torch.Tensor]) -> str:
    return ", ".join(str(list(one.shape)) for one in tensors) or "none"
