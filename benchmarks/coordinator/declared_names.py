"""Names of the kernels that a checkout declares, read from its source without importing anything.

An import takes 10 s and more, a misspelt name is refused at once.  What cannot be read for certain (a name that is
computed, a class derived from Kernel) gives None, and the import decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.coordinator.checkouts import Checkout, listed_packages
from benchmarks.plan import unknown_kernel
from benchmarks.reach.sources import KERNEL, Unreadable, names_in


def refuse_unknown(asked: Sequence[str], checkouts: Iterable[Checkout]) -> None:
    """UsageError for a name that certainly no checkout declares."""
    if not asked:
        return
    known: set[str] = set()
    for checkout in checkouts:
        names = declared_names(checkout.path, listed_packages(checkout))
        if names is None:
            return
        known |= names
    for name in asked:
        if name not in known:
            raise unknown_kernel(name, sorted(known))


def declared_names(root: Path, packages: Sequence[str]) -> set[str] | None:
    """Every name that a source file beside or below the packages gives to a Kernel; None if one is not certain."""
    sources: list[str] = []
    for top in {package.partition(".")[0] for package in packages}:
        if not (root / top).is_dir():
            return None
        try:
            sources += [file.read_text(encoding="utf-8") for file in (root / top).rglob("*.py")]
        except (OSError, ValueError):
            return None
    try:
        return {name for source in sources if KERNEL in source for name in names_in(source)}
    except (Unreadable, ValueError, SyntaxError):
        return None
