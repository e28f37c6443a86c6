"""Knobs of the Triton kernels: what a launch uses by default, and the points worth sweeping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels._shared.tuning import tuned_file, tuned_knobs
from kernels.hardware import UnknownHardware, lds_limit
from kernels.spec import Case, Tuned


def _tile(m: int, n: int, k: int, warps: int, stages: int, group_m: int, **others: Any) -> dict[str, Any]:
    blocks = {"block_m": m, "block_n": n, "block_k": k}
    return {**blocks, "num_warps": warps, "num_stages": stages, "group_m": group_m, "groups_per_cu": 1, **others}


_FLAT = _tile(128, 256, 64, 8, 3, group_m=8, tma=True, roles=False)
"""All warps load and multiply."""

_WITH_ROLES: dict[str, Any] = {"roles": True, "num_warps": 4}
"""One warp loads, two groups of four warps multiply (kernels/_shared/warp_roles.py)."""

_CDNA = _tile(256, 128, 64, 8, 2, group_m=4, tma=False, nonkdim=16, kpack=1, waves_per_eu=0)
"""256x256 tiles spill registers in some product under Triton 3.6 and 3.8, this one in none, with
32 rows at a time for wgrad (compiled 2026-11)."""

_CDNA3 = {**_CDNA, "block_k": 32, "kpack": 2}
"""gfx942 reads 16 bytes per lane from LDS for two of its matrix instructions; gfx950 has one as deep.  With 64 columns
of K at a time, Triton 3.8 turns the loop into its block ping-pong, in which a warp passes a barrier with reads of LDS
outstanding that another one then overwrites (its issue 11696; found by `verify --arch gfx942`, 2026-11)."""

_CDNA3_WEIGHTS = {"block_m": 128, "block_n": 128, "block_k": 32, "num_warps": 4, "groups_per_cu": 2}
"""Both operands of wgrad lie the wrong way round in memory.  Threads that load two rows each turn them on their way to
LDS; in 256x128 they load one, and LDS is then read 2 bytes per lane: 41 instructions instead of 16 for 32 products."""

_CPU = _tile(64, 64, 32, 4, 1, group_m=2, tma=False)
"""For Triton's interpreter, to which none of them matters."""

_BY_ARCH = {"sm_90": {**_FLAT, **_WITH_ROLES}, "sm_100": _FLAT, "gfx942": _CDNA3, "gfx950": _CDNA, "cpu": _CPU}

_WEIGHTS_BY_ARCH = {"gfx942": _CDNA3_WEIGHTS, "gfx950": {"block_k": 32}}

WITHOUT_ROLES: dict[str, Any] = {"roles": False, "block_n": 256, "num_warps": 8, "num_stages": 3}
"""What knobs become for elements that are not of 16 bits."""

BY_POINTERS: dict[str, Any] = {**WITHOUT_ROLES, "tma": False, "split": 1}
"""What knobs become for tensors that no descriptor can describe."""

WIDE = 4096
"""Above so many columns of the output, bands of 16 tiles saved 0.5 to 1 % over bands of 4 (H200, 12 cases, 2026-11)."""


def rows_config(case: Case, arch: str, columns: int) -> dict[str, Any]:
    """Knobs of forward and dgrad with so many output columns.  UnknownHardware for an architecture without an entry."""
    base = _known(arch)
    if not base["tma"]:
        return base
    return {**base, **_width(base, columns), "split": 4, "group_m": 16 if columns > WIDE else 8 if base["roles"] else 4}


def weights_config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs of wgrad: block_m counts values of n, block_n values of k, block_k rows summed at a time."""
    base = {**_known(arch), **_WEIGHTS_BY_ARCH.get(arch, {})}
    return {**base, **_width(base, case.K), "group_m": 16 if base["roles"] else base["group_m"]}


def _width(base: Mapping[str, Any], columns: int) -> dict[str, int]:
    """Tiles of 192 columns where those of 256 would reach a twentieth farther beyond the last one (2880 = 15 x 192)."""
    reached = {width: -(-columns // width) * width for width in (192, 256)}
    return {"block_n": 192, "num_stages": 4} if base["roles"] and reached[256] > 1.05 * reached[192] else {}


RULES = {
    "forward": lambda case, arch: rows_config(case, arch, case.N),
    "dgrad": lambda case, arch: rows_config(case, arch, case.K),
    "wgrad": weights_config,
}
"""(case, arch) -> knobs of a product for a case that is in no table."""


def shape(case: Case) -> str:
    """The key of a shape.  Not the routing: nobody knows it where a launch is prepared."""
    return f"g{case.G}_m{case.M}_n{case.N}_k{case.K}"


def config(product: str, case: Case, arch: str) -> dict[str, Any]:
    """Knobs of a product for a case: those of the table, or by rule."""
    return tuned_knobs(table(product), case, arch)


def table(product: str) -> Tuned:
    """The table of a product; an entry serves all routings."""
    return Tuned(tuned_file(__file__), shape, RULES[product], section=product)


def _known(arch: str) -> dict[str, Any]:
    if arch not in _BY_ARCH:
        raise UnknownHardware(
            f"no knobs for arch {arch!r}; known: {', '.join(_BY_ARCH)}; extend kernels/grouped_gemm/config.py"
        )
    return {"roles": False, **_BY_ARCH[arch], "split": 1, "queue": False}


def candidates(case: Case, arch: str, product: str = "forward") -> list[dict[str, Any]]:
    """Knobs to try for a case, all of which fit: the default, then others; for sweeps and `autotune`."""
    base = config(product, case, arch)
    points: list[dict[str, Any]] = []
    for change in ({}, *_changes(arch, product)):
        knobs = {**base, **change}
        if knobs not in points and (arch == "cpu" or shared_bytes(knobs, 2, arch) <= lds_limit(arch)):
            points.append(knobs)
    return points


def _changes(arch: str, product: str) -> list[dict[str, Any]]:
    """What differs from the default in the points of a sweep, the most promising first."""
    if arch.startswith("gfx"):
        return _CDNA_CHANGES
    if arch.startswith("sm_"):
        return _HOPPER_WEIGHTS_CHANGES if product == "wgrad" else _HOPPER_ROWS_CHANGES
    return []


_SQUARE: dict[str, Any] = {"block_m": 128, "block_n": 128}
_PAIRS: dict[str, Any] = {**_SQUARE, "num_warps": 4, "groups_per_cu": 2}
_TALL: dict[str, Any] = {"block_m": 256, "block_n": 128}

_CDNA_CHANGES: list[dict[str, Any]] = [
    {"block_n": 256, "block_k": 32},
    {"block_m": 128, "block_n": 256},
    {"block_k": 32},
    {"block_k": 32, "num_stages": 3},
    {"group_m": 8},
    {"nonkdim": 32},
    {"waves_per_eu": 2},
    {"num_warps": 4},
    _PAIRS,
    {"block_m": 256, "num_warps": 8, "groups_per_cu": 1},
    {"kpack": 1},
]

_IN_256: dict[str, Any] = {**_WITH_ROLES, "block_n": 256, "num_stages": 3}
_IN_192: dict[str, Any] = {**_WITH_ROLES, "block_n": 192, "num_stages": 4}
_ALL_WARPS: dict[str, Any] = WITHOUT_ROLES

_HOPPER_WEIGHTS_CHANGES: list[dict[str, Any]] = [
    _IN_256,
    _IN_192,
    {"group_m": 16},
    _ALL_WARPS,
    {"group_m": 4},
    {**_ALL_WARPS, **_PAIRS},
    {**_ALL_WARPS, **_SQUARE, "num_stages": 4},
    {**_ALL_WARPS, **_TALL},
    {**BY_POINTERS, "queue": True},
    BY_POINTERS,
]

_HOPPER_ROWS_CHANGES: list[dict[str, Any]] = [
    _IN_256,
    _IN_192,
    {"group_m": 8},
    _ALL_WARPS,
    {"group_m": 16},
    {"group_m": 4},
    {"split": 1},
    {"split": 2},
    {"split": 8},
    {**_ALL_WARPS, **_PAIRS},
    {**_ALL_WARPS, **_TALL},
    {**_ALL_WARPS, **_SQUARE, "num_stages": 4},
    BY_POINTERS,
]


def shared_bytes(knobs: Mapping[str, Any], itemsize: int, arch: str) -> int:
    """Most shared memory the kernels need: the pipeline's operands and, at the same time, half a tile on its way out
    (all of it with roles).

    CDNA3's pipeline keeps one stage in registers.  CDNA4's loads go to LDS directly under Triton 3.8, which keeps no
    stage in registers and pads each kilobyte by at most 32 bytes.
    """
    operands = (knobs["block_m"] + knobs["block_n"]) * knobs["block_k"] * itemsize
    if arch == "gfx942":
        return operands * max(knobs["num_stages"] - 1, 1)
    if arch.startswith("gfx"):
        return operands * knobs["num_stages"] * 33 // 32
    out = knobs["block_m"] * knobs["block_n"] * itemsize // (1 if knobs["roles"] else 2) if knobs["tma"] else 0
    barriers = 512 if knobs["roles"] else 16 * (knobs["num_stages"] + 1)
    return operands * knobs["num_stages"] + out + barriers


def check_knobs(knobs: Mapping[str, Any], product: str) -> None:
    """ValueError for values that no kernel has, or that the one of the product would ignore."""
    for name in ("block_m", "block_n", "block_k"):
        in_two_parts = knobs["roles"] and name == "block_n"
        if knobs[name] < 16 or (knobs[name] & (knobs[name] - 1) and not in_two_parts):
            raise ValueError(f"{name} is {knobs[name]}; it must be a power of two, at least 16")
    if knobs["split"] < 1 or (knobs["split"] > 1 and (product == "wgrad" or not knobs["tma"])):
        raise ValueError(
            f"split is {knobs['split']}; it must be at least 1, and 1 for wgrad and without tma "
            f"(this is {product} with tma {knobs['tma']})"
        )
    if knobs["queue"] and (product != "wgrad" or knobs["tma"]):
        raise ValueError(
            "queue is True; tiles are taken from a queue by wgrad without tma only "
            f"(this is {product} with tma {knobs['tma']})"
        )
    if knobs["roles"]:
        _check_roles(knobs)


def _check_roles(knobs: Mapping[str, Any]) -> None:
    needed = {"tma": (True,), "block_m": (128,), "block_n": (128, 192, 256), "block_k": (64, 128), "num_warps": (4,)}
    for name, allowed in needed.items():
        if knobs[name] not in allowed:
            said = " or ".join(map(str, allowed))
            raise ValueError(f"{name} is {knobs[name]}; with roles it must be {said} (roles False takes other tiles)")


def check_fits(knobs: Mapping[str, Any], itemsize: int, arch: str, product: str) -> None:
    """Raise ValueError, before any launch, for knobs that no kernel has or that need too much shared memory."""
    check_knobs(knobs, product)
    if arch == "cpu":
        return
    need, limit = shared_bytes(knobs, itemsize, arch), lds_limit(arch)
    if need > limit:
        tile = f"{knobs['block_m']}x{knobs['block_n']}x{knobs['block_k']}"
        raise ValueError(
            f"a tile of {tile} with {knobs['num_stages']} stages needs {need} bytes of shared memory; "
            f"{arch} has {limit}: smaller blocks or fewer stages"
        )
