"""Knobs of our all-reduce; programs, num_warps, unroll, load, store and wait are explained in collectives/sizes.py.

way           "one_shot_push": send all to all, then add; one barrier, (world - 1) * S over the links: for few bytes.
              "one_shot_pull": read all from all; two barriers, but nothing is staged.
              "two_shot": every rank adds up its part and stores it to all; 2 * (world - 1) / world * S over the links.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from kernels.collectives.sizes import KIB, MIB, first_then, known, shapes, size_class, spread
from kernels.spec import Case

TUNED: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("tuned.toml").read_text())
"""Winners of a sweep, by arch, ranks and size; the file says on which devices and when."""

ONE_SHOT_BYTES = 512 * KIB
"""Up to here the bytes that one shot sends, times the ranks, are still less than the time of a second barrier."""

STAGE_LIMIT_BYTES = 8 * MIB
"""Largest double buffer for staging that a sweep asks the heap for."""


def config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case; Unsupported names the architectures that have any."""
    if size_class(case) in TUNED.get(arch, {}):
        return dict(TUNED[arch][size_class(case)])
    known(arch, "all_reduce")
    total = case.KB * KIB
    way = "one_shot_push" if total * (case.world - 1) <= 3 * ONE_SHOT_BYTES else "two_shot"
    most, warps = {"cpu": (2, 1)}.get(arch, (64, 8) if arch.startswith("gfx") else (128, 16))
    share = total // case.world if way == "two_shot" else total
    return {"way": way, **spread(arch, share, most, warps, 1 if arch == "cpu" else max(1, 8 // case.world)),
            "load": "" if way == "two_shot" else ".cv" if arch.startswith("gfx") else "", "store": ""}


def candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep tries for a case: the present choice first."""
    total, chosen = case.KB * KIB, config(case, arch)
    ways = [("two_shot", total // case.world)]
    if total <= 4 * MIB:
        ways.append(("one_shot_pull", total))
        if 2 * case.world * total <= STAGE_LIMIT_BYTES:
            ways.append(("one_shot_push", total))
    tried = [{**chosen, "way": way, **shape, "load": chosen["load"] if way == chosen["way"] else ""}
             for way, share in ways for shape in shapes(arch, share)]
    if len(ways) == 1:
        tried += [{**chosen, **other} for other in ({"load": ".cg"}, {"store": ".cs"}, {"store": ".wt"})]
    return first_then(chosen, tried)
