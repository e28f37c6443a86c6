"""What a checkout declares, as JSON values: every kernel, its cases and costs, and every module that failed."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
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


def declarations(
    module: str, modules: Sequence[str], place: Mapping[str, Any], protocol: Mapping[str, Any]
) -> dict[str, Any]:
    """{"kernels": {name: declaration}, "homes": {name: modules}, "broken": [{"module", "reason", "detail"}]}.

    Of one module; what it imports is imported.  modules: of the checkout; homes: those that have the same kernel.
    place: world is filled in per case.
    """
    registry, spec = contract("registry"), contract("spec")
    registry._modules = lambda packages, broken: iter((module,))  # in every version since the first of 2026-11
    try:
        importlib.import_module(module)
    except Exception:
        pass  # kernels.registry gets the same exception and reports it
    except BaseException as error:
        why = f"the import raised {type(error).__name__}: {first_line(error)}"
        return {"kernels": {}, "homes": {}, "broken": [_broken(module, why, traceback.format_exc())]}
    found = registry.discover(())
    broken = [_broken(b.module, b.reason, b.traceback) for b in found.broken]
    kernels, homes = {}, {}
    for name, kernel in found.kernels.items():
        try:
            kernels[name] = _declaration(kernel, spec, place, protocol)
            homes[name] = [one for one in modules if any(kernel is held for held in _held(sys.modules.get(one)))]
        except Exception as error:
            why = f"the declaration of {name} cannot be read: {type(error).__name__}: {first_line(error)}"
            broken.append(_broken(module, why, traceback.format_exc()))
    return {"kernels": kernels, "homes": homes, "broken": broken}


def _held(module: Any) -> Iterable[Any]:
    """What a module has; what a module has put in its own place may be no module."""
    return getattr(module, "__dict__", {}).values()


def _broken(module: str, reason: str, detail: str) -> dict[str, str]:
    return {"module": module, "reason": text.sentence(reason), "detail": text.lines(detail)}


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
