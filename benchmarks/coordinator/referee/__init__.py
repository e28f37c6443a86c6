"""The referee: a process that compares outputs and has never imported a kernel.

A kernel can change torch in its own process so that every comparison says "right".  So an arm only hands its outputs
over (a file in memory).  On a CPU what is expected comes from a third process, which has imported the operator's
module and makes inputs and reference, but builds and calls no backend; it is asked once for each case and session.
Comparing costs what it did; handing over, a copy of the outputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

REFEREE_VARIABLE = "RIDGELINE_REFEREE"
"""Environment variable: "own" compares in the arm's process, "apart" in the referee.  Without it: apart on a CPU, own
on a GPU, where a comparison on the host costs seconds for 1 GB; no GPU run has shown yet what it costs in all."""

TRUTH = " truth"
"""What the role of the processes that make the reference of a checkout ends with."""

MOST_KEPT = 1 << 30
"""Bytes of expected outputs that are kept for the next trial."""

COMPARE_S = 60.0
"""How long the referee may take, beyond a second for each SLOWEST bytes."""

SLOWEST = 20_000_000
"""Bytes compared per second; one core of a laptop does ten times as many."""


def apart(gpu: bool) -> bool:
    """Whether outputs are compared by the referee."""
    return os.environ.get(REFEREE_VARIABLE, "own" if gpu else "apart") == "apart"


class RefereeGone(Exception):
    """Its process ended, and with it what it knew."""


class RefereePool(Protocol):
    """One process: benchmarks.coordinator.ranks.WorkerPool."""

    def lives(self) -> bool:
        """Whether it runs now."""
        ...

    def ask(self, step: str, limit_s: float, op: str, **fields: Any) -> list[Any]:
        """Ask it; raises StepFailed or PoolDied."""
        ...

    def kill(self) -> None:
        """End it."""
        ...


class Referee:
    """The referee of a session.  start: starts its process, at the first need and after it died.

    directory: where outputs are handed over, in memory if its `shm` is there.
    """

    def __init__(self, directory: Path, start: Callable[[], RefereePool]) -> None:
        self._directory, self._start = directory, start
        self._pool: RefereePool | None = None
        self._kept: dict[str, int] = {}

    def knows(self, keys: Iterable[str]) -> bool:
        """Whether it has what is expected for all of these; not if its process died."""
        if self._pool is None or not self._pool.lives():
            self._kept.clear()
        return all(key in self._kept for key in keys)

    def file(self) -> str:
        """Where the next outputs go; ranks and copies add to it."""
        self._directory.mkdir(parents=True, exist_ok=True)  # a kernel may have removed it
        memory = self._directory / "shm"
        return str((memory if memory.is_dir() else self._directory).resolve() / f"handed-{os.urandom(8).hex()}")

    def expect(self, key: str, notes: list[dict[str, Any]], tolerance: dict[str, float]) -> None:
        """Tell it what is expected, for each set of values.  Raises StepFailed or PoolDied."""
        size = _size(notes)
        oldest = [one for one in self._kept if one.split("/")[:2] != key.split("/")[:2]]  # all ranks of a case stay
        while oldest and sum(self._kept.values()) + size > MOST_KEPT:
            self._forget([oldest.pop(0)])
        self._ask("expect", size, key=key, notes=notes, tolerance=tolerance)
        self._kept[key] = size

    def compare(self, key: str, notes: list[dict[str, Any]], sets: list[int]) -> dict[str, Any]:
        """{"norm", "peak", "why", "stale"}; sets: of which values each output is.

        Raises StepFailed, PoolDied, or RefereeGone if it does not know what is expected: a new one would not either.
        """
        if not self.knows([key]):
            raise RefereeGone
        found: dict[str, Any] = self._ask("compare", _size(notes), starts=False, key=key, notes=notes, sets=sets)
        return found

    def close(self) -> None:
        """End its process."""
        if self._pool:
            self._pool.kill()

    def _forget(self, keys: list[str]) -> None:
        self._ask("forget", 0, keys=keys)
        for key in keys:
            del self._kept[key]

    def _ask(self, op: str, size: int, starts: bool = True, **fields: Any) -> Any:
        if self._pool is None or not self._pool.lives():
            if not starts:
                raise RefereeGone
            self._pool = self._start()
        return self._pool.ask("comparison by the referee", COMPARE_S + size / SLOWEST, op, **fields)[0]


def truth_of(role: str) -> str:
    """The role of the processes that make the reference of a checkout."""
    return f"{role}{TRUTH}"


def _size(notes: Iterable[dict[str, Any]]) -> int:
    return sum(tensor["bytes"] for note in notes for tensor in note["tensors"])
