"""Find every declared kernel, one module at a time: a module that fails takes only itself down."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import traceback
from collections.abc import Iterable, Iterator
from types import ModuleType

from .project import listed_packages
from .spec import SPEC_VERSION, DeclarationError, Kernel

INFRASTRUCTURE = {"spec", "project", "registry", "hardware", "numerics", "symmetric_heap"}
"""Public modules of the package `kernels` that are not operators; for all others see `declares`."""


__all__ = ["INFRASTRUCTURE", "Broken", "Registry", "declares", "discover", "listed_packages", "modules_of"]


@dataclasses.dataclass(frozen=True)
class Broken:
    """A module that could not be listed: its name, the first cause in one sentence, the traceback."""

    module: str
    reason: str
    traceback: str


@dataclasses.dataclass(frozen=True)
class Registry:
    """All kernels by name, and every module that failed with its reason."""

    kernels: dict[str, Kernel]
    broken: tuple[Broken, ...]

    def __getitem__(self, name: str) -> Kernel:
        if name not in self.kernels:
            raise KeyError(
                f"no kernel {name!r}; known: {', '.join(sorted(self.kernels)) or 'none'}"
                + (f"; broken modules: {', '.join(b.module for b in self.broken)}" if self.broken else "")
            )
        return self.kernels[name]


def discover(packages: Iterable[str] = ("kernels",)) -> Registry:
    """Import every module of the packages and collect the kernels they declare, in name order."""
    kernels: dict[str, Kernel] = {}
    broken: list[Broken] = []
    for name in _modules(packages, broken):
        try:
            module = importlib.import_module(name)
            found = [v for v in vars(module).values() if isinstance(v, Kernel)]
            for kernel in found:
                _admit(kernel, module.__name__, module.__doc__ or "", kernels)
        except Exception as error:  # any failure of foreign code is a counted, visible result
            broken.append(_broken(name, error))
    return Registry(dict(sorted(kernels.items())), tuple(broken))


def declares(package: str, name: str) -> bool:
    """Whether the module `name` of a package may declare kernels.

    A leading underscore marks modules that do not, in every package; so does INFRASTRUCTURE in the package `kernels`.
    """
    return not name.startswith("_") and not (package == "kernels" and name in INFRASTRUCTURE)


def modules_of(package: ModuleType) -> Iterator[str]:
    """Full names of the modules directly inside an imported package that may declare kernels."""
    for info in pkgutil.iter_modules(getattr(package, "__path__", [])):
        if declares(package.__name__, info.name):
            yield f"{package.__name__}.{info.name}"


def _modules(packages: Iterable[str], broken: list[Broken]) -> Iterator[str]:
    for name in packages:
        try:
            package = importlib.import_module(name)
        except Exception as error:
            broken.append(_broken(name, error))
            continue
        yield name
        yield from modules_of(package)


def _broken(module: str, error: Exception) -> Broken:
    """The module whose import raised the error that is being handled."""
    return Broken(module, f"{type(error).__name__}: {_first_line(error)}", traceback.format_exc())


def _admit(kernel: Kernel, module: str, doc: str, kernels: dict[str, Kernel]) -> None:
    if kernel.spec_version > SPEC_VERSION:
        raise DeclarationError(
            f"kernel {kernel.name!r} in {module} is written for spec version {kernel.spec_version}; "
            f"this checkout knows up to {SPEC_VERSION}"
        )
    if kernels.get(kernel.name, kernel) is not kernel:
        raise DeclarationError(f"kernel {kernel.name!r} in {module} is declared by another module already")
    kernel.check()
    kernel.doc = doc.strip()
    kernels[kernel.name] = kernel


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
