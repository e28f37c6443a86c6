"""Knobs of our all-to-all; programs, num_warps, unroll, load, store and wait are explained in
kernels/_shared/collectives/config.py.

groups        groups of programs that share out the receivers; 1 = every program sends to all, world = to one each.
"""

from __future__ import annotations

from typing import Any

from kernels._shared.collectives.cases import KIB, size_class
from kernels._shared.collectives.config import known, shapes, spread
from kernels._shared.tuning import first_then, read_tuned
from kernels.spec import Case

TUNED = read_tuned(__file__)
"""Winners of a sweep, by arch, ranks and size; the file says on which devices and when."""


def config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case; Unsupported names the architectures that have any."""
    if size_class(case) in TUNED.get(arch, {}):
        return dict(TUNED[arch][size_class(case)])
    known(arch, "all_to_all")
    most, warps = {"cpu": (2, 1)}.get(arch, (64, 8) if arch.startswith("gfx") else (96, 16))
    return {
        **spread(arch, case.KB * KIB // case.world, most, warps, 1 if arch == "cpu" else max(1, 8 // case.world)),
        "groups": 1,
        "load": "",
        "store": "",
    }


def unguarded_config(case: Case, arch: str) -> dict[str, Any]:
    """As the guarded push, with nothing staged."""
    return {key: value for key, value in config(case, arch).items() if key != "staged"}


def candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep tries for a case: the present choice first."""
    chosen, world = config(case, arch), case.world
    tried = [{**chosen, "groups": 1, **shape} for shape in shapes(arch, case.KB * KIB // world)]
    grouped = [
        {**knobs, "groups": world, "programs": max(world, knobs["programs"] // world * world)}
        for knobs in (chosen, *tried[-4:])
    ]
    return first_then(chosen, [*tried, *grouped, {**chosen, "store": ".cs"}])
