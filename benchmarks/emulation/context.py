"""What native code reads and writes of a launch: offsets in bytes."""

from __future__ import annotations

# The context.
(
    BUFFERS, COUNT, LDS, LDS_BYTES, COUNTERS, STAMP, SEEN, PATTERNS,
    LDS_AT, WARPS, SCALARS, IDS, ENTRY, V_BYTES, AT_GROUP, AT_WAVE, BRANCHES,
    BLOCKS, NOW, SHADOW, UNIT, RECORDS, NOTES, COLUMNS, ROWS, SCRATCH_AT, ENDS, LINES_OF, SAFE, RACE,
) = range(0, 30 * 8, 8)  # fmt: skip
"""... ; where in a workgroup's memory its LDS begins; what registers of the first workgroup begin with, scalar ones and
v0; the first record; bytes of vector registers in use; the workgroup and wave that stopped; branches of a wave's turn;
the workgroup's waves and the one that runs; whether accesses to the LDS are watched, and the places by which they are
told apart, as a shift; all records; bytes of the notes of one kind; the grid's first two sizes; where in a workgroup's
memory its scratch memory begins and ends, the end of it all; whose lines the bits of scratch memory are; how many
accesses of every wave by lgkmcnt are complete to the one that runs; the first race: 1 and then the accesses before and
now, the place and the workgroup."""
LIMITS = RACE + 5 * 8
"""By wave and counter: how many of its accesses are complete to the wave that runs."""
GROUP_IDS = LIMITS + 2 * 16 * 8
"""Where in a wave's block the workgroup's place in each dimension of the grid belongs; -1 where it is not asked for."""
CONTEXT_BYTES = GROUP_IDS + 3 * 8

# A buffer: first address, bytes, what is added to an address, and bits of its lines by what is done.  The first one is
# scratch memory, where there is any, of the workgroup that runs.
START, BYTES, DELTA, LINES = 0, 8, 16, 24
BUFFER_BYTES = 48
