"""Knobs of our reduce-scatter; programs, num_warps, unroll, load, store, wait are explained in
kernels/_shared/collectives/cases.py.

algorithm     "pull": read one's own part from all ranks; two barriers, nothing is staged.
              "push": send every rank its part, then add; one barrier, and the parts go through HBM once more.
              "push_chunks": the same in chunks, so that adding goes on while values come in; for many bytes.
ahead         push_chunks: chunks that a program sends before it waits for the first.
chunk         push_chunks: blocks of a chunk; flags are raised once for each chunk.
"""

from __future__ import annotations

from typing import Any

from kernels._shared.collectives.cases import KIB, MIB, in_chunks, known, size_class, spread, with_algorithms
from kernels._shared.tuning import first_then, tuned_file, tuned_knobs
from kernels.spec import Case, Tuned

PUSH_BYTES = 4 * MIB
"""Up to here a barrier costs more than another pass through HBM."""


CHUNKS_BYTES = 64 * MIB
"""From here on NVIDIA GPUs send in chunks: NVLink carries stores with less overhead than loads (H200, 2026-11)."""

CHUNKS = (
    (128, 8, 8, 1, 1), (132, 16, 4, 1, 1), (64, 8, 4, 1, 1), (128, 16, 4, 2, 2), (128, 8, 8, 1, 2), (128, 8, 8, 1, 4),
    (128, 16, 2, 1, 2), (132, 32, 2, 1, 1)
)  # fmt: skip
"""(programs, num_warps, unroll, ahead, chunk) that a sweep tries for push_chunks."""


def config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case; Unsupported names the architectures that have any."""
    return tuned_knobs(TABLE, case, arch)


def rule(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case that is in no table."""
    known(arch, "reduce_scatter")
    total = case.KB * KIB
    if arch.startswith("sm_") and total >= CHUNKS_BYTES:
        return in_chunks("push_chunks", case, arch, 128, 16, 4, 1, 2)
    algorithm = "push" if total <= PUSH_BYTES else "pull"
    most, warps = {"cpu": (2, 1)}.get(arch, (64, 8) if arch.startswith("gfx") else (128, 16))
    unroll = 1 if arch == "cpu" else max(1, 8 // case.world)
    return {
        "algorithm": algorithm,
        **spread(arch, total // case.world, most, warps, unroll),
        "load": ".cv" if algorithm == "push" and arch.startswith("gfx") else "",
        "store": "",
    }


TABLE = Tuned(tuned_file(__file__), size_class, rule)
"""An entry serves all dtypes of a size."""


def candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep tries for a case: the present choice first."""
    total, chosen = case.KB * KIB, config(case, arch)
    names = ("push", "pull") if total <= 16 * MIB else ("pull",)
    tried = with_algorithms(chosen, arch, [(name, total // case.world) for name in names])
    if len(names) == 1:
        tried += [{**chosen, "load": ".cg"}, {**chosen, "store": ".cs"}, {**chosen, "algorithm": "push"}]
    if total >= PUSH_BYTES:
        tried += [in_chunks("push_chunks", case, arch, *shape) for shape in CHUNKS[: 8 if len(names) == 1 else 3]]
    return first_then(chosen, tried)
