"""Catalogues made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ci.sweeps.catalogue import Catalogue, KnobFact, Offer
from ci.trials.cost import Cost

KNOBS = {"block_m": 64, "num_warps": 4, "flatten": True, "variant": "split", "scale": 1.0, "swizzle": None}


def facts(knobs: dict[str, Any]) -> dict[str, KnobFact]:
    return {name: KnobFact(name, value, type(value).__name__) for name, value in knobs.items()}


def offer(case: str = "m16", backend: str = "triton", **more: Any) -> Offer:
    given = {"config": {"block_m": 16}, "knobs": facts(KNOBS), "dtype": "fp16", **more}
    return Offer(case, backend, cost=Cost(10**12, 10**9, 0, 0), **given)


def catalogue(offers: Sequence[Offer] = (), arch: str = "sm_90") -> Catalogue:
    blas = Offer("m16", "blas", baseline=True, dtype="fp16", cost=Cost(10**12, 10**9, 0, 0))
    return Catalogue("gemm", arch, 132, tuple(offers) or (offer(), blas))
