"""Knobs: the tables of tuned ones, the candidates of a sweep, and all knobs of one launch.

tuned.toml, beside an operator's config.py, is written by `ridgeline tune`, or by hand: a table of knobs for each
architecture and key (kernels.spec.Tuned), and in it, if it was confirmed by a measurement, a table PROVENANCE.
"""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kernels._shared.libraries import launch_module
from kernels.spec import Backend, Case, Compilation, Kernel, Tuned

PROVENANCE = "confirmed"
"""The table in an entry that says where, when and by how much it won; no knob."""

ENTRY_BYTES = 2
"""Size of the elements for which an entry gives the knobs that count elements."""


def read_tuned(config_file: str) -> dict[str, Any]:
    """The tables of tuned.toml beside a config.py, by arch and key; no provenance.

    They hold what we have measured and nothing else.
    """
    return _knobs_only(tomllib.loads(Path(tuned_file(config_file)).read_text(encoding="utf-8")))


def tuned_file(config_file: str) -> str:
    """The path of tuned.toml beside a config.py."""
    return str(Path(config_file).with_name("tuned.toml"))


def _knobs_only(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _knobs_only(value) if isinstance(value, dict) else value
        for name, value in table.items()
        if name != PROVENANCE
    }


def tuned_knobs(table: Tuned, case: Case, arch: str) -> dict[str, Any]:
    """The knobs of a case: those of its entry in the table, or by the table's rule."""
    return dict(_entry(table, [*_table_names(table, arch), table.key(case)]) or table.rule(case, arch))


def first_then(chosen: dict[str, Any], others: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The present choice, then the others, without repeats."""
    found = [chosen]
    for knobs in others:
        if knobs not in found:
            found.append(knobs)
    return found


def without(knobs: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The other knobs."""
    return {name: value for name, value in knobs.items() if name not in names}


def all_knobs(backend: Backend, case: Case, arch: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """All knobs of a launch: the backend's defaults, then those of config(), then the overrides."""
    return {**(backend.build.__kwdefaults__ or {}), **backend.knobs(case, arch, overrides)}


def compiled_ahead(
    kernel: Kernel, backend: str, load: Callable[[], Any], language: str = "Triton", **fixed: Any
) -> None:
    """Declare what a backend compiles: the one kernel that the case launches, with the knobs of config().

    Overrides go over these, and `fixed`, which no caller can change, over all.
    """

    @kernel.isa(backend)
    def compilations(case: Case, arch: str, **overrides: Any) -> list[Compilation]:
        chosen = all_knobs(kernel.backends[backend], case, arch, overrides)
        return [launch_module(load).compilation(case, arch, {**chosen, **fixed})]


def points(backend: Backend, case: Case, arch: str) -> list[dict[str, Any]]:
    """The candidates of a backend with every knob given, so that none depends on what config() says now.

    The present choice comes first; none for a backend without candidates.
    """
    tried = backend.candidates(case, arch) if backend.candidates else []
    defaults = backend.build.__kwdefaults__ or {}
    return first_then({**defaults, **tried[0]}, ({**defaults, **knobs} for knobs in tried)) if tried else []


def described(backend: Backend, case: Case, arch: str) -> dict[str, Any] | None:
    """What `ridgeline tune` must know of a backend's table for a case; None without one.

    file; table: names of the tables around the key; key; entry: that of the file, {} if there is none; rule: the knobs
    without it; defaults: of the backend; scale: by knob, what a launch's value is multiplied by in an entry.
    """
    place = backend.tuned
    if place is None:
        return None
    table = _table_names(place, arch)
    return {
        "file": place.file,
        "table": table,
        "key": place.key(case),
        "entry": _entry(place, [*table, place.key(case)]),
        "rule": place.rule(case, arch),
        "defaults": dict(backend.build.__kwdefaults__ or {}),
        "scale": dict.fromkeys(place.elements, case.itemsize / ENTRY_BYTES),
    }


def _table_names(table: Tuned, arch: str) -> list[str]:
    """Names of the tables around an entry."""
    return [table.section, arch] if table.section else [arch]


@functools.cache
def _tables(file: str) -> dict[str, Any]:
    return read_tuned(file)


def _entry(place: Tuned, names: Iterable[str]) -> dict[str, Any]:
    found = _tables(place.file)
    for name in names:
        found = found.get(name, {})
    return found


# Baselines that a sweep can turn a knob of, without becoming another yardstick.


Build = Callable[..., Callable[[], Any]]


def with_knobs(plain: Build, build: Build) -> Build:
    """`build`, with its keyword arguments as knobs, under the benchmark definition of `plain`.

    It must be `plain` where no knob is given: what the definition's digest covers is what is then timed.
    """
    build.__signature__ = inspect.signature(build)  # type: ignore[attr-defined]
    return functools.update_wrapper(build, plain)
