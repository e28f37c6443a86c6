"""Knobs of our all-reduce; programs, num_warps, unroll, load, store and wait are explained in
kernels/_shared/collectives/cases.py.

algorithm     "one_shot_push": send all to all, then add; one barrier, (world - 1) * S over the links: for few bytes.
              "one_shot_pull": read all from all; two barriers, but nothing is staged.
              "two_shot": every rank adds up its part and stores it to all; 2 * (world - 1) / world * S over the links.
              "two_shot_push": the same, but the parts are sent in chunks, not read: links carry stores better.
ahead         two_shot_push: chunks that a program sends before it waits for the first.
chunk         two_shot_push: blocks of a chunk; flags are raised once for each chunk.
load          cache modifier of what lies on this rank, staged by peers, or on all ranks where they are read.
"""

from __future__ import annotations

from typing import Any

from kernels._shared.collectives.cases import KIB, MIB, in_chunks, known, size_class, spread, with_algorithms
from kernels._shared.tuning import first_then, tuned_file, tuned_knobs
from kernels.spec import Case, Tuned

ONE_SHOT_BYTES = 512 * KIB
"""Up to here the bytes that one shot sends, times the ranks, are still less than the time of a second barrier."""

STAGE_LIMIT_BYTES = 8 * MIB
"""Largest double buffer for staging that a sweep asks the heap for."""

PUSH_BYTES = 4 * MIB
"""From here on a sweep tries two shots by stores alone, and no longer one shot."""

LARGE_BYTES = 16 * MIB
"""From here on NVIDIA GPUs do it by stores alone, which NVLink carries with less overhead than loads: on 4 H200 1.007
of NCCL with 64 channels at 256 MB (1.04 of its default), where loads and stores together reached 0.91 (2026-11)."""

PUSHES = (
    (64, 16, 1, 1, 2), (64, 16, 1, 1, 4), (64, 16, 2, 2, 1), (96, 16, 2, 2, 2), (128, 8, 4, 2, 1), (128, 8, 8, 2, 4),
    (128, 8, 8, 3, 16), (128, 16, 4, 1, 16), (128, 32, 2, 2, 16), (132, 8, 4, 1, 1), (132, 16, 4, 1, 1),
    (264, 8, 4, 2, 1)
)  # fmt: skip
"""(programs, num_warps, unroll, ahead, chunk) that a sweep tries for two_shot_push."""


def config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case; Unsupported names the architectures that have any."""
    return tuned_knobs(TABLE, case, arch)


def rule(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case that is in no table."""
    known(arch, "all_reduce")
    total = case.KB * KIB
    if arch.startswith("sm_") and total >= LARGE_BYTES:
        return in_chunks("two_shot_push", case, arch, 128, 16, 4, 1, 4)
    algorithm = "one_shot_push" if total * (case.world - 1) <= 3 * ONE_SHOT_BYTES else "two_shot"
    most, warps = {"cpu": (2, 1)}.get(arch, (64, 8) if arch.startswith("gfx") else (128, 16))
    share = total // case.world if algorithm == "two_shot" else total
    return {
        "algorithm": algorithm,
        **spread(arch, share, most, warps, 1 if arch == "cpu" else max(1, 8 // case.world)),
        "load": "" if algorithm == "two_shot" else ".cv" if arch.startswith("gfx") else "",
        "store": "",
    }


TABLE = Tuned(tuned_file(__file__), size_class, rule)
"""An entry serves all dtypes of a size."""


def candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep tries for a case: the present choice first."""
    total, chosen = case.KB * KIB, config(case, arch)
    algorithms = [("two_shot", total // case.world)]
    if total < PUSH_BYTES:
        algorithms.append(("one_shot_pull", total))
        if 2 * case.world * total <= STAGE_LIMIT_BYTES:
            algorithms.append(("one_shot_push", total))
    tried = with_algorithms(chosen, arch, algorithms)
    if total >= PUSH_BYTES:
        tried += [{**chosen, **other} for other in ({"load": ".cg"}, {"store": ".cs"}, {"store": ".wt"})]
        tried += [in_chunks("two_shot_push", case, arch, *shape) for shape in PUSHES]
    return first_then(chosen, tried)
