"""Knobs of our all-gather: what is launched for a case on an architecture, and what a sweep should try.

programs      workgroups, which is the number of CUs or SMs taken from other work.
num_warps     waves (warps) per workgroup.
unroll        16-byte moves in flight per lane; a block is lanes x unroll x 16 bytes.
fanout        destinations to which a program stores what it has loaded; 0 = all ranks.
staged        blocks of a program that go through a stage of the receiver, which then need not be ready for them.
ahead         load a block before the one before it is stored: on AMD a load waits for the stores before it.
load, store   cache modifiers: "" is the compiler's choice, ".cg" past L1, ".cs" streaming, ".wt" write through.
wait          False leaves out the waiting of the completion barrier; only for tests that run the ranks in turn.

Backend `partitioned` has no fanout, it is 1:

order         "interleaved": neighbouring programs serve different ranks; "blocked": a run of programs serves one.

Backend `gluon` stages nothing, loads ahead, and has tiles in place of unroll:

rows, columns tile in elements, 8 x 256 or 32 x 1024; powers of two.
width         columns of the matrix that the shard is taken for; 0 = those of a tile, which then is one run of memory.
vector        contiguous bytes of a lane, 16 for one move; 0 = all of its part of the tile in one run.
"""

from __future__ import annotations

from typing import Any

from kernels._shared.collectives.cases import block_bytes
from kernels._shared.tuning import first_then, read_tuned, tuned_file, tuned_knobs, without
from kernels.all_gather.cases import MIB
from kernels.spec import Case, Tuned, Unsupported

TUNED = read_tuned(__file__)
"""Winners of a sweep by arch and size class; those of other backends than `triton` under the backend's name.

The file says on which device and when.  Tiles of `gluon` are for elements of 2 bytes.
"""

_LIMITS = {"sm_90": (96, 16, 4), "gfx942": (64, 8, 4), "gfx950": (64, 8, 4), "cpu": (2, 4, 1)}
"""Most programs, warps, unroll by arch.  On AMD iris takes 64 CUs; "cpu" is for the interpreter in tests."""

STAGED_MB = 8
"""Up to here the first block of every program is staged: on 2 and 4 H200 that hides the wait for the peers."""

_GLUON_TILE = 65536
"""Largest tile in bytes that config() takes: 32 x 1024 elements of 2 bytes."""


SMALL_SHAPES = (
    (32, 16, 1), (64, 16, 1), (128, 16, 1), (64, 32, 1), (128, 8, 1), (64, 8, 2), (96, 16, 2), (32, 32, 2)
)  # fmt: skip
LARGE_SHAPES = (
    (24, 32, 4), (32, 16, 4), (64, 16, 2), (64, 16, 4), (64, 16, 8), (64, 32, 2), (96, 16, 4), (128, 8, 4),
    (128, 16, 4), (128, 16, 8), (256, 8, 4)
)  # fmt: skip
"""(programs, warps of 32, unroll) that a sweep tries, up to 8 MB and above."""


def size_class(case: Case) -> str:
    """The key of a size: world and total bytes; the dtype does not matter to a copy."""
    return f"w{case.world}_{case.MB}MB"


def config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case; Unsupported names the architectures that have any."""
    return tuned_knobs(TABLE, case, arch)


def rule(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case that is in no table.

    Small shards: one step for every program, so that all loads and all stores are in flight at once.
    """
    if arch not in _LIMITS:
        raise Unsupported(
            f"no all-gather configuration for arch {arch!r}, only for {', '.join(_LIMITS)}; "
            "add one to kernels/all_gather/config.py and sweep it"
        )
    most, warps, unroll = _LIMITS[arch]
    shard = case.MB * MIB // case.world
    while unroll > 1 and shard < most * block_bytes(arch, warps, unroll):
        unroll //= 2
    programs = max(1, min(most, shard // block_bytes(arch, warps, unroll)))
    return {
        "programs": programs,
        "num_warps": warps,
        "unroll": unroll,
        "fanout": 0,
        "staged": 1 if case.MB <= STAGED_MB else 0,
        "ahead": arch.startswith("gfx"),
        "load": "",
        "store": "",
    }


def partitioned_config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs of `partitioned`."""
    return tuned_knobs(PARTITIONED_TABLE, case, arch)


def partitioned_rule(case: Case, arch: str) -> dict[str, Any]:
    """As the push, with as many programs for every destination."""
    chosen = without(config(case, arch), "fanout")
    return {**chosen, "programs": _divisible(chosen["programs"], case.world), "order": "interleaved"}


def gluon_config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs of `gluon`."""
    tuned = TUNED.get("gluon", {}).get(arch, {}).get(size_class(case))
    return {**tuned, "rows": max(1, int(tuned["rows"] * 2 // case.itemsize))} if tuned else gluon_rule(case, arch)


def gluon_rule(case: Case, arch: str) -> dict[str, Any]:
    """As the push: a tile is what that moves in one step."""
    chosen = without(config(case, arch), "staged", "ahead")
    step = min(_GLUON_TILE, block_bytes(arch, chosen["num_warps"], chosen.pop("unroll")))
    return {**chosen, **_tile(step, case), "width": 0, "vector": 16}


def _tile(step: int, case: Case) -> dict[str, int]:
    """Rows and columns of a tile of that many bytes."""
    columns = 256 if step <= 8192 else 1024
    return {"rows": max(1, int(step // (columns * case.itemsize))), "columns": columns}


TABLE = Tuned(tuned_file(__file__), size_class, rule)
PARTITIONED_TABLE = Tuned(tuned_file(__file__), size_class, partitioned_rule, section="partitioned")
GLUON_TABLE = Tuned(tuned_file(__file__), size_class, gluon_rule, section="gluon", elements=("rows",))
"""Entries serve all dtypes."""


def candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep of `triton` tries for a case: the present choice first."""
    chosen = config(case, arch)
    return first_then(chosen, _push_points(case, arch, chosen))


def partitioned_candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """Those of `partitioned`."""
    chosen = partitioned_config(case, arch)
    return first_then(chosen, _partitioned_points(case, arch, chosen))


def gluon_candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """Those of `gluon`."""
    chosen = gluon_config(case, arch)
    return first_then(chosen, _gluon_points(case, arch, chosen))


def _shapes(case: Case) -> tuple[tuple[int, int, int], ...]:
    return SMALL_SHAPES if case.MB <= 8 else LARGE_SHAPES


def _push_points(case: Case, arch: str, chosen: dict[str, Any]) -> list[dict[str, Any]]:
    tried = [{**chosen, "programs": p, "num_warps": _warps(arch, w), "unroll": u} for p, w, u in _shapes(case)]
    fanouts = [{"fanout": 1}, {"fanout": max(1, case.world // 2)}]
    guards = [{"staged": 0}, {"staged": 1}, {"staged": 1, "fanout": 1}, {"ahead": not chosen.get("ahead", False)}]
    others = [*fanouts, *guards, {"store": ".cs"}, {"store": ".wt"}, {"load": ".cg"}]
    return [*tried, *({**chosen, **other, "programs": _divisible(chosen["programs"], case.world)} for other in others)]


def _partitioned_points(case: Case, arch: str, chosen: dict[str, Any]) -> list[dict[str, Any]]:
    tried = [
        {**chosen, "programs": _divisible(p, case.world), "num_warps": _warps(arch, w), "unroll": u}
        for p, w, u in _shapes(case)
    ]
    return [*tried, *({**chosen, **other} for other in ({"order": "blocked"}, {"staged": 1}, {"store": ".cs"}))]


def _gluon_points(case: Case, arch: str, chosen: dict[str, Any]) -> list[dict[str, Any]]:
    tried = [
        {**chosen, "programs": p, "num_warps": _warps(arch, w), **_tile(block_bytes(arch, _warps(arch, w), u), case)}
        for p, w, u in _shapes(case)
    ]
    tried += [
        {**chosen, "programs": p, "num_warps": _warps(arch, w), "rows": rows, "columns": columns}
        for p, w, rows, columns in ((64, 8, 8, 256), (128, 8, 8, 256), (64, 16, 32, 1024), (128, 16, 32, 1024))
    ]
    programs = _divisible(chosen["programs"], case.world)
    others: list[dict[str, Any]] = [
        {"fanout": 1, "programs": programs},
        {"fanout": max(1, case.world // 2), "programs": programs},
        {"vector": 0},
        {"width": 4 * chosen["columns"]},
        {"store": ".cs"},
    ]
    return [*tried, *({**chosen, **other} for other in others)]


def _warps(arch: str, warps: int) -> int:
    """As many lanes with waves of 64 as with warps of 32."""
    return max(1, warps // 2) if arch.startswith("gfx") else warps


def _divisible(programs: int, world: int) -> int:
    return max(world, programs // world * world)
