"""The Triton kernels of the second MoE product in MXFP4: the product with its two epilogues, and the fixed-order sum.

Where the GPU has no FP4 matrix units, codes become bf16 in registers.  A word of 32 bits holds 8 codes of 4 bits (sign,
exponent ee, mantissa m).  In bf16 the bits (sign << 15 | ee m << 6) are the code's value times 2^-126, subnormals
included, so one multiplication by 2^126 and by the block's scale finishes two codes at a time.  Weights come re-coded
(formats.recode) such that most of these bit fields are in place after one shift and one mask.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _spread_recoded(words):
    """Four words, each with two codes as bf16 bits times 2^-126, from one word of re-coded weights."""
    mask: tl.constexpr = -2118008384 - 81920  # 0x81C081C0
    p0 = words & mask
    p1 = (words << 3) & mask
    p2 = (words << 6) & mask
    p3 = ((words << 1) & -2147450880) | ((words >> 3) & 0x01800180) | ((words >> 7) & 0x00400040)
    return p0, p1, p2, p3


@triton.jit
def _spread_plain(words, BYTE: tl.constexpr):
    """Byte BYTE of plain words as two codes in bf16 bits times 2^-126: the low nibble in the low half."""
    byte = words >> (8 * BYTE)
    return ((byte & 0x07) << 6) | ((byte & 0x08) << 12) | ((byte & 0x70) << 18) | ((byte & 0x80) << 24)


@triton.jit
def _to_floats(pairs):
    """fp32 values of bf16 pairs: [R, C] words become [R, 2 C]."""
    low = (pairs << 16).to(tl.float32, bitcast=True)
    high = (pairs & -65536).to(tl.float32, bitcast=True)
    return tl.join(low, high).reshape(pairs.shape[0], pairs.shape[1] * 2)


@triton.jit
def _factors(fields, PACKED: tl.constexpr):
    """Factors that hold 2^126 and the block's scale, from their exponent fields: a bf16 pair in a word, or fp32."""
    if PACKED:
        return fields.to(tl.int32) * 0x00800080
    return fields.to(tl.int32) << 23


@triton.jit
def _each_four(x):
    """[R, C] to [R, 4 C]: every value four times, since a scale is for 32 codes and a word has 8."""
    wide = tl.broadcast_to(x[:, :, None], (x.shape[0], x.shape[1], 4))
    return wide.reshape(x.shape[0], x.shape[1] * 4)


@triton.jit
def _times(pairs, factors):
    """Products of two bf16 pairs in one instruction; sm_90 has it, and it keeps subnormals."""
    return tl.inline_asm_elementwise("mul.bf16x2 $0, $1, $2;", "=r,r,r", [pairs, factors], dtype=tl.int32,
                                     is_pure=True, pack=1)


@triton.jit
def _values(pairs, factors, PACKED: tl.constexpr, DOT: tl.constexpr):
    """One plane of codes, finished: pairs and factors [R, C] become [R, 2 C] values."""
    if PACKED:
        pairs = _times(pairs, factors)
        low = pairs.to(tl.int16).to(tl.bfloat16, bitcast=True)
        high = (pairs >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
        values = tl.join(low, high).reshape(pairs.shape[0], pairs.shape[1] * 2)
    else:
        scale = factors.to(tl.float32, bitcast=True)
        scales = tl.join(scale, scale).reshape(pairs.shape[0], pairs.shape[1] * 2)
        values = (_to_floats(pairs) * scales).to(DOT)
    return values


@triton.jit
def _activations(words, scales, BYTE: tl.constexpr, PACKED: tl.constexpr, DOT: tl.constexpr):
    """Plane BYTE of plain activations, from words [M, W] and e8m0 scales [M, W].

    Multiplied in two steps, by 2^126 and by the scale, so that no scale is too large; 0 stands for 2^-127, subnormal.
    """
    pairs = _spread_plain(words, BYTE)
    scales = scales.to(tl.int32)
    if PACKED:
        pairs = _times(pairs, tl.full(words.shape, 0x7E807E80, tl.int32))
        half = tl.where(scales == 0, 0x40, scales << 7)
        values = _values(pairs, half * 0x00010001, PACKED, DOT)
    else:
        scale = tl.where(scales == 0, 0x00400000, scales << 23).to(tl.float32, bitcast=True)
        both = tl.join(scale, scale).reshape(words.shape[0], words.shape[1] * 2)
        values = (_to_floats(pairs) * 8.507059173023462e37 * both).to(DOT)
    return values


@triton.jit
def _stream(pointers, mask, MASKED: tl.constexpr, NON_TEMPORAL: tl.constexpr, XCDS: tl.constexpr):
    """Load weights, which no other program needs soon: with the hint they are the first to leave the caches."""
    if NON_TEMPORAL and XCDS > 1:
        if MASKED:
            return tl.load(pointers, mask=mask, other=0, cache_modifier=".cg")
        return tl.load(pointers, cache_modifier=".cg")
    if NON_TEMPORAL:
        if MASKED:
            return tl.load(pointers, mask=mask, other=0, eviction_policy="evict_first")
        return tl.load(pointers, eviction_policy="evict_first")
    if MASKED:
        return tl.load(pointers, mask=mask, other=0)
    return tl.load(pointers)


@triton.jit
def _finish(result, ids, at_n, out_ptr, tokens, columns, TOPK: tl.constexpr, ATOMIC: tl.constexpr):
    """Write weighted rows: ATOMIC adds them to their tokens' rows, else each row goes to row token * TOPK + slot."""
    token = ids & 0xFFFFFF
    keep = (token < tokens)[:, None] & (at_n < columns)[None, :]
    result = result.to(out_ptr.dtype.element_ty)
    if ATOMIC:
        at = token.to(tl.int64)[:, None] * columns + at_n[None, :]
        tl.atomic_add(out_ptr + at, result, mask=keep, sem="relaxed")
    else:
        at = (token * TOPK + (ids >> 24)).to(tl.int64)[:, None] * columns + at_n[None, :]
        tl.store(out_ptr + at, result, mask=keep)


@triton.jit
def _first_item(PROGRAMS: tl.constexpr, XCDS: tl.constexpr):
    """The program's number such that neighbours share an XCD's L2; the rest that does not divide stays in place."""
    pid = tl.program_id(0)
    if XCDS == 1:
        return pid
    even = PROGRAMS // XCDS * XCDS
    return tl.where(pid < even, pid % XCDS * (PROGRAMS // XCDS) + pid // XCDS, pid)


@triton.jit
def gemm2_kernel(a_ptr, a_scale_ptr, w_ptr, w_scale_ptr, ids_ptr, weights_ptr, experts_ptr, valid_ptr, out_ptr,
                 tokens, columns, row_words, factor, TOPK: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                 STEP: tl.constexpr, STEPS: tl.constexpr, TILES: tl.constexpr, EVEN_N: tl.constexpr,
                 EVEN_K: tl.constexpr, PROGRAMS: tl.constexpr, XCDS: tl.constexpr, ATOMIC: tl.constexpr,
                 NON_TEMPORAL: tl.constexpr, PACKED: tl.constexpr, DOT: tl.constexpr):
    """Persistent: program p takes the items p, p + PROGRAMS, ...; an item is TILES column tiles of one block of rows.

    a int32 [padded rows, row_words]: 8 codes a word, plain; a_scale u8 [padded rows, row_words / 4].
    w int32 [experts, columns, row_words]: re-coded; w_scale u8: exponent fields, [experts, columns, row_words / 4].
    ids: slot << 24 | token for each sorted row; experts: one for each BLOCK_M rows; valid: number of padded rows.
    out: ATOMIC: [tokens, columns], added to.  Else [tokens * TOPK, columns], row token * TOPK + slot, stored.
    A step of STEP words covers the whole depth if STEPS is 1.  The accumulator is transposed: columns by rows, so that
    weights, the large operand, stay in registers as the left operand of the matrix instruction.
    """
    blocks = tl.load(valid_ptr) // BLOCK_M
    chunks = tl.cdiv(columns, BLOCK_N * TILES)
    ms = tl.arange(0, BLOCK_M)
    ns = tl.arange(0, BLOCK_N)
    ks = tl.arange(0, STEP)
    ss = tl.arange(0, STEP // 4)

    for item in tl.range(_first_item(PROGRAMS, XCDS), blocks * chunks, PROGRAMS):
        block = item // chunks
        n_first = (item - block * chunks) * (BLOCK_N * TILES)
        expert = tl.load(experts_ptr + block).to(tl.int64)
        rows = block * BLOCK_M + ms
        ids = tl.load(ids_ptr + rows)
        routed = tl.load(weights_ptr + rows) * factor
        w_rows = w_ptr + expert * columns * row_words
        s_rows = w_scale_ptr + expert * columns * (row_words // 4)
        a_rows = a_ptr + rows.to(tl.int64)[:, None] * row_words
        a_scale_rows = a_scale_ptr + rows.to(tl.int64)[:, None] * (row_words // 4)

        if STEPS == 1:
            k_in = (ks < row_words)[None, :]
            a = tl.load(a_rows + ks[None, :], mask=k_in, other=0)
            a_scale = _each_four(tl.load(a_scale_rows + ss[None, :], mask=(ss < row_words // 4)[None, :], other=0))
            a0 = _activations(a, a_scale, 0, PACKED, DOT).T
            a1 = _activations(a, a_scale, 1, PACKED, DOT).T
            a2 = _activations(a, a_scale, 2, PACKED, DOT).T
            a3 = _activations(a, a_scale, 3, PACKED, DOT).T

        acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
        for i in tl.range(0, TILES * STEPS):
            at_n = n_first + i // STEPS * BLOCK_N + ns
            at_k = i % STEPS * STEP + ks
            offsets = at_n[:, None] * row_words + at_k[None, :]
            w_in = (at_n < columns)[:, None] & (at_k < row_words)[None, :]
            w = _stream(w_rows + offsets, w_in, not (EVEN_N and EVEN_K), NON_TEMPORAL, XCDS)
            at_s = i % STEPS * (STEP // 4) + ss
            s_in = (at_n < columns)[:, None] & (at_s < row_words // 4)[None, :]
            s_offsets = at_n[:, None] * (row_words // 4) + at_s[None, :]
            fields = _stream(s_rows + s_offsets, s_in, not (EVEN_N and EVEN_K), NON_TEMPORAL, XCDS)
            factors = _each_four(_factors(fields, PACKED))
            if STEPS > 1:
                k_in = (at_k < row_words)[None, :]
                a = tl.load(a_rows + at_k[None, :], mask=k_in, other=0)
                s_in = (at_s < row_words // 4)[None, :]
                a_scale = _each_four(tl.load(a_scale_rows + at_s[None, :], mask=s_in, other=0))
                a0 = _activations(a, a_scale, 0, PACKED, DOT).T
                a1 = _activations(a, a_scale, 1, PACKED, DOT).T
                a2 = _activations(a, a_scale, 2, PACKED, DOT).T
                a3 = _activations(a, a_scale, 3, PACKED, DOT).T
            p0, p1, p2, p3 = _spread_recoded(w)
            acc = tl.dot(_values(p0, factors, PACKED, DOT), a0, acc)
            acc = tl.dot(_values(p1, factors, PACKED, DOT), a1, acc)
            acc = tl.dot(_values(p2, factors, PACKED, DOT), a2, acc)
            acc = tl.dot(_values(p3, factors, PACKED, DOT), a3, acc)
            if i % STEPS == STEPS - 1:
                _finish(acc.T * routed[:, None], ids, at_n, out_ptr, tokens, columns, TOPK, ATOMIC)
                acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)


@triton.jit
def gemm2_native_kernel(a_ptr, a_scale_ptr, w_ptr, w_scale_ptr, ids_ptr, weights_ptr, experts_ptr, valid_ptr, out_ptr,
                        tokens, columns, row_bytes, TOPK: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                        BLOCK_K: tl.constexpr, TILES: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
                        PROGRAMS: tl.constexpr, XCDS: tl.constexpr, ATOMIC: tl.constexpr, NON_TEMPORAL: tl.constexpr):
    """The same product by the GPU's own scaled FP4 matrix instruction, on plain bytes with two codes each.

    a u8 [padded rows, row_bytes], a_scale u8 [padded rows, row_bytes / 16], w u8 [experts, columns, row_bytes],
    w_scale u8 [experts, columns, row_bytes / 16], e8m0 scales; the rest as in gemm2_kernel.  BLOCK_K counts codes.
    """
    blocks = tl.load(valid_ptr) // BLOCK_M
    chunks = tl.cdiv(columns, BLOCK_N * TILES)
    ms = tl.arange(0, BLOCK_M)
    ns = tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K // 2)
    ss = tl.arange(0, BLOCK_K // 32)
    masked: tl.constexpr = not (EVEN_N and EVEN_K)

    for item in tl.range(_first_item(PROGRAMS, XCDS), blocks * chunks, PROGRAMS):
        block = item // chunks
        n_first = (item - block * chunks) * (BLOCK_N * TILES)
        expert = tl.load(experts_ptr + block).to(tl.int64)
        rows = block * BLOCK_M + ms
        ids = tl.load(ids_ptr + rows)
        routed = tl.load(weights_ptr + rows)
        a_rows = a_ptr + rows.to(tl.int64)[:, None] * row_bytes
        a_scale_rows = a_scale_ptr + rows.to(tl.int64)[:, None] * (row_bytes // 16)
        for tile in range(TILES):
            at_n = n_first + tile * BLOCK_N + ns
            w_rows = w_ptr + expert * columns * row_bytes + at_n[None, :] * row_bytes
            s_rows = w_scale_ptr + expert * columns * (row_bytes // 16) + at_n[:, None] * (row_bytes // 16)
            n_in = at_n < columns
            acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for k0 in tl.range(0, row_bytes, BLOCK_K // 2):
                k_in = k0 + ks < row_bytes
                s_in = k0 // 16 + ss < row_bytes // 16
                w = _stream(w_rows + (k0 + ks)[:, None], k_in[:, None] & n_in[None, :], masked, NON_TEMPORAL, XCDS)
                w_scale = _stream(s_rows + (k0 // 16 + ss)[None, :], n_in[:, None] & s_in[None, :], masked,
                                  NON_TEMPORAL, XCDS)
                if EVEN_K:
                    a = tl.load(a_rows + (k0 + ks)[None, :])
                    a_scale = tl.load(a_scale_rows + (k0 // 16 + ss)[None, :])
                else:
                    a = tl.load(a_rows + (k0 + ks)[None, :], mask=k_in[None, :], other=0)
                    a_scale = tl.load(a_scale_rows + (k0 // 16 + ss)[None, :], mask=s_in[None, :], other=0)
                acc = tl.dot_scaled(a, a_scale, "e2m1", w, w_scale, "e2m1", acc)
            _finish(acc * routed[:, None], ids, at_n, out_ptr, tokens, columns, TOPK, ATOMIC)


@triton.jit
def sum_slots_kernel(partial_ptr, out_ptr, columns, TOPK: tl.constexpr, BLOCK: tl.constexpr):
    """out[token] = sum over the slots 0, 1, ... TOPK - 1, in this order, of partial[token, slot], in fp32."""
    token = tl.program_id(0).to(tl.int64)
    ns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for slot in tl.static_range(TOPK):
        at = partial_ptr + (token * TOPK + slot) * columns + ns
        total += tl.load(at, mask=ns < columns, other=0.0).to(tl.float32)
    tl.store(out_ptr + token * columns + ns, total.to(out_ptr.dtype.element_ty), mask=ns < columns)
