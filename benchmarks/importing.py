"""Modules changed as they are imported, in a process that runs other people's code.  Standard library only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Change = Callable[[ModuleType], None]
Choose = Callable[[str], "Change | None"]


class ChangingFinder(MetaPathFinder):
    """Finds what the other finders find, and has some modules changed right after they are executed."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module that is to be changed; None leaves all others to the other finders."""
        change = self._choose(name)
        if change is None:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None and spec.loader is not None:
                spec.loader = ChangingLoader(spec.loader, change)  # type: ignore[assignment]
                return spec
        return None


class ChangingLoader(Loader):
    """A loader that changes the module when it has been executed; in all else it is the one that it has."""

    def __init__(self, loader: Any, change: Change) -> None:
        self._loader, self._change = loader, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the loader does it."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Execute it, then change it."""
        self._loader.exec_module(module)
        self._change(module)


@contextmanager
def changing(choose: Choose) -> Iterator[None]:
    """Change modules that are imported inside, and those that are there already."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and (change := choose(name)):
            change(module)
    finder = ChangingFinder(choose)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
