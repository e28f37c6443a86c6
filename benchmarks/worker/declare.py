"""What a checkout declares, as JSON values: every kernel, its cases and costs, and every module that failed."""

from __future__ import annotations

import importlib
import importlib.abc
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..channel import text
from ..naming import contract
from . import libraries
from .failures import first_line

COSTS = ("flops", "hbm_bytes", "link_bytes", "payload_bytes")
"""Fields of kernels.spec.Cost."""

Declaration = dict[str, Any]
"""A kernel's declaration as JSON values."""


class Refusal(importlib.abc.MetaPathFinder):
    """Makes the import of some modules fail with a reason: they ended or hung a process before."""

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons = reasons

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in self.reasons:
            raise ImportError(self.reasons[fullname])


def declarations(
    checkout: Path,
    import_marker: Path,
    refuse: dict[str, str],
    place: Mapping[str, Any],
    protocol: Mapping[str, Any],
    only: str = "",
) -> dict[str, Any]:
    """{"kernels": {name: declaration}, "modules": {name: module}, "broken": [{"module", "reason", "detail"}]}.

    import_marker: a file that always names the module being imported, in case it ends the process.
    place: world is filled in per case.  only: this module alone; what it imports is imported.
    """
    registry = contract("registry")
    spec = contract("spec")
    refusal = Refusal(dict(refuse))
    sys.meta_path.insert(0, refusal)
    packages = registry.listed_packages(checkout)
    if only:
        registry._modules = lambda packages, broken: iter((only,))  # in every version since the first of 2026-11
    each = [(only, _imported(only, refusal))] if only else _import_all(packages, registry, import_marker, refusal)
    modules = {name: module for name, module in each if module is not None}
    found = registry.discover(packages)
    homes = {kernel.name: name for name, module in modules.items() for kernel in _kernels_of(module, spec)}
    broken = [_broken(b.module, b.reason, b.traceback) for b in found.broken]
    kernels = {}
    for name, kernel in found.kernels.items():
        try:
            kernels[name] = _declaration(kernel, spec, place, protocol)
        except Exception as error:
            why = f"the declaration of {name} cannot be read: {type(error).__name__}: {first_line(error)}"
            broken.append(_broken(homes[name], why, traceback.format_exc()))
    return {"kernels": kernels, "modules": {name: homes[name] for name in kernels}, "broken": broken}


def _kernels_of(module: Any, spec: ModuleType) -> list[Any]:
    """The kernels in a module; what a module has put in its own place may be no module."""
    return [value for value in getattr(module, "__dict__", {}).values() if isinstance(value, spec.Kernel)]


def _broken(module: str, reason: str, detail: str) -> dict[str, str]:
    return {"module": module, "reason": text.sentence(reason), "detail": text.lines(detail)}


def _import_all(
    packages: Sequence[str], registry: ModuleType, import_marker: Path, refusal: Refusal
) -> Iterator[tuple[str, ModuleType]]:
    """Import module by module, naming each before; one that raises SystemExit and the like is refused from then on."""
    for package in packages:
        import_marker.write_text(package)
        found = _imported(package, refusal)
        if found is not None:
            yield package, found
        for name in _modules_of(package, found, registry):
            import_marker.write_text(name)
            module = _imported(name, refusal)
            if module is not None:
                yield name, module


def _modules_of(package: str, module: ModuleType | None, registry: ModuleType) -> list[str]:
    """Modules of a package that may declare kernels.  A registry before 2026-11-22 lists those that never do."""
    if module is not None and hasattr(registry, "modules_of"):
        return list(registry.modules_of(module))
    never = registry.INFRASTRUCTURE if package == "kernels" and hasattr(registry, "INFRASTRUCTURE") else ()
    found = pkgutil.iter_modules(getattr(module, "__path__", []))
    return [f"{package}.{info.name}" for info in found if info.name not in never]


def _imported(name: str, refusal: Refusal) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except Exception:
        return None  # kernels.registry gets the same exception and reports it
    except BaseException as error:
        refusal.reasons[name] = f"the import raised {type(error).__name__}: {first_line(error)}"
        return None


def _declaration(kernel: Any, spec: ModuleType, place: Mapping[str, Any], protocol: Mapping[str, Any]) -> Declaration:
    terms = {**protocol, "method": getattr(kernel, "protocol", None)}
    digest = getattr(kernel, "definition_digest", None) or kernel.yardstick  # its name before 2026-11-22
    costs: dict[str, dict[str, int]] = {}
    cost_errors = {}
    for case in kernel.cases:
        try:
            cost = kernel.function("cost")(case.at(spec.Place(**{**place, "world": case.world})))
            costs[case.name] = {name: int(getattr(cost, name)) for name in COSTS}
        except Exception as error:
            cost_errors[case.name] = f"cost: {type(error).__name__}: {first_line(error)}"
    return {
        "kernel": kernel.name,
        "doc": kernel.doc,
        "backends": list(kernel.backends),
        "baselines": list(kernel.baselines),
        "cases": [{**c.describe(), "tier": c.tier} for c in kernel.cases],
        "yardstick": digest(terms),
        "case_yardsticks": {case.name: digest(terms, case) for case in kernel.cases},
        "costs": costs,
        "cost_errors": cost_errors,
        "method": getattr(kernel, "protocol", None),
        "tuned": [name for name, one in kernel.backends.items() if getattr(one, "tuned", None)],
        "knobs": {name: _knobs(backend) for name, backend in kernel.backends.items()},
        "libraries": libraries.of_backends(kernel.backends),
        "first_call_s": {name: float(getattr(one, "first_call_s", 0.0)) for name, one in kernel.backends.items()},
    }


def _knobs(backend: Any) -> list[str]:
    """Names of the arguments that --set and a sweep may set."""
    return [parameter.name for parameter in inspect.signature(backend.build).parameters.values()][2:]
