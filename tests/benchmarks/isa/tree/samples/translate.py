"""Pointer translation into a peer's heap, as every remote store of the samples uses it."""

import triton
import triton.language as tl


@triton.jit
def translate(pointer, own_base, heap_bases, rank):
    """The same offset in the heap of `rank`, in this process's address space.

    The hint stands here and not at the caller: on the result of a call it is lost when the call is inlined.
    """
    offset = pointer.to(tl.uint64) - own_base
    remote = (tl.load(heap_bases + rank) + offset).to(pointer.dtype)
    return tl.max_contiguous(tl.multiple_of(remote, (1, 16)), (1, 16))
