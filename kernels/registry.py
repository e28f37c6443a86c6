"""Find every declared kernel, one module at a time: a module that fails takes only itself down."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import tomllib
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernels.spec import SPEC_VERSION, DeclarationError, Kernel

INFRASTRUCTURE = {"spec", "registry", "hardware", "numerics", "symmetric_heap"}
"""Modules of this package that declare no kernel."""


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


def listed_packages(root: Path) -> list[str]:
    """The packages under [tool.ridgeline] kernels in the project's pyproject.toml; ["kernels"] without one."""
    path = root / "pyproject.toml"
    if not path.is_file():
        return ["kernels"]
    table = tomllib.loads(path.read_text()).get("tool", {}).get("ridgeline", {})
    packages = table.get("kernels", ["kernels"])
    if not (isinstance(packages, list) and packages and all(isinstance(p, str) for p in packages)):
        raise DeclarationError(f"{path}: [tool.ridgeline] kernels is {packages!r}; it must be a list of package names")
    return packages


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
            broken.append(Broken(name, f"{type(error).__name__}: {_first_line(error)}", traceback.format_exc()))
    return Registry(dict(sorted(kernels.items())), tuple(broken))


def _modules(packages: Iterable[str], broken: list[Broken]) -> Iterator[str]:
    for package_name in packages:
        try:
            package = importlib.import_module(package_name)
        except Exception as error:
            broken.append(Broken(package_name, f"{type(error).__name__}: {_first_line(error)}", traceback.format_exc()))
            continue
        yield package_name
        for info in pkgutil.iter_modules(getattr(package, "__path__", [])):
            if not (package_name == "kernels" and info.name in INFRASTRUCTURE):
                yield f"{package_name}.{info.name}"


def _admit(kernel: Kernel, module: str, doc: str, kernels: dict[str, Kernel]) -> None:
    if kernel.spec_version > SPEC_VERSION:
        raise DeclarationError(
            f"kernel {kernel.name!r} in {module} is written for spec version {kernel.spec_version}; "
            f"this tree knows up to {SPEC_VERSION}"
        )
    if kernels.get(kernel.name, kernel) is not kernel:
        raise DeclarationError(f"kernel {kernel.name!r} in {module} is declared by another module already")
    kernel.check()
    kernel.doc = doc.strip()
    kernels[kernel.name] = kernel


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
