"""What the referee does: it keeps what is expected, and compares what arms hand over with it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from benchmarks.worker.referee import handing


class Truths:
    """What is expected, by key, in the memory of this process alone.  numerics: kernels/numerics.py of the harness."""

    def __init__(self, numerics: ModuleType) -> None:
        self._numerics = numerics
        self._known: dict[str, tuple[Any, Any]] = {}

    def expect(self, key: str, note: dict[str, Any], tolerance: dict[str, float]) -> None:
        """Keep what is expected; tolerance: the fields of kernels.spec.Tolerance."""
        self._known[key] = handing.taken(note), self._numerics.Tolerance(**tolerance)

    def forget(self, keys: list[str]) -> None:
        """Free what is not needed any more."""
        for key in keys:
            self._known.pop(key, None)

    def compare(self, key: str, notes: list[dict[str, Any]]) -> dict[str, Any]:
        """The largest errors of an arm's outputs, one for each copy of the inputs; why: "", or what is wrong first."""
        expected, tolerance = self._known[key]
        results = [self._numerics.compare(handing.taken(note), expected, tolerance) for note in notes]
        wrong = [(index, result.why) for index, result in enumerate(results) if not result.ok]
        copy = f" (copy {wrong[0][0]} of {len(results)})" if wrong and wrong[0][0] else ""
        why = f"{wrong[0][1]}{copy}" if wrong else ""
        return {"norm": max(one.norm for one in results), "peak": max(one.peak for one in results), "why": why}
