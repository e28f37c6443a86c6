"""Where native code finds a wave's registers and an instruction's parameters: offsets in bytes; why it stops."""

from __future__ import annotations

from .waves import LANES

# A wave's block of memory: offsets in bytes.
S, V = 0, 512
SCC = V + 512 * LANES * 4
WAVE, CONTEXT, BUDGET, STOPPED, STATE, ISSUED, KNOWN = *range(SCC + 16, SCC + 64, 8), SCC + 72
ARRIVED, WAITED = KNOWN + 16, KNOWN + 32
WAVE_BYTES = SCC + 128
"""ISSUED: LDS operations and accesses to memory; KNOWN: how many of each are complete to the others of the workgroup;
ARRIVED: how many will be when it leaves its barrier; WAITED: how many it has waited for."""

# A record of an instruction.
FUNCTION, COUNT, LANES_ON, SECOND, CACHE = 0, 8, 16, 24, 32
"""Its function; times and active lanes that it was executed; a counter of its own (branches taken, bank conflicts);
the buffer it reached last: first address, its size, what is added to get there."""
PARAMETERS, RECORD = 64, 384
MOST_PARAMETERS = (RECORD - PARAMETERS) // 8

NOWHERE = -2
"""What "reach" returns where lanes access more than one buffer or none; else their step, -1 if it differs."""

# What a function returns when it does not go on.
ASK, BARRIER, END, SPENT, DONE = 1, 2, 3, 4, 5
"""The executor has to do the instruction; the wave is at a barrier; it has ended; it has taken its
branches.  Of a workgroup: all its waves have ended."""

TITLE = "THE_FUNCTION"
"""Of a function, until it has a name."""
