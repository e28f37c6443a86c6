"""The Triton kernels of the second MoE product in MXFP4: the product with its two epilogues, and the fixed-order sum.

Where the GPU has no FP4 matrix units, codes become bf16 in registers.  A word of 32 bits holds 8 codes of 4 bits (sign,
exponent ee, mantissa m).  In bf16 the bits (sign << 15 | ee m << 6) are the code's value times 2^-126, subnormals
included, so one multiplication by 2^126 and by the block's scale finishes two codes at a time.  Weights come re-coded
(formats.recode) such that these bit fields are in place after one rotation and one mask: on an H200 these instructions
cost as much as the memory (2026-11, 64 tokens of Kimi-K2.5, 566 MB: 165 us, 148 without them, 135 to copy as much).
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.tile_product import spread


@triton.jit
def _sides(x, QUAD: tl.constexpr):
    """The two sides of all couples: columns 0 to QUAD - 1 of every 2 QUAD columns, and the other ones; [R, C / 2]."""
    couples = x.reshape(x.shape[0], x.shape[1] // (2 * QUAD), 2, QUAD).permute(0, 1, 3, 2)
    left, right = couples.split()
    return left.reshape(x.shape[0], x.shape[1] // 2), right.reshape(x.shape[0], x.shape[1] // 2)


@triton.jit
def _in_place(words, ROTATION: tl.constexpr):
    """One pair of codes as bf16 bits times 2^-126; up to 6 bits to the left, no bit that matters wraps around."""
    if ROTATION > 6:
        words = (words << ROTATION) | (words >> (32 - ROTATION))
    elif ROTATION > 0:
        words = words << ROTATION
    return (words & 0x81C081C0).to(tl.int32, bitcast=True)


@triton.jit
def _spread_recoded(words):
    """The pairs of codes in re-coded words [R, C] (formats.recode): 4 times [R, C / 2] of each side."""
    first, second = _sides(words.to(tl.uint32, bitcast=True), 4)
    both = (first & 0x06030603) | (second & 0xF9FCF9FC)
    return (
        _in_place(first, 0),
        _in_place(first, 4),
        _in_place(first, 10),
        _in_place(both, 8),
        _in_place(second, 2),
        _in_place(second, 6),
        _in_place(second, 12),
        _in_place(both, 14),
    )


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
def _exact(values, DOT: tl.constexpr):
    """fp32 values that bf16 holds exactly, as DOT: in bf16 their upper halves, since a conversion would also round and
    look for NaN, 4 instructions per value where the GPU has none for it (gfx942)."""
    if tl.bfloat16 == DOT:
        values = (values.to(tl.int32, bitcast=True) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    else:
        values = values.to(DOT)
    return values


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
    return tl.inline_asm_elementwise(
        "mul.bf16x2 $0, $1, $2;", "=r,r,r", [pairs, factors], dtype=tl.int32, is_pure=True, pack=1
    )


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
        values = _exact(_to_floats(pairs) * scales, DOT)
    return values


@triton.jit
def _activations(words, scales, BYTE: tl.constexpr, PACKED: tl.constexpr, DOT: tl.constexpr):
    """Byte BYTE of plain activations, finished: words [M, C] and e8m0 scales [M, C] become [M, 2 C].

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
        values = _exact(_to_floats(pairs) * 8.507059173023462e37 * both, DOT)
    return values


@triton.jit
def _beside(left, right):
    """[R, C] and [R, C] to [R, 2 C]; no value changes its lane."""
    return tl.join(left, right).permute(0, 2, 1).reshape(left.shape[0], left.shape[1] * 2)


@triton.jit
def _right(words, scales, PACKED: tl.constexpr, DOT: tl.constexpr):
    """Four right operands [M, 4 C], not yet transposed, from plain activations [M, 2 C] and their e8m0 scales."""
    x, y = _sides(words, 4)
    x_scales, y_scales = _sides(scales, 1)
    x_scales, y_scales = _each_four(x_scales), _each_four(y_scales)
    return (
        _beside(_activations(x, x_scales, 0, PACKED, DOT), _activations(x, x_scales, 1, PACKED, DOT)),
        _beside(_activations(x, x_scales, 2, PACKED, DOT), _activations(x, x_scales, 3, PACKED, DOT)),
        _beside(_activations(y, y_scales, 0, PACKED, DOT), _activations(y, y_scales, 1, PACKED, DOT)),
        _beside(_activations(y, y_scales, 2, PACKED, DOT), _activations(y, y_scales, 3, PACKED, DOT)),
    )


@triton.jit
def _product(words, fields, right, acc, PACKED: tl.constexpr, DOT: tl.constexpr):
    """acc [N, M] plus re-coded weights [N, 2 C], with exponent fields [N, C / 2], times activations (_right).

    In four parts, not one: the matrix unit works on one while the next is decoded.  Not eight: it drains after each.
    """
    pairs = _spread_recoded(words)
    x, y = _sides(_factors(fields, PACKED), 1)
    x, y = _each_four(x), _each_four(y)
    left = _beside(_values(pairs[0], x, PACKED, DOT), _values(pairs[1], x, PACKED, DOT))
    acc = tl.dot(left, right[0].T, acc)
    left = _beside(_values(pairs[2], x, PACKED, DOT), _values(pairs[3], x, PACKED, DOT))
    acc = tl.dot(left, right[1].T, acc)
    left = _beside(_values(pairs[4], y, PACKED, DOT), _values(pairs[5], y, PACKED, DOT))
    acc = tl.dot(left, right[2].T, acc)
    left = _beside(_values(pairs[6], y, PACKED, DOT), _values(pairs[7], y, PACKED, DOT))
    return tl.dot(left, right[3].T, acc)


@triton.jit
def _stream(pointers, mask, MASKED: tl.constexpr, NON_TEMPORAL: tl.constexpr):
    """Load weights, which no other program needs soon: with the hint the caches evict them first.

    NON_TEMPORAL: "", or the compiler's word for it, which differs: ".cg" on AMD, "evict_first" on NVIDIA.
    """
    if NON_TEMPORAL == ".cg":
        if MASKED:
            return tl.load(pointers, mask=mask, other=0, cache_modifier=".cg")
        return tl.load(pointers, cache_modifier=".cg")
    if NON_TEMPORAL == "evict_first":
        if MASKED:
            return tl.load(pointers, mask=mask, other=0, eviction_policy="evict_first")
        return tl.load(pointers, eviction_policy="evict_first")
    if MASKED:
        return tl.load(pointers, mask=mask, other=0)
    return tl.load(pointers)


@triton.jit
def _finish(
    result, ids, at_n, out_ptr, tokens, columns, TOPK: tl.constexpr, EVEN_N: tl.constexpr, ATOMIC: tl.constexpr
):
    """Write weighted rows: ATOMIC adds them to their tokens' rows, else each row goes to row token * TOPK + slot."""
    token = ids & 0xFFFFFF
    keep = (token < tokens)[:, None]
    if not EVEN_N:
        keep &= (at_n < columns)[None, :]
    result = result.to(out_ptr.dtype.element_ty)
    if ATOMIC:
        at = token.to(tl.int64)[:, None] * columns + at_n[None, :]
        tl.atomic_add(out_ptr + at, result, mask=keep, sem="relaxed")
    else:
        at = (token * TOPK + (ids >> 24)).to(tl.int64)[:, None] * columns + at_n[None, :]
        tl.store(out_ptr + at, result, mask=keep)


@triton.jit
def _items(tiles, TILES: tl.constexpr, PROGRAMS: tl.constexpr):
    """Into how many items the tiles are cut: equally many for each program, of at most TILES tiles."""
    return PROGRAMS * tl.cdiv(tiles, PROGRAMS * TILES)


@triton.jit
def _bound(item, items, tiles):
    """The first tile of an item; items differ by one tile at most."""
    return (tl.cast(item, tl.int64) * tiles // items).to(tl.int32)


@triton.jit
def _columns(
    a_ptr, a_scale_ptr, w_rows, s_rows, ids_ptr, weights_ptr, out_ptr, row, tile, count, tokens, columns, row_words,
    w_words, factor,
    TOPK: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, STEP: tl.constexpr, STEPS: tl.constexpr,
    EVEN_N: tl.constexpr, EVEN_K: tl.constexpr, ATOMIC: tl.constexpr, NON_TEMPORAL: tl.constexpr, PACKED: tl.constexpr,
    DOT: tl.constexpr,
):  # fmt: skip
    """`count` column tiles, from `tile` on, of ROWS sorted rows, from `row` on; w_rows, s_rows: their expert's weights.

    The accumulator is transposed: columns by rows, so that weights, the large operand, stay in registers as the left
    operand of the matrix instruction.
    """
    rows = row + tl.arange(0, ROWS)
    ns = tl.arange(0, BLOCK_N)
    ks = tl.arange(0, STEP)
    ss = tl.arange(0, STEP // 4)
    ids = tl.load(ids_ptr + rows)
    routed = tl.load(weights_ptr + rows) * factor
    a_rows = a_ptr + rows.to(tl.int64)[:, None] * row_words
    a_scale_rows = a_scale_ptr + rows.to(tl.int64)[:, None] * (row_words // 4)
    w_inside = ns[:, None] * w_words + ks[None, :]
    s_inside = ns[:, None] * (w_words // 4) + ss[None, :]
    if STEPS == 1:
        a = tl.load(a_rows + ks[None, :], mask=(ks < row_words)[None, :], other=0)
        a_scale = tl.load(a_scale_rows + ss[None, :], mask=(ss < row_words // 4)[None, :], other=0)
        right = _right(a, a_scale, PACKED, DOT)

    acc = tl.zeros((BLOCK_N, ROWS), tl.float32)
    for i in tl.range(0, count * STEPS):
        at_n = (tile + i // STEPS) * BLOCK_N + ns
        at_k = i % STEPS * STEP + ks
        at_s = i % STEPS * (STEP // 4) + ss
        n_in = (at_n < columns)[:, None]
        start = (tile + i // STEPS) * BLOCK_N * (w_words // 4) + i % STEPS * (STEP // 4)
        w = _stream(
            w_rows + start * 4 + w_inside, n_in & (at_k < w_words)[None, :], not (EVEN_N and EVEN_K), NON_TEMPORAL
        )
        fields = _stream(
            s_rows + start + s_inside, n_in & (at_s < w_words // 4)[None, :], not (EVEN_N and EVEN_K), NON_TEMPORAL
        )
        if STEPS > 1:
            a = tl.load(a_rows + at_k[None, :], mask=(at_k < row_words)[None, :], other=0)
            a_scale = tl.load(a_scale_rows + at_s[None, :], mask=(at_s < row_words // 4)[None, :], other=0)
            right = _right(a, a_scale, PACKED, DOT)
        acc = _product(w, fields, right, acc, PACKED, DOT)
        if i % STEPS == STEPS - 1:
            _finish(acc.T * routed[:, None], ids, at_n, out_ptr, tokens, columns, TOPK, EVEN_N, ATOMIC)
            acc = tl.zeros((BLOCK_N, ROWS), tl.float32)


@triton.jit
def gemm2_kernel(
    a_ptr, a_scale_ptr, w_ptr, w_scale_ptr, ids_ptr, weights_ptr, experts_ptr, valid_ptr, out_ptr, tokens, columns,
    row_words, w_words, factor,
    TOPK: tl.constexpr, BLOCK_M: tl.constexpr, ROWS: tl.constexpr, FEW: tl.constexpr, BLOCK_N: tl.constexpr,
    STEP: tl.constexpr, STEPS: tl.constexpr, TILES: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
    PROGRAMS: tl.constexpr, XCDS: tl.constexpr, ATOMIC: tl.constexpr, NON_TEMPORAL: tl.constexpr,
    PACKED: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Persistent: the column tiles of all blocks of rows, block after block, are cut into equal items, see _items;
    program p takes the items p, p + PROGRAMS, ....

    a int32 [padded rows, row_words]: 8 codes per word, plain; a_scale u8 [padded rows, row_words / 4].
    w int32 [experts, columns, w_words]: re-coded; w_scale u8: exponent fields, [experts, columns, w_words / 4].
    ids: slot << 24 | token for each sorted row; experts: one for each BLOCK_M rows; valid: number of padded rows.
    out: ATOMIC: [tokens, columns], added to.  Else [tokens * TOPK, columns], row token * TOPK + slot, stored.
    A step of STEP words covers the whole depth if STEPS is 1.  ROWS rows of a block are computed at a time, or only
    FEW in all if it has no more that are not padding, which comes last.
    """
    tiles = tl.cdiv(columns, BLOCK_N)
    total = tl.load(valid_ptr) // BLOCK_M * tiles
    items = _items(total, TILES, PROGRAMS)
    for item in tl.range(spread(tl.program_id(0), PROGRAMS, XCDS), items, PROGRAMS):
        at = _bound(item, items, total)
        stop = _bound(item + 1, items, total)
        while at < stop:
            block = at // tiles
            tile = at - block * tiles
            count = tl.minimum(stop - at, tiles - tile)
            at += count
            expert = tl.load(experts_ptr + block).to(tl.int64)
            row = block * BLOCK_M
            w_rows = w_ptr + expert * columns * w_words
            s_rows = w_scale_ptr + expert * columns * (w_words // 4)
            few = False
            if FEW < ROWS:
                few = (tl.load(ids_ptr + row + FEW) & 0xFFFFFF) >= tokens
            if few:
                _columns(
                    a_ptr, a_scale_ptr, w_rows, s_rows, ids_ptr, weights_ptr, out_ptr, row, tile, count, tokens,
                    columns, row_words, w_words, factor, TOPK, FEW, BLOCK_N, STEP, STEPS, EVEN_N, EVEN_K,
                    ATOMIC, NON_TEMPORAL, PACKED, DOT,
                )  # fmt: skip
            else:
                for part in range(0, BLOCK_M, ROWS):
                    used = True
                    if ROWS < BLOCK_M:
                        used = (tl.load(ids_ptr + row + part) & 0xFFFFFF) < tokens
                    if used:
                        _columns(
                            a_ptr, a_scale_ptr, w_rows, s_rows, ids_ptr, weights_ptr, out_ptr, row + part, tile,
                            count, tokens, columns, row_words, w_words, factor, TOPK, ROWS, BLOCK_N, STEP, STEPS,
                            EVEN_N, EVEN_K, ATOMIC, NON_TEMPORAL, PACKED, DOT,
                        )  # fmt: skip


@triton.jit
def gemm2_native_kernel(
    a_ptr, a_scale_ptr, w_ptr, w_scale_ptr, ids_ptr, weights_ptr, experts_ptr, valid_ptr, out_ptr, tokens, columns,
    row_bytes,
    TOPK: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TILES: tl.constexpr,
    EVEN_N: tl.constexpr, EVEN_K: tl.constexpr, PROGRAMS: tl.constexpr, XCDS: tl.constexpr, ATOMIC: tl.constexpr,
    NON_TEMPORAL: tl.constexpr,
):  # fmt: skip
    """The same product by the GPU's own scaled FP4 matrix instruction, on plain bytes with two codes each.

    a u8 [padded rows, row_bytes], a_scale u8 [padded rows, row_bytes / 16], w u8 [experts, columns, row_bytes],
    w_scale u8 [experts, columns, row_bytes / 16], e8m0 scales; the rest as in gemm2_kernel.  BLOCK_K counts codes.
    """
    tiles = tl.cdiv(columns, BLOCK_N)
    total = tl.load(valid_ptr) // BLOCK_M * tiles
    items = _items(total, TILES, PROGRAMS)
    ms = tl.arange(0, BLOCK_M)
    ns = tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K // 2)
    ss = tl.arange(0, BLOCK_K // 32)
    masked: tl.constexpr = not (EVEN_N and EVEN_K)

    for item in tl.range(spread(tl.program_id(0), PROGRAMS, XCDS), items, PROGRAMS):
        for at in range(_bound(item, items, total), _bound(item + 1, items, total)):
            block = at // tiles
            expert = tl.load(experts_ptr + block).to(tl.int64)
            rows = block * BLOCK_M + ms
            ids = tl.load(ids_ptr + rows)
            routed = tl.load(weights_ptr + rows)
            a_rows = a_ptr + rows.to(tl.int64)[:, None] * row_bytes
            a_scale_rows = a_scale_ptr + rows.to(tl.int64)[:, None] * (row_bytes // 16)
            at_n = (at - block * tiles) * BLOCK_N + ns
            w_rows = w_ptr + expert * columns * row_bytes + at_n[None, :] * row_bytes
            s_rows = w_scale_ptr + expert * columns * (row_bytes // 16) + at_n[:, None] * (row_bytes // 16)
            n_in = at_n < columns
            acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for k0 in tl.range(0, row_bytes, BLOCK_K // 2):
                k_in = k0 + ks < row_bytes
                s_in = k0 // 16 + ss < row_bytes // 16
                w = _stream(w_rows + (k0 + ks)[:, None], k_in[:, None] & n_in[None, :], masked, NON_TEMPORAL)
                w_scale = _stream(
                    s_rows + (k0 // 16 + ss)[None, :], n_in[:, None] & s_in[None, :], masked, NON_TEMPORAL
                )
                if EVEN_K:
                    a = tl.load(a_rows + (k0 + ks)[None, :])
                    a_scale = tl.load(a_scale_rows + (k0 // 16 + ss)[None, :])
                else:
                    a = tl.load(a_rows + (k0 + ks)[None, :], mask=k_in[None, :], other=0)
                    a_scale = tl.load(a_scale_rows + (k0 // 16 + ss)[None, :], mask=s_in[None, :], other=0)
                acc = tl.dot_scaled(a, a_scale, "e2m1", w, w_scale, "e2m1", acc)
            # The next tile's loads go straight to the LDS, which another warp may still read: Triton 3.8 leaves out a
            # barrier between the two (membarFilter of its AMD backend takes each read for ordered by a wait).
            tl.debug_barrier()
            _finish(acc * routed[:, None], ids, at_n, out_ptr, tokens, columns, TOPK, EVEN_N, ATOMIC)


@triton.jit
def sum_slots_kernel(
    partial_ptr, out_ptr, columns, TOPK: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr = False,
    tickets_ptr=None,
):  # fmt: skip
    """out[token] = sum over the slots 0, 1, ... TOPK - 1, in this order, of partial[token, slot], in fp32.
    OVERLAP: started while the product runs, and lets the next kernel start in the same way (sm_90).  tickets: what the
    product has drawn from (streamed.py), cleared for the next one."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    if tickets_ptr is not None and tl.program_id(0) + tl.program_id(1) == 0:
        tl.store(tickets_ptr, 0)
    token = tl.program_id(0).to(tl.int64)
    ns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for slot in tl.static_range(TOPK):
        at = partial_ptr + (token * TOPK + slot) * columns + ns
        total += tl.load(at, mask=ns < columns, other=0.0).to(tl.float32)
    tl.store(out_ptr + token * columns + ns, total.to(out_ptr.dtype.element_ty), mask=ns < columns)


# ---- behind a library that leaves one unweighted row for each (token, slot) ------------------------------------------


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
