"""Knobs of our reduce-scatter; programs, num_warps, unroll, load, store, wait are explained in collectives/sizes.py.

way           "pull": read the own part from all ranks; two barriers, nothing is staged.
              "push": send every rank its part, then add; one barrier, and the parts go through HBM once more.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from kernels.collectives.sizes import KIB, MIB, first_then, known, shapes, size_class, spread
from kernels.spec import Case

TUNED: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("tuned.toml").read_text())
"""Winners of a sweep, by arch, ranks and size; the file says on which devices and when."""

PUSH_BYTES = 4 * MIB
"""Up to here a barrier costs more than another way through HBM."""


def config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case; Unsupported names the architectures that have any."""
    if size_class(case) in TUNED.get(arch, {}):
        return dict(TUNED[arch][size_class(case)])
    known(arch, "reduce_scatter")
    total = case.KB * KIB
    way = "push" if total <= PUSH_BYTES else "pull"
    most, warps = {"cpu": (2, 1)}.get(arch, (64, 8) if arch.startswith("gfx") else (128, 16))
    unroll = 1 if arch == "cpu" else max(1, 8 // case.world)
    return {
        "way": way,
        **spread(arch, total // case.world, most, warps, unroll),
        "load": ".cv" if way == "push" and arch.startswith("gfx") else "",
        "store": "",
    }


def candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep tries for a case: the present choice first."""
    total, chosen = case.KB * KIB, config(case, arch)
    ways = ("push", "pull") if total <= 16 * MIB else ("pull",)
    tried = [
        {**chosen, "way": way, **shape, "load": chosen["load"] if way == chosen["way"] else ""}
        for way in ways
        for shape in shapes(arch, total // case.world)
    ]
    if len(ways) == 1:
        tried += [{**chosen, "load": ".cg"}, {**chosen, "store": ".cs"}, {**chosen, "way": "push"}]
    return first_then(chosen, tried)
