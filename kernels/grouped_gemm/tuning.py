"""Knobs of the Triton kernels: what a launch uses by default, and the points worth sweeping."""

from __future__ import annotations

from typing import Any

from kernels.hardware import DEVICES, UnknownHardware, lds_limit
from kernels.spec import Case

_SM90 = {"block_m": 128, "block_n": 256, "block_k": 64, "group_m": 8, "num_warps": 8, "num_stages": 3,
         "tma": True, "flatten": True, "subtile": 2, "groups_per_cu": 1}
_CDNA = {"block_m": 256, "block_n": 128, "block_k": 64, "group_m": 4, "num_warps": 8, "num_stages": 2,
         "tma": False, "flatten": False, "subtile": 1, "groups_per_cu": 1,
         "nonkdim": 16, "kpack": 1, "waves_per_eu": 0}
"""256x256 tiles spill registers in some product under Triton 3.6 and 3.8, this one in none, with
32 rows at a time for wgrad (compiled 2026-11)."""

_CPU = {"block_m": 64, "block_n": 64, "block_k": 32, "group_m": 2, "num_warps": 4, "num_stages": 1,
        "tma": False, "flatten": False, "subtile": 1, "groups_per_cu": 1}
"""For Triton's interpreter, which has no use for any of them."""


def rows_config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs of forward and dgrad.  UnknownHardware for an architecture without an entry."""
    return _of(arch, "forward")


def weights_config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs of wgrad: block_m counts values of n, block_n values of k, block_k rows summed at a time."""
    return _of(arch, "wgrad")


def _of(arch: str, product: str) -> dict[str, Any]:
    table = {"sm_90": _SM90, "sm_100": _SM90, "gfx942": _CDNA, "gfx950": _CDNA, "cpu": _CPU}
    if arch not in table:
        raise UnknownHardware(f"no knobs for arch {arch!r}; known: {', '.join(table)}; "
                              "extend kernels/grouped_gemm/tuning.py")
    change: dict[str, Any] = {}
    if product == "wgrad" and arch != "cpu":
        change = {"num_stages": 4} if arch.startswith("sm_") else {"block_k": 32}
    return {**table[arch], **change}


def candidates(case: Case, arch: str, product: str = "forward") -> list[dict[str, Any]]:
    """Knobs to try for a case, the default first, all of which fit; for sweeps and for the autotune backend."""
    base = _of(arch, product)
    if arch.startswith("gfx"):
        changes: list[dict[str, Any]] = [
            {}, {"block_n": 256, "block_k": 32}, {"block_m": 128, "block_n": 256}, {"block_k": 32},
            {"block_k": 32, "num_stages": 3}, {"group_m": 8}, {"nonkdim": 32}, {"waves_per_eu": 2},
            {"num_warps": 4}, {"block_m": 128, "num_warps": 4, "groups_per_cu": 2}]
    elif arch.startswith("sm_"):
        square = {"block_m": 128, "block_n": 128, "subtile": 1}
        changes = [
            {},
            {"flatten": False, "num_stages": 4},
            {"group_m": 16},
            {"block_m": 256, "block_n": 128},
            {"group_m": 4},
            {"num_stages": 3},
            {"num_stages": 3, "subtile": 1},
            {"flatten": False, "num_stages": 3, "subtile": 1},
            {**square, "flatten": False, "num_warps": 4, "num_stages": 3, "subtile": 2, "groups_per_cu": 2},
            {**square, "num_warps": 4, "num_stages": 2, "subtile": 2, "groups_per_cu": 2},
            {**square, "flatten": False, "num_stages": 4},
            {**square, "num_stages": 4},
            {**square, "flatten": False, "block_k": 128, "num_stages": 3},
            {"block_m": 64, "num_warps": 4, "num_stages": 4},
            {"tma": False, "flatten": False, "num_stages": 3, "subtile": 1},
        ]
    else:
        changes = [{}]
    points: list[dict[str, Any]] = []
    for change in changes:
        knobs = {**base, **change}
        if knobs not in points and (arch == "cpu" or shared_bytes(knobs, 2, arch, product) <= lds_limit(arch)):
            points.append(knobs)
    return points


def compute_units(case: Case, arch: str) -> int:
    """CUs or SMs of the placed case; without a device those of the first product with the architecture."""
    if case.place is not None and case.place.compute_units:
        return case.place.compute_units
    return next((d.compute_units for d in DEVICES if d.arch == arch), 4)


def xcds(arch: str) -> int:
    """Compute dies that workgroups are dealt to in turn."""
    return next((d.xcds for d in DEVICES if d.arch == arch), 1)


def shared_bytes(knobs: dict[str, Any], itemsize: int, arch: str, product: str = "forward") -> int:
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
    tails = min(tile, 32768) if knobs["flatten"] and knobs["tma"] and product != "wgrad" else 0
    return operands * knobs["num_stages"] + staged + tails + 64  # barriers of the pipeline


def check_fits(knobs: dict[str, Any], itemsize: int, arch: str, product: str = "forward") -> None:
    """Raise ValueError, before any launch, for tiles that are no powers of two or need too much shared memory."""
    for name in ("block_m", "block_n", "block_k"):
        if knobs[name] < 16 or knobs[name] & (knobs[name] - 1):
            raise ValueError(f"{name} is {knobs[name]}; it must be a power of two, at least 16")
    if arch == "cpu":
        return
    need, limit = shared_bytes(knobs, itemsize, arch, product), lds_limit(arch)
    if need > limit:
        tile = f"{knobs['block_m']}x{knobs['block_n']}x{knobs['block_k']}"
        raise ValueError(f"a tile of {tile} with {knobs['num_stages']} stages needs {need} bytes of shared memory; "
                         f"{arch} has {limit}: smaller blocks or fewer stages")
