"""What a user of MI350X and MI355X would call: the second MoE product of aiter and of FlyDSL, a4w4 in MXFP4.

aiter's tables for these very shapes pick among them, by tokens (ROCm/aiter e4048607, aiter/configs/model_configs:
kimik2_fp4_tuned_fmoe.csv for (385, 7168, 512, 9), dsv3_fp4_tuned_fmoe.csv for (257, 7168, 256, 9)).  All take rows
sorted by expert as sorting.py makes them, and the layouts of amd_layouts.py, which are made once, before the timed
call, as a server does.

    aiter_ck             Composable Kernel, adds into the output            BM 32, 64, 128
    aiter_mxmoe_atomic   FlyDSL kernel "v2" of aiter, adds into the output  BM 16, 32, 64, 128
    aiter_mxmoe_reduce   the same, a row for every slot, then their sum     BM 16, 32, 64, 128
    flydsl_gemm2         FlyDSL kernel "mxmoe": adds up to BM 64; at 128 rows in sorted order, then a weighted sum
    flydsl_stage2        FlyDSL's parametric kernel, by adding or by sums   BM 32, 64, 128

FlyDSL's own repository has flydsl_gemm2 too, in a folder `kernels` that is in no wheel (ROCm/FlyDSL 11c4174d,
setup.py); so it is called where it is installed, in aiter, which needs the wheel flydsl.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels._shared import libraries
from kernels._shared.libraries import Written
from kernels.moe_gemm2_mxfp4 import amd_layouts as layouts
from kernels.spec import Case, Unsupported

STATE = ("e4048607a535ace3a2b51ded31b1c8c2d45c0879", "2026-08-22")
AITER = ("amd-aiter", "ROCm/aiter")
CK = Written(
    "aiter.ops.moe_op.ck_moe_stage2_fwd",
    *AITER,
    "aiter/ops/moe_op.py",
    *STATE,
    module=lambda: importlib.import_module("aiter.ops.moe_op"),
)
MXMOE = Written(
    "aiter.ops.flydsl.kernels.mxmoe_dispatcher.mxfp4_moe_gemm2",
    *AITER,
    "aiter/ops/flydsl/kernels/mxmoe_dispatcher.py",
    *STATE,
    module=lambda: importlib.import_module("aiter.ops.flydsl.kernels.mxmoe_dispatcher"),
)
SUM = Written(
    "aiter.ops.flydsl.moe_kernels._run_moe_reduction",
    *AITER,
    "aiter/ops/flydsl/moe_kernels.py",
    *STATE,
    module=lambda: importlib.import_module("aiter.ops.flydsl.moe_kernels"),
)
GEMM2 = Written(
    "aiter.ops.flydsl.mxfp4_gemm2_kernels.flydsl_mxfp4_gemm2",
    *AITER,
    "aiter/ops/flydsl/mxfp4_gemm2_kernels.py",
    *STATE,
    module=lambda: importlib.import_module("aiter.ops.flydsl.mxfp4_gemm2_kernels"),
)
SCATTER = Written(
    "aiter.ops.moe_mxfp4_aux.mxfp4_moe_scatter_reduce",
    *AITER,
    "aiter/ops/moe_mxfp4_aux.py",
    *STATE,
    module=lambda: importlib.import_module("aiter.ops.moe_mxfp4_aux"),
)
STAGE2 = Written(
    "aiter.ops.flydsl.moe_kernels.flydsl_moe_stage2",
    *AITER,
    "aiter/ops/flydsl/moe_kernels.py",
    *STATE,
    module=lambda: importlib.import_module("aiter.ops.flydsl.moe_kernels"),
)

REMEDY = "it needs ROCm and `pip install amd-aiter flydsl==0.3.1` (the FlyDSL that this aiter pins)"
"""ROCm/aiter e4048607, setup.py: FLYDSL_VERSION."""

LIBRARIES = ("amd-aiter", "flydsl")
"""Distributions that the baselines call."""

CK_BLOCKS = (32, 64, 128)
"""block_m of the a4w4 stage 2 (csrc/ck_gemm_moe_2stages_codegen/gen_instances.py, A4W4 dispatch)."""

WIDEST_TILE = 256
"""Columns and codes of a tile, BN and BK (aiter/ops/flydsl/mxfp4_gemm2_kernels.py, _assert_supported)."""

STREAMED_UP_TO = 512
"""Tokens up to which aiter's table loads the weights non-temporally, `_nt` (kimik2_fp4_tuned_fmoe.csv, e4048607)."""

Inputs = dict[str, torch.Tensor]
Call = Callable[[], torch.Tensor]


def knobs(case: Case, arch: str) -> dict[str, Any]:
    """What aiter's table picks for these shapes: tiles of 256 columns and 256 codes, non-temporal for few tokens."""
    return {"block_n": 256, "block_k": 256, "non_temporal": case.M <= STREAMED_UP_TO, "persist": False}


def aiter_ck(case: Case, x: Inputs) -> Call:
    """Composable Kernel's stage 2; aiter builds its module at the first call, which takes minutes."""
    _needs(case, CK_BLOCKS)
    kinds = _quantities()
    fp4 = getattr(torch, "float4_e2m1fn_x2", torch.uint8)
    w = layouts.tiled_weights(x["w"]).view(fp4)
    w.is_shuffled = True  # type: ignore[attr-defined]  # how aiter knows the layout (aiter/ops/moe_op.py)
    out = _output(case, x)
    given = {
        "inter_states": layouts.by_slot(x["a"], x["ids"], case.M, case.topk).view(fp4),
        "w1": w,  # of which it reads the number of experts
        "w2": w,
        "out": out,
        "a2_scale": layouts.sorted_scales(x["a_scale"], case.BM),
        "w2_scale": _weight_scales(x),
        "block_m": case.BM,
        "sorted_weights": x["weights"],
        "quant_type": kinds.per_1x32,
        **_order(x, case),
    }
    return _adding(CK, given, out)


def aiter_mxmoe_atomic(
    case: Case, x: Inputs, *, block_n: int = 256, block_k: int = 256, non_temporal: bool = True, persist: bool = False
) -> Call:
    """FlyDSL's kernel "v2" in aiter, which adds rows to a zeroed output; the zeroing is timed."""
    out = _output(case, x)
    tiles = {"BN": block_n, "BK": block_k, "use_nt": non_temporal, "persist": persist}
    return _adding(MXMOE, {**_mxmoe(case, x), **tiles, "out": out, "epilog": "atomic"}, out)


def aiter_mxmoe_reduce(
    case: Case, x: Inputs, *, block_n: int = 256, block_k: int = 256, non_temporal: bool = True, persist: bool = False
) -> Call:
    """The same kernel with one row for every token and slot, and aiter's sum over the slots."""
    tiles = {"BN": block_n, "BK": block_k, "use_nt": non_temporal, "persist": persist}
    out = _output(case, x)
    rows = torch.empty((case.M, case.topk, case.N), dtype=torch.bfloat16, device=out.device)
    given = {**_mxmoe(case, x), **tiles, "out": rows, "epilog": "reduce"}
    summed = {"target": rows, "out": out, "token_num": case.M, "topk": case.topk, "model_dim": case.N}
    product, total = MXMOE.load(REMEDY, given), SUM.load(REMEDY, summed)

    def call() -> torch.Tensor:
        product(**given)
        total(**summed)
        return out

    return libraries.tried(MXMOE.name, call)


def flydsl_gemm2(case: Case, x: Inputs) -> Call:
    """FlyDSL's specialised kernel, which aiter's table picks for 385 experts."""
    _needs(case, (16, 32, 64, 128))
    out = _output(case, x)
    if case.BM < 128:
        return _adding(GEMM2, _gemm2(case, x, out), out)
    rows = torch.empty((_sorted_rows(case, x), case.N), dtype=torch.bfloat16, device=out.device)
    given = _gemm2(case, x, rows)
    summed = {
        "flat_out": rows,
        "reverse_sorted": layouts.positions(x["ids"], case.M, case.topk),
        "sorted_weights": x["weights"],
        "out": out,
        "NE": case.E,
        "TOPK": case.topk,
        "D_HIDDEN": case.N,
        "MB": case.BM,
    }
    product, total = GEMM2.load(REMEDY, given), SCATTER.load(REMEDY, summed)

    def call() -> torch.Tensor:
        product(**given)
        total(**summed)
        return out

    return libraries.tried(GEMM2.name, call)


def stage2_knobs(case: Case, arch: str) -> dict[str, Any]:
    """What aiter's table picks where it picks this kernel (dsv3_fp4_tuned_fmoe.csv: (257, 7168, 256, 9), e4048607)."""
    few, many = case.M <= 16, case.M >= 1024
    return {"tile_m": min(case.BM, 64), "tile_n": 128 if few else 256, "mode": "reduce" if few or many else "atomic"}


def flydsl_stage2(case: Case, x: Inputs, *, tile_m: int = 32, tile_n: int = 256, mode: str = "atomic") -> Call:
    """FlyDSL's parametric kernel; `reduce` makes a row for every token and slot and sums the slots."""
    _needs(case, CK_BLOCKS)
    out = _output(case, x)
    given = {
        "inter_states": layouts.by_slot(x["a"], x["ids"], case.M, case.topk),
        "w2": layouts.tiled_weights(x["w"]),
        "out": out,
        "a2_scale": layouts.sorted_scales(x["a_scale"], case.BM),
        "w2_scale": _weight_scales(x),
        "sorted_weights": x["weights"],
        "tile_m": tile_m,
        "tile_n": tile_n,
        "tile_k": 256,
        "sort_block_m": case.BM,
        "mode": mode,
        "a_dtype": "fp4",
        "b_dtype": "fp4",
        "b_nt": 2 if case.M <= STREAMED_UP_TO else 0,
        **_order(x, case),
    }
    return _adding(STAGE2, given, out, zero=mode == "atomic")


BASELINES: dict[str, tuple[Callable[..., Call], Any, float]] = {
    "aiter_ck": (aiter_ck, None, libraries.COMPILING_S),
    "aiter_mxmoe_atomic": (aiter_mxmoe_atomic, knobs, libraries.TRANSLATING_S),
    "aiter_mxmoe_reduce": (aiter_mxmoe_reduce, knobs, libraries.TRANSLATING_S),
    "flydsl_gemm2": (flydsl_gemm2, None, libraries.COMPILING_S),  # at BM 128 with a module that aiter builds
    "flydsl_stage2": (flydsl_stage2, stage2_knobs, libraries.TRANSLATING_S),
}
"""By name: the adapter, its knobs, and the seconds that its first use may take."""


def _needs(case: Case, blocks: tuple[int, ...]) -> None:
    """Unsupported without FP4 matrix units, for another BM or size, or where `aiter` is another project."""
    if case.place.arch != "gfx950":
        units = "the FP4 matrix units of gfx950 (MI350X, MI355X)"
        raise Unsupported(f"aiter needs a GPU with {units}, this is {case.place.arch}")
    if case.BM not in blocks:
        known = ", ".join(map(str, blocks))
        raise Unsupported(
            f"aiter has this kernel for BM {known}, not for {case.BM}; aiter_mxmoe_atomic takes 16 to 128"
        )
    if case.N % WIDEST_TILE or case.K % WIDEST_TILE:
        raise Unsupported(f"aiter's tiles need N and K in multiples of {WIDEST_TILE}, this has {case.N} and {case.K}")
    libraries.need_amd_aiter()


def _quantities() -> Any:
    """aiter's names of quantisations."""
    with libraries.missing("aiter", REMEDY):
        return importlib.import_module("aiter").QuantType


def _order(x: Inputs, case: Case) -> dict[str, Any]:
    """The sorted order, under the names of aiter's stage 2."""
    order = {"sorted_token_ids": x["ids"], "sorted_expert_ids": x["experts"], "num_valid_ids": x["valid"]}
    return {**order, "topk": case.topk}


def _mxmoe(case: Case, x: Inputs) -> dict[str, Any]:
    """Operands and sizes of the kernel "v2".  cumsum_tensor: its first entry is the number of rows in use."""
    _needs(case, (16, 32, 64, 128))
    return {**_operands(case, x), "M_logical": case.M, **_sizes(case)}


def _gemm2(case: Case, x: Inputs, out: torch.Tensor) -> dict[str, Any]:
    """Arguments of the specialised kernel; it is non-temporal only where it adds into the output."""
    atomic = case.BM < 128
    way = {"use_nt": atomic and case.M <= STREAMED_UP_TO, "atomic": atomic, "mxfp4out": False}
    return {**_operands(case, x), "flat_out": out, "M_logical": case.M, **way, **_sizes(case)}


def _operands(case: Case, x: Inputs) -> dict[str, Any]:
    """What both kernels of FlyDSL in aiter take."""
    return {
        "inter_sorted_quant": layouts.whole_blocks(x["a"], case.BM),
        "inter_sorted_shuffled_scale": layouts.sorted_scales(x["a_scale"], case.BM),
        "w2_u8": layouts.tiled_weights(x["w"]),
        "w2_scale_u8": _weight_scales(x),
        "sorted_expert_ids": x["experts"],
        "cumsum_tensor": x["valid"],
        "sorted_token_ids": x["ids"],
        "sorted_weights": x["weights"],
        "max_sorted": _sorted_rows(case, x),
    }


def _sizes(case: Case) -> dict[str, int]:
    return {"NE": case.E, "D_HIDDEN": case.N, "D_INTER": case.K, "topk": case.topk, "BM": case.BM}


def _sorted_rows(case: Case, x: Inputs) -> int:
    """Rows of the sorted order, in whole blocks."""
    return -(-x["ids"].numel() // case.BM) * case.BM


def _weight_scales(x: Inputs) -> torch.Tensor:
    return layouts.tiled_scales(x["w_scale"].flatten(0, 1), layouts.PADDED_SCALE_ROWS)


def _output(case: Case, x: Inputs) -> torch.Tensor:
    return torch.empty((case.M, case.N), dtype=torch.bfloat16, device=x["a"].device)


def _adding(entry: Written, given: Mapping[str, Any], out: torch.Tensor, zero: bool = True) -> Call:
    """A call that zeroes the output, unless the function overwrites it, and lets the function add to it."""
    function = entry.load(REMEDY, given)

    def call() -> torch.Tensor:
        if zero:
            out.zero_()
        function(**given)
        return out

    return libraries.tried(entry.name, call)
