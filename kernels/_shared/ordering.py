"""Device functions that say when loads and stores are done."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def stores_done(AMD: tl.constexpr):
    """After this, a release by any one thread covers the global stores of all threads of the program.

    NVIDIA: a barrier orders the threads of a block, and a release is cumulative (PTX memory model).  AMD: the barrier
    that Triton emits does not wait for global stores (gfx942 and gfx950, Triton 3.6 to 3.8: `s_barrier` without
    `s_waitcnt vmcnt(0)`), and a release waits for the stores of its own wave only; so every wave drains its own first.
    """
    if AMD:
        tl.inline_asm_elementwise(
            "s_waitcnt vmcnt(0)\n\tv_mov_b32 $0, $1",
            "=v,v,~{memory}",
            [tl.program_id(0)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    tl.debug_barrier()


@triton.jit
def loads_done(values, AMD: tl.constexpr):
    """`values`, of 16 or 32 bits, after the loads that made them: nothing that follows waits for these loads again.

    gfx9 counts loads and stores with one counter (vmcnt), in the order of issue.  Where masked stores of loaded values
    follow each other, the compiler does not know how many of them were issued, and has each wait for its value as if
    none was: so it waits for the stores before it.  An empty instruction that takes the values settles them first.
    """
    if AMD:
        PACK: tl.constexpr = 32 // values.dtype.primitive_bitwidth
        values = tl.inline_asm_elementwise("", "=v,0", [values], dtype=values.dtype, is_pure=False, pack=PACK)
    return values
