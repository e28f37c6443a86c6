"""What a tree declares, as JSON values: every kernel, its cases and costs, and every module that failed."""

from __future__ import annotations

import importlib
import importlib.abc
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.worker.failures import first_line


class Refusal(importlib.abc.MetaPathFinder):
    """Makes the import of some modules fail with a reason: they took a whole process down before."""

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons = reasons

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in self.reasons:
            raise ImportError(self.reasons[fullname])


def declarations(
    tree: Path, crumb: Path, refuse: dict[str, str], place: Mapping[str, Any], protocol: Mapping[str, Any]
) -> dict[str, Any]:
    """{"kernels": {name: declaration}, "modules": {name: module}, "broken": [{"module", "reason", "detail"}]}.

    crumb: a file that always names the module being imported, for the case that it ends the process.
    place: world is filled in per case.
    """
    registry = importlib.import_module("kernels.registry")
    spec = importlib.import_module("kernels.spec")
    refusal = Refusal(dict(refuse))
    sys.meta_path.insert(0, refusal)
    packages = registry.listed_packages(tree)
    modules = dict(_import_all(packages, registry.INFRASTRUCTURE, crumb, refusal))
    found = registry.discover(packages)
    homes = {
        value.name: name
        for name, module in modules.items()
        for value in vars(module).values()
        if isinstance(value, spec.Kernel)
    }
    return {
        "kernels": {name: _declaration(kernel, spec, place, protocol) for name, kernel in found.kernels.items()},
        "modules": {name: homes[name] for name in found.kernels},
        "broken": [{"module": b.module, "reason": b.reason, "detail": b.traceback} for b in found.broken],
    }


def _import_all(
    packages: Sequence[str], infrastructure: set[str], crumb: Path, refusal: Refusal
) -> Iterator[tuple[str, ModuleType]]:
    """Import module by module, naming each before; one that raises SystemExit and the like is refused from then on."""
    for name in _names(packages, infrastructure, crumb, refusal):
        crumb.write_text(name)
        module = _imported(name, refusal)
        if module is not None:
            yield name, module


def _names(packages: Sequence[str], infrastructure: set[str], crumb: Path, refusal: Refusal) -> Iterator[str]:
    for package in packages:
        yield package
        crumb.write_text(package)
        module = _imported(package, refusal)
        for info in pkgutil.iter_modules(getattr(module, "__path__", [])):
            if not (package == "kernels" and info.name in infrastructure):
                yield f"{package}.{info.name}"


def _imported(name: str, refusal: Refusal) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except Exception:
        return None  # kernels.registry meets the same exception and reports it
    except BaseException as error:
        refusal.reasons[name] = f"the import raised {type(error).__name__}: {first_line(error)}"
        return None


def _declaration(
    kernel: Any, spec: ModuleType, place: Mapping[str, Any], protocol: Mapping[str, Any]
) -> dict[str, Any]:
    terms = {**protocol, "method": getattr(kernel, "protocol", None)}
    costs, cost_errors = {}, {}
    for case in kernel.cases:
        try:
            cost = kernel.function("cost")(case.at(spec.Place(**{**place, "world": case.world})))
            costs[case.name] = {
                name: int(getattr(cost, name)) for name in ("flops", "hbm_bytes", "link_bytes", "payload_bytes")
            }
        except Exception as error:
            cost_errors[case.name] = f"cost: {type(error).__name__}: {first_line(error)}"
    return {
        "kernel": kernel.name,
        "doc": kernel.doc,
        "backends": list(kernel.backends),
        "baselines": list(kernel.baselines),
        "cases": [{**c.describe(), "tier": c.tier} for c in kernel.cases],
        "yardstick": kernel.yardstick(terms),
        "case_yardsticks": {case.name: kernel.yardstick(terms, case) for case in kernel.cases},
        "costs": costs,
        "cost_errors": cost_errors,
        "method": getattr(kernel, "protocol", None),
        "knobs": {name: _knobs(backend) for name, backend in kernel.backends.items()},
    }


def _knobs(backend: Any) -> list[str]:
    """Names of the arguments a sweep may set."""
    return [parameter.name for parameter in inspect.signature(backend.build).parameters.values()][2:]
