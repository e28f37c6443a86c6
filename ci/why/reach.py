"""Which of the files that differ an operator can depend on, and how likely each is the cause of a change."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.reach.names import Unreadable
from benchmarks.reach.operators import compared, declared
from benchmarks.reach.tree import SourceTree

OWN, USED, UNSEEN = 3.0, 1.0, 0.1
"""Weights: a file of the operator's own folder; one that it imports, directly or not; any other file of the packages
with kernels, where it is not known what imports what.  Only their order counts."""


def weights(operator: str, changed: Iterable[str], base: SourceTree, head: SourceTree) -> dict[str, float]:
    """By path, for the changed files (from the root) that the operator can come from in base or head."""
    sides, reach = (base, head), compared(base, head)
    if reach.unknown or operator not in {*reach.same, *reach.differing}:
        return {name: UNSEEN for name in changed if any(side.listed(name) for side in sides)}
    homes = {part for side in sides for part in _homes(side, operator)}
    reached = set(reach.differing.get(operator, ()))
    return {name: OWN if _within(name, homes) else USED for name in changed if name in reached}


def _homes(side: SourceTree, operator: str) -> tuple[str, ...]:
    """Where a side declares the operator: folders, or modules without .py."""
    try:
        return declared(side).get(operator, ())
    except (Unreadable, ValueError, SyntaxError):
        return ()


def _within(name: str, parts: Iterable[str]) -> bool:
    return any(name == f"{part}.py" or name.startswith(f"{part}/") for part in parts)
