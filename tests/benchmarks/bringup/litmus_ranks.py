"""Run as a program: one rank of the litmus test in Triton's interpreter.  Prints the rows of rank 0 as JSON.

    litmus_ranks.py RANK WORLD FOLDER FAULT

FAULT: "none", or "lost": the stores go nowhere.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import triton
import triton.language as tl

from benchmarks.bringup.context import StepContext
from benchmarks.bringup.probes import fences, link_device
from benchmarks.bringup.probes.fences import Litmus

PLANS = (
    Litmus("many", programs=2, rounds=6, block=64),
    Litmus("control", programs=1, rounds=4, release=False, acquire=False, block=64),
)


@triton.jit
def nowhere(pointer, from_base, to_base, ALIGN: tl.constexpr = 16):
    """In the place of translate: the sender keeps its message to itself."""
    return pointer


def main() -> None:
    rank, world, folder, fault = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    if fault == "lost":
        link_device.translate = nowhere
    places = {"store": str(folder / "store"), "heap_directory": str(folder / "heap")}
    context = StepContext(step="fences", checkout=".", rank=rank, world=world, **places)
    print(json.dumps(fences.fences(context, PLANS)))


if __name__ == "__main__":
    main()
