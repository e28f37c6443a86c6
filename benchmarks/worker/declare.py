"""What a checkout declares, as JSON values: every kernel, its cases and costs, and every module that failed."""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
import importlib
import importlib.metadata
import inspect
import json
import re
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..channel import Refused, first_line, lines, sentence
from ..naming import contract, our
from ..shapes import Json, JsonObject

COSTS = ("flops", "hbm_bytes", "link_bytes", "payload_bytes")
"""Fields of kernels.spec.Cost."""


def declarations(
    module: str, modules: Sequence[str], place: Json, protocol: Json, renamed: Mapping[str, str] | None = None
) -> JsonObject:
    """{"kernels": {name: declaration}, "homes": {name: modules}, "broken": [{"module", "reason", "detail"}]}.

    Of one module; what it imports is imported.  modules: of the checkout; homes: those that have the same kernel.
    place: world is filled in per case.  renamed: see under_current_names.
    """
    spec = contract("spec")
    try:
        importlib.import_module(module)
    except Exception:
        pass  # kernels.registry gets the same exception and reports it
    except BaseException as error:
        why = f"the import raised {type(error).__name__}: {first_line(error)}"
        return {"kernels": {}, "homes": {}, "broken": [_broken(module, why, traceback.format_exc())]}
    found = discovered([module])
    broken = [_broken(b.module, b.reason, b.traceback) for b in found.broken]
    kernels, homes = {}, {}
    for name, kernel in found.kernels.items():
        try:
            cases = under_current_names(kernel, renamed or {})
            name = kernel.name
            kernels[name] = _declaration(kernel, cases, spec, place, protocol)
            homes[name] = [one for one in modules if any(kernel is held for held in _held(sys.modules.get(one)))]
        except Exception as error:
            why = f"the declaration of {name} cannot be read: {type(error).__name__}: {first_line(error)}"
            broken.append(_broken(module, why, traceback.format_exc()))
    return {"kernels": kernels, "homes": homes, "broken": broken}


def discovered(modules: Iterable[str]) -> Any:
    """The registry of these modules alone."""
    registry = contract("registry")
    every, registry._modules = registry._modules, lambda packages, broken: iter(modules)  # in every version of it
    try:
        return registry.discover(())
    finally:
        registry._modules = every


def _held(module: Any) -> Iterable[Any]:
    """What a module has; what a module has put in its own place may be no module."""
    return getattr(module, "__dict__", {}).values()


def _broken(module: str, reason: str, detail: str) -> dict[str, str]:
    return {"module": module, "reason": sentence(reason), "detail": lines(detail)}


def _declaration(kernel: Any, names: Mapping[str, str], spec: ModuleType, place: Json, protocol: Json) -> JsonObject:
    """names: of the cases, by those that the declaration gives them."""
    terms = {**protocol, "method": getattr(kernel, "protocol", None)}
    digest = getattr(kernel, "definition_digest", None) or kernel.yardstick  # its name before 2026-11-22
    costs: dict[str, dict[str, int]] = {}
    cost_errors = {}
    cases = [(case, under_name(case, names[case.name])) for case in kernel.cases]
    for own, case in cases:
        try:
            cost = kernel.function("cost")(own.at(spec.Place(**{**place, "world": own.world})))
            costs[case.name] = {name: int(getattr(cost, name)) for name in COSTS}
        except Exception as error:
            cost_errors[case.name] = f"cost: {type(error).__name__}: {first_line(error)}"
    return {
        "kernel": kernel.name,
        "doc": kernel.doc,
        "backends": list(kernel.backends),
        "baselines": list(kernel.baselines),
        "cases": [{**case.describe(), "tier": case.tier} for _, case in cases],
        "yardstick": digest(terms),
        "case_yardsticks": {case.name: digest(terms, case) for _, case in cases},
        "terms": kernel.definition_terms() if hasattr(kernel, "definition_terms") else {},
        "stand_ins": [name for name, one in kernel.backends.items() if getattr(one, "stand_in", False)],
        "costs": costs,
        "cost_errors": cost_errors,
        "method": getattr(kernel, "protocol", None),
        "tuned": [name for name, one in kernel.backends.items() if getattr(one, "tuned", None)],
        "knobs": {name: list(_parameters(backend)) for name, backend in kernel.backends.items()},
        "libraries": {name: installed(getattr(one, "libraries", ())) for name, one in kernel.backends.items()},
        "first_call_s": {name: float(getattr(one, "first_call_s", 0.0)) for name, one in kernel.backends.items()},
    }


def _parameters(backend: Any) -> dict[str, inspect.Parameter]:
    """The arguments that --set and a sweep may set, by name."""
    return dict(list(inspect.signature(backend.build).parameters.items())[2:])


# Which libraries a kernel's backends call, as installed here: version, and where it came from; nothing is imported.


ORIGIN = "direct_url.json"
"""What an installer says about a distribution that did not come from an index (PEP 610)."""


def installed(distributions: Iterable[str]) -> dict[str, str]:
    """ "0.1.20.post1 (github.com/ROCm/aiter, e4048607)" by distribution, without what is not installed.

    A declaration before 2026-11-22 names none.
    """
    found = {}
    for name in distributions:
        try:
            one = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        origin = _origin(one.read_text(ORIGIN))
        found[name] = f"{one.version} ({origin})" if origin else str(one.version)
    return found


def _origin(text: str | None) -> str:
    """Repository and commit, or that it was built from a folder; never a path or a user of this machine."""
    try:
        told = json.loads(text or "{}")
    except ValueError:
        return ""
    if commit := told.get("vcs_info", {}).get("commit_id", "")[:8]:
        return f"{re.sub(r'^.*?//(?:[^/@]*@)?|[.]git$', '', told['url'])}, {commit}"
    return "built from a folder" if "dir_info" in told else "from a file" if told else ""


# What a sweep could try of a kernel: for each case and backend the knobs in use, their table and the candidates.


def listed(
    kernel: str, cases: Sequence[str], backends: Sequence[str], place: JsonObject, modules: Sequence[str]
) -> list[JsonObject]:
    """One entry for each case and backend that fit.  place: arch and compute_units, as in kernels.spec.Place.  modules:
    that may hold the kernel.

    config and candidates are all knobs of a launch.  knobs: their defaults, null without one.
    """
    spec, found = contract("spec"), discovered(modules).kernels
    if kernel not in found:
        raise Refused("error", f"no kernel {kernel!r}; known: {', '.join(sorted(found)) or 'none'}")
    declared = found[kernel]
    names = {"case": [case.name for case in declared.cases], "backend": list(declared.backends)}
    for what, asked in (("case", cases), ("backend", backends)):
        for pattern in asked:
            if not fnmatch.filter(names[what], pattern):
                raise Refused("error", f"no {what} fits {pattern!r}; known: {', '.join(names[what])}")
    return [
        _entry(declared, case, case.at(spec.Place(world=case.world, device="meta", **place)), backend)
        for case in declared.cases
        if not cases or any(fnmatch.fnmatchcase(case.name, pattern) for pattern in cases)
        for backend in declared.backends.values()
        if not backends or backend.name in backends
    ]


def _entry(kernel: Any, case: Any, placed: Any, backend: Any) -> JsonObject:
    parameters = _parameters(backend)
    defaults = {name: one.default for name, one in parameters.items() if one.default is not one.empty}
    about = {"kernel": kernel.name, "case": case.name, "backend": backend.name, "baseline": backend.baseline}
    about |= {"world": case.world, "tier": case.tier}
    about["knobs"] = {name: {"default": defaults.get(name)} for name in parameters}
    try:
        return about | {"why": "", **_choices(backend, placed, defaults)}
    except Exception as error:  # Unsupported here, or a rule that fails: either way nothing can be tried
        kind = "" if type(error).__name__ == "Unsupported" else f"{type(error).__name__}: "
        return about | {"why": kind + first_line(error), "config": None, "table": None, "candidates": []}


def _choices(backend: Any, placed: Any, defaults: JsonObject) -> JsonObject:
    """table: what `ridgeline tune` must know, null without one."""
    arch = placed.place.arch
    config = {**defaults, **(backend.config(placed, arch) if backend.config else {})}
    propose = getattr(backend, "candidates", None)  # a checkout before 2026-12 has no such field, nor a table
    full = [{**defaults, **one} for one in propose(placed, arch)] if propose else []
    tabled = getattr(backend, "tuned", None)
    table = contract("_shared.tuning").described(backend, placed, arch) if tabled else None
    return {"config": config, "table": table, "candidates": full}


# A declaration under the names that it has in head: what base called otherwise is compared, and not new and gone.
#
# The harness asks for the new names; the project's own functions see the case as base declares it, under its old name,
# for a table of tuned knobs may be looked up by it.


ANY = "-"
"""Stands for a backend or a case of which nothing is said: no declaration has this name."""


def under_current_names(kernel: Any, renamed: Mapping[str, str]) -> dict[str, str]:
    """Give a kernel and its backends their current names (kernels.project), and have `case` find cases by theirs.

    Returns the current names of the cases by the old ones.  What was deleted keeps its name, and so does what belongs
    to another kernel now.  A kernel that was given its names already stays as it is.
    """
    if vars(kernel).get("old_cases") is not None:
        return dict(kernel.old_cases)
    project = our("kernels.project")
    name_now = project.current_kernel(kernel.name, renamed)

    def current(backend: str, case: str) -> list[str]:
        parts: list[str] = project.current_name(f"{kernel.name}/{backend}/{case}", renamed).split("/")
        return parts if parts[0] == name_now else [name_now, backend, case]

    cases = {case.name: current(ANY, case.name)[2] for case in kernel.cases}
    backends = {backend: current(backend, ANY)[1] for backend in kernel.backends}
    old, find = {new: name for name, new in cases.items()}, kernel.case
    kernel.backends = {
        backends[name]: dataclasses.replace(one, name=backends[name]) for name, one in kernel.backends.items()
    }
    kernel.compilations = {backends[name]: declare for name, declare in kernel.compilations.items()}
    kernel.case = lambda name: find(old.get(name, name))
    kernel.name, kernel.old_cases = name_now, cases
    return cases


def import_kernel(module: str, name: str, renamed: Mapping[str, str]) -> Any:
    """The kernel of a module, under its current name."""
    kind = contract("spec").Kernel
    for value in vars(importlib.import_module(module)).values():
        if isinstance(value, kind):
            under_current_names(value, renamed)
            if value.name == name:
                return value
    raise RuntimeError(f"module {module} declares no kernel {name!r} any more")


def under_name(case: Any, name: str) -> Any:
    """The case under another name."""
    if case.name == name:
        return case
    made = copy.copy(case)
    object.__setattr__(made, "name", name)
    return made
