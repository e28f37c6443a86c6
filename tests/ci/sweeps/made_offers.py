"""Catalogues made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ci.sweeps.catalogue import BackendOffer, Catalogue, KnobFact
from ci.trials.trial import Cost

KNOBS = {"block_m": 64, "num_warps": 4, "flatten": True, "variant": "split", "scale": 1.0, "swizzle": None}


def facts(knobs: dict[str, Any]) -> dict[str, KnobFact]:
    return {name: KnobFact(name, value, type(value).__name__) for name, value in knobs.items()}


def offer(case: str = "m16", backend: str = "triton", **more: Any) -> BackendOffer:
    given = {"config": {"block_m": 16}, "knobs": facts(KNOBS), "dtype": "fp16", **more}
    return BackendOffer(case, backend, cost=Cost(10**12, 10**9, 0, 0), **given)


def catalogue(offers: Sequence[BackendOffer] = (), arch: str = "sm_90") -> Catalogue:
    blas = BackendOffer("m16", "blas", baseline=True, dtype="fp16", cost=Cost(10**12, 10**9, 0, 0))
    return Catalogue("gemm", arch, 132, tuple(offers) or (offer(), blas))
