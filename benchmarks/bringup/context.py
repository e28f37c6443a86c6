"""What a step is told about the machine and its own place on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class StepContext:
    """devices, environment: worker.probe of this Python.  step: its name.  checkout: the tree whose kernels are tried.

    rank, world, device: place among the ranks.  store: file in which ranks meet.  heap_directory: for CPU heaps.
    root: where /sys, /proc and /dev are found.
    """

    step: str
    checkout: str
    devices: Sequence[Mapping[str, Any]] = ()
    environment: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rank: int = 0
    world: int = 1
    device: str = "cpu"
    store: str = ""
    heap_directory: str = ""
    root: str = "/"

    @property
    def part(self) -> str:
        """What follows the slash in the name of the step: a home, a package."""
        return self.step.partition("/")[2]

    @property
    def gpu(self) -> bool:
        """Whether torch sees a GPU."""
        return bool(self.devices)

    @property
    def amd(self) -> bool:
        """Whether its GPUs are AMD's."""
        return self.gpu and str(self.devices[0]["arch"]).startswith("gfx")
