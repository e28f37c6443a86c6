"""Device functions that choose the order in which programs compute tiles, to make good use of the caches."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def spread(pid, programs, XCDS: tl.constexpr):
    """Renumber programs so that neighbours share an XCD: the hardware distributes them round robin over the XCDs."""
    if XCDS == 1:
        return pid
    xcd, local = pid % XCDS, pid // XCDS
    return xcd * (programs // XCDS) + tl.minimum(xcd, programs % XCDS) + local


@triton.jit
def tile_at(index, rows, cols, GROUP_M: tl.constexpr):
    """(row, column) of a tile: down a band of GROUP_M rows before the next column, so that L2 serves both operands."""
    band = index // (GROUP_M * cols)
    first = band * GROUP_M
    height = tl.minimum(rows - first, GROUP_M)
    within = index % (GROUP_M * cols)
    return first + within % height, within // height
