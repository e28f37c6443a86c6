"""Operators of several ranks in small cases: every algorithm, staged and direct, under orders that seeds pick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import naming

RANKS = 2
"""Of a world that is executed; `python -m tests.study.memory_order` has 4 and 8, too."""

SEEDS = range(1, 5)
"""Of its schedules.  Of 953 faults of memory order that were planted in our operators the last was found by seed 2."""


@dataclass(frozen=True)
class Variant:
    """A backend with knobs, and the dimensions of the smallest case in which every path of the launch is taken."""

    operator: str
    backend: str
    name: str
    dims: dict[str, Any]
    knobs: dict[str, Any] = field(default_factory=dict)
    world: int = RANKS

    @property
    def case(self) -> Any:
        """Its case."""
        spec = naming.contract("spec")
        return spec.Case(f"w{self.world}_fp16_order", tier="sweep", world=self.world, dtype="fp16", **self.dims)

    def stands_for(self, kernels: Mapping[str, Any], arch: str) -> Any:
        """A declared case of as many ranks, of the operator of this name; None where it has no such backend, knobs and
        dimensions for a target: it may be somebody else's.
        """
        spec, kernel = naming.contract("spec"), kernels.get(self.operator)
        for declared in kernel.cases if kernel and self.backend in kernel.compilations else ():
            if declared.world == self.world and self.dims.keys() <= dict(declared.dims).keys():
                try:
                    placed = declared.at(spec.Place(device="meta", arch=arch))
                    kernel.backends[self.backend].knobs(placed, arch, self.knobs)
                except (spec.Unsupported, spec.DeclarationError):
                    continue
                return declared
        return None


MB, KB = {"MB": 24 / 1024}, {"KB": 8}
GEMM = {"M": 64, "N": 128, "K": 128}
TWO = {"programs": 2, "num_warps": 2}
DIRECT = {"staged": 0, "programs": 4, "num_warps": 2}
SMALL, CHUNKS = {**TWO, "unroll": 1}, {"ahead": 1, "chunk": 1}
SUMS = {"two_shot": {}, "two_shot_push": CHUNKS, "one_shot_push": {}, "one_shot_pull": {}}
SCATTERS = {"pull": {}, "push": {}, "push_chunks": CHUNKS}

VARIANTS = (
    Variant("all_gather", "triton", "staged", MB, TWO),
    Variant("all_gather", "triton", "direct", MB, {**DIRECT, "fanout": 1}),
    Variant("all_gather", "partitioned", "partitioned", MB, TWO),
    Variant("all_gather", "gluon", "gluon", MB, TWO),
    *(Variant("all_reduce", "triton", name, KB, {**SMALL, "algorithm": name, **more}) for name, more in SUMS.items()),
    *(
        Variant("reduce_scatter", "triton", name, KB, {**SMALL, "algorithm": name, **more})
        for name, more in SCATTERS.items()
    ),
    Variant("all_to_all", "triton", "staged", KB, {**TWO, "groups": 2}),
    Variant("all_to_all", "triton", "direct", KB, {**DIRECT, "groups": 2}),
    Variant("gemm_all_scatter", "triton", "whole", GEMM),
    Variant("gemm_all_scatter", "triton", "split K", GEMM, {"split_k": 2, "num_warps": 4, "programs": 2}),
)
"""Every algorithm, with and without a stage."""
