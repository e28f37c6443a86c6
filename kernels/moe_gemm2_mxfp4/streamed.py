"""The product for few rows on NVIDIA from sm_90 on: each warp streams its weights through a ring of its own.

Weights lie as the lanes of a warp need them (formats.stream): a column tile, 16 columns with their scales, is one run
of memory that one bulk copy brings into shared memory, and each lane reads its own 16 bytes at a time.  One warp is a
program, so that nothing waits for another warp: no barrier, no shuffle, and 8 to 12 programs of an SM hide each other's
latency.  Copies run ahead over the ends of segments, so that memory never idles.

Lane 4 g + t has columns 2 g and 2 g + 1 of a tile and the eight codes t of each block of 32: rows g and g + 8 of the
left operand of mma.m16n8k16, in an order of K that both operands share.  Codes become bf16 bits, times 2^-126, by a
rotation and a mask (device.py), and are multiplied as they are, subnormal: two matrix instructions sum a block of 32
exactly, and the weights' scale goes into the addition to the sum, which saves the multiplication of every pair.
Activations stay in registers, with 2^120 and their scale relative to the largest of their rows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.moe_gemm2_mxfp4.device import _spread_plain, _times
from kernels.moe_gemm2_mxfp4.streamed_asm import copy, draw, four, half, load, products, ring, wait

# ---- a tile ---------------------------------------------------------------------------------------------------------


@triton.jit
def _scale(word, PLACE: tl.constexpr):
    """fp32 2^(f - 127) of field PLACE of a word of four (formats.stream)."""
    bits = word.to(tl.uint32, bitcast=True)
    if PLACE == 3:
        bits = (bits << 24) | (bits >> 8)
    else:
        bits = bits << (8 * PLACE)
    return (bits & 0x7F800000).to(tl.float32, bitcast=True)


@triton.jit
def _tile(tile, rights, UNIT: tl.constexpr, BLOCKS: tl.constexpr, GROUPS: tl.constexpr, ASM: tl.constexpr):
    """Sums of a tile: 4 GROUPS values in each lane (see _products).  tile: where it lies; UNIT: bytes, or words."""
    SIDE: tl.constexpr = BLOCKS // 4
    lanes = tl.arange(0, 32)
    scales = ()
    for i in tl.static_range(BLOCKS // 8):
        scales = scales + four(tile + (64 * BLOCKS + i * 32 + lanes // 4 * 4) * UNIT, ASM)
    sums = ()
    for _ in tl.static_range(4 * GROUPS):
        sums = sums + (tl.zeros((32,), tl.float32),)
    for pair in tl.static_range(BLOCKS // 2):
        words = four(tile + (pair * 128 + lanes * 4) * UNIT, ASM)
        for odd in tl.static_range(2):
            found = products(words[2 * odd], words[2 * odd + 1], rights, 2 * pair + odd, BLOCKS, GROUPS, ASM)
            first = _scale(scales[pair // 2], (2 * pair + odd) % 4)
            second = _scale(scales[SIDE + pair // 2], (2 * pair + odd) % 4)
            total = ()
            for group in tl.static_range(GROUPS):
                total = total + (
                    sums[4 * group] + found[4 * group] * first,
                    sums[4 * group + 1] + found[4 * group + 1] * first,
                    sums[4 * group + 2] + found[4 * group + 2] * second,
                    sums[4 * group + 3] + found[4 * group + 3] * second,
                )
            sums = total
    return sums


# ---- rows -----------------------------------------------------------------------------------------------------------


@triton.jit
def _decoded(words, field, ASM: tl.constexpr):
    """Activations of a word, 8 codes, as four pairs of bf16 bits, times 2^(field - 127)."""
    pairs = ()
    for byte in tl.static_range(4):
        spread = _spread_plain(words, byte)
        if ASM:
            spread = _times(spread, tl.full((32,), 0x7E807E80, tl.int32))
            pairs = pairs + (_times(spread, field * 0x00800080),)
        else:
            factor = (field << 23).to(tl.float32, bitcast=True)
            low = half(spread, 0) * 8.507059173023462e37 * factor
            high = half(spread, 1) * 8.507059173023462e37 * factor
            upper = high.to(tl.int32, bitcast=True) & -65536
            pairs = pairs + (upper | ((low.to(tl.int32, bitcast=True) >> 16) & 0xFFFF),)
    return pairs


@triton.jit
def _rights(
    a_ptr, a_scale_ptr, ids_ptr, row, tokens, row_words, BLOCKS: tl.constexpr, GROUPS: tl.constexpr, ASM: tl.constexpr
):
    """(right operands, largest scale) of 8 GROUPS rows: for each group and block four pairs of bf16 bits in each lane.

    A row's scale counts from the largest of all these rows, at 2^120.
    """
    lanes = tl.arange(0, 32)
    words = ()
    scales = ()
    largest = tl.zeros((32,), tl.int32)
    for group in tl.static_range(GROUPS):
        own = row + group * 8 + lanes // 4
        used = (tl.load(ids_ptr + own) & 0xFFFFFF) < tokens
        a_row = a_ptr + own.to(tl.int64) * row_words + lanes % 4
        s_row = a_scale_ptr + own.to(tl.int64) * (row_words // 4)
        for block in tl.static_range(BLOCKS):
            inside = used & (block * 4 < row_words)
            words = words + (load(a_row + block * 4, inside, 4, ASM),)
            scale = load(s_row + block, inside, 1, ASM)
            largest = tl.maximum(largest, scale)
            scales = scales + (scale,)
    top = tl.max(largest, 0)
    pairs = ()
    for i in tl.static_range(GROUPS * BLOCKS):
        pairs = pairs + _decoded(words[i], tl.maximum(scales[i] - top + 247, 0), ASM)
    return pairs, top


@triton.jit
def _write(low, high, factor, ids, at_n, out_ptr, tokens, columns, TOPK: tl.constexpr, ATOMIC: tl.constexpr):
    """Two neighbouring columns of one row in each lane."""
    token = ids & 0xFFFFFF
    ns = at_n[:, None] + tl.arange(0, 2)[None, :]
    keep = (token < tokens)[:, None] & (ns < columns)
    result = (tl.join(low, high) * factor[:, None]).to(out_ptr.dtype.element_ty)
    if ATOMIC:
        tl.atomic_add(out_ptr + token.to(tl.int64)[:, None] * columns + ns, result, mask=keep, sem="relaxed")
    else:
        at = (token * TOPK + (ids >> 24)).to(tl.int64)[:, None] * columns + ns
        tl.store(out_ptr + at, result, mask=keep)


@triton.jit
def _power(exponent):
    """fp32 2^exponent for -126 <= exponent <= 127."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


# ---- what a program computes: items, and in them segments, column tiles of 8 GROUPS rows ---------------------------


@triton.jit
def _bounds(item, programs, first, total, chunk):
    """(first unit, end) of an item.  Each program starts with one of `first` units, in order; what is left is shared
    out in chunks, from the end on, where the shared expert's many rows lie."""
    end = total - (item - programs) * chunk
    at = tl.where(item < programs, item * first, tl.maximum(end - chunk, programs * first))
    return at, tl.where(item < programs, tl.minimum(item * first + first, total), end)


@triton.jit
def _count(at, stop, units):
    """Units of the segment that starts at `at`: to the end of its item or of its block of rows."""
    return tl.minimum(stop - at, units - at % units)


@triton.jit
def _after(at, stop, part, units, ids_ptr, tokens, BLOCK_M: tl.constexpr, ROWS: tl.constexpr):
    """(at, part, the item is over) behind a segment: the same tiles for the next ROWS rows of the block, if they are
    used, else the next block."""
    again = False
    if BLOCK_M > ROWS:
        inside = part + 1 < BLOCK_M // ROWS
        row = tl.where(inside, at // units * BLOCK_M + (part + 1) * ROWS, 0)
        again = inside & ((tl.load(ids_ptr + row) & 0xFFFFFF) < tokens)
    at = tl.where(again, at, at + _count(at, stop, units))
    return at, tl.where(again, part + 1, 0), at >= stop


@triton.jit
def _source(at, stop, units, experts_ptr, WORDS: tl.constexpr):
    """(words before the segment's weights, its units; 0 if there is no such segment)."""
    found = at < stop
    expert = tl.load(experts_ptr + tl.where(found, at // units, 0)).to(tl.int64)
    return (expert * units + at % units) * WORDS, tl.where(found, _count(at, stop, units), 0)


@triton.jit
def _feed(
    feed, turn, ring_at, tensors, plan, tokens,
    BLOCK_M: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, STAGES: tl.constexpr, DRAWN: tl.constexpr,
    ASM: tl.constexpr,
):  # fmt: skip
    """Start the next copy into the place that turn `turn` leaves.

    feed: (unit, end of the item, part, words before, units left) of the next copy, the ticket of the item after this
    one, in the first lane, the last four items, and their number.
    """
    at, stop, part, before, left, ticket, a, b, c, d, number = feed
    programs, first, total, chunk, units = plan
    if ASM:
        slot = turn % STAGES
        copy(ring_at[0] + slot * (WORDS * 4), ring_at[1] + slot * 8, tensors[2] + before, left > 0, WORDS * 4)
    before += WORDS
    left -= 1
    if left == 0:
        at, part, over = _after(at, stop, part, units, tensors[3], tokens, BLOCK_M, ROWS)
        if DRAWN:
            item = programs + tl.max(ticket, 0)
            begin, end = _bounds(item, programs, first, total, chunk)
            at = tl.where(over, begin, at)
            stop = tl.where(over, end, stop)
            ticket = tl.where(over, draw(tensors[6], over, ASM), ticket)
            a = tl.where(over & (number % 4 == 0), item, a)
            b = tl.where(over & (number % 4 == 1), item, b)
            c = tl.where(over & (number % 4 == 2), item, c)
            d = tl.where(over & (number % 4 == 3), item, d)
            number += over.to(tl.int32)
        before, left = _source(at, stop, units, tensors[5], WORDS)
    return at, stop, part, before, left, ticket, a, b, c, d, number


@triton.jit
def _ahead(before, left, ring_at, w_ptr, WORDS: tl.constexpr, STAGES: tl.constexpr):
    """Start the first copies, all but the last of a segment, and return how many."""
    ahead = tl.maximum(tl.minimum(left - 1, STAGES), 0)
    for i in tl.static_range(STAGES):
        copy(ring_at[0] + i * (WORDS * 4), ring_at[1] + i * 8, w_ptr + before + i * WORDS, i < ahead, WORDS * 4)
    return ahead


@triton.jit
def _begun(
    at, stop, before, left, ahead, ring_at, tensors, plan, tokens,
    BLOCK_M: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, STAGES: tl.constexpr, DRAWN: tl.constexpr,
    ASM: tl.constexpr,
):  # fmt: skip
    """`feed` (see _feed) of a program whose first item is from `at` to `stop`, when its ring is full; `ahead` of the
    copies are under way."""
    ticket = tl.arange(0, 32) * 0
    if DRAWN:
        ticket = draw(tensors[6], True, ASM)
    feed = (at, stop, 0, before + ahead * WORDS, left - ahead, ticket, 0, 0, 0, 0, 0)
    for i in tl.static_range(STAGES):
        if i >= ahead:
            feed = _feed(feed, i, ring_at, tensors, plan, tokens, BLOCK_M, ROWS, WORDS, STAGES, DRAWN, ASM)
    return feed


@triton.jit
def _outputs(tensors, row, exponent, GROUPS: tl.constexpr):
    """(ids, factors) of rows 2 t, 2 t + 1 of each group, two tuples; a factor has half of the power 2^exponent."""
    ids = ()
    factors = ()
    for i in tl.static_range(2 * GROUPS):
        mine = row + i // 2 * 8 + i % 2 + tl.arange(0, 32) % 4 * 2
        ids = ids + (tl.load(tensors[3] + mine),)
        factors = factors + (tl.load(tensors[4] + mine) * _power(exponent - (exponent >> 1)),)
    return ids, factors


@triton.jit
def _segment(
    at, count, part, turn, feed, ring_at, tensors, plan, tokens, columns, row_words, down,
    TOPK: tl.constexpr, BLOCK_M: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
    NT: tl.constexpr, STAGES: tl.constexpr, ATOMIC: tl.constexpr, DRAWN: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """`count` units of NT tiles from `at` on, for 8 GROUPS rows of their block, from ROWS * part on; returns `feed`."""
    WORDS: tl.constexpr = NT * 68 * BLOCKS
    UNIT: tl.constexpr = 4 if ASM else 1
    lanes = tl.arange(0, 32)
    block = at // plan[4]
    unit = at % plan[4]
    row = block * BLOCK_M + part * ROWS
    rights, top = _rights(tensors[0], tensors[1], tensors[3], row, tokens, row_words, BLOCKS, GROUPS, ASM)
    exponent = 6 + top - 127 - down
    power = _power(exponent >> 1)
    ids, factors = _outputs(tensors, row, exponent, GROUPS)
    source = tensors[2]
    if not ASM:
        source += (tl.load(tensors[5] + block).to(tl.int64) * plan[4] + unit) * WORDS
    for i in tl.range(0, count, num_stages=1):
        here = source + i * WORDS
        if ASM:
            slot = turn % STAGES
            here = ring_at[0] + slot * (WORDS * 4)
            wait(ring_at[1] + slot * 8, turn // STAGES)
        sums = ()
        for n in tl.static_range(NT):
            sums = sums + _tile(here + n * 68 * BLOCKS * UNIT, rights, UNIT, BLOCKS, GROUPS, ASM)
        feed = _feed(feed, turn, ring_at, tensors, plan, tokens, BLOCK_M, ROWS, WORDS, STAGES, DRAWN, ASM)
        for n in tl.static_range(NT):
            at_n = ((unit + i) * NT + n) * 16 + lanes // 4 * 2
            for j in tl.static_range(2 * GROUPS):
                _write(
                    sums[n * 4 * GROUPS + j // 2 * 4 + j % 2] * power,
                    sums[n * 4 * GROUPS + j // 2 * 4 + j % 2 + 2] * power,
                    factors[j], ids[j], at_n, tensors[7], tokens, columns, TOPK, ATOMIC,
                )  # fmt: skip
        turn += 1
    return feed


@triton.jit(do_not_specialize=["down", "programs", "share", "chunk"])
def gemm2_streamed_kernel(
    a_ptr, a_scale_ptr, w_ptr, ids_ptr, weights_ptr, experts_ptr, valid_ptr, out_ptr, tickets_ptr, tokens, columns,
    row_words, down, programs, share, chunk,
    TOPK: tl.constexpr, BLOCK_M: tl.constexpr, GROUPS: tl.constexpr, BLOCKS: tl.constexpr, NT: tl.constexpr,
    STAGES: tl.constexpr, ATOMIC: tl.constexpr, DRAWN: tl.constexpr, OVERLAP: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Persistent, one warp a program.  The units (NT column tiles) of all blocks of rows, block after block, are cut
    into items: `share` percent of them into one for each program, the rest (DRAWN: there is one) into chunks, which
    programs draw as they come.  8 GROUPS rows are computed at a time, or 8 where no more are used.

    tickets int32 [1]: the items drawn, 0 at first; the small kernel before or behind this one clears it.
    w int32 [experts, units, NT, 68 BLOCKS] (formats.stream), whose true scales are 2^-down times as large; the rest as
    in gemm2_kernel.  OVERLAP: launched while the kernel before it runs, and lets the next one start in the same way.
    Until that kernel has ended only the weights and the order of rows (ids, weights, experts, valid) are read: they are
    older, for the first product of the layer needs them as well.
    """
    WORDS: tl.constexpr = NT * 68 * BLOCKS
    ROWS: tl.constexpr = 8 * GROUPS
    ring_at = (0, 0)
    if ASM:
        ring_at = ring(STAGES, WORDS * 4)
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    tensors = (a_ptr, a_scale_ptr, w_ptr, ids_ptr, weights_ptr, experts_ptr, tickets_ptr, out_ptr)
    units = tl.cdiv(columns, 16 * NT)
    total = tl.load(valid_ptr) // BLOCK_M * units
    first = tl.maximum(tl.cdiv(tl.cast(total, tl.int64) * share, 100 * programs).to(tl.int32), 1)
    plan = (programs, first, total, chunk, units)
    at, stop = _bounds(tl.program_id(0), programs, first, total, chunk)
    before, left = _source(at, stop, units, experts_ptr, WORDS)
    ahead = 0
    if ASM:
        ahead = _ahead(before, left, ring_at, w_ptr, WORDS, STAGES)
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    feed = _begun(
        at, stop, before, left, ahead, ring_at, tensors, plan, tokens, BLOCK_M, ROWS, WORDS, STAGES, DRAWN, ASM
    )
    part, turn, taken = 0, 0, 0
    while at < stop:
        count = _count(at, stop, units)
        few = False
        if GROUPS > 1:
            few = (tl.load(ids_ptr + at // units * BLOCK_M + part * ROWS + 8) & 0xFFFFFF) >= tokens
        if few:
            feed = _segment(
                at, count, part, turn, feed, ring_at, tensors, plan, tokens, columns, row_words, down,
                TOPK, BLOCK_M, 1, ROWS, BLOCKS, NT, STAGES, ATOMIC, DRAWN, ASM,
            )  # fmt: skip
        else:
            feed = _segment(
                at, count, part, turn, feed, ring_at, tensors, plan, tokens, columns, row_words, down,
                TOPK, BLOCK_M, GROUPS, ROWS, BLOCKS, NT, STAGES, ATOMIC, DRAWN, ASM,
            )  # fmt: skip
        turn += count
        at, part, over = _after(at, stop, part, units, ids_ptr, tokens, BLOCK_M, ROWS)
        if DRAWN and over:
            at, stop = _bounds(_drawn(feed, taken), programs, first, total, chunk)
            taken += 1


@triton.jit
def _drawn(feed, taken):
    """Item number `taken` of those that the feed has drawn, one of the last four."""
    low = tl.where(taken % 4 == 0, feed[6], feed[7])
    return tl.where(taken % 4 < 2, low, tl.where(taken % 4 == 2, feed[8], feed[9]))


@triton.jit
def clear_kernel(out_ptr, tickets_ptr, elements, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    """Zeros, for the product to add to and to draw from.  OVERLAP as in gemm2_streamed_kernel."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.zeros((BLOCK,), out_ptr.dtype.element_ty), mask=at < elements)
    if tl.program_id(0) == 0:
        tl.store(tickets_ptr, 0)
