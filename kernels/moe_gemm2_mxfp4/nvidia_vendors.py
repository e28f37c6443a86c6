"""What a user on an NVIDIA GPU without FP4 matrix units (sm_90) would call for the second MoE product.

    triton_kernels  OpenAI's kernels in their layouts for Hopper, bf16 activations (W4A16), then our sum over the slots
    humming_w4a16   the kernels behind vLLM, compiled by NVRTC, bf16 activations, then our weighted sum over the slots
    humming_w4a8    the same with e4m3 activations and one scale for each row

Neither takes MXFP4 activations on sm_90, so theirs are the same values in a wider type, made in set-up: bf16 holds each
exactly, and so does e4m3 with a power of two for each row, unless a row's scales are more than 2^12 apart.  Weights are
brought into each library's layout in set-up too, as a server does when it loads them.  The sum over the slots is in the
timed call.  humming ends with one unweighted row for each slot; so its sum is weighted, in one kernel.  That of
triton_kernels does not compile under Triton 3.6, and ours takes its weighted rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from kernels._shared import libraries
from kernels._shared.libraries import Written
from kernels.moe_gemm2_mxfp4 import formats
from kernels.spec import Case, Unsupported

TRITON_KERNELS = "tokenspeed-triton-kernels"
"""On PyPI: triton-lang/triton, python/triton_kernels, as a wheel of its own; read and run is 1.0.0.post20260510."""

HUMMING = "humming-kernels"
"""On PyPI: vllm-project/humming; read and run is 0.1.19."""

TRITON_REMEDY = f"it needs Triton 3.6 or later and `pip install {TRITON_KERNELS}==1.0.0.post20260510`"
HUMMING_REMEDY = f"it needs CUDA's NVRTC and `pip install {HUMMING}==0.1.19`"

_WHEEL = ("1.0.0.post20260510", "2026-05-10")
MATMUL = Written(
    "triton_kernels.matmul.matmul",
    TRITON_KERNELS,
    "the wheel's",
    "triton_kernels/matmul.py",
    *_WHEEL,
    module=lambda: importlib.import_module("triton_kernels.matmul"),
)
_HUMMING = ("452e0bb15", "2026-10-30")  # humming/_version.py of 0.1.19
LAUNCH = Written(
    "humming.ops.launch_kernel",
    HUMMING,
    "vllm-project/humming",
    "humming/ops/launcher.py",
    *_HUMMING,
    module=lambda: importlib.import_module("humming.ops"),
)
TUNED = Written(
    "humming.tune.get_heuristics_config",
    HUMMING,
    LAUNCH.repository,
    "humming/tune/__init__.py",
    *_HUMMING,
    module=lambda: importlib.import_module("humming.tune"),
)
LAID_OUT = Written(
    "humming.transform.transform_humming_tensors",
    HUMMING,
    LAUNCH.repository,
    "humming/transform.py",
    *_HUMMING,
    module=lambda: importlib.import_module("humming.transform"),
)

SUM_BLOCK = 1024
"""Columns of a program of the sum over the slots."""

E4M3_LARGEST = 448.0

COMPILING_S = 300.0
"""Seconds of a first use: NVRTC or Triton takes 5 to 20 s a kernel on a machine with idle cores (H200, 2026-11)."""

Inputs = dict[str, torch.Tensor]
Call = Callable[[], torch.Tensor]


# ---- rows ------------------------------------------------------------------------------------------------------------


def _rows(case: Case, x: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """(indices of the rows that are not padding, in the order of experts; token * topk + slot of each), both int64."""
    ids = x["ids"].long()
    rows = torch.nonzero((ids & 0xFFFFFF) < case.M).flatten()
    return rows, (ids[rows] & 0xFFFFFF) * case.topk + (ids[rows] >> 24)


def _counts(case: Case, x: Inputs, rows: torch.Tensor) -> torch.Tensor:
    """Rows of each expert, int64 [E]."""
    return torch.bincount(x["experts"].long()[rows // case.BM], minlength=case.E)


def _as_bf16(x: Inputs, rows: torch.Tensor) -> torch.Tensor:
    """Activations of the rows, [rows, K], exact."""
    return formats.dequantise(x["a"][rows], x["a_scale"][rows]).to(torch.bfloat16)


def as_e4m3(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(e4m3 [rows, K], fp32 scale [rows, 1], the power of two that brings a row's largest value to at most 448)."""
    largest = values.float().abs().amax(-1, keepdim=True)
    scale = torch.exp2(torch.ceil(torch.log2(largest / E4M3_LARGEST)))
    scale = torch.where(largest > 0, scale, torch.ones_like(scale))
    return (values.float() / scale).to(torch.float8_e4m3fn), scale


# ---- triton_kernels --------------------------------------------------------------------------------------------------


def triton_kernels(case: Case, x: Inputs, num_warps: int = 4) -> Call:
    """matmul writes weighted rows by (token, slot), bf16; num_warps is a part of its layout of the scales."""
    _need_hopper(case, TRITON_KERNELS)
    with libraries.missing(libraries.version(TRITON_KERNELS), TRITON_REMEDY):
        _fit_older_triton()
        kernels, tensor, layout = (
            importlib.import_module(f"triton_kernels.{name}") for name in ("matmul", "tensor", "tensor_details.layout")
        )
    passed = ("a", "b", "bias", "a_ragged_metadata", "scatter_indx", "precision_config", "gammas", "c")
    matmul = MATMUL.load(TRITON_REMEDY, passed)
    from kernels.moe_gemm2_mxfp4.device import sum_slots_kernel

    rows, slots = _rows(case, x)
    value, scale = _hopper_weights(x, tensor, layout, num_warps)
    partial, out = _outputs(case, x)
    arguments: dict[str, Any] = {
        "a": _as_bf16(x, rows),
        "b": value,
        "bias": None,
        "a_ragged_metadata": tensor.make_ragged_tensor_metadata(_counts(case, x, rows).to(torch.int32), rows.numel()),
        "scatter_indx": slots.to(torch.int32),
        "precision_config": kernels.PrecisionConfig(
            b_mx_scale=scale, b_microblock_size=formats.BLOCK, out_dtype=torch.bfloat16
        ),
        "gammas": x["weights"][rows].contiguous(),
        "c": partial,
    }
    grid = _grid(case)

    def call() -> torch.Tensor:
        matmul(**arguments)
        sum_slots_kernel[grid](partial, out, case.N, TOPK=case.topk, BLOCK=SUM_BLOCK, num_warps=4)
        return out

    return libraries.tried(libraries.version(TRITON_KERNELS), call)


def _not_here() -> bool:
    return False


def _fit_older_triton() -> None:
    """What the library reads of Triton 3.7 and 3.6 lacks: a test for a GPU that is not here, and the line numbers of
    error messages."""
    import triton
    from triton.language import target_info

    if not hasattr(target_info, "is_hip_gfx1250"):
        target_info.is_hip_gfx1250 = triton.constexpr_function(_not_here)
    for name in ("def_file_line_number", "def_file_col_number"):
        if not hasattr(triton.JITFunction, name):
            setattr(triton.JITFunction, name, 1)


def _hopper_weights(x: Inputs, tensor: Any, layout: Any, num_warps: int) -> tuple[Any, Any]:
    """(weights, scales), [E, K, N] in the library's layouts for Hopper."""
    value = tensor.wrap_torch_tensor(x["w"].transpose(-1, -2), dtype=tensor.FP4)
    value = tensor.convert_layout(value, layout.make_default_matmul_mxfp4_w_layout(mx_axis=-2))
    scale = tensor.wrap_torch_tensor(x["w_scale"].transpose(-1, -2))
    wanted = layout.make_default_matmul_mxfp4_w_scale_layout(mx_axis=-2, num_warps=num_warps)
    return value, tensor.convert_layout(scale, wanted)


# ---- humming ---------------------------------------------------------------------------------------------------------


def humming_w4a16(case: Case, x: Inputs, gemm: str = "indexed") -> Call:
    """bf16 activations.  gemm: `indexed` or `grouped_contiguous`, two ways of the library to find an expert's rows."""
    return _humming(case, x, "bfloat16", gemm)


def humming_w4a8(case: Case, x: Inputs, gemm: str = "indexed") -> Call:
    """e4m3 activations; gemm as in humming_w4a16."""
    return _humming(case, x, "float8e4m3", gemm)


def _humming(case: Case, x: Inputs, a_dtype: str, gemm: str) -> Call:
    _need_hopper(case, HUMMING)
    with libraries.missing(libraries.version(HUMMING), HUMMING_REMEDY):
        config = importlib.import_module("humming.config")
        kernel = importlib.import_module("humming.kernel.humming").HummingKernel
    tune = TUNED.load(HUMMING_REMEDY, ("layer_config", "shape_m", "gemm_type"))
    from kernels.moe_gemm2_mxfp4.device import weighted_sum_kernel

    layer = config.LayerConfig(
        shape_n=case.N, shape_k=case.K, num_experts=case.E, a_dtype=a_dtype, b_dtype="float4e2m1", c_dtype="bfloat16",
        bs_dtype="float8e8m0", weight_scale_group_size=formats.BLOCK,
    )  # fmt: skip
    tuned = tune(layer_config=layer, shape_m=case.M * case.topk, gemm_type=gemm)
    compute = config.ComputeConfig(gemm_type=gemm)
    prepared = kernel.prepare_kernels(layer.to_str(), compute.to_str(), [(0, 1 << 30, tuned)])
    order, at = _humming_rows(case, x, gemm, int(tuned["block_shape"][0]))
    a, a_scale = _humming_activations(case, x, a_dtype, gemm)
    partial, out = _outputs(case, x)
    arguments = {
        "configs": prepared,
        "inputs": a,
        "input_scale": a_scale,
        "outputs": partial,
        "locks": torch.zeros(2048, dtype=torch.int32, device=a.device),  # as many as the library's tests take
        "top_k": 1,
        **order,
        **_humming_weights(x, layer),
    }
    launch = LAUNCH.load(HUMMING_REMEDY, arguments)
    weights, grid = _weights_by_slot(case, x), _grid(case)

    def call() -> torch.Tensor:
        launch(**arguments)
        weighted_sum_kernel[grid](partial, at, weights, out, case.N, TOPK=case.topk, BLOCK=SUM_BLOCK, num_warps=4)
        return out

    return libraries.tried(libraries.version(HUMMING), call)


def _humming_weights(x: Inputs, layer: Any) -> dict[str, torch.Tensor]:
    """Weights and scales in the library's layout, from a copy: for e4m3 it folds scales into the codes in place."""
    lay_out = LAID_OUT.load(HUMMING_REMEDY, ("config", "tensors"))
    plain = {"weight": x["w"].clone().view(torch.int32), "weight_scale": x["w_scale"].view(torch.float8_e8m0fnu)}
    return lay_out(config=layer, tensors=plain)  # type: ignore[no-any-return]


def _humming_activations(case: Case, x: Inputs, a_dtype: str, gemm: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(activations, scale of each row or None): by token and slot if `indexed`, else in the order of experts."""
    rows, slots = _rows(case, x)
    a = _as_bf16(x, rows)
    if gemm == "indexed":
        a = torch.empty_like(a).index_copy_(0, slots, a)
    return as_e4m3(a) if a_dtype == "float8e4m3" else (a, None)


def _humming_rows(case: Case, x: Inputs, gemm: str, block: int) -> tuple[dict[str, torch.Tensor | None], torch.Tensor]:
    """(how the library finds each expert's rows, row of the partial result for each token * topk + slot, int32).

    `indexed` takes rows by token and slot in blocks of `block` of one expert, filled up with the number of rows;
    else the rows lie in the order of experts, and it takes where each expert's begin.
    """
    rows, slots = _rows(case, x)
    device, number = rows.device, rows.numel()
    counts = _counts(case, x, rows)
    names = ("sorted_ids", "expert_ids", "num_tokens_padded", "expert_layout")
    order: dict[str, torch.Tensor | None] = dict.fromkeys(names)
    in_order = torch.arange(number, dtype=torch.int32, device=device)
    if gemm != "indexed":
        order["expert_layout"] = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        return order, torch.empty_like(in_order).index_copy_(0, slots, in_order)
    blocks = (counts + block - 1) // block
    experts = torch.arange(case.E, device=device)
    owner = torch.repeat_interleave(experts, counts)
    inside = torch.arange(number, device=device) - (counts.cumsum(0) - counts)[owner]
    ids = torch.full((int(blocks.sum()) * block,), number, dtype=torch.int32, device=device)
    ids[((blocks.cumsum(0) - blocks) * block)[owner] + inside] = slots.to(torch.int32)
    order["sorted_ids"] = ids
    order["expert_ids"] = torch.repeat_interleave(experts, blocks).to(torch.int32)
    order["num_tokens_padded"] = torch.tensor(ids.numel(), dtype=torch.int32, device=device)
    return order, in_order


# ---- both ------------------------------------------------------------------------------------------------------------


def _need_hopper(case: Case, distribution: str) -> None:
    if case.place.arch != "sm_90":
        raise Unsupported(f"{distribution} is called for sm_90, whose layouts it has; this is {case.place.arch}")


def _outputs(case: Case, x: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows [M topk, N], their sums [M, N]), bf16."""
    new = {"dtype": torch.bfloat16, "device": x["a"].device}
    return torch.empty((case.M * case.topk, case.N), **new), torch.empty((case.M, case.N), **new)


def _weights_by_slot(case: Case, x: Inputs) -> torch.Tensor:
    rows, slots = _rows(case, x)
    return torch.empty(rows.numel(), device=rows.device).index_copy_(0, slots, x["weights"][rows])


def _grid(case: Case) -> tuple[int, int]:
    return case.M, -(-case.N // SUM_BLOCK)


BASELINES: dict[str, tuple[Callable[..., Call], tuple[str, ...]]] = {
    "triton_kernels": (triton_kernels, (TRITON_KERNELS,)),
    "humming_w4a16": (humming_w4a16, (HUMMING,)),
    "humming_w4a8": (humming_w4a8, (HUMMING,)),
}
"""By name: the adapter, and the distributions that it calls."""
