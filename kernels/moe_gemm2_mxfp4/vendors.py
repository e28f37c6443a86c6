"""What a user would call instead: dequantise and multiply in torch, or the `aiter` package on AMD."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch

from kernels._shared.errors import first_line as _first_line
from kernels.moe_gemm2_mxfp4 import formats
from kernels.moe_gemm2_mxfp4.sorting import used_blocks
from kernels.spec import Case, Unsupported

CPU_LIMIT_FLOP = 2e9
"""A CPU multiplies some 1e10 to 1e11 FLOP/s, and a case is called a few hundred times."""


def dequantise_and_multiply(case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Dequantise to bf16, multiply, weight, add up: torch only, all of it timed, nothing known on the host.

    Dequantising the weights is in the timed call: without an MXFP4 kernel they stay packed, for their size, and every
    call pays for this.  With fewer blocks of rows than experts, one torch.bmm on the weights that the blocks need;
    else all weights and torch._grouped_mm.
    """
    flops = 2 * case.M * case.topk * case.N * case.K
    if case.place.device == "cpu" and flops > CPU_LIMIT_FLOP:
        raise Unsupported(
            f"the case has {flops:.3g} FLOP, more than the {CPU_LIMIT_FLOP:.0e} that suit a CPU; it needs a GPU"
        )
    blocks = used_blocks(case)  # a server would take the most that M tokens can need: M * topk, or less
    few = blocks < case.E
    if not few and not hasattr(torch, "_grouped_mm"):
        raise Unsupported(f"torch {torch.__version__} has no _grouped_mm; torch 2.8 or later has it")
    product = _by_block if few else _by_expert
    rows = blocks * case.BM
    table = formats.byte_values(torch.bfloat16, x["a"].device)
    out = torch.empty((case.M, case.N), dtype=torch.bfloat16, device=x["a"].device)
    total = torch.empty((case.M + 1, case.N), dtype=torch.float32, device=x["a"].device)
    token = (x["ids"][:rows] & 0xFFFFFF).long()
    weight = x["weights"][:rows].unsqueeze(-1)

    def call() -> torch.Tensor:
        total.zero_()  # padding rows add to the row after the last token
        total.index_add_(0, token, product(case, x, blocks, table).float() * weight)
        return out.copy_(total[:-1])

    return call


def _by_block(case: Case, x: dict[str, torch.Tensor], blocks: int, table: torch.Tensor) -> torch.Tensor:
    owner = x["experts"][:blocks].clamp(min=0)
    rows = blocks * case.BM
    w = formats.dequantise(x["w"].index_select(0, owner), x["w_scale"].index_select(0, owner), table)
    a = formats.dequantise(x["a"][:rows], x["a_scale"][:rows], table).view(blocks, case.BM, case.K)
    return torch.bmm(a, w.transpose(1, 2)).view(rows, case.N)


def _by_expert(case: Case, x: dict[str, torch.Tensor], blocks: int, table: torch.Tensor) -> torch.Tensor:
    rows = blocks * case.BM
    w = formats.dequantise(x["w"], x["w_scale"], table)
    a = formats.dequantise(x["a"][:rows], x["a_scale"][:rows], table)
    owned = torch.arange(case.E, device=a.device, dtype=torch.int32)
    ends = torch.searchsorted(x["experts"][:blocks], owned, right=True).to(torch.int32) * case.BM
    return torch._grouped_mm(a, w.transpose(-2, -1), offs=ends)


def aiter(case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """aiter's Composable-Kernel stage 2 with FP4 weights in its own shuffled layout, and its atomic epilogue."""
    try:
        package = importlib.import_module("aiter")
        stage2 = importlib.import_module("aiter.ops.moe_op").ck_moe_stage2_fwd
        shuffle_weight = importlib.import_module("aiter.ops.shuffle").shuffle_weight
        shuffle_scale = importlib.import_module("aiter.utility.fp4_utils").e8m0_shuffle
    except (ImportError, AttributeError) as error:
        raise Unsupported(
            f"aiter cannot be imported ({_first_line(error)}); it needs ROCm and `pip install aiter`"
        ) from error
    fp4 = getattr(torch, "float4_e2m1fn_x2", torch.uint8)
    w = shuffle_weight(x["w"].view(fp4), (16, 16))
    w_scale = shuffle_scale(x["w_scale"].flatten(0, 1))
    a, a_scale = _by_slot(case, x).view(fp4), shuffle_scale(x["a_scale"])
    out = torch.empty((case.M, case.N), dtype=torch.bfloat16, device=x["a"].device)

    def call() -> torch.Tensor:
        out.zero_()
        stage2(
            a, w, w, x["ids"], x["experts"], x["valid"], out, case.topk, "", w_scale, a_scale, case.BM, x["weights"],
            package.QuantType.per_1x32,
        )  # fmt: skip
        return out

    try:
        call()
    except (RuntimeError, TypeError) as error:
        raise Unsupported(f"aiter's stage 2 refuses this case: {_first_line(error)}") from error
    return call


def _by_slot(case: Case, x: dict[str, torch.Tensor]) -> torch.Tensor:
    """Activations [M, topk, K / 2] in the order of tokens and slots, from the sorted rows."""
    ids = x["ids"].long()
    real = (ids & 0xFFFFFF) < case.M
    at = ((ids & 0xFFFFFF) * case.topk + (ids >> 24))[real]
    out = torch.zeros((case.M * case.topk, case.K // 2), dtype=torch.uint8, device=ids.device)
    out[at] = x["a"][real]
    return out.view(case.M, case.topk, case.K // 2)
