"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

from kernels._shared.collectives.sums import Algorithm, Sum
from kernels.reduce_scatter import device

SUM = Sum(
    "reduce_scatter",
    whole=False,
    ahead_is=" chunks",
    algorithms={
        "pull": Algorithm(device.pull, barriers=2, halves=0),
        "push": Algorithm(device.push, barriers=1, halves=2),
        "push_chunks": Algorithm(device.push_chunks, barriers=1, halves=1, chunks=True),
    },
)
build, compilation = SUM.build, SUM.compilation
