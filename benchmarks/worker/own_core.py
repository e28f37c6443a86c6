"""A measuring process on a core: what makes equal code take equal time on a machine that others use too.

Two things made it differ by factors from process to process (2 shared cores, load 4; a product of 384 x 384 and a layer
norm of 4 MB; 2026-11-23):

* Threads that wait for each other.  With one to a core, a call lasts until the scheduler has run all of them: 0.6 ms or
  16 ms, a time slice.  A process has one thread, on one core, the same for both sides, which work in turn.
* Page faults.  glibc gives blocks beyond a threshold back to the system, and moves the threshold by what was freed
  before: a call that makes a tensor of 4 MB took 0 or 1100 faults, 0.7 ms or 3.1 ms of CPU time.  Memory is kept.

What is left is 3 to 8 %: where code and data lie.  The time in which the core ran somebody else is no part of a sample
(clocks.HostClock).
"""

from __future__ import annotations

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of mallopt(3), malloc.h of glibc."""

NEVER = 2**31 - 1


def settle(core: int | None) -> None:
    """Have this process run on one core, and keep its memory; nothing where there is none to name (a GPU is timed)."""
    if core is None:
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)
