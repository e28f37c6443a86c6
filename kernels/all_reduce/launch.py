"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

from kernels._shared.collectives.sums import Algorithm, Sum
from kernels.all_reduce import device

SUM = Sum(
    "all_reduce",
    whole=True,
    ahead_is=", else it waits for chunks that no rank has sent",
    algorithms={
        "two_shot": Algorithm(device.two_shot, barriers=2, halves=0),
        "two_shot_push": Algorithm(device.two_shot_push, barriers=1, halves=1, chunks=True),
        "one_shot_push": Algorithm(device.one_shot_push, barriers=1, halves=2, part=False),
        "one_shot_pull": Algorithm(device.one_shot_pull, barriers=2, halves=0, part=False),
    },
)
build, compilation = SUM.build, SUM.compilation
