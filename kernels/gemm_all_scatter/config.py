"""Knobs of GEMM + all-scatter: what is launched for a case on an architecture, and what a sweep should try.

block_*       tile of a rank's columns (block_m x block_n) and K step; group_m: rows of tiles per band, for L2.
split_k       K slices per tile that is cut (fp32 partial sums, added in slice order by the last one).
cut           which tiles are cut: "all", or "rest": whole rounds of one tile per program stay whole, the tiles left
              over for an incomplete round are cut, and come first (device.py: fused says why).
programs      persistent programs, which share out the tiles (times slices); 0 = one per compute unit.
scatter       how a tile reaches the ranks: "store" from registers, "put" read back from this rank's output,
              "tma" by the copy engine (Hopper; whole tiles only), in `parts` column parts; with flatten it loads the
              next tile meanwhile.
hint          tell the compiler that translated pointers keep their alignment; without it every element is a store.
tma           load through tensor descriptors; swap: weights as matrix rows.
xcds          compute dies over which neighbouring programs are regrouped: those of the device or partition.
num_warps, num_stages, matrix_instr_nonkdim, kpack, waves_per_eu: Triton's own (the last three on AMD only).
wait          False leaves out the waiting of the completion barrier; only for tests that run the ranks in turn.
"""

from __future__ import annotations

from typing import Any

from kernels._shared.tuning import first_then, read_tuned, tuned_file, tuned_knobs
from kernels.hardware import compute_units, xcds
from kernels.spec import Case, Tuned, Unsupported

TUNED = read_tuned(__file__)
"""Winners of a sweep, by arch and shape of the case; the file says on which devices and when."""


def shape(case: Case) -> str:
    """The key of a shape: ranks, then the case's name without its dtype; a rank's share has keys of its own."""
    of = share_of(case)
    if of:
        return f"w1of{of}_n{case.N * of}_k{case.K}_m{case.M}"
    return f"w{case.world}_n{case.N}_k{case.K}_m{case.M}"


def _whole(case: Case) -> str:
    """The key of the operator of which the case is a share, "" if it is none."""
    of = share_of(case)
    return f"w{of}_n{case.N * of}_k{case.K}_m{case.M}" if of else ""


def share_of(case: Case) -> int:
    """Of how many ranks the case is the share of one alone; 0 for the whole operator."""
    return int(dict(case.dims).get("of", 0))


def config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case; Unsupported names the architectures that have any.  "cpu" is for the interpreter in tests.

    Every choice says what is cut: what is then changed of it, as a sweep does, may fit the one and not the other.
    """
    if shape(case) in TUNED.get(arch, {}):
        return {"cut": "all", **TUNED[arch][shape(case)]}
    return rule(case, arch)


def rule(case: Case, arch: str) -> dict[str, Any]:
    """Knobs for a case that is in no table; a rank's share is launched as the operator of which it is the share."""
    whole = TUNED.get(arch, {}).get(_whole(case))
    if whole is not None:
        return {"cut": "all", **whole}
    rules = {"sm_90": _hopper, "gfx942": _cdna, "gfx950": _cdna, "cpu": _interpreter}
    if arch not in rules:
        raise Unsupported(
            f"no GEMM + all-scatter configuration for arch {arch!r}, only for {', '.join(rules)}; "
            "add a rule to kernels/gemm_all_scatter/config.py and sweep it"
        )
    return rules[arch](case, arch)


TABLE = Tuned(tuned_file(__file__), shape, rule)
"""An entry serves all dtypes of a shape."""


def candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep tries for a case: the present choice, then others of its shape class."""
    table = _hopper_candidates(case) if arch == "sm_90" else _cdna_candidates(case, arch)
    return first_then(config(case, arch), table)


def bulk_config(case: Case, arch: str) -> dict[str, Any]:
    """Knobs of the bulk-synchronous variant's scattering kernel."""
    return tuned_knobs(BULK_TABLE, case, arch)


def bulk_rule(case: Case, arch: str) -> dict[str, Any]:
    """As many programs as keep one step each, at most 96."""
    if arch not in ("sm_90", "gfx942", "gfx950", "cpu"):
        raise Unsupported(
            f"no scattering configuration for arch {arch!r}; add one to kernels/gemm_all_scatter/config.py and sweep it"
        )
    if arch == "cpu":
        return {"programs": 2, "num_warps": 1, "unroll": 1}
    warps, lanes = (8, 64) if arch.startswith("gfx") else (16, 32)
    steps = -(-int(case.M * case.N // case.world * case.itemsize) // (warps * lanes * 16))
    return {
        "programs": max(1, min(64 if arch.startswith("gfx") else 96, steps)),
        "num_warps": warps,
        "unroll": 4 if steps >= 4 * 96 else 1,
    }


BULK_TABLE = Tuned(tuned_file(__file__), shape, bulk_rule, section="bulk")

BULK_SHAPES = (
    (32, 16, 1), (32, 16, 4), (64, 16, 1), (64, 16, 4), (96, 16, 1), (96, 16, 2), (96, 16, 4), (128, 8, 4), (132, 16, 4)
)  # fmt: skip
"""(programs, warps of 32, unroll) that a sweep tries of the scattering kernel."""


def bulk_candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    """What a sweep tries of the scattering kernel: the present choice first."""
    halves = 2 if arch.startswith("gfx") else 1
    shapes = ({"programs": p, "num_warps": w // halves, "unroll": u} for p, w, u in BULK_SHAPES)
    return first_then(bulk_config(case, arch), shapes)


def tiles(case: Case, m: int, n: int) -> int:
    """Tiles of m x n in a rank's columns."""
    return -(-case.M // m) * -(-case.N // case.world // n)


def _tile(m: int, n: int, k: int, warps: int, stages: int) -> dict[str, Any]:
    blocks = {"block_m": m, "block_n": n, "block_k": k}
    return {**blocks, "num_warps": warps, "num_stages": stages, "group_m": 8, "cut": "all"}


def _split(case: Case, *tile: int, fill: int = 0, split_k: int = 0, **others: Any) -> dict[str, Any]:
    """One program per tile and K slice; split_k, or the power of two up to 16 that fills `fill` programs best.

    A slice keeps at least four K steps, so that its loads can be pipelined.  More tiles than `fill` are shared out
    among as many programs as there are compute units: a program that ends waits for its peers on the other ranks.
    """
    m, n, k = tile[:3]
    count = tiles(case, m, n)
    if not split_k:
        split_k = next((s for s in (16, 8, 4, 2) if count * s <= fill and case.K // (s * k) >= 4), 1)
    programs = count * split_k if count <= fill else 0
    return {**_tile(*tile), "split_k": split_k, "programs": programs, **others}


# ---- Hopper ----------------------------------------------------------------------------------------------------------


def _hopper(case: Case, arch: str) -> dict[str, Any]:
    """By the number of tiles against the SMs: large tiles where they fill the device, slices of K where not."""
    units = compute_units(case, arch)
    if case.M <= 16:
        return _tma(case, 16, 64, 256, 4, 3, swap=True, fill=units)
    if case.M <= 64:
        return _tma(case, 64, 64, 128, 4, 6, fill=units)
    if tiles(case, 128, 256) > 0.9 * units:
        cut = [k for k in (_rounds(case, 128, 128, 64, 8, 4), _rounds(case, 128, 256, 64, 8, 3)) if k]
        return min(cut, key=lambda k: _work(case, k)) if cut else _persistent(128, 256, 64, 8, 3)
    if case.M <= 128 or tiles(case, 128, 128) * 2 <= units:
        return _tma(case, 128, 128, 64, 8, 5, fill=units)
    return _rounds(case, 128, 128, 64, 8, 4) or _persistent(128, 128, 64, 8, 5)


def _tma(case: Case, *tile: int, **others: Any) -> dict[str, Any]:
    return _split(case, *tile, tma=True, **others)


def _persistent(*tile: int, **others: Any) -> dict[str, Any]:
    return {**_tile(*tile), "split_k": 1, "programs": 0, "tma": True, **others}


def _rest(case: Case, m: int, n: int, k: int, units: int, most: int = 8) -> dict[str, Any]:
    """Whole rounds of tiles, and before them the rest in at most so many slices of at least four K steps.

    {} where a last round would leave less than half of the units idle, or none: slices of it need a round of their own.
    """
    count = tiles(case, m, n)
    slices = min(units // (count % units or units), most, case.K // (4 * k))
    return {"split_k": slices, "cut": "rest"} if count >= units and slices >= 2 else {}


def _rounds(case: Case, *tile: int, **others: Any) -> dict[str, Any]:
    """Persistent programs with the rest cut; {} where there is none to cut."""
    rest = _rest(case, *tile[:3], compute_units(case, "sm_90"))
    return _persistent(*tile, **{"group_m": 4, **rest, **others}) if rest else {}


def _work(case: Case, knobs: dict[str, Any]) -> float:
    """Elements of the output that the busiest SM computes, of which some may lie outside of it."""
    rounds = tiles(case, knobs["block_m"], knobs["block_n"]) // compute_units(case, "sm_90") + 1 / knobs["split_k"]
    return float(rounds * knobs["block_m"] * knobs["block_n"])


def _hopper_candidates(case: Case) -> list[dict[str, Any]]:
    sms = compute_units(case, "sm_90")
    if case.M <= 16:
        return _few_tokens(case, sms)
    if case.M <= 64:
        return _some_tokens(case, sms)
    middle = _sliced(case, sms)
    whole = [
        _persistent(128, 128, 64, 8, 5),
        _persistent(128, 128, 64, 8, 5, scatter="tma"),
        _persistent(128, 64, 128, 4, 4),
        _persistent(128, 64, 64, 4, 4, programs=2 * sms),
    ]
    if tiles(case, 128, 128) < sms // 3:
        return middle + whole[2:]
    if tiles(case, 128, 256) <= sms // 2:
        return [*middle, *whole, _persistent(128, 256, 64, 8, 3)]
    return [*whole, *middle[:4], *_large(case, sms)]


def _few_tokens(case: Case, sms: int) -> list[dict[str, Any]]:
    return [
        *(_tma(case, 16, 64, 128, 4, stages, swap=True, fill=f) for stages in (4, 6) for f in (sms, 2 * sms)),
        *(_tma(case, 16, 64, 256, 4, 3, swap=True, fill=f) for f in (sms, 2 * sms)),
        *(_tma(case, 16, 128, 128, w, 4, swap=True, fill=f) for w in (4, 8) for f in (sms, 2 * sms)),
        _tma(case, 16, 64, 256, 4, 5, swap=True, fill=sms),
        _tma(case, 16, 32, 256, 4, 4, fill=sms),
        _tma(case, 16, 64, 128, 4, 6, swap=True, fill=sms, scatter="put"),
    ]


def _some_tokens(case: Case, sms: int) -> list[dict[str, Any]]:
    return [
        *(_tma(case, 64, 64, 128, 4, stages, fill=sms) for stages in (4, 5)),
        *(_tma(case, 64, 64, 128, 4, 3, fill=f) for f in (sms, 2 * sms)),
        *(_tma(case, 64, 128, 64, 4, stages, fill=f) for stages, f in ((4, 2 * sms), (6, sms))),
        *(_tma(case, 64, 128, 128, w, 4, fill=sms) for w in (4, 8)),
        *(_tma(case, 64, 32, 128, 4, stages, fill=f) for stages, f in ((4, 2 * sms), (6, sms))),
        _tma(case, 64, 64, 128, 4, 6, fill=sms, scatter="put"),
        _tma(case, 32, 64, 128, 4, 6, fill=sms),
    ]


def _sliced(case: Case, sms: int) -> list[dict[str, Any]]:
    """Tiles in slices of K, for shapes with fewer tiles than SMs."""
    return [
        _tma(case, 128, 128, 64, 8, 4, fill=sms),
        _tma(case, 128, 128, 64, 4, 3, fill=2 * sms),
        _tma(case, 64, 128, 128, 4, 3, fill=sms),
        _tma(case, 128, 64, 128, 4, 4, fill=sms),
        _tma(case, 64, 256, 64, 4, 4, fill=sms),
        _tma(case, 128, 64, 128, 4, 2, fill=2 * sms),
        _tma(case, 128, 128, 64, 8, 5, fill=sms, scatter="put"),
        _tma(case, 128, 128, 128, 8, 3, fill=sms),
        _tma(case, 128, 256, 64, 8, 4, fill=sms),
    ]


def _large(case: Case, sms: int) -> list[dict[str, Any]]:
    """Large tiles, for shapes with more of them than SMs."""
    return [
        _persistent(128, 128, 64, 4, 3, programs=2 * sms),
        *(_persistent(128, 256, 64, 8, s, scatter="tma", parts=p) for s, p in ((3, 1), (4, 4))),
        *_hopper_rounds(case),
        *(_persistent(128, 256, 64, 8, s) for s in (3, 4)),
        _persistent(128, 256, 64, 8, 3, scatter="put"),
        _persistent(256, 128, 64, 8, 3, scatter="tma"),
        _persistent(128, 256, 64, 8, 3, scatter="tma", group_m=16),
    ]


def _hopper_rounds(case: Case) -> list[dict[str, Any]]:
    """What a sweep tries with cut "rest"; nothing where no tile size leaves a short last round."""
    tried = [
        *(_rounds(case, 128, 128, 64, 8, 4, group_m=g) for g in (2, 4)),
        *(_rounds(case, 128, 256, 64, 8, 3, group_m=g) for g in (2, 4)),
        _rounds(case, 256, 128, 64, 8, 3, group_m=2),
    ]
    return [knobs for knobs in tried if knobs]


# ---- CDNA ------------------------------------------------------------------------------------------------------------


def _cdna(case: Case, arch: str) -> dict[str, Any]:
    """Tiles that spill no register and fit the LDS (64 KiB, 160 KiB) with Triton 3.6, 3.8 and 3.9.

    Eight slices of 128 x 128 in 8 waves spill 30 to 40 registers on gfx950 with 8 ranks, in 4 waves none (2026-11).
    Adding up more than two slices of 256 x 128 spills on gfx950.
    """
    fill = compute_units(case, arch)
    if case.M <= 16:
        return _amd(case, arch, 16, 64, 256, 4, fill=fill)
    if case.M <= 64:
        return _amd(case, arch, 64, 64, 128, 4, fill=fill)
    if tiles(case, 256, 128) < 0.9 * fill:
        return _amd(case, arch, 128, 128, 64, 4, fill=fill)
    rest = {"split_k": 1, **_rest(case, 256, 128, 64, fill, most=2)}
    return _amd(case, arch, 256, 128, 64, 8, group_m=4, programs=0, **rest)


def _amd(case: Case, arch: str, m: int, n: int, k: int, warps: int, **others: Any) -> dict[str, Any]:
    kpack = 2 if arch == "gfx942" else 1
    tuned = {"scatter": "put", "matrix_instr_nonkdim": 16, "kpack": kpack, "waves_per_eu": 0}
    tuned["xcds"] = xcds(arch, compute_units(case, arch))
    return _split(case, m, n, k, warps, 2, **{**tuned, **others})


def _cdna_candidates(case: Case, arch: str) -> list[dict[str, Any]]:
    fill = compute_units(case, arch)
    if case.M <= 256:
        m = 16 if case.M <= 16 else 64 if case.M <= 64 else 128
        sides = ((32, 128), (64, 128), (128, 64))
        return [
            *(
                _amd(case, arch, m, *side, 4, fill=f, scatter=scatter)
                for side in sides
                for f in (fill, 2 * fill)
                for scatter in ("put", "store")
            ),
            *(_amd(case, arch, m, *side, 4, fill=fill, waves_per_eu=2) for side in sides),
        ]
    shapes = ((256, 256, 64, 8), (256, 128, 64, 8), (128, 128, 64, 4), (256, 64, 64, 8))
    return [
        _amd(case, arch, *tile, split_k=1, group_m=g, programs=0, scatter=scatter)
        for tile in shapes
        for g in (4, 6)
        for scatter in ("put", "store")
    ]


def _interpreter(case: Case, arch: str) -> dict[str, Any]:
    return {**_split(case, 32, 32, 64, 4, 2, split_k=2), "programs": 2}
