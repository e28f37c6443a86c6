"""Run by test_links.py in processes with TRITON_INTERPRET=1: a rank of the litmus test; it prints its rows as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import triton
import triton.language as tl

from benchmarks.bringup import RankPlace, link_device, probes
from benchmarks.bringup.probes import Litmus

PLANS = (
    Litmus("many", programs=2, rounds=6, block=64),
    Litmus("control", programs=1, rounds=4, fences=False, block=64),
)


@triton.jit
def nowhere(pointer, from_base, to_base, ALIGN: tl.constexpr = 16):
    """In the place of translate: the sender keeps its message to itself."""
    return pointer


def right(rank: int, world: int, directory: str) -> None:
    """As it is."""
    folder = Path(directory)
    place = RankPlace(rank, world, "cpu", str(folder / "store"), str(folder / "heap"))
    print(json.dumps(probes.fences(place, PLANS)))


def lost(rank: int, world: int, directory: str) -> None:
    """The stores go nowhere."""
    link_device.translate = nowhere
    right(rank, world, directory)
