"""Knobs of the Triton kernels: what a launch uses by default, and the points worth sweeping."""

from __future__ import annotations

from typing import Any

from kernels._shared.tuning import tuned_file, tuned_knobs
from kernels.hardware import UnknownHardware, lds_limit
from kernels.moe_gemm2_mxfp4 import formats
from kernels.moe_gemm2_mxfp4.sorting import used_blocks
from kernels.spec import Case, Tuned

LAYOUTS = ("recoded", "plain", "streamed")
"""How weights lie: `recoded` (formats.recode, once in set-up) for GPUs without FP4 matrix units, `plain` for others;
`streamed` (formats.stream) for few rows on NVIDIA from sm_90 on."""

STATIC_SHARED_BYTES = 48 << 10
"""Of a workgroup of NVIDIA's, without a request at the launch (CUDA C++ programming guide, compute capabilities)."""


def shape(case: Case) -> str:
    """The key of a shape; its distribution does not matter."""
    return f"n{case.N}_k{case.K}_e{case.E}_m{case.M}_bm{case.BM}"


def table(backend: str) -> Tuned:
    """The table of a backend."""
    return Tuned(tuned_file(__file__), shape, rule, section=backend)


def config(case: Case, arch: str, backend: str = "triton_atomic") -> dict[str, Any]:
    """Knobs of a backend for a case: those of the table, or by rule."""
    return tuned_knobs(table(backend), case, arch)


def rule(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case that is in no table; UnknownHardware without an entry.  block_k counts codes.

    tiles: most column tiles of an item; of streamed, the units of a chunk, and share: percent of all units that is
    dealt out before chunks are drawn.  rows of a block are computed at a time, and few if no more of it are used.
    overlap: kernels of a call start while the one before runs (streamed).  maxnreg: registers of a thread, 0: no limit.
    """
    rules = {"sm_90": _hopper, "sm_100": _hopper, "gfx942": _cdna3, "gfx950": _cdna4, "cpu": _interpreter}
    if arch not in rules:
        raise UnknownHardware(
            f"no knobs for arch {arch!r}; known: {', '.join(rules)}; extend kernels/moe_gemm2_mxfp4/config.py"
        )
    shared = {
        "block_k": _depth(case),
        "non_temporal": arch.startswith("gfx"),
        "maxnreg": 0,
        "rows": case.BM,
        "few": case.BM,
        "tiles": _tiles(case),
        "partial": "fp32" if case.M <= 1024 else "bf16",
        "overlap": False,
        "share": 75,
    }
    return {**shared, **rules[arch](case)}


def _depth(case: Case) -> int:
    """Codes of one step: all of K, as a power of two, up to 512."""
    return min(max(1 << (case.K - 1).bit_length(), 128), 512)


def _tiles(case: Case) -> int:
    """No limit where blocks hardly share weights, else few, so that programs that need the same ones meet in L2."""
    return 32 if used_blocks(case) > 2 * case.E else 4096


def _hopper(case: Case) -> dict[str, Any]:
    """Winners of sweeps on an H200 (Triton 3.6, 2026-11)."""
    few = case.BM <= 32 and formats.STREAMED_DEPTHS[-1] >= case.K
    return _streamed(case) if few else _recoded(case)


def _recoded(case: Case) -> dict[str, Any]:
    """Few rows: a warp alone keeps the activations in registers, as many as fit; items are short where blocks of more
    rows take twice as long as the others."""
    shallow = _depth(case) <= 256
    shared = {"layout": "recoded", "tiles": _tiles(case), "few": case.BM}
    if case.BM > 32:
        return {
            **shared,
            "block_n": 64,
            "num_warps": 4,
            "num_stages": 3,
            "programs_per_cu": 2,
            "rows": case.BM if shallow else 64,
        }
    rows = min(case.BM, 32 if shallow else 16)
    return {
        **shared,
        "block_n": 16,
        "num_warps": 1,
        "num_stages": 4,
        "programs_per_cu": 8,
        "rows": rows,
        "few": 8,
        "tiles": 4096 if rows == case.BM else 32,
    }


def _streamed(case: Case) -> dict[str, Any]:
    """Units of 4 KiB and their scales; 16 rows at a time, with the programs that their registers allow.

    Up to 16 tokens almost all blocks have few rows, and equal shares are best; with more the shared expert's blocks
    take longer, so that programs draw chunks once they are through with a first part.
    """
    shallow = formats.STREAMED_DEPTHS[0] >= case.K
    even = case.M <= 16
    dense = shallow and not even
    return {
        "layout": "streamed",
        "block_n": 32 if shallow else 16,
        "num_warps": 1,
        "num_stages": 2 if dense else 4 if shallow else 3,
        "programs_per_cu": 16 if dense else 12 if shallow else 8,
        "maxnreg": 128 if dense else 0,
        "rows": 16,
        "few": 8,
        "tiles": 4 if shallow else 16,
        "share": 100 if even else 50 if shallow else 30,
        "overlap": True,
    }


def _cdna3(case: Case) -> dict[str, Any]:
    """Few rows: 16 at a time, since of more than that two waves share columns and each decodes them; a wave alone needs
    no barrier (five a step for four waves).  Steps are as deep as registers allow without spills (Triton 3.8)."""
    shared = {"layout": "recoded", "num_stages": 1, "nonkdim": 16, "waves_per_eu": 0}
    if case.BM <= 32:
        return {**shared, "block_n": 16, "num_warps": 1, "programs_per_cu": 8, "rows": 16}
    return {
        **shared,
        "block_n": 64,
        "num_warps": 4,
        "programs_per_cu": 2,
        "block_k": min(_depth(case), 256 if case.BM <= 64 else 128),
    }


def _cdna4(case: Case) -> dict[str, Any]:
    large = case.BM > 32
    return {
        "layout": "plain",
        "block_n": 256 if large else 128,
        "block_k": 256,
        "num_warps": 8 if large else 4,
        "num_stages": 2,
        "programs_per_cu": 2,
        "nonkdim": 16,
        "waves_per_eu": 0,
    }


def _interpreter(case: Case) -> dict[str, Any]:
    return {
        "layout": "recoded",
        "block_n": 64,
        "block_k": 128,
        "num_warps": 4,
        "num_stages": 1,
        "programs_per_cu": 1,
        "rows": 16,
        "few": 8,
        "partial": "fp32",
    }


def candidates(case: Case, arch: str, backend: str = "triton_atomic") -> list[dict[str, Any]]:
    """Knobs to try for a case, the default first, all different."""
    base = config(case, arch, backend)
    changes = [{}, {"non_temporal": not base["non_temporal"]}, *_changes(case, arch, base["layout"])]
    points: list[dict[str, Any]] = []
    for change in changes:
        knobs = {**base, **change}
        if knobs not in points and arch != "cpu" and shared_bytes(case, knobs, arch) <= lds_limit(arch):
            points.append(knobs)
    return points or [base]


def _changes(case: Case, arch: str, layout: str) -> list[dict[str, Any]]:
    """What differs from the default in the points of a sweep."""
    if arch.startswith("gfx"):
        return _CDNA_CHANGES
    if not arch.startswith("sm_"):
        return []
    if layout == "streamed":
        return [*_STREAMED_CHANGES, {"overlap": False, **_recoded(case)}]
    wide = {"block_n": 64, "num_warps": 4, "num_stages": 3, "programs_per_cu": 2, "rows": min(case.BM, 64)}
    whole = {**wide, "few": case.BM}
    rows = [{"rows": 16}, {"rows": case.BM}]
    return [
        *_HOPPER_CHANGES,
        *rows,
        wide,
        whole,
        {**whole, "num_stages": 4},
        {**wide, "maxnreg": 168, "programs_per_cu": 3},
    ]


_HOPPER_CHANGES: list[dict[str, Any]] = [
    *({"num_stages": stages} for stages in (3, 5)),
    *({"few": few} for few in (16, 8)),
    *({"tiles": tiles} for tiles in (128, 64, 32, 16)),
]

_STREAMED_CHANGES: list[dict[str, Any]] = [
    {"num_stages": 2},
    *({"tiles": tiles} for tiles in (2, 4, 8, 16, 32)),
    *({"share": share} for share in (0, 30, 50, 75, 100)),
    {"block_n": 16},
    {"block_n": 32, "num_stages": 2},
    *({"programs_per_cu": programs} for programs in (7, 8, 10, 12)),
    {"rows": 8, "programs_per_cu": 12},
    {"programs_per_cu": 16, "num_stages": 2, "maxnreg": 128},
    {"partial": "bf16"},
    {"overlap": False},
]

_CDNA_CHANGES: list[dict[str, Any]] = [
    {"block_n": 64, "num_warps": 4, "programs_per_cu": 2},
    {"block_n": 128, "num_warps": 4},
    {"block_n": 256, "num_warps": 8},
    {"num_stages": 2},
    *({"programs_per_cu": programs} for programs in (1, 4, 12)),
    {"waves_per_eu": 2},
    {"block_k": 128},
    {"tiles": 16},
]


def shared_bytes(case: Case, knobs: dict[str, Any], arch: str) -> int:
    """Shared memory of a workgroup: activations of a step, and the weights in flight with their scales.

    plain: all is packed, in a buffer for each stage, padded by at most 1 / 16.
    recoded: weights are packed; one buffer fewer than stages, or one for changing the layout.  Activations are bf16, on
    NVIDIA in shared memory as the right operand, on AMD in registers, where one buffer then serves all changes.
    """
    if knobs["layout"] == "streamed":
        return knobs["num_stages"] * (knobs["block_n"] * formats.streamed_depth(case.K) * 17 // 32 + 8)
    weights = knobs["block_n"] * knobs["block_k"] * 17 // 32
    if knobs["layout"] == "plain":
        activations = case.BM * knobs["block_k"] * 17 // 32
        return (weights + activations) * knobs["num_stages"] * 17 // 16
    rows = min(case.BM, knobs["rows"])
    buffers = weights * max(knobs["num_stages"] - 1, 1)
    finishing = min(knobs["block_n"] * rows * 4, 17408)  # larger tiles change their layout in parts
    if arch.startswith("gfx"):
        return max(buffers, finishing)
    return rows * knobs["block_k"] * 2 + buffers + finishing


def _shared_limit(knobs: dict[str, Any], arch: str) -> int:
    return STATIC_SHARED_BYTES if knobs["layout"] == "streamed" else lds_limit(arch)


def check_fits(case: Case, knobs: dict[str, Any], arch: str) -> None:
    """ValueError, before any launch, for blocks that are not powers of two, that do not fit, or an unknown layout."""
    if knobs["layout"] not in LAYOUTS:
        raise ValueError(f"layout {knobs['layout']!r} is not one of {', '.join(LAYOUTS)}")
    if knobs["partial"] not in ("fp32", "bf16"):
        raise ValueError(f"partial {knobs['partial']!r} is not one of fp32, bf16")
    if knobs["layout"] == "streamed":
        _check_streamed(case, knobs, arch)
    least = 128 if knobs["layout"] == "recoded" else 64  # half of a word's pairs are one step of a matrix instruction
    sizes = (("BM", case.BM, 16), ("block_n", knobs["block_n"], 16), ("block_k", knobs["block_k"], least))
    sizes += (("rows", knobs["rows"], 8 if knobs["layout"] == "streamed" else 16), ("few", knobs["few"], 8))
    for name, value, least in sizes:
        if value < least or value & (value - 1):
            raise ValueError(f"{name} is {value}; it must be a power of two, at least {least}")
    if arch == "cpu":
        return
    need, limit = shared_bytes(case, knobs, arch), _shared_limit(knobs, arch)
    if need > limit:
        raise ValueError(
            f"BM {case.BM}, block_n {knobs['block_n']}, block_k {knobs['block_k']} with "
            f"{knobs['num_stages']} stages need {need} bytes of shared memory; {arch} has {limit}"
        )


def _check_streamed(case: Case, knobs: dict[str, Any], arch: str) -> None:
    """ValueError for what the layout `streamed` cannot hold."""
    formats.streamed_depth(case.K)
    if arch.startswith("gfx"):
        raise ValueError(f"layout 'streamed' is in PTX and {arch} is AMD's; allowed are recoded and plain")
    if min(knobs["rows"], case.BM) > 16 or knobs["num_warps"] != 1:
        raise ValueError(
            f"rows is {knobs['rows']} and num_warps {knobs['num_warps']}; "
            "layout 'streamed' takes 8 or 16 rows and 1 warp"
        )
    if knobs["num_stages"] >= 3 * knobs["tiles"]:
        raise ValueError(
            f"num_stages is {knobs['num_stages']} and tiles {knobs['tiles']}; "
            "layout 'streamed' knows four chunks, so num_stages must be less than 3 * tiles"
        )
