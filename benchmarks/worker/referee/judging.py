"""What the referee does: it keeps what is expected, and compares what arms hand over with it."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from . import handing


class Truths:
    """What is expected, by key, in the memory of this process alone.  numerics: kernels/numerics.py of the harness."""

    def __init__(self, numerics: ModuleType) -> None:
        self._numerics = numerics
        self._known: dict[str, tuple[list[Any], Any]] = {}

    def expect(self, key: str, notes: list[dict[str, Any]], tolerance: dict[str, float]) -> None:
        """Keep what is expected for each set of values; tolerance: the fields of kernels.spec.Tolerance."""
        self._known[key] = [handing.taken(note) for note in notes], self._numerics.Tolerance(**tolerance)

    def forget(self, keys: list[str]) -> None:
        """Free what is not needed any more."""
        for key in keys:
            self._known.pop(key, None)

    def compare(self, key: str, notes: list[dict[str, Any]], sets: list[int]) -> dict[str, Any]:
        """The largest errors of an arm's outputs, one for each copy of the inputs; why: "", or what is wrong first.

        sets: the set of values of each copy.  stale: all are right for the other set.
        """
        expected, tolerance = self._known[key]
        outputs = [handing.taken(note) for note in notes]
        return judged(self._numerics, outputs, expected, tolerance, sets)


def judged(
    numerics: Any, outputs: Sequence[Any], expected: Sequence[Any], tolerance: Any, sets: Sequence[int]
) -> dict[str, Any]:
    """What Truths.compare says, of outputs and references in this process.  numerics: kernels/numerics.py."""
    truths = [expected[one] for one in sets]
    results = numerics.compare_all(list(zip(outputs, truths, strict=True)), tolerance)
    wrong = [(index, result.why) for index, result in enumerate(results) if not result.ok]
    copy = f" (copy {wrong[0][0]} of {len(results)})" if wrong and wrong[0][0] else ""
    others = zip(outputs, sets, strict=True) if wrong and len(expected) > 1 else ()
    stale = [numerics.compare(out, expected[1 - one], tolerance).ok for out, one in others]
    return {
        "norm": max(one.norm for one in results),
        "peak": max(one.peak for one in results),
        "why": f"{wrong[0][1]}{copy}" if wrong else "",
        "stale": bool(stale) and all(stale),
    }
