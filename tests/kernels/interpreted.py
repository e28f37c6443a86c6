"""A kernel that writes down where `spread` puts each program; run by test_units.py in the interpreter."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.tile_order import spread
from kernels.moe_gemm2_mxfp4 import device


@triton.jit
def numbers(found, programs, XCDS: tl.constexpr):
    """found[program]: its new number."""
    pid = tl.program_id(0)
    tl.store(found + pid, spread(pid, programs, XCDS))


# What the matrix units of gfx942 get, for the interpreter: one byte of each word, decoded as a weight and as a row.


@triton.jit
def decoded(words, scales, weights, activations, C: tl.constexpr):
    """The bf16 bits of the two codes in byte 0 of each of C words, [2 C]; scales: fields of weights, e8m0 of rows."""
    at = tl.arange(0, C)[None, :]
    word, scale = tl.load(words + at), tl.load(scales + at)
    places = tl.arange(0, 2 * C)[None, :]
    found = device._values(device._spread_plain(word, 0), device._factors(scale, False), False, tl.bfloat16)
    tl.store(weights + places, found.to(tl.int16, bitcast=True))
    found = device._activations(word, scale, 0, False, tl.bfloat16)
    tl.store(activations + places, found.to(tl.int16, bitcast=True))
