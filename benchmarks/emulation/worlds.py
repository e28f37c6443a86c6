"""Operators of several ranks in small cases: every algorithm, staged and direct, under orders that seeds pick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import naming

RANKS = 2
"""Of a world that `verify` executes; `python -m tests.study.memory_order` has 4 and 8, too."""

SEEDS = range(1, 5)
"""Of its schedules.  Of 953 faults of memory order that were planted in our operators the last was found by seed 2."""

SMALL: dict[str, Any] = {"programs": 2, "num_warps": 2, "unroll": 1}
CHUNKS = {"ahead": 1, "chunk": 1}


@dataclass(frozen=True)
class Variant:
    """A backend with knobs, and the dimensions of its case for a world."""

    operator: str
    backend: str
    name: str
    knobs: dict[str, Any] = field(default_factory=dict)

    def case(self, ranks: int) -> Any:
        """The smallest case in which every path of the launch is taken."""
        dims: dict[str, Any] = {"KB": 4 * ranks}
        if self.operator == "all_gather":
            dims = {"MB": (5 if ranks == 8 and self.knobs["programs"] == ranks else 12) * ranks / 1024}
        elif self.operator == "gemm_all_scatter":
            dims = {"M": 64, "N": 64 * ranks, "K": 128}
        return naming.contract("spec").Case(f"w{ranks}_fp16_order", tier="sweep", world=ranks, dtype="fp16", **dims)

    def stands_for(self, kernels: Mapping[str, Any], arch: str) -> Any:
        """A declared case of RANKS, of the operator of this name; None where it has no such backend, knobs and
        dimensions for a target: it may be somebody else's.
        """
        spec, dims = naming.contract("spec"), dict(self.case(RANKS).dims).keys()
        kernel = kernels.get(self.operator)
        for declared in kernel.cases if kernel and self.backend in kernel.compilations else ():
            if declared.world == RANKS and dims <= dict(declared.dims).keys():
                try:
                    placed = declared.at(spec.Place(device="meta", arch=arch))
                    kernel.backends[self.backend].knobs(placed, arch, self.knobs)
                except (spec.Unsupported, spec.DeclarationError):
                    continue
                return declared
        return None


def variants(ranks: int) -> list[Variant]:
    """What is executed for a world: every algorithm, with and without a stage."""
    direct = {"staged": 0, "programs": ranks if ranks == 8 else 2 * ranks, "num_warps": 2}
    sums = [("two_shot", {}), ("two_shot_push", CHUNKS), ("one_shot_push", {}), ("one_shot_pull", {})]
    scatters = [("pull", {}), ("push", {}), ("push_chunks", CHUNKS)]
    return [
        Variant("all_gather", "triton", "staged", {"programs": 2, "num_warps": 2}),
        Variant("all_gather", "triton", "direct", {**direct, "fanout": 1}),
        Variant("all_gather", "partitioned", "partitioned", {"programs": ranks, "num_warps": 2}),
        Variant("all_gather", "gluon", "gluon", {"programs": 2, "num_warps": 2}),
        *(Variant("all_reduce", "triton", name, {**SMALL, "algorithm": name, **more}) for name, more in sums),
        *(Variant("reduce_scatter", "triton", name, {**SMALL, "algorithm": name, **more}) for name, more in scatters),
        Variant("all_to_all", "triton", "staged", {"programs": 2, "num_warps": 2, "groups": 2}),
        Variant("all_to_all", "triton", "direct", {**direct, "groups": ranks}),
        Variant("gemm_all_scatter", "triton", "whole"),
        Variant("gemm_all_scatter", "triton", "split K", {"split_k": 2, "num_warps": 4, "programs": 2}),
    ]
