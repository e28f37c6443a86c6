"""Knobs of the Triton kernels: what a launch uses by default, and the points worth sweeping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.hardware import DEVICES, UnknownHardware, lds_limit
from kernels.spec import Case

_SM90 = {"block_m": 128, "block_n": 256, "block_k": 64, "group_m": 8, "num_warps": 8, "num_stages": 3,
         "tma": True, "subtile": 2, "groups_per_cu": 1}
_CDNA = {"block_m": 256, "block_n": 128, "block_k": 64, "group_m": 4, "num_warps": 8, "num_stages": 2,
         "tma": False, "subtile": 1, "groups_per_cu": 1, "nonkdim": 16, "kpack": 1, "waves_per_eu": 0}
"""256x256 tiles spill registers in some product under Triton 3.6 and 3.8, this one in none, with
32 rows at a time for wgrad (compiled 2026-11)."""

_CDNA3 = {**_CDNA, "kpack": 2}
"""gfx942 reads 16 bytes a lane from LDS for two of its matrix instructions; gfx950 has one as deep."""

_CDNA3_WEIGHTS = {"block_m": 128, "block_n": 128, "block_k": 32, "num_warps": 4, "groups_per_cu": 2}
"""Both operands of wgrad lie the wrong way round in memory.  Threads that load two rows each turn them on their way to
LDS; in 256x128 they load one, and LDS is then read 2 bytes a lane: 41 instructions instead of 16 for 32 products."""

_CPU = {"block_m": 64, "block_n": 64, "block_k": 32, "group_m": 2, "num_warps": 4, "num_stages": 1,
        "tma": False, "subtile": 1, "groups_per_cu": 1}
"""For Triton's interpreter, which has no use for any of them."""

_BY_ARCH = {"sm_90": _SM90, "sm_100": _SM90, "gfx942": _CDNA3, "gfx950": _CDNA, "cpu": _CPU}

_WEIGHTS_BY_ARCH = {"gfx942": _CDNA3_WEIGHTS, "gfx950": {"block_k": 32}, "cpu": {}}

BY_POINTERS = {"tma": False, "split": 1, "schedule": "dealt"}
"""What knobs become for tensors that no descriptor can describe."""

SCHEDULES = ("dealt", "queue", "flat")
"""wgrad: tiles dealt in turn, taken from a queue, or dealt and all K-steps of a group in one loop (needs TMA)."""

WIDE = 4096
"""Above so many columns of the output, bands of 16 tiles saved 0.5 to 1 % over bands of 4 (H200, 12 cases, 2026-11)."""

MANY_ROUNDS = 6
"""From so many rounds of tiles per group on, uneven groups hardly leave a program idle, and the flat schedule, which
has no gap between tiles, was 4 % faster than the queue (7 rounds); at 2 to 4 rounds 0 to 6 % slower (H200)."""


def rows_config(case: Case, arch: str, columns: int) -> dict[str, Any]:
    """Knobs of forward and dgrad with so many output columns.  UnknownHardware for an architecture without an entry."""
    base = _known(arch)
    if not base["tma"]:
        return {**base, "split": 1}
    return {**base, "split": 4, "group_m": 16 if columns > WIDE else 4}


def weights_config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs of wgrad: block_m counts values of n, block_n values of k, block_k rows summed at a time."""
    base = _known(arch)
    if not base["tma"]:
        return {**base, "schedule": "dealt", **_WEIGHTS_BY_ARCH[arch]}
    tiles = -(-case.N // base["block_m"]) * -(-case.K // base["block_n"])
    many = tiles >= MANY_ROUNDS * compute_units(case, arch)
    return {**base, "subtile": 1, "schedule": "flat" if many else "queue"}


def _known(arch: str) -> dict[str, Any]:
    if arch not in _BY_ARCH:
        raise UnknownHardware(f"no knobs for arch {arch!r}; known: {', '.join(_BY_ARCH)}; "
                              "extend kernels/grouped_gemm/tuning.py")
    return _BY_ARCH[arch]


def candidates(case: Case, arch: str, product: str = "forward") -> list[dict[str, Any]]:
    """Knobs to try for a case, the default first, all of which fit; for sweeps and for the autotune backend."""
    if product == "wgrad":
        base = weights_config(case, arch)
    else:
        base = rows_config(case, arch, case.N if product == "forward" else case.K)
    points: list[dict[str, Any]] = []
    for change in ({}, *_changes(arch, product)):
        knobs = {**base, **change}
        if knobs not in points and (arch == "cpu" or shared_bytes(knobs, 2, arch, product) <= lds_limit(arch)):
            points.append(knobs)
    return points


def _changes(arch: str, product: str) -> list[dict[str, Any]]:
    """What differs from the default in the points of a sweep, the most promising first."""
    square: dict[str, Any] = {"block_m": 128, "block_n": 128}
    if arch.startswith("gfx"):
        return [{"block_n": 256, "block_k": 32}, {"block_m": 128, "block_n": 256}, {"block_k": 32},
                {"block_k": 32, "num_stages": 3}, {"group_m": 8}, {"nonkdim": 32}, {"waves_per_eu": 2},
                {"num_warps": 4}, {**square, "num_warps": 4, "groups_per_cu": 2},
                {"block_m": 256, "num_warps": 8, "groups_per_cu": 1}, {"kpack": 1}]
    if not arch.startswith("sm_"):
        return []
    if product != "wgrad":
        return [{"group_m": 8}, {"group_m": 16}, {"group_m": 4}, {"split": 1}, {"split": 2}, {"split": 8},
                {"block_m": 256, "block_n": 128}, {**square, "num_stages": 4, "subtile": 1},
                {**square, "num_warps": 4, "groups_per_cu": 2}, {**BY_POINTERS, "subtile": 1}]
    queue, flat = {"schedule": "queue"}, {"schedule": "flat"}
    return [queue, flat, {**queue, "tma": False}, {**flat, "group_m": 16}, {**queue, "group_m": 16},
            {**flat, "num_stages": 4, "subtile": 2}, {**queue, "num_stages": 4, "subtile": 2},
            {**queue, **square, "num_stages": 4}, {**queue, **square, "num_warps": 4, "subtile": 2, "groups_per_cu": 2},
            {**queue, "block_m": 256, "block_n": 128}, BY_POINTERS]


def compute_units(case: Case, arch: str) -> int:
    """CUs or SMs of the placed case; without a device those of the first product with the architecture."""
    if case.place is not None and case.place.compute_units:
        return case.place.compute_units
    return next((d.compute_units for d in DEVICES if d.arch == arch), 4)


def xcds(arch: str) -> int:
    """Compute dies that workgroups are dealt to in turn."""
    return next((d.xcds for d in DEVICES if d.arch == arch), 1)


def shared_bytes(knobs: Mapping[str, Any], itemsize: int, arch: str, product: str = "forward") -> int:
    """Most shared memory the kernels need: the pipeline's operands, descriptor stores, and what only tails use.

    A flattened loop holds all of these at once; wgrad has no tails of its own, its descriptors end with each group.
    CDNA3's pipeline keeps one stage in registers.  CDNA4's loads go to LDS directly under Triton 3.8, which keeps no
    stage in registers and pads each kilobyte by at most 32 bytes.
    """
    operands = (knobs["block_m"] + knobs["block_n"]) * knobs["block_k"] * itemsize
    if arch == "gfx942":
        return operands * max(knobs["num_stages"] - 1, 1)
    if arch.startswith("gfx"):
        return operands * knobs["num_stages"] * 33 // 32
    tile = knobs["block_m"] * knobs["block_n"] * itemsize
    staged = tile // knobs["subtile"] if knobs["tma"] else 0
    tails = min(tile, 32768) if knobs["tma"] and product != "wgrad" else 0
    return operands * knobs["num_stages"] + staged + tails + 64  # barriers of the pipeline


def check_knobs(knobs: Mapping[str, Any]) -> None:
    """ValueError for values that no kernel has, or that a kernel through pointers would ignore."""
    for name in ("block_m", "block_n", "block_k"):
        if knobs[name] < 16 or knobs[name] & (knobs[name] - 1):
            raise ValueError(f"{name} is {knobs[name]}; it must be a power of two, at least 16")
    if knobs["subtile"] not in (1, 2):
        raise ValueError(f"subtile is {knobs['subtile']}; a tile is stored in 1 or 2 parts")
    if knobs.get("split", 1) < 1 or (knobs.get("split", 1) > 1 and not knobs["tma"]):
        raise ValueError(f"split is {knobs['split']} and tma {knobs['tma']}; it must be at least 1, and 1 without tma")
    schedule = knobs.get("schedule", "dealt")
    if schedule not in SCHEDULES or (schedule == "flat" and not knobs["tma"]):
        raise ValueError(f"schedule is {schedule!r} and tma {knobs['tma']}; it must be one of {', '.join(SCHEDULES)}, "
                         "and flat needs tma")


def check_fits(knobs: Mapping[str, Any], itemsize: int, arch: str, product: str = "forward") -> None:
    """Raise ValueError, before any launch, for knobs that no kernel has or that need too much shared memory."""
    check_knobs(knobs)
    if arch == "cpu":
        return
    need, limit = shared_bytes(knobs, itemsize, arch, product), lds_limit(arch)
    if need > limit:
        tile = f"{knobs['block_m']}x{knobs['block_n']}x{knobs['block_k']}"
        raise ValueError(f"a tile of {tile} with {knobs['num_stages']} stages needs {need} bytes of shared memory; "
                         f"{arch} has {limit}: smaller blocks or fewer stages")
