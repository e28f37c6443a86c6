"""Knobs of our all-gather: what is launched for a case on an architecture, and what a sweep should try.

programs      workgroups, which is the number of CUs or SMs taken from other work.
num_warps     waves (warps) per workgroup.
unroll        16-byte moves in flight per lane; a block is lanes x unroll x 16 bytes.
fanout        destinations to which a program stores what it has loaded; 0 = all ranks.
load, store   cache modifiers: "" as the compiler sees fit, ".cg" past L1, ".cs" streaming, ".wt" write through.
wait          False leaves the completion barrier's waiting out; only for tests that run the ranks one by one.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from kernels.spec import Case, Unsupported

MIB = 1 << 20

TUNED: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("tuned.toml").read_text())
"""Winners of a sweep, by arch and size class of the case; the file says on which device and when."""

_LIMITS = {"sm_90": (96, 16, 4), "gfx942": (64, 8, 4), "gfx950": (64, 8, 4), "cpu": (2, 4, 1)}
"""Most programs, warps, unroll by arch.  On AMD iris takes 64 CUs; "cpu" is for the interpreter in tests."""


def size_class(case: Case) -> str:
    """The key of a size: world and total bytes; the dtype does not matter to a copy."""
    return f"w{case.world}_{case.MB}MB"


def block_bytes(arch: str, warps: int, unroll: int) -> int:
    """Bytes that a program moves in one step."""
    return warps * (64 if arch.startswith("gfx") else 32) * 16 * unroll


def config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case; Unsupported names the architectures that have any.

    Small shards: one step for every program, so that all loads and all stores are in flight at once.
    """
    if size_class(case) in TUNED.get(arch, {}):
        return dict(TUNED[arch][size_class(case)])
    if arch not in _LIMITS:
        raise Unsupported(f"no all-gather configuration for arch {arch!r}, only for {', '.join(_LIMITS)}; "
                          "add one to kernels/all_gather/config.py and sweep it")
    most, warps, unroll = _LIMITS[arch]
    shard = case.MB * MIB // case.world
    while unroll > 1 and shard < most * block_bytes(arch, warps, unroll):
        unroll //= 2
    programs = max(1, min(most, shard // block_bytes(arch, warps, unroll)))
    return {"programs": programs, "num_warps": warps, "unroll": unroll, "fanout": 0, "load": "", "store": ""}


def candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep tries for a case: the present choice first."""
    chosen = config(case, arch)
    small = case.MB <= 8
    shapes = [(32, 16, 1), (64, 16, 1), (128, 16, 1), (64, 32, 1), (128, 8, 1), (64, 8, 2), (96, 16, 2), (32, 32, 2)]
    if not small:
        shapes = [(24, 32, 4), (32, 16, 4), (64, 16, 2), (64, 16, 4), (64, 16, 8), (64, 32, 2), (96, 16, 4),
                  (128, 8, 4), (128, 16, 4), (128, 16, 8), (256, 8, 4)]
    tried = [{**chosen, "programs": p, "num_warps": _warps(arch, w), "unroll": u} for p, w, u in shapes]
    others = [{"fanout": 1}, {"fanout": max(1, case.world // 2)}, {"store": ".cs"}, {"store": ".wt"}, {"load": ".cg"},
              {"store": ".cs", "load": ".cg"}]
    groups = [{**chosen, **other, "programs": _divisible(chosen["programs"], case.world)} for other in others]
    return [chosen, *(knobs for knobs in [*tried, *groups] if knobs != chosen)]


def _warps(arch: str, warps: int) -> int:
    """As many lanes with waves of 64 as with warps of 32."""
    return max(1, warps // 2) if arch.startswith("gfx") else warps


def _divisible(programs: int, world: int) -> int:
    return max(world, programs // world * world)
