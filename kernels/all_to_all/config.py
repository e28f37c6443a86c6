"""Knobs of our all-to-all; programs, num_warps, unroll, load, store and wait are explained in
kernels/_shared/collectives/cases.py.

groups        groups of programs that share out the receivers; 1 = every program sends to all, world = to one each.
staged        blocks of a program that go through a stage of the receiver, which then need not be ready for them.
ahead         load a block before the one before it is stored: on AMD a load waits for the stores before it.
"""

from __future__ import annotations

from typing import Any

from kernels._shared.collectives.cases import KIB, known, shapes, size_class, spread
from kernels._shared.tuning import first_then, tuned_file, tuned_knobs
from kernels.spec import Case, Tuned

STAGED_KB, STAGED_BLOCKS = 1024, 4
"""Up to here all of a part is staged, which is no more than that many blocks of a program (2 and 4 H200)."""


def config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case; Unsupported names the architectures that have any."""
    return tuned_knobs(TABLE, case, arch)


def rule(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case that is in no table."""
    known(arch, "all_to_all")
    most, warps = {"cpu": (2, 1)}.get(arch, (64, 8) if arch.startswith("gfx") else (96, 16))
    return {
        **spread(arch, case.KB * KIB // case.world, most, warps, 1 if arch == "cpu" else max(1, 8 // case.world)),
        "groups": 1,
        "staged": STAGED_BLOCKS if case.KB <= STAGED_KB else 0,
        "ahead": arch.startswith("gfx"),
        "load": "",
        "store": "",
    }


TABLE = Tuned(tuned_file(__file__), size_class, rule)
"""An entry serves all dtypes of a size."""


def candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep tries for a case: the present choice first."""
    chosen, world = config(case, arch), case.world
    tried = [{**chosen, "groups": 1, **shape} for shape in shapes(arch, case.KB * KIB // world)]
    grouped = [
        {**knobs, "groups": world, "programs": max(world, knobs["programs"] // world * world)}
        for knobs in (chosen, *tried[-4:])
    ]
    others = ({"staged": 0}, {"staged": STAGED_BLOCKS}, {"staged": 1}, {"store": ".cs"})
    return first_then(chosen, [*tried, *grouped, *({**chosen, **other} for other in others)])
