"""What a sweep could try of a kernel: for each case and backend the knobs in use, their rule and the candidates."""

from __future__ import annotations

import dataclasses
import fnmatch
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..naming import contract
from .failures import Refused, first_line

Json = dict[str, Any]
"""A JSON object."""


def listed(checkout: Path, kernel: str, cases: Sequence[str], backends: Sequence[str], place: Json) -> list[Json]:
    """One entry for each case and backend that fit.  place: arch and compute_units, as in kernels.spec.Place.

    config and candidates are all knobs of a launch; overrides: of each candidate, what differs from config.
    """
    registry, spec = contract("registry"), contract("spec")
    found = registry.discover(registry.listed_packages(checkout)).kernels
    if kernel not in found:
        raise Refused("error", f"no kernel {kernel!r}; known: {', '.join(sorted(found)) or 'none'}")
    declared = found[kernel]
    _known("case", cases, [case.name for case in declared.cases])
    _known("backend", backends, list(declared.backends))
    parameters = {name: _parameters(backend) for name, backend in declared.backends.items()}
    return [
        _entry(
            declared,
            case,
            case.at(spec.Place(world=case.world, device="meta", **place)),
            backend,
            parameters[backend.name],
        )
        for case in declared.cases
        if not cases or any(fnmatch.fnmatchcase(case.name, pattern) for pattern in cases)
        for backend in declared.backends.values()
        if not backends or backend.name in backends
    ]


def _known(what: str, asked: Sequence[str], names: Sequence[str]) -> None:
    for pattern in asked:
        if not fnmatch.filter(names, pattern):
            raise Refused("error", f"no {what} fits {pattern!r}; known: {', '.join(names)}")


def _entry(kernel: Any, case: Any, placed: Any, backend: Any, parameters: Sequence[inspect.Parameter]) -> Json:
    about = {"kernel": kernel.name, "case": case.name, "backend": backend.name, "baseline": backend.baseline}
    about |= {"world": case.world, "tier": case.tier, "dtype": case.dtype, "dims": dict(case.dims)}
    about |= {"cost": _cost(kernel, placed)}
    knobs = {parameter.name: _knob(parameter) for parameter in parameters}
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}
    try:
        return about | {"knobs": knobs, "why": "", **_choices(backend, placed, defaults)}
    except Exception as error:  # Unsupported here, or a rule that fails: either way nothing can be tried
        nothing = {"config": None, "rule": None, "tuned": None, "table": None, "candidates": [], "overrides": []}
        kind = "" if type(error).__name__ == "Unsupported" else f"{type(error).__name__}: "
        return about | {"knobs": knobs, "why": kind + first_line(error), **nothing}


def _cost(kernel: Any, placed: Any) -> Json | None:
    """What a call must do, by the declaration; None where that fails."""
    try:
        return dataclasses.asdict(kernel.function("cost")(placed))
    except Exception:  # said by the listing of the declaration
        return None


def _choices(backend: Any, placed: Any, defaults: Json) -> Json:
    arch = placed.place.arch
    config = {**defaults, **(backend.config(placed, arch) if backend.config else {})}
    propose = getattr(backend, "candidates", None)  # a checkout before 2026-12 has no such field
    full = [{**defaults, **one} for one in propose(placed, arch)] if propose else []
    return {
        "config": config,
        **_tuned(getattr(backend, "tuned", None), placed, arch, defaults),
        "table": _table(backend, placed, arch),
        "candidates": full,
        "overrides": [{name: value for name, value in one.items() if config.get(name) != value} for one in full],
    }


def _tuned(table: Any, placed: Any, arch: str, defaults: Json) -> Json:
    """The rule without the table, and where an entry of the case is in it."""
    if table is None:
        return {"rule": None, "tuned": None}
    rule = {**defaults, **table.rule(placed, arch)}
    where = {"file": table.file, "section": table.section, "key": table.key(placed), "elements": list(table.elements)}
    return {"rule": rule, "tuned": where}


def _table(backend: Any, placed: Any, arch: str) -> Json | None:
    """What `ridgeline tune` must know to write an entry; None without a table, or in a checkout before 2026-12."""
    if getattr(backend, "tuned", None) is None:
        return None
    found: Json | None = contract("_shared.tuning").described(backend, placed, arch)
    return found


def _parameters(backend: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(backend.build).parameters.values())[2:]


def _knob(parameter: inspect.Parameter) -> Json:
    """Default (null without one) and type of a knob, by its annotation, or else by its default."""
    has = parameter.default is not parameter.empty
    written = parameter.annotation
    known = written if isinstance(written, str) else getattr(written, "__name__", "")
    kind = known if written is not parameter.empty else type(parameter.default).__name__ if has else ""
    return {"default": parameter.default if has else None, "type": kind, "required": not has}
