"""The sum over the slots behind a library that leaves one unweighted row for each (token, slot)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def weighted_sum_kernel(
    rows_ptr, at_ptr, weights_ptr, out_ptr, columns, TOPK: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """out[token] = sum over the slots of weights[token, slot] * rows[at[token, slot]], in fp32."""
    token = tl.program_id(0)
    ns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for slot in tl.static_range(TOPK):
        row = tl.load(at_ptr + token * TOPK + slot).to(tl.int64)
        weight = tl.load(weights_ptr + token * TOPK + slot)
        total += weight * tl.load(rows_ptr + row * columns + ns, mask=ns < columns, other=0.0).to(tl.float32)
    tl.store(out_ptr + token.to(tl.int64) * columns + ns, total.to(out_ptr.dtype.element_ty), mask=ns < columns)
