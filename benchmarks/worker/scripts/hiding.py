"""Our own modules out of a script's sight: a user's `benchmarks` or `kernels` package must not meet ours.

A measuring process has imported packages of ours by names that a user's repository may use for its own.  While the
script runs they are not in sys.modules and their folder is not on sys.path; `shown` brings them back for an import.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

HARNESS = Path(__file__).resolve().parents[3]
"""The folder from which our packages are imported."""

OURS = frozenset({__name__.partition(".")[0], "benchmarks", "kernels", "ci", "dashboards"})
"""Their names."""


class Hidden:
    """Our modules, put aside.  A context manager."""

    def __init__(self) -> None:
        self._ours: dict[str, ModuleType] = {}
        self._path: list[str] = []

    def __enter__(self) -> Hidden:
        self._path, sys.path[:] = list(sys.path), [one for one in sys.path if one != str(HARNESS)]
        self._put_aside()
        return self

    def __exit__(self, *_: object) -> None:
        self._bring_back()
        sys.path[:] = self._path

    def load(self, name: str) -> ModuleType:
        """A module of ours, imported while the script runs."""
        with self.shown():
            return importlib.import_module(name)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Ours in sight, and the user's of the same names not."""
        users = _taken(lambda name: name.partition(".")[0] in OURS)
        self._bring_back()
        sys.path.insert(0, str(HARNESS))
        try:
            yield
        finally:
            sys.path.remove(str(HARNESS))
            self._put_aside()
            sys.modules.update(users)

    def _put_aside(self) -> None:
        self._ours.update(_taken(_is_ours))

    def _bring_back(self) -> None:
        sys.modules.update(self._ours)


def _is_ours(name: str) -> bool:
    file = getattr(sys.modules[name], "__file__", None)
    return name.partition(".")[0] in OURS and bool(file) and Path(str(file)).is_relative_to(HARNESS)


def _taken(wanted: object) -> dict[str, ModuleType]:
    found = {name: module for name, module in sys.modules.items() if callable(wanted) and wanted(name)}
    for name in found:
        del sys.modules[name]
    return found
