"""Declared experiments: every Study in a module of this folder (benchmarks/studies/types.py)."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from benchmarks.studies.types import Study, StudyError


@functools.cache
def studies() -> dict[str, Study]:
    """Every declared study by its name, in the order of names."""
    modules = [importlib.import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__)]
    found = [one for module in modules for one in vars(module).values() if isinstance(one, Study)]
    return {study.name: study for study in sorted(found, key=lambda one: one.name)}


def study(name: str) -> Study:
    """The study of that name; StudyError lists those there are."""
    if name not in studies():
        raise StudyError(f"no study {name!r}; there are: {', '.join(studies())}")
    return studies()[name]
