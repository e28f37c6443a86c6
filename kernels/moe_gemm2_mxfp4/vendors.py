"""What a user would call without an MXFP4 kernel: dequantise and multiply in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

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
