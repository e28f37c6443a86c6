"""Knobs of our reduce-scatter; programs, num_warps, unroll, load, store, wait are explained in
kernels/_shared/collectives/config.py.

algorithm     "pull": read one's own part from all ranks; two barriers, nothing is staged.
              "push": send every rank its part, then add; one barrier, and the parts go through HBM once more.
              "push_chunks": the same in chunks, so that adding goes on while values come in; for many bytes.
ahead         push_chunks: chunks that a program sends before it waits for the first.
chunk         push_chunks: blocks of a chunk; flags are raised once for each chunk.
"""

from __future__ import annotations

from typing import Any

from kernels._shared.collectives.cases import KIB, MIB, size_class
from kernels._shared.collectives.config import known, spread, with_algorithms
from kernels._shared.tuning import first_then, read_tuned
from kernels.spec import Case

TUNED = read_tuned(__file__)
"""Winners of a sweep, by arch, ranks and size; the file says on which devices and when."""

PUSH_BYTES = 4 * MIB
"""Up to here a barrier costs more than another pass through HBM."""


def config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case; Unsupported names the architectures that have any."""
    if size_class(case) in TUNED.get(arch, {}):
        return dict(TUNED[arch][size_class(case)])
    known(arch, "reduce_scatter")
    total = case.KB * KIB
    algorithm = "push" if total <= PUSH_BYTES else "pull"
    most, warps = {"cpu": (2, 1)}.get(arch, (64, 8) if arch.startswith("gfx") else (128, 16))
    unroll = 1 if arch == "cpu" else max(1, 8 // case.world)
    return {
        "algorithm": algorithm,
        **spread(arch, total // case.world, most, warps, unroll),
        "load": ".cv" if algorithm == "push" and arch.startswith("gfx") else "",
        "store": "",
    }


def candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep tries for a case: the present choice first."""
    total, chosen = case.KB * KIB, config(case, arch)
    names = ("push", "pull") if total <= 16 * MIB else ("pull",)
    tried = with_algorithms(chosen, arch, [(name, total // case.world) for name in names])
    if len(names) == 1:
        tried += [{**chosen, "load": ".cg"}, {**chosen, "store": ".cs"}, {**chosen, "algorithm": "push"}]
    return first_then(chosen, tried)
