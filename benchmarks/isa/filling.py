"""With the device untouched: what arms of a trial launch, compiled into the cache that launches look in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import naming
from .cache import Cache
from .compile import Compiler
from .targets import ARCHES
from .worker import Units

NICE = 10
"""A process that measures goes first where cores are scarce."""


class Filler:
    """Compiles for one architecture, which a process keeps (see compile).  compute_units: CUs or SMs of the device."""

    def __init__(self, arch: str, compute_units: int, tree: Path, folder: Path) -> None:
        os.nice(NICE)
        self._arch, self._compute_units = arch, compute_units
        self._compiler = Compiler(arch, Cache(folder)) if arch in ARCHES else None
        self._units = Units(arch, tree, compute_units)

    def launches(self, kernel: Any, asked: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What is to be filled for arms {case, backend, knobs}, each once: theirs, and what their set-ups try."""
        found: list[dict[str, Any]] = []
        for arm in asked if self._compiler else ():
            for one in (dict(arm), *self._tried(kernel, arm["case"], arm["backend"])):
                if one["backend"] in kernel.compilations and one not in found:
                    found.append(one)
        return found

    def fill(self, kernel: Any, case: str, backend: str, knobs: Mapping[str, Any]) -> dict[str, int]:
        """{"filled", "failed"}: compilations of one of these that are in the cache now, and others."""
        assert self._compiler
        counts = {"filled": 0, "failed": 0}
        for one in self._units.of_arm(kernel, backend, kernel.case(case), dict(knobs)):
            done = self._compiler.fill(one, str)["status"] == "ok"
            counts["filled" if done else "failed"] += 1
        return counts

    def _tried(self, kernel: Any, case: str, backend: str) -> Iterator[dict[str, Any]]:
        tries = getattr(kernel.backends[backend], "tries", None)  # a declaration before 2026-12 names none
        place = naming.contract("spec").Place(
            world=kernel.case(case).world, device="meta", arch=self._arch, compute_units=self._compute_units
        )
        for name, knobs in tries(kernel.case(case).at(place), self._arch) if tries else ():
            yield {"case": case, "backend": name, "knobs": dict(knobs)}
